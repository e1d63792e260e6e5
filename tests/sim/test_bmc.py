"""A BMC as those meet it who switch power through it, over a socket and in memory."""

import asyncio
import base64
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from backstay.seam.errors import TimedOut
from backstay.seam.transport import Response
from backstay.sim.bmc import (
    PASSWORD,
    USER,
    Bmc,
    Box,
    Build,
    Nobody,
    PowerState,
    Reset,
    Trouble,
    serving,
    swapped,
)
from tests.seam.worlds import World, in_memory, over_http
from tests.support.virtual import virtual_time

UUID = "4c4c4544-0043-4e10-8056-b4c04f4d3132"
SYSTEM = "/redfish/v1/Systems/1"
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"
TAKES = 3.0


class Rig:
    """One BMC, and somebody who asks it."""

    def __init__(self, world: World, bmc: Bmc, url: str) -> None:
        self.bmc = bmc
        self._world = world
        self._url = url

    async def ask(self, path: str, *, password: str = PASSWORD, **options: Any) -> Response:
        secret = base64.b64encode(f"{USER}:{password}".encode()).decode()
        headers = {"authorization": f"Basic {secret}"}
        request = self._world.request(self._url + path, headers=headers, **options)
        return await self._world.transport.request(request)

    async def get(self, path: str) -> Any:
        answer = await self.ask(path)
        assert answer.status == 200
        return msgspec.json.decode(answer.body)

    async def state(self) -> str:
        return str((await self.get(SYSTEM))["PowerState"])

    async def reset(self, kind: str) -> int:
        body = msgspec.json.encode({"ResetType": kind})
        return (await self.ask(RESET, method="POST", body=body)).status


@asynccontextmanager
async def rig(
    kind: Callable[[], Any] = in_memory, build: Build | None = None
) -> AsyncIterator[Rig]:
    async with kind() as world:
        bmc = Bmc(Box(), UUID, build or Build(takes=TAKES))
        async with serving(world.serve, bmc) as url:
            yield Rig(world, bmc, url)


def on_both(test: Callable[[Rig], Coroutine[Any, Any, None]]) -> Callable[[str], None]:
    async def in_a_world(kind: Callable[[], Any], takes: float) -> None:
        async with rig(kind, Build(takes=takes)) as made:
            await test(made)

    @pytest.mark.parametrize("kind", ["memory", "socket"])
    def run(kind: str) -> None:
        if kind == "memory":
            virtual_time(in_a_world)(in_memory, TAKES)
        else:
            asyncio.run(in_a_world(over_http, 0.05))

    return run


async def _until(made: Rig, state: PowerState) -> None:
    async with asyncio.timeout(10):
        while await made.state() != state:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)


@on_both
async def test_it_says_which_machine_it_switches_and_how(made: Rig) -> None:
    assert (await made.get("/redfish/v1/"))["Systems"] == {"@odata.id": "/redfish/v1/Systems"}
    [member] = (await made.get("/redfish/v1/Systems"))["Members"]
    found = await made.get(member["@odata.id"])
    assert (found["UUID"], found["PowerState"]) == (UUID, "On")
    action = found["Actions"]["#ComputerSystem.Reset"]
    assert action["target"] == RESET
    assert set(action["ResetType@Redfish.AllowableValues"]) == {"On", "ForceOff"}


@on_both
async def test_a_server_is_switched_off_and_on_again(made: Rig) -> None:
    assert await made.reset("ForceOff") == 204
    await _until(made, PowerState.OFF)
    assert not made.bmc.server.is_on
    assert await made.reset("On") == 204
    await _until(made, PowerState.ON)
    assert made.bmc.server.is_on


@on_both
async def test_whoever_has_no_password_learns_nothing(made: Rig) -> None:
    answer = await made.ask(SYSTEM, password="guessed")
    assert (answer.status, UUID.encode() in answer.body) == (401, False)
    assert answer.headers["www-authenticate"].startswith("Basic ")


@on_both
async def test_what_it_cannot_do_it_refuses(made: Rig) -> None:
    assert await made.reset("ForceRestart") == 400
    assert await made.reset("GracefulShutdown") == 400
    assert (await made.ask(f"{SYSTEM}/Bios")).status == 404
    assert made.bmc.server.is_on


@virtual_time
async def test_switching_takes_seconds_in_which_the_server_runs() -> None:
    async with rig() as made:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await made.reset("ForceOff")
        assert await made.state() == "PoweringOff"
        assert made.bmc.server.is_on
        await _until(made, PowerState.OFF)
        assert TAKES <= loop.time() - began < TAKES + 0.1


@virtual_time
async def test_to_switch_on_is_refused_while_it_goes_off() -> None:
    async with rig() as made:
        await made.reset("ForceOff")
        assert await made.reset("On") == 409
        await _until(made, PowerState.OFF)


@virtual_time
async def test_a_server_that_is_about_to_come_up_can_be_switched_off() -> None:
    async with rig() as made:
        made.bmc.server.switch_off()
        await made.reset("On")
        assert await made.state() == "PoweringOn"
        assert await made.reset("ForceOff") == 204
        await asyncio.sleep(2 * TAKES)
        assert not made.bmc.server.is_on


@pytest.mark.parametrize(("strict", "status"), [(False, 204), (True, 409)])
def test_some_refuse_what_is_so_already(strict: bool, status: int) -> None:
    @virtual_time
    async def story() -> None:
        async with rig(build=Build(repeats_are_errors=strict)) as made:
            assert await made.reset("On") == status

    story()


@virtual_time
async def test_one_that_is_stuck_accepts_everything_and_does_nothing() -> None:
    async with rig() as made:
        made.bmc.befall(Trouble.STUCK)
        assert await made.reset("ForceOff") == 204
        await asyncio.sleep(60)
        assert await made.state() == "On"


@virtual_time
async def test_one_that_lies_says_that_the_server_is_off() -> None:
    async with rig() as made:
        made.bmc.befall(Trouble.LIES)
        assert await made.state() == "Off"
        assert made.bmc.server.is_on
        made.bmc.befall(Trouble.WELL)
        assert await made.state() == "On"


@virtual_time
async def test_a_slow_one_has_done_it_when_its_answer_comes_too_late() -> None:
    async with rig() as made:
        made.bmc.befall(Trouble.SLOW, 60)
        with pytest.raises(TimedOut):
            await made.reset("ForceOff")
        assert not made.bmc.server.is_on


@virtual_time
async def test_what_is_held_up_is_overtaken_by_what_comes_later() -> None:
    async with rig() as made:
        made.bmc.befall(Trouble.HOLDS_UP, 60)
        with pytest.raises(TimedOut):
            await made.reset("ForceOff")
        assert await made.state() == "On"
        await made.reset("ForceOff")
        await _until(made, PowerState.OFF)
        await made.reset("On")
        await _until(made, PowerState.ON)
        await asyncio.sleep(60)
        assert await made.state() == "Off"


@pytest.mark.parametrize(("trouble", "status"), [(Trouble.REFUSES, 401), (Trouble.FAILS, 500)])
def test_one_in_trouble_says_so(trouble: Trouble, status: int) -> None:
    @virtual_time
    async def story() -> None:
        async with rig() as made:
            made.bmc.befall(trouble)
            assert (await made.ask(SYSTEM)).status == status
            assert await made.reset("ForceOff") == status
            assert made.bmc.server.is_on

    story()


@virtual_time
async def test_one_that_is_silent_answers_nothing() -> None:
    async with rig() as made:
        made.bmc.befall(Trouble.SILENT)
        with pytest.raises(TimedOut):
            await made.ask(SYSTEM)


@virtual_time
async def test_power_that_comes_back_by_itself_is_not_said_to_be_switched() -> None:
    class Told(Nobody):
        def switched(self, *, on: bool, by: str) -> None:
            told.append((on, by))

    told: list[tuple[bool, str]] = []
    async with rig() as made:
        made.bmc.onlooker = Told()
        made.bmc.switch(Reset.OFF, by="alice")
        await asyncio.sleep(TAKES)
        made.bmc.switch(Reset.ON, by="alice")
        made.bmc.server.switch_on()
        await asyncio.sleep(2 * TAKES)
        assert told == [(False, "alice")]


def test_swapped_bytes_are_swapped_back() -> None:
    assert swapped(swapped(UUID)) == UUID
    assert uuid.UUID(swapped(UUID)).bytes_le == uuid.UUID(UUID).bytes

"""What a controller answers over HTTP, and its pulse."""

import asyncio
import json
import math

import msgspec
import pytest

from backstay.kube.access import GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.record.callers import CANNOT_ASK, NO_TOKEN, Callers
from backstay.record.endpoints import (
    CLOSED,
    OPEN,
    ControllerStatus,
    HeldWorkload,
    NodeStatus,
    endpoints,
)
from backstay.record.metrics import Metrics
from backstay.record.pulse import Pulse
from backstay.seam import Seams
from backstay.seam.aiohttp_serve import AiohttpServe
from backstay.seam.aiohttp_transport import AiohttpTransport
from backstay.seam.serve import Answer, Inbound
from backstay.seam.tasks import Tasks
from backstay.seam.transport import Request
from backstay.sim.network import Network
from backstay.sim.world import World
from tests.support.exposition import parse
from tests.support.virtual import virtual_time

OK = b"ok\nLINSTOR's events are not heard.\n"


class Controller:
    """A ``Report`` that says what it is told to."""

    def __init__(self) -> None:
        self.problem = ""
        self.blindness = ""
        held = HeldWorkload("VirtualMachine/shop/db", "ProofMissing", "held", "confirm")
        self.trouble = (NodeStatus("n1", "Lost", "NodeLost", "n1 is lost.", "n1-1", (held,)),)

    def unhealthy(self) -> str:
        return self.problem

    def unready(self) -> str:
        return self.blindness

    def standing(self) -> tuple[str, ...]:
        return ("LINSTOR's events are not heard.",)

    def metrics(self) -> bytes:
        return Metrics(version="0.1.0").render()

    def status(self) -> ControllerStatus:
        return ControllerStatus(
            version="0.1.0", identity="a", mode="Observe", leading=True, leader="a", epoch=3,
            view_age=None, nodes={"Healthy": 2, "Lost": 1}, trouble=self.trouble,
        )  # fmt: skip


async def ask(path: str, report: Controller | None = None, method: str = "GET") -> Answer:
    handler = endpoints(report or Controller())
    return await handler(Inbound(method=method, path=path))


async def test_a_sound_controller_is_healthy_and_ready() -> None:
    for path in ("/healthz", "/readyz"):
        answer = await ask(path)
        assert (answer.status, answer.body) == (200, OK)


async def test_a_controller_that_should_be_restarted_says_why() -> None:
    report = Controller()
    report.problem = "the loop was held up for 12 s."
    answer = await ask("/healthz", report)
    assert answer.status == 500
    assert isinstance(answer.body, bytes)
    assert answer.body.startswith(b"the loop was held up for 12 s.\n")
    assert (await ask("/readyz", report)).status == 200


async def test_a_view_that_is_not_complete_is_no_reason_to_restart() -> None:
    report = Controller()
    report.blindness = "nodes have not been listed yet."
    assert (await ask("/readyz", report)).status == 503
    assert (await ask("/healthz", report)).status == 200


async def test_metrics_are_prometheus_text() -> None:
    answer = await ask("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert isinstance(answer.body, bytes)
    parse(answer.body)


async def test_status_tells_what_is_held_and_what_to_do() -> None:
    answer = await ask("/status")
    assert isinstance(answer.body, bytes)
    said = json.loads(answer.body)
    assert said["nodes"] == {"Healthy": 2, "Lost": 1}
    assert said["viewAge"] is None
    assert said["trouble"][0]["held"][0]["next"] == "confirm"


async def test_a_view_without_any_age_does_not_break_the_json() -> None:
    blind = msgspec.structs.replace(Controller().status(), view_age=math.inf)
    assert json.loads(msgspec.json.encode(blind))["viewAge"] is None


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_nothing_can_be_changed(method: str) -> None:
    answer = await ask("/status", method=method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


async def test_head_is_get_without_a_body() -> None:
    answer = await ask("/status", method="HEAD")
    assert (answer.status, answer.body) == (200, b"")


def test_every_path_is_either_open_or_closed() -> None:
    assert {*OPEN} == {"/healthz", "/readyz"}
    assert {*CLOSED} == {"/metrics", "/status"}


async def ask_from_afar(path: str, method: str = "GET", authorization: str = "") -> Answer:
    """Where callers must be allowed to, and with an API server that is not there."""
    client = KubeClient(Network().transport, GivenAccess("https://api:6443", Grant()))
    async with Tasks("test") as tasks:
        handler = endpoints(Controller(), Callers(client, tasks))
        headers = {"authorization": authorization} if authorization else {}
        return await handler(Inbound(method=method, path=path, headers=headers))


@pytest.mark.parametrize("path", CLOSED)
async def test_who_shows_no_token_learns_nothing_from_afar(path: str) -> None:
    answer = await ask_from_afar(path)
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert answer.body == f"{NO_TOKEN.sentence}\n".encode()
    assert (await ask_from_afar(path, "HEAD")).status == 401


@pytest.mark.parametrize("path", CLOSED)
async def test_a_token_that_cannot_be_asked_about_opens_nothing(path: str) -> None:
    answer = await ask_from_afar(path, authorization="Bearer x")
    assert (answer.status, answer.body) == (503, f"{CANNOT_ASK.sentence}\n".encode())


@pytest.mark.parametrize("path", OPEN)
async def test_probes_need_no_token(path: str) -> None:
    answer = await ask_from_afar(path)
    assert (answer.status, answer.body) == (200, OK)


@pytest.mark.parametrize("path", ["/", "//metrics", "/metrics/", "/status/..", "/Metrics"])
async def test_no_other_spelling_of_a_path_leads_past_the_door(path: str) -> None:
    assert (await ask_from_afar(path)).status == 404


async def test_a_path_that_is_not_there_names_those_that_are() -> None:
    answer = await ask("/metricz")
    assert answer.status == 404
    assert b"/metrics" in (answer.body if isinstance(answer.body, bytes) else b"")


async def test_the_handler_answers_over_a_socket() -> None:
    transport = AiohttpTransport()
    listener = await AiohttpServe().listen(endpoints(Controller()))
    try:
        url = f"{listener.url}/healthz"
        answer = await transport.request(Request(method="GET", url=url, timeout=5.0))
    finally:
        await listener.close()
        await transport.close()
    assert (answer.status, answer.body) == (200, OK)


@virtual_time
async def test_a_pulse_beats_every_other_second() -> None:
    pulse = Pulse()
    loop = asyncio.get_running_loop()
    assert pulse.silence(loop.time()) == math.inf
    async with Tasks("test") as tasks:
        tasks.spawn(pulse.run(), name="pulse")
        await asyncio.sleep(90.5)
        assert pulse.silence(loop.time()) == pytest.approx(0.5)
        assert pulse.worst == 0.0


def test_a_pulse_notes_by_how_much_the_process_was_late() -> None:
    pulse = Pulse()

    async def main(_: Seams) -> None:
        await pulse.run()

    with World(1) as world:

        async def scenario() -> None:
            process = world.start("controller", main)
            await asyncio.sleep(10.5)
            process.pause()
            await asyncio.sleep(5)
            process.resume()
            await asyncio.sleep(30)

        world.run(scenario())
    assert pulse.worst == pytest.approx(3.5)

"""What people have said, as it comes to be known."""

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from backstay.apis.backstay import (
    ConfigRow,
    ConfigSpec,
    ConfirmationRow,
    Disarmed,
    FencingSpec,
    PowerSpec,
    StormRelease,
)
from backstay.kube.access import GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.model.moments import Now
from backstay.model.policy import Mode
from backstay.sim.chance import Chance
from backstay.sim.clock import LoopClock
from backstay.sim.files import MemoryFiles
from backstay.sim.network import Network
from backstay.sources.operator import OperatorSource, policy_of
from backstay.sources.past import Past
from tests.support.virtual import virtual_time


def a_source_and_its_past(wall: LoopClock) -> tuple[OperatorSource, Past]:
    network, rng = Network(), Chance(1, "test")
    client = KubeClient(network.transport, GivenAccess("http://api", Grant(), origin="a test"))
    past = Past(client, MemoryFiles(), "", rng=rng)
    return OperatorSource(client, rng=rng, wall=wall, past=past), past


def a_source(wall: LoopClock) -> OperatorSource:
    return a_source_and_its_past(wall)[0]


async def test_confirmations_that_come_together_are_all_there_for_whoever_hears_of_one() -> None:
    source = a_source(LoopClock())
    heard: list[int] = []
    source.confirmed.subscribe(lambda _old, _new: heard.append(len(source.confirmations("n1"))))
    picture = source.confirmed.replacement()
    picture.add([word("first"), word("second")])
    for _ in picture.settle(version="7", as_of=0.0):
        pass
    assert heard == [2, 2]


async def test_what_was_there_when_the_api_had_gone_back_lapses_and_nothing_later() -> None:
    source, past = a_source_and_its_past(LoopClock())
    assert source.to_lapse() is None
    picture = source.confirmed.replacement()
    marked = msgspec.structs.replace(word("marked"), lapsed=True)
    picture.add([word("before"), marked, word("after", version="10")])
    for _ in picture.settle(version="10", as_of=0.0):
        pass
    assert source.to_lapse() == []
    assert {each.name for each in source.confirmations("n1") if each.lapsed} == {"marked"}
    past.inherit('{"highest": "900", "found": "9", "armed": ""}')
    assert {each.name for each in source.confirmations("n1") if each.lapsed} == {"before", "marked"}
    assert source.to_lapse() == [word("before")]


@virtual_time
async def test_what_was_said_until_some_moment_ends_then_without_any_news() -> None:
    wall = LoopClock()
    source, until = a_source(wall), (wall.now() + timedelta(seconds=10)).isoformat()
    picture = source.configs.replacement()
    picture.add([row(ConfigSpec(mode="Armed", disarmed=Disarmed(until=until, reason="work")))])
    for _ in picture.settle(version="7", as_of=0.0):
        pass
    modes = [source.policy.mode]
    await asyncio.sleep(11)
    modes.append(source.policy.mode)
    assert modes == [Mode.DISARMED, Mode.ARMED]


def word(name: str, *, version: str = "7") -> ConfirmationRow:
    return ConfirmationRow(
        key=name, uid=name, version=version, node="n1", node_uid="u", boot_id="b", by="ana",
        reason="its fuse has blown", last_renewal="", last_heartbeat="",
    )  # fmt: skip


END = datetime(2026, 11, 18, 12, tzinfo=UTC)


def at(ours: float, apis: float) -> Now:
    """So many seconds after the end by either clock."""
    return Now.by(END + timedelta(seconds=ours), END + timedelta(seconds=apis))


@pytest.mark.parametrize(
    ("now", "mode"),
    [
        (at(-1, -1), Mode.DISARMED),
        (at(3600, -1), Mode.DISARMED),
        (at(-1, 3600), Mode.DISARMED),
        (at(0, 0), Mode.ARMED),
        (at(1, 3600), Mode.ARMED),
        (Now.by(END, None), Mode.ARMED),
    ],
)
def test_who_has_disarmed_us_is_heeded_until_it_is_over_by_both_clocks(
    now: Now, mode: Mode
) -> None:
    config = row(ConfigSpec(mode="Armed", disarmed=Disarmed(until=END.isoformat(), reason="work")))
    assert policy_of(config, now).mode is mode


@pytest.mark.parametrize(("until", "mode"), [("", Mode.ARMED), ("monday", Mode.DISARMED)])
def test_an_end_that_cannot_be_read_never_comes_and_without_one_there_is_nothing_to_end(
    until: str, mode: Mode
) -> None:
    config = row(ConfigSpec(mode="Armed", disarmed=Disarmed(until=until, reason="work")))
    assert policy_of(config, at(3600, 3600)).mode is mode


@pytest.mark.parametrize(
    ("now", "lifted"),
    [(at(-1, -1), True), (at(-3600, 0), False), (at(0, -3600), False), (at(1, 1), False)],
)
def test_the_brake_on_storms_is_lifted_until_it_is_over_by_either_clock(
    now: Now, lifted: bool
) -> None:
    config = row(
        ConfigSpec(mode="Armed", storm_release=StormRelease(until=END.isoformat(), reason="a rack"))
    )
    assert bool(policy_of(config, now).storm_released) is lifted


def row(spec: ConfigSpec) -> ConfigRow:
    return ConfigRow(key="cluster", uid="u", version="7", spec=spec)


def test_power_is_switched_only_where_somebody_says_so_and_then_on_again() -> None:
    plain = ConfigRow("cluster", "u", "1", ConfigSpec())
    assert (policy_of(plain, at(0, 0)).power, policy_of(plain, at(0, 0)).power_on) == (False, True)
    power = PowerSpec(enabled=True, power_on=False)
    asked = ConfigRow("cluster", "u", "1", ConfigSpec(fencing=FencingSpec(power=power)))
    assert (policy_of(asked, at(0, 0)).power, policy_of(asked, at(0, 0)).power_on) == (True, False)

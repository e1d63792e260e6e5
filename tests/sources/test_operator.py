"""What people have said, as it comes to be known."""

from datetime import UTC, datetime, timedelta

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


async def test_confirmations_that_come_together_are_all_there_for_whoever_hears_of_one() -> None:
    network = Network()
    client = KubeClient(network.transport, GivenAccess("http://api", Grant(), origin="a test"))
    wall, rng = LoopClock(), Chance(1, "test")
    past = Past(client, MemoryFiles(), "", rng=rng)
    source = OperatorSource(client, rng=rng, wall=wall, past=past)
    heard: list[int] = []
    source.confirmed.subscribe(lambda _old, _new: heard.append(len(source.confirmations("n1"))))
    picture = source.confirmed.replacement()
    picture.add([word("first"), word("second")])
    for _ in picture.settle(version="7", as_of=0.0):
        pass
    assert heard == [2, 2]


def word(name: str) -> ConfirmationRow:
    return ConfirmationRow(
        key=name, uid=name, version="7", node="n1", node_uid="u", boot_id="b", by="ana",
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

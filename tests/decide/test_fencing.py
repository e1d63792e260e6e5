"""Whether the storage is told to refuse a silent node."""

from typing import Any

import msgspec
import pytest

from backstay.decide.fencing import FenceVerdict, decide_fencing
from backstay.decide.storm import Fleet
from backstay.model.evidence import Answer, Silence, Testimony
from backstay.model.fences import FenceOrder, FenceSight, Fencing
from backstay.model.node import Life
from backstay.model.policy import AvailabilityRule, Job, Mode, Ownership
from backstay.model.workload import Volume
from tests.decide.cases import NOW, SUSPECTED, TIMES, changed, decided

DISK = Volume(
    claim="root", pv="pv", driver="rbd", access_modes=("ReadWriteOnce",),
    cluster="c1", secret="ceph/admin",
)  # fmt: skip
MEANS = Fencing(drivers=frozenset({"rbd"}), addresses={"": ("10.0.0.1",)})
ORDER = FenceOrder(driver="rbd", cluster="c1", secret="ceph/admin", addresses=("10.0.0.1",))


UNHEARD = Testimony(
    silences=(
        Silence(
            channel="kubelet port", vantage="n2", since=SUSPECTED, asked_at=NOW - 1,
            proven_at=NOW - 1, proven_on="n3",
        ),
    )
)  # fmt: skip


def judged(fencing: Fencing = MEANS, **change: Any) -> FenceVerdict:
    """Of a node that is lost, and of which nobody says anything."""
    policy = {"network_fences": True, **change.pop("policy", {})}
    change = {"testimony": UNHEARD, **change}
    workload = {"volumes": (DISK,), **change.pop("workload", {})}
    snapshot = changed(policy=policy, workload=workload, **{"confirmations": (), **change})
    return decide_fencing(snapshot, decided(snapshot), fencing, times=TIMES)


def objection(*args: Any, **change: Any) -> str:
    verdict = judged(*args, **change)
    assert verdict.why is not None
    assert verdict.orders == ()
    return verdict.why.code


def test_a_silent_node_is_fenced_where_that_would_prove_something() -> None:
    assert judged() == FenceVerdict((ORDER,), None)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"policy": {"network_fences": False}}, "NotOurJob"),
        ({"policy": {"owners": {Job.FENCING: Ownership.FOREIGN}}}, "NotOurJob"),
        ({"policy": {"mode": Mode.OBSERVE}}, "Observing"),
        ({"policy": {"mode": Mode.DISARMED}}, "Disarmed"),
        ({"policy": {"rolled_back": "it was restored"}}, "ApiRolledBack"),
        ({"facts": {"exempt": True}}, "Exempt"),
        ({"life": {"state": Life.SUSPECT}}, "NodeLost"),
        ({"view_age": 60.0}, "NothingToFence"),
        ({"fleet": Fleet(nodes=5, down=("n1", "n2", "n3", "n4"))}, "StormHold"),
    ],
)
def test_each_of_these_keeps_the_node_from_being_fenced(change: dict[str, Any], code: str) -> None:
    assert objection(**change) == code


def test_a_node_that_answers_is_not_fenced() -> None:
    answer = Testimony(answers=(Answer("kubelet port", NOW - 1),))
    assert judged(testimony=answer).orders == ()


def test_a_node_whose_guests_are_heard_of_is_not_fenced() -> None:
    facts = {"heartbeat": "x", "heartbeat_changed_at": SUSPECTED + 5}
    assert judged(facts=facts).orders == ()


def test_a_death_that_is_proven_needs_no_fence() -> None:
    assert objection(confirmations=changed().confirmations) == "NothingToFence"


@pytest.mark.parametrize(
    "workload",
    [
        {"volumes": ()},
        {"volumes": (msgspec.structs.replace(DISK, plugged=True),)},
        {"also_writes": ("hostPath /data",)},
        {"volumes": (DISK, msgspec.structs.replace(DISK, claim="more", driver="nfs"))},
        {"volumes": (msgspec.structs.replace(DISK, pv=""),)},
        {"volumes": (msgspec.structs.replace(DISK, secret=""),)},
        {"pinned_by": "it has a device of n1"},
    ],
)
def test_nothing_is_fenced_that_would_not_free_a_workload(workload: dict[str, Any]) -> None:
    assert objection(workload=workload) == "NothingToFence"


def test_what_must_not_run_twice_is_no_reason_to_fence() -> None:
    rule = AvailabilityRule(namespace="shop", name="one", singleton=True)
    assert objection(policy={"rules": (rule,)}) == "NothingToFence"


def test_a_node_without_known_addresses_cannot_be_fenced() -> None:
    assert objection(msgspec.structs.replace(MEANS, addresses={"": ()})) == "NothingToFence"


def test_the_addresses_that_the_driver_reports_are_fenced() -> None:
    means = msgspec.structs.replace(
        MEANS, addresses={"": ("10.0.0.1",), "rbd": ("10.0.0.1", "10.9.0.1/32")}
    )
    [order] = judged(means).orders
    assert order.addresses == ("10.0.0.1", "10.9.0.1/32")


def test_the_configurations_secret_goes_before_the_volumes_own() -> None:
    [order] = judged(policy={"fence_secrets": {"rbd": "other/secret"}}).orders
    assert order.secret == "other/secret"


def test_what_was_asked_for_is_not_asked_for_again() -> None:
    ours = FenceSight(
        name="f", uid="u", version="1", driver="rbd", cluster="c1", incident="i", fenced=True
    )
    assert objection(msgspec.structs.replace(MEANS, ours=(ours,))) == "NothingToFence"
    lifted = msgspec.structs.replace(ours, fenced=False)
    assert judged(msgspec.structs.replace(MEANS, ours=(lifted,))).orders == (ORDER,)


def test_that_only_the_lease_is_silent_is_not_enough() -> None:
    assert objection(testimony=Testimony()) == "FenceWaits"


def test_where_ports_cannot_be_asked_silence_has_to_last_longer() -> None:
    facts = {"looked_at": NOW + 200.0}
    assert judged(testimony=Testimony(), facts=facts).orders == (ORDER,)
    beating = facts | {"heartbeat": "x", "heartbeat_changed_at": NOW + 100.0}
    assert judged(testimony=Testimony(), facts=beating).orders == ()

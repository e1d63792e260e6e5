"""Succession: when LINSTOR's controller on a lost node is marked, so that another starts."""

from typing import Any

import msgspec
import pytest

from backstay.decide.failover import Snapshot
from backstay.decide.storm import Fleet
from backstay.decide.succession import to_be_succeeded
from backstay.model.evidence import Answer, Testimony
from backstay.model.node import Life
from backstay.model.policy import Job, Mode, Ownership
from backstay.model.workload import PodRef, Volume, Workload, WorkloadKind
from tests.decide.cases import CONFIRMED, NOW, READY, SUSPECTED, TIMES, changed

replace = msgspec.structs.replace

CONTROLLER = Workload(
    kind=WorkloadKind.OTHER,
    namespace="piraeus",
    name="linstor-controller-x",
    node="n1",
    pods=(PodRef("piraeus", "linstor-controller-x", "p9", "7"),),
    labels={"app.kubernetes.io/component": "linstor-controller"},
)


def lost(**parts: Any) -> Snapshot:
    """A node that is lost and of which nobody has said anything, with LINSTOR's controller on it
    beside a VM."""
    return replace(changed(confirmations=(), **parts), workloads=(*READY.workloads, CONTROLLER))


def succeeded(snapshot: Snapshot) -> list[str]:
    return [workload.name for workload in to_be_succeeded(snapshot, times=TIMES)]


def test_the_controller_on_a_lost_node_is_succeeded_and_nothing_else_there() -> None:
    assert succeeded(lost()) == ["linstor-controller-x"]


def test_the_older_operators_name_for_it_will_do() -> None:
    older = replace(CONTROLLER, labels={"role": "piraeus-controller"})
    assert succeeded(replace(lost(), workloads=(older,))) == ["linstor-controller-x"]


@pytest.mark.parametrize(
    "fields",
    [
        {"labels": {}},
        {"labels": {"app.kubernetes.io/component": "linstor-satellite"}},
        {"kind": WorkloadKind.STATEFUL_SET},
        {"restarts": False},
        {"ended": True},
        {"volumes": (Volume(claim="database"),)},
        {"also_writes": ("hostPath /var/lib/linstor",)},
        {"pinned_by": "it is bound to n1"},
        {"pods": (replace(CONTROLLER.pods[0], marked=True),)},
    ],
)
def test_what_is_not_plainly_replaceable_is_left_alone(fields: dict[str, Any]) -> None:
    assert succeeded(replace(lost(), workloads=(replace(CONTROLLER, **fields),))) == []


@pytest.mark.parametrize(
    "snapshot",
    [
        lost(life={"state": Life.SUSPECT}),
        lost(life={"state": Life.RETURNING}),
        lost(policy={"mode": Mode.OBSERVE}),
        lost(policy={"mode": Mode.DISARMED}),
        lost(policy={"rolled_back": "it went back"}),
        lost(policy={"owners": {Job.FAILOVER: Ownership.FOREIGN}}),
        lost(facts={"exempt": True}),
        lost(view_age=TIMES.fresh + 1),
        lost(testimony=Testimony(answers=(Answer("kubelet port", NOW - 1),))),
        lost(facts={"heartbeat_changed_at": SUSPECTED + 1, "heartbeat": "new"}),
    ],
)
def test_it_takes_what_any_failover_takes_but_proof(snapshot: Snapshot) -> None:
    assert succeeded(snapshot) == []


def test_a_confirmation_that_life_contradicts_holds_it_too() -> None:
    alive = changed(facts={"heartbeat_changed_at": CONFIRMED + 1, "heartbeat": "new"})
    assert succeeded(replace(alive, workloads=(CONTROLLER,))) == []


def test_a_storm_does_not_hold_up_the_one_whose_word_ends_it() -> None:
    """It is one pod, however many nodes are silent; whether we are deaf is asked of the view."""
    storm = Fleet(nodes=5, down=("n1", "n2", "n3"))
    assert succeeded(lost(fleet=storm)) == ["linstor-controller-x"]

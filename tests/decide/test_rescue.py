"""What is done for guests that live on although their kubelet has died."""

from typing import Any

import msgspec
import pytest

from backstay.decide.failover import Action, Snapshot, Verdict
from backstay.decide.storm import Fleet
from backstay.model.evidence import GuestMove, GuestStop, Testimony
from backstay.model.guest import Guest
from backstay.model.policy import Mode, OnKubeletLoss
from backstay.model.workload import Volume, WorkloadKind
from tests.decide.cases import NOW, SUSPECTED, TIMES, changed, verdict

MOVABLE = Guest(phase="Running", migratable=True)
IMMOVABLE = Guest(phase="Running", migratable=False, immovable="its disks are not shared.")
SINGLE = Volume(claim="data", pv="pv-2", driver="csi", access_modes=("ReadWriteOnce",))


def alive(
    loss: OnKubeletLoss,
    *,
    guest: Guest = MOVABLE,
    testimony: Testimony | None = None,
    workload: dict[str, Any] | None = None,
    **rest: Any,
) -> Snapshot:
    """The kubelet is silent, and virt-handler was heard of since."""
    return changed(
        facts={"heartbeat_changed_at": SUSPECTED + 5},
        policy={"on_kubelet_loss": loss, **rest.pop("policy", {})},
        workload={"guest": guest, **(workload or {})},
        confirmations=(),
        testimony=testimony or Testimony(),
        **rest,
    )


def moving(phase: str, *, since: float = NOW, **more: str) -> Testimony:
    move = GuestMove(guest="shop/web", launcher="p1", phase=phase, since=since, **more)
    return Testimony(moves=(move,))


def said(snapshot: Snapshot) -> tuple[Action, str]:
    found: Verdict = verdict(snapshot)
    return found.action, found.why.code


def test_by_default_it_is_left_alone() -> None:
    assert said(alive(OnKubeletLoss.LEAVE)) == (Action.HOLD, "GuestAliveKubeletDead")


@pytest.mark.parametrize("policy", [OnKubeletLoss.MIGRATE, OnKubeletLoss.STOP_AND_MOVE])
def test_it_is_migrated_first_if_it_can_be(policy: OnKubeletLoss) -> None:
    assert said(alive(policy)) == (Action.MIGRATE, "MayBeMigrated")


def test_a_migration_is_waited_for_and_not_asked_for_again() -> None:
    snapshot = alive(OnKubeletLoss.STOP_AND_MOVE, testimony=moving("Scheduling"))
    assert said(snapshot) == (Action.HOLD, "GuestMigrating")


def test_a_migration_in_another_namespace_is_none_of_its_own() -> None:
    foreign = GuestMove(guest="other/web", launcher="p1", phase="Succeeded", since=NOW)
    snapshot = alive(OnKubeletLoss.MIGRATE, testimony=Testimony(moves=(foreign,)))
    assert said(snapshot) == (Action.MIGRATE, "MayBeMigrated")


def test_one_that_has_succeeded_leaves_nothing_to_do() -> None:
    snapshot = alive(OnKubeletLoss.MIGRATE, testimony=moving("Succeeded", target="n2"))
    assert said(snapshot) == (Action.LEAVE, "Migrated")


@pytest.mark.parametrize(
    "testimony",
    [
        pytest.param(moving("Failed", because="no room"), id="failed"),
        pytest.param(moving("Scheduling", since=NOW - TIMES.move), id="too slow"),
    ],
)
def test_one_that_failed_once_is_left_or_stopped_as_the_policy_says(testimony: Testimony) -> None:
    left = alive(OnKubeletLoss.MIGRATE, testimony=testimony)
    assert said(left) == (Action.HOLD, "MigrationFailed")
    stopped = alive(OnKubeletLoss.STOP_AND_MOVE, testimony=testimony)
    assert said(stopped) == (Action.STOP, "MayBeStopped")


def test_what_cannot_be_migrated_is_said_in_the_words_of_kubevirt() -> None:
    found = verdict(alive(OnKubeletLoss.MIGRATE, guest=IMMOVABLE))
    assert "its disks are not shared." in found.why.sentence


@pytest.mark.parametrize(
    ("workload", "guest", "because"),
    [
        pytest.param({"volumes": (SINGLE,)}, IMMOVABLE, "cannot be detached", id="single"),
        pytest.param({"volumes": (Volume(claim="x"),)}, IMMOVABLE, "detached", id="unknown"),
        pytest.param({"run_strategy": "Once"}, IMMOVABLE, "Once", id="once"),
        pytest.param({"kind": WorkloadKind.INSTANCE}, IMMOVABLE, "no VM", id="no VM"),
        pytest.param(
            {}, msgspec.structs.replace(IMMOVABLE, needs_recovery=True), "volumes", id="recovery"
        ),
        pytest.param(
            {}, msgspec.structs.replace(IMMOVABLE, asked=("Start",)), "just asked", id="asked"
        ),
    ],
)
def test_what_could_not_be_started_elsewhere_is_not_stopped(
    workload: dict[str, Any], guest: Guest, because: str
) -> None:
    found = verdict(alive(OnKubeletLoss.STOP_AND_MOVE, guest=guest, workload=workload))
    assert (found.action, found.why.code) == (Action.HOLD, "CannotBeStopped")
    assert because in found.why.sentence


@pytest.mark.parametrize(
    ("guest", "testimony"),
    [
        (IMMOVABLE, Testimony(stopping=("p1",))),
        (msgspec.structs.replace(IMMOVABLE, going=True), Testimony()),
        (msgspec.structs.replace(IMMOVABLE, asked=("Stop", "Start")), Testimony()),
    ],
)
def test_a_guest_that_is_being_stopped_is_waited_for(guest: Guest, testimony: Testimony) -> None:
    snapshot = alive(OnKubeletLoss.STOP_AND_MOVE, guest=guest, testimony=testimony)
    assert said(snapshot) == (Action.HOLD, "GuestStopping")


def test_one_that_has_stopped_is_released_without_any_other_proof() -> None:
    stop = GuestStop(launcher="p1", detail="it has stopped", observed_at=NOW)
    found = verdict(alive(OnKubeletLoss.LEAVE, testimony=Testimony(stops=(stop,))))
    assert found.action is Action.RELEASE
    assert found.evidence is not None
    assert found.evidence.guest == "p1"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"policy": {"mode": Mode.OBSERVE}}, "Observing"),
        ({"view_age": 60.0}, "StaleView"),
        ({"attempts": {"VirtualMachine/shop/web": 3}}, "AttemptCap"),
        ({"fleet": Fleet(nodes=5, down=("n1", "n2", "n3", "n4"))}, "StormHold"),
        ({"workload": {"label": False}}, "NotProtected"),
    ],
)
def test_whatever_else_objects_comes_first(change: dict[str, Any], code: str) -> None:
    assert said(alive(OnKubeletLoss.MIGRATE, **change))[1] == code


def test_a_kubelet_that_is_back_ends_it() -> None:
    snapshot = alive(OnKubeletLoss.STOP_AND_MOVE, guest=IMMOVABLE)
    facts = msgspec.structs.replace(snapshot.facts, lease_changed_at=SUSPECTED + 10)
    assert verdict(msgspec.structs.replace(snapshot, facts=facts)).action is Action.HOLD

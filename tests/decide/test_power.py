"""Whether a silent node is switched off, and on again."""

from typing import Any

import msgspec
import pytest

from backstay.decide.failover import Snapshot
from backstay.decide.power import (
    MOST_ONS,
    POWER_CHAIN,
    PowerCase,
    PowerVerdict,
    decide_power,
    decide_power_on,
    has_lapsed,
    is_on_due,
)
from backstay.decide.storm import Fleet
from backstay.model.drbd import ReplicaSight, ResourceSight, Unheard
from backstay.model.evidence import Answer, Silence, Testimony
from backstay.model.incident import EvidenceRecord, IncidentStatus, Progress, WorkloadRecord
from backstay.model.node import Life
from backstay.model.policy import Job, Mode, Ownership
from backstay.model.power import PowerMeans, PowerRecord, PowerSight
from backstay.model.workload import Volume
from tests.decide.cases import HEARD, NOW, SUSPECTED, TIMES, changed, decided

UUID = "4c4c4544-0042-3010-8051-b4c04f4a3132"
MEANS = PowerMeans(device="the BMC of n1")
SIGHT = PowerSight(
    device="the BMC of n1", on=True, identified=True, detail="its power is On",
    observed_at=NOW - 1, uuid=UUID,
)  # fmt: skip
SILENCE = Silence(
    channel="kubelet port", vantage="n2", since=SUSPECTED, asked_at=NOW - 1,
    proven_at=NOW - 1, proven_on="n3",
)  # fmt: skip


def heard(testimony: dict[str, Any] | None = None, **sight: Any) -> Testimony:
    power = msgspec.structs.replace(SIGHT, **sight)
    return Testimony(**{"power": power, "silences": (SILENCE,), **(testimony or {})})


def case(means: PowerMeans = MEANS, told: IncidentStatus | None = None, **change: Any) -> PowerCase:
    """Of a node that is lost, and of which nobody but its device says anything."""
    policy = {"power": True, **change.pop("policy", {})}
    facts = {"system_uuid": UUID, **change.pop("facts", {})}
    change = {"testimony": heard(), "confirmations": (), **change}
    snapshot: Snapshot = changed(policy=policy, facts=facts, **change)
    return PowerCase(
        snapshot=snapshot,
        decision=decided(snapshot),
        means=means,
        told=told or IncidentStatus(),
        now=NOW,
        times=TIMES,
    )


def judged(*args: Any, **change: Any) -> PowerVerdict:
    return decide_power(case(*args, **change), chain=POWER_CHAIN)


def objection(*args: Any, **change: Any) -> str:
    verdict = judged(*args, **change)
    assert not verdict.switch
    assert verdict.why is not None
    return verdict.why.code


def test_a_silent_node_is_switched_off_where_something_waits_for_proof() -> None:
    assert judged() == PowerVerdict(True, None)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"life": {"state": Life.SUSPECT}}, "NodeLost"),
        ({"life": {"state": Life.RECOVERED}}, "NodeLost"),
        ({"policy": {"power": False}}, "NotOurJob"),
        ({"policy": {"owners": {Job.FENCING: Ownership.FOREIGN}}}, "NotOurJob"),
        ({"policy": {"owners": {Job.FENCING: Ownership.OFF}}}, "NotOurJob"),
        ({"facts": {"exempt": True}}, "Exempt"),
        ({"facts": {"in_maintenance": True}}, "InMaintenance"),
        ({"means": PowerMeans()}, "NoDevice"),
        ({"testimony": Testimony(silences=(SILENCE,))}, "DeviceSilent"),
        ({"testimony": heard(observed_at=NOW - TIMES.fresh - 1)}, "DeviceSilent"),
        ({"testimony": heard(identified=False, uuid="another")}, "WrongDevice"),
        ({"testimony": heard(identified=False, uuid="")}, "DeviceUnidentified"),
        (
            {"testimony": heard(identified=False), "facts": {"system_uuid": ""}},
            "DeviceUnidentified",
        ),
        ({"testimony": heard(identified=False)}, "DeviceUnidentified"),
        ({"testimony": heard(on=False)}, "AlreadyOff"),
        ({"testimony": heard(on=None)}, "PowerInBetween"),
        ({"workloads": ()}, "NothingWaits"),
        ({"workload": {"pinned_by": "its node selector"}}, "NothingWaits"),
        ({"view_age": 60.0}, "NothingWaits"),
        ({"fleet": Fleet(nodes=5, down=("n1", "n2", "n3", "n4"))}, "StormHold"),
        ({"policy": {"rolled_back": "it was restored"}}, "ApiRolledBack"),
        ({"policy": {"mode": Mode.OBSERVE}}, "Observing"),
        ({"policy": {"mode": Mode.DISARMED}}, "Disarmed"),
    ],
)
def test_each_of_these_keeps_the_node_from_being_switched_off(
    change: dict[str, Any], code: str
) -> None:
    assert objection(**change) == code


def test_why_the_device_is_silent_is_said() -> None:
    means = msgspec.structs.replace(MEANS, failing="it cannot be reached (TimedOut)")
    why = judged(means, testimony=Testimony(silences=(SILENCE,))).why
    assert why is not None
    assert "it cannot be reached (TimedOut)" in why.sentence


def test_a_node_that_answers_is_not_switched_off() -> None:
    assert not judged(testimony=heard({"answers": (Answer("kubelet port", NOW - 1),)})).switch


def test_a_node_whose_guests_are_heard_of_is_not_switched_off() -> None:
    facts = {"heartbeat": "x", "heartbeat_changed_at": SUSPECTED + 5}
    assert not judged(facts=facts).switch


def test_silence_of_the_lease_alone_is_not_enough_where_the_ports_cannot_be_asked() -> None:
    assert objection(testimony=heard({"silences": ()})) == "PowerWaits"


def test_where_the_ports_cannot_be_asked_all_is_silent_for_longer() -> None:
    facts = {"looked_at": HEARD + TIMES.heartbeat + 1}
    assert judged(testimony=heard({"silences": ()}), facts=facts).switch


def test_a_node_that_is_shut_out_of_some_volumes_only_is_switched_off_for_the_rest() -> None:
    assert judged(life={"state": Life.PROVEN}).switch


# The control plane


@pytest.mark.parametrize(
    ("count", "alive", "may"),
    [(1, 0, False), (2, 1, False), (3, 2, True), (3, 1, False), (5, 3, True), (5, 2, False)],
)
def test_the_control_plane_keeps_its_majority(count: int, alive: int, may: bool) -> None:
    names = ("n1", *(f"m{n}" for n in range(1, count)))
    fleet = Fleet(nodes=20, control_plane=names, control_plane_alive=names[1 : alive + 1])
    assert judged(facts={"control_plane": True}, fleet=fleet).switch is may


def test_a_node_that_is_just_now_heard_of_again_does_not_count_for_itself() -> None:
    fleet = Fleet(nodes=9, control_plane=("n1", "m1", "m2"), control_plane_alive=("n1", "m1"))
    assert objection(facts={"control_plane": True}, fleet=fleet) == "ControlPlaneNeedsIt"


def test_a_worker_may_go_whatever_the_control_plane_does() -> None:
    fleet = Fleet(nodes=9, control_plane=("m1", "m2", "m3"), control_plane_alive=("m1",))
    assert judged(fleet=fleet).switch


# The last copy


def replica(node: str, up_to_date: bool | None, *, diskful: bool = True) -> ReplicaSight:
    return ReplicaSight(node=node, diskful=diskful, online=True, up_to_date=up_to_date)


def on_drbd(*others: ReplicaSight, own: bool = True) -> dict[str, Any]:
    disk = Volume(claim="root", pv="pv", driver="linstor", access_modes=("ReadWriteOnce",))
    sight = ResourceSight(
        resource="pv", node="n1", driver="linstor", observed_at=NOW - 1,
        replicas=(replica("n1", None, diskful=own), *others),
    )  # fmt: skip
    return {"testimony": heard({"quorums": (sight,)}), "workload": {"volumes": (disk,)}}


@pytest.mark.parametrize(
    "others",
    [(), (replica("n2", False),), (replica("n2", False), replica("n3", None, diskful=False))],
)
def test_a_node_with_the_last_good_copy_is_not_switched_off(
    others: tuple[ReplicaSight, ...],
) -> None:
    assert objection(**on_drbd(*others)) == "LastCopyThere"


@pytest.mark.parametrize(
    "others", [(replica("n2", True),), (replica("n2", True), replica("n3", None))]
)
def test_where_another_copy_is_good_it_is(others: tuple[ReplicaSight, ...]) -> None:
    assert judged(**on_drbd(*others)).switch


@pytest.mark.parametrize(
    "others", [(replica("n2", None),), (replica("n2", False), replica("n3", None))]
)
def test_a_node_is_left_on_while_linstor_does_not_tell_of_another_good_copy(
    others: tuple[ReplicaSight, ...],
) -> None:
    assert objection(**on_drbd(*others)) == "OtherCopiesUnknown"


def test_a_node_is_left_on_while_linstor_says_nothing_at_all() -> None:
    told = on_drbd(replica("n2", True))
    silent = heard({"unheard": (Unheard("linstor", "it does not answer"),)})
    assert objection(**{**told, "testimony": silent}) == "OtherCopiesUnknown"
    other = heard({"unheard": (Unheard("another", "it does not answer"),)})
    assert judged(**{**told, "testimony": other}).switch


def test_a_node_without_a_disk_of_its_own_has_no_copy() -> None:
    assert judged(**on_drbd(replica("n2", False), own=False)).switch


def test_what_can_be_moved_does_not_wait_for_what_cannot() -> None:
    bound = on_drbd(replica("n2", False))
    snapshot = case(**bound).snapshot
    [first] = snapshot.workloads
    second = msgspec.structs.replace(first, name="other", volumes=())
    assert judged(**(bound | {"workloads": (first, second)})).switch


def test_that_it_has_the_last_copy_of_something_else_is_no_objection() -> None:
    told = on_drbd(replica("n2", True))
    [sight] = told["testimony"].quorums
    alone = msgspec.structs.replace(
        sight, resource="pv-of-nobody-here", replicas=sight.replicas[:1]
    )
    assert judged(**told | {"testimony": heard({"quorums": (sight, alone)})}).switch


def test_a_node_that_replicates_is_alive_whatever_kubernetes_hears_of_it() -> None:
    peer = msgspec.structs.replace(replica("n2", True), sees=True)
    assert objection(**on_drbd(peer)) == "StillConnected"


@pytest.mark.parametrize(
    "change", [{"sees": False}, {"sees": None}, {"sees": True, "online": False}]
)
def test_a_peer_that_has_lost_it_or_is_not_heard_says_nothing(change: dict[str, Any]) -> None:
    peer = msgspec.structs.replace(replica("n2", True), **change)
    assert judged(**on_drbd(peer)).switch


# People


def test_a_node_that_was_off_and_is_on_is_not_switched_off_again() -> None:
    was_off = EvidenceRecord("PoweredOff", "the BMC of n1", "its power is Off", "")
    assert objection(told=IncidentStatus(evidence=(was_off,))) == "SwitchedOnSince"


def test_after_an_on_nobody_asks_for_off_in_the_same_incident() -> None:
    assert objection(told=IncidentStatus(power=record(offs=1, ons=1))) == "SwitchedOnSince"


# Switching on


def record(**change: Any) -> PowerRecord:
    return PowerRecord(**{"offs": 1, "ons": 0, "epoch": 1, "seconds": 20.0, "at": "", **change})


DONE = WorkloadRecord("VirtualMachine/shop/web", Progress.RECOVERED, "Recovered", "")
HELD = WorkloadRecord("VirtualMachine/shop/db", Progress.HELD, "ProofMissing", "")
BOUND = WorkloadRecord("VirtualMachine/shop/gpu", Progress.HELD, "CannotRunElsewhere", "")
SEEN = NOW - 21.0


def on(
    *,
    told: dict[str, Any] | None = None,
    power: dict[str, Any] | None = None,
    seen_at: float = SEEN,
    owes: bool = False,
    **change: Any,
) -> PowerVerdict:
    status = IncidentStatus(
        **{"workloads": (DONE,), "power": record(**(power or {})), **(told or {})}
    )
    change = {"life": {"state": Life.RECOVERED}, "testimony": heard(on=False), **change}
    return decide_power_on(case(told=status, **change), seen_at=seen_at, owes=owes)


def test_what_we_have_switched_off_is_switched_on_when_all_is_done() -> None:
    assert on() == PowerVerdict(True, None)


def test_what_can_run_nowhere_else_waits_for_the_very_node() -> None:
    assert on(told={"workloads": (DONE, BOUND)}, life={"state": Life.PROVEN}).switch


def silent_for(seconds: float) -> dict[str, Any]:
    return {
        "lease_seen_at": 10.0,
        "lease_changed_at": 10.0,
        "status_changed_at": None,
        "looked_at": 10.0 + seconds,
    }


@pytest.mark.parametrize(("waited", "switch"), [(299.0, False), (300.0, True)])
def test_what_has_found_no_room_for_minutes_may_need_the_very_node(
    waited: float, switch: bool
) -> None:
    stranded = msgspec.structs.replace(DONE, progress=Progress.RELEASED, released_after=50.0)
    facts = silent_for(50.0 + waited)
    verdict = on(told={"workloads": (DONE, stranded)}, life={"state": Life.PROVEN}, facts=facts)
    assert verdict == PowerVerdict(switch, None)


def test_a_node_that_something_is_still_held_for_stays_off_however_long_that_takes() -> None:
    told = {"workloads": (DONE, HELD)}
    verdict = on(told=told, life={"state": Life.PROVEN}, facts=silent_for(3600.0))
    assert verdict == PowerVerdict(False, None)


def test_where_what_waited_is_gone_meanwhile_the_node_is_switched_on_all_the_same() -> None:
    assert on(life={"state": Life.LOST}, workloads=(), told={"workloads": ()}).switch


@pytest.mark.parametrize(
    "change",
    [
        {"told": {"power": None}},
        {"power": {"offs": 0}},
        {"told": {"workloads": (DONE, HELD)}},
        {"owes": True},
        {"life": {"state": Life.LOST}},
        {"life": {"state": Life.RETURNING}},
        {"testimony": heard(on=True)},
        {"testimony": heard(on=None)},
        {"power": {"ons": MOST_ONS}},
        {"seen_at": NOW - 19.0},
    ],
)
def test_each_of_these_keeps_it_from_being_switched_on_without_a_word(
    change: dict[str, Any],
) -> None:
    assert on(**change) == PowerVerdict(False, None)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"policy": {"power_on": False}}, "StaysOff"),
        ({"policy": {"power": False}}, "StaysOff"),
        ({"policy": {"owners": {Job.FENCING: Ownership.FOREIGN}}}, "StaysOff"),
        ({"policy": {"mode": Mode.OBSERVE}}, "Observing"),
        ({"policy": {"mode": Mode.DISARMED}}, "Disarmed"),
        ({"policy": {"rolled_back": "it was restored"}}, "ApiRolledBack"),
        ({"facts": {"in_maintenance": True}}, "InMaintenance"),
        ({"facts": {"exempt": True}}, "Exempt"),
        ({"testimony": Testimony()}, "DeviceSilent"),
        ({"testimony": heard(on=False, identified=False, uuid="another")}, "WrongDevice"),
    ],
)
def test_each_of_these_keeps_it_off_and_is_said(change: dict[str, Any], code: str) -> None:
    verdict = on(**change)
    assert not verdict.switch
    assert verdict.why is not None
    assert verdict.why.code == code


def test_whether_it_is_due_does_not_need_its_device() -> None:
    told = IncidentStatus(workloads=(DONE,), power=record())
    assert is_on_due(
        case(told=told, life={"state": Life.RECOVERED}, testimony=Testimony()), owes=False
    ).switch


def test_a_claim_lasts_for_all_of_its_time_from_when_it_was_first_seen() -> None:
    assert not has_lapsed(record(seconds=20.0), seen_at=100.0, now=120.0)
    assert has_lapsed(record(seconds=20.0), seen_at=100.0, now=120.1)

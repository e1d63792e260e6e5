"""What a death would mean, asked in advance: endings, caveats, and what would make it better."""

from typing import Any

import msgspec
import pytest

from backstay.decide.failover import CHAIN, Snapshot
from backstay.decide.guests import stays_down
from backstay.decide.readiness import Ending, NodeOutlook, Outlook, readiness
from backstay.model.drbd import ReplicaSight, ResourceSight
from backstay.model.evidence import Testimony
from backstay.model.labels import TMAX_PROTECT
from backstay.model.node import Life
from backstay.model.policy import Detach, Job, Mode, Ownership
from backstay.model.workload import Volume, WorkloadKind
from tests.decide.cases import NOW, READY, TIMES, VM, changed

replace = msgspec.structs.replace


def outlook(snapshot: Snapshot) -> NodeOutlook:
    return readiness(snapshot, times=TIMES, chain=CHAIN)


def only(**workload: Any) -> Outlook:
    [found] = outlook(changed(workload=workload)).outlooks
    return found


def test_a_machine_recovers_once_the_death_is_proven_and_is_held_until_then() -> None:
    found = only()
    assert (found.ending, found.recovers, found.fix) == (Ending.RECOVERS, True, "")
    assert found.held_by is not None
    assert found.held_by.code == "ProofMissing"


@pytest.mark.parametrize(
    "snapshot",
    [
        changed(life={"state": Life.HEALTHY}),
        changed(policy={"mode": Mode.OBSERVE}),
        changed(policy={"mode": Mode.DISARMED}),
        changed(view_age=float("inf")),
        changed(facts={"lease_changed_at": NOW, "heartbeat_changed_at": NOW}),
        changed(confirmations=()),
    ],
    ids=["healthy", "observing", "disarmed", "stale", "alive", "unconfirmed"],
)
def test_the_present_does_not_matter(snapshot: Snapshot) -> None:
    assert outlook(snapshot) == outlook(READY)


@pytest.mark.parametrize("strategy", ["Manual", "Once", "Halted"])
def test_a_machine_that_is_not_started_again_stays_down_and_can_be_fixed(strategy: str) -> None:
    found = only(run_strategy=strategy)
    assert found.ending is Ending.STAYS_DOWN
    assert strategy in found.then.sentence
    assert found.fix.startswith("kubectl patch vm web -n shop --type merge -p '{")


@pytest.mark.parametrize("strategy", ["Always", "RerunOnFailure"])
def test_a_machine_that_is_started_again_recovers(strategy: str) -> None:
    assert only(run_strategy=strategy).ending is Ending.RECOVERS


@pytest.mark.parametrize("kind", [WorkloadKind.INSTANCE, WorkloadKind.OTHER])
def test_what_nobody_creates_anew_stays_down(kind: WorkloadKind) -> None:
    found = only(kind=kind, restarts=False, label=True, run_strategy="")
    assert found.ending is Ending.STAYS_DOWN
    assert found.fix


def test_a_volume_of_the_node_holds_it_whatever_is_proven() -> None:
    found = only(volumes=(Volume(claim="data", driver="local", only_on="n1"),))
    assert (found.ending, found.then.code) == (Ending.HELD, "CannotRunElsewhere")
    assert found.fix == "move data to storage that other nodes can reach"


def test_what_is_pinned_is_to_be_allowed_elsewhere() -> None:
    found = only(pinned_by="it may be scheduled to n1 only")
    assert (found.ending, found.fix) == (Ending.HELD, "let VM shop/web run on more than one node")


def test_what_could_not_be_looked_up_is_held_with_a_way_on() -> None:
    found = only(unread="forbidden")
    assert (found.ending, found.fix) == (Ending.HELD, "backstay doctor")


def test_what_is_not_protected_is_left_with_the_command_that_protects_it() -> None:
    found = only(label=False)
    assert (found.ending, found.held_by) == (Ending.LEFT, None)
    assert "backstay.dev/protect=true" in found.fix


@pytest.mark.parametrize(
    ("modes", "warned"),
    [
        (("ReadWriteOnce",), True),
        (("ReadWriteOncePod",), True),
        ((), True),
        (("ReadWriteMany",), False),
        (("ReadWriteOnce", "ReadWriteMany"), False),
    ],
)
def test_a_volume_for_one_node_at_a_time_must_be_detached_first(
    modes: tuple[str, ...], warned: bool
) -> None:
    found = only(volumes=(Volume(claim="root", driver="csi", access_modes=modes),))
    assert [why.code for why in found.caveats] == (["WaitsForDetach"] if warned else [])


@pytest.mark.parametrize(
    ("policy", "how"),
    [
        ({}, "Backstay does that"),
        ({"detach": Detach.OUT_OF_SERVICE}, "at once"),
        ({"detach": Detach.LEAVE}, "after six minutes"),
        ({"owners": {Job.DETACH: Ownership.FOREIGN}}, "after six minutes"),
    ],
)
def test_it_is_said_who_detaches_a_volume_and_how_soon(policy: dict[str, Any], how: str) -> None:
    volume = Volume(claim="root", driver="csi", access_modes=("ReadWriteOnce",))
    snapshot = changed(workload={"volumes": (volume,)}, policy=policy)
    [found] = readiness(snapshot, times=TIMES, chain=CHAIN).outlooks
    assert how in found.caveats[0].sentence


def test_a_volume_of_which_nothing_is_known_is_said_to_be_one() -> None:
    assert [why.code for why in only(volumes=(Volume(claim="root"),)).caveats] == ["VolumeUnknown"]


def test_what_stays_on_the_node_is_said_to_be_left_behind() -> None:
    [caveat] = only(also_writes=("hostPath /srv",)).caveats
    assert caveat.sentence == "What it has written to hostPath /srv stays on n1."


CONSENT = {TMAX_PROTECT: "true"}
FILES = Volume(claim="files", pv="pv-1", driver="nfs", access_modes=("ReadWriteMany",))


def test_who_consents_is_told_after_how_much_silence_it_restarts() -> None:
    found = only(labels=CONSENT, volumes=(FILES,))
    assert [why.code for why in found.caveats] == ["PresumedOnSilence"]
    assert "150 s" in found.caveats[0].sentence


@pytest.mark.parametrize(
    ("volume", "because"),
    [
        ({"access_modes": ("ReadWriteOnce",)}, "one node at a time"),
        ({"block": True}, "a block device that nothing locks"),
    ],
)
def test_who_consents_in_vain_is_told_why(volume: dict[str, Any], because: str) -> None:
    found = only(labels=CONSENT, volumes=(replace(FILES, **volume),))
    [why] = [each for each in found.caveats if each.code == "SilenceNotEnough"]
    assert because in why.sentence


@pytest.mark.parametrize(("places", "codes"), [(1, ["SeenFromOnePlace"]), (2, []), (None, [])])
def test_one_controller_is_too_few_to_presume_a_death(places: int | None, codes: list[str]) -> None:
    consenting = changed(workload={"labels": CONSENT, "volumes": (FILES,)})
    found = readiness(consenting, times=TIMES, chain=CHAIN, places=places)
    assert [why.code for why in found.notes] == codes
    assert readiness(READY, times=TIMES, chain=CHAIN, places=places).notes == ()


def test_a_node_counts_how_its_workloads_end() -> None:
    workloads = (
        VM,
        replace(VM, name="b", run_strategy="Manual"),
        replace(VM, name="c", pinned_by="x"),
        replace(VM, name="d", label=False),
    )
    found = outlook(changed(workloads=workloads))
    assert [found.count(ending) for ending in Ending] == [1, 1, 1, 1]
    assert found.recovering == 1


def test_only_a_machines_run_strategy_keeps_it_down() -> None:
    assert stays_down(VM) is None
    assert stays_down(replace(VM, kind=WorkloadKind.STATEFUL_SET, run_strategy="Manual")) is None


def test_a_runtime_that_can_outlive_its_daemon_is_noted_and_asks_for_nothing() -> None:
    [note] = outlook(changed(facts={"runtime": "docker://24.0.7"})).notes
    assert (note.code, note.next) == ("OutlivesItsDaemon", "")
    for runtime in ("containerd://2.1.4", "cri-o://1.33.0", ""):
        assert outlook(changed(facts={"runtime": runtime})).notes == ()


# DRBD

DRBD = Volume(claim="data", pv="pv", driver="linstor.csi.linbit.com", handle="res")


def replicated(*disks: str, quorum: str = "majority", offline: str = "") -> Outlook:
    """A machine on n1, whose volume has replicas on these nodes and a tie-breaker on n9."""
    sight = ResourceSight(
        resource="res",
        node="n1",
        driver=DRBD.driver,
        observed_at=NOW,
        quorum=quorum,
        two_primaries=False,
        replicas=tuple(
            ReplicaSight(
                node=node,
                diskful=node != "n9",
                online=node != offline,
                in_use=node == "n1",
                may_promote=False,
                sees=True,
            )
            for node in (*disks, "n9")
        ),
    )
    testimony = Testimony(quorums=(sight,))
    [found] = outlook(changed(workload={"volumes": (DRBD,)}, testimony=testimony)).outlooks
    return found


def test_what_drbd_would_prove_recovers_by_itself_and_it_is_said_how_soon() -> None:
    found = replicated("n1", "n2")
    assert found.by_itself
    assert "DRBD shows within 55 s or so that n1" in found.caveats[-1].sentence


@pytest.mark.parametrize(
    ("found", "because"),
    [
        (replicated("n1", "n2", quorum="off"), "quorum is off"),
        (replicated("n1", "n2", quorum="all"), "none of its other replicas could take over"),
        (replicated("n1", "n2", offline="n9"), "only 1 of its 2 replicas with a disk"),
        (replicated("n2", "n3"), "no replica on n1"),
    ],
)
def test_what_drbd_would_not_prove_needs_somebodys_word(found: Outlook, because: str) -> None:
    assert found.recovers
    assert not found.by_itself
    assert because in found.caveats[-1].sentence

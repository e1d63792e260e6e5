"""Quorum: when the replicas of a DRBD resource show that a node cannot write to it any more."""

from typing import Any

import msgspec
import pytest

from backstay.decide.failover import CHAIN, Action, Snapshot, Verdict, decide
from backstay.decide.life import step
from backstay.decide.proof import may_detach, proofs
from backstay.decide.quorum import is_cut_off, settled, shut_out
from backstay.model.drbd import ReplicaSight, ResourceSight, Unheard, resource_of
from backstay.model.evidence import EvidenceKind, Testimony
from backstay.model.node import Life
from backstay.model.workload import Volume
from tests.decide.cases import HEARD, TIMES, changed

replace = msgspec.structs.replace

LATE = HEARD + 100
SINCE = HEARD + 10
LINSTOR = "linstor.csi.linbit.com"
DATA = Volume(claim="data", pv="pv-data", driver=LINSTOR, handle="Res-1")
LOGS = Volume(claim="logs", pv="pv-logs", driver=LINSTOR, handle="res-2/0")


def replica(node: str, **fields: Any) -> ReplicaSight:
    """A survivor that has lost n1."""
    seen: dict[str, Any] = {
        "diskful": True,
        "online": True,
        "alive_at": LATE - 5,
        "in_use": False,
        "may_promote": True,
        "sees": False,
    }
    return ReplicaSight(node=node, **(seen | fields))


GONE = ReplicaSight(node="n1", diskful=True, online=False)
TIE_BREAKER = replica("n3", diskful=False)


def sight(*replicas: ReplicaSight, **fields: Any) -> ResourceSight:
    """Of n1, which had a disk and has died, with another and a tie-breaker left."""
    seen: dict[str, Any] = {
        "driver": LINSTOR,
        "quorum": "majority",
        "two_primaries": False,
        "since": SINCE,
        "observed_at": LATE,
    }
    return ResourceSight(
        resource="res-1",
        node="n1",
        replicas=replicas or (GONE, replica("n2"), TIE_BREAKER),
        **(seen | fields),
    )


def test_a_majority_that_has_lost_a_node_shuts_it_out() -> None:
    assert shut_out(sight()) is None
    assert settled(sight(), LATE, times=TIMES) is None


def test_a_primary_that_lives_and_has_lost_all_others_is_cut_off_and_not_shut_out() -> None:
    """Nothing may be taken from it, but somebody should be told."""
    alive = replace(GONE, online=True, in_use=True, sees=None)
    seen = sight(alive, replica("n2"), TIE_BREAKER)
    assert is_cut_off(seen)
    assert shut_out(seen) == "n1 is still its primary, by its own satellite's word"
    assert not is_cut_off(sight(alive, replica("n2", sees=True), TIE_BREAKER))
    assert not is_cut_off(sight(alive, replica("n2", in_use=True), TIE_BREAKER))


@pytest.mark.parametrize(
    ("seen", "because"),
    [
        (sight(quorum="off"), "its DRBD quorum is off"),
        (sight(quorum=""), "its DRBD quorum is not set"),
        (sight(quorum="1"), "its DRBD quorum is 1"),
        (sight(two_primaries=True), "allows two primaries"),
        (sight(two_primaries=None), "not known whether it allows two primaries"),
        (sight(replica("n2"), TIE_BREAKER), "no replica on n1"),
        (sight(replace(GONE, in_use=True), replica("n2"), TIE_BREAKER), "n1 is still its primary"),
        (sight(GONE, replica("n2", in_use=True), TIE_BREAKER), "n2 is still its primary"),
        (sight(GONE, replica("n2", sees=True), TIE_BREAKER), "n2 is still connected to n1"),
        (sight(GONE, replica("n2", sees=None), TIE_BREAKER), "n2 does not say"),
        (sight(GONE, replica("n2", in_use=None), TIE_BREAKER), "n2 does not say"),
        (sight(GONE, replica("n2")), "only 1 of its 2 replicas with a disk"),
        (sight(GONE, replica("n2", online=False), TIE_BREAKER), "only 0 of its 2 replicas"),
        (sight(GONE, replica("n2", may_promote=False), TIE_BREAKER), None),
        (
            sight(GONE, replica("n2", may_promote=None), replace(TIE_BREAKER, may_promote=False)),
            "none of its other replicas could take over",
        ),
    ],
)
def test_whatever_is_missing_or_unknown_keeps_it_open(
    seen: ResourceSight, because: str | None
) -> None:
    said = shut_out(seen)
    assert (said is None) if because is None else (said is not None and because in said)


def test_a_replica_that_both_sides_still_reach_lends_the_old_primary_its_vote() -> None:
    """A - C and B - C are up, A - B is down: A is primary, and stays it."""
    partial = sight(GONE, replica("n2"), replica("n3", sees=True, may_promote=False))
    assert shut_out(partial) == "n3 is still connected to n1"


def test_three_replicas_with_disks_need_two_that_speak() -> None:
    assert shut_out(sight(GONE, replica("n2"), replica("n3"))) is None
    silent = shut_out(sight(GONE, replica("n2"), replica("n3", online=False)))
    assert silent == "only 1 of its 3 replicas with a disk can be asked"


def test_a_diskless_primary_is_outvoted_by_the_disks() -> None:
    client = replace(GONE, diskful=False)
    assert shut_out(sight(client, replica("n2"), replica("n3"))) is None
    assert shut_out(sight(client, replica("n2"), replica("n3", online=False))) is not None


def test_half_of_the_disks_need_most_of_those_without() -> None:
    client = replace(GONE, diskful=False)
    four = (client, replica("n2"), replica("n3", online=False), replica("n4", diskful=False))
    assert shut_out(sight(*four)) == "only 1 of its 2 replicas with a disk can be asked"
    assert shut_out(sight(*four, replica("n5", diskful=False))) is None


@pytest.mark.parametrize(
    ("fields", "because"),
    [
        ({"since": LATE - 44}, "for only 44 of 45 s"),
        ({"since": None}, "for only 0 of 45 s"),
        ({"grace": 200.0}, "of 200 s"),
        ({"observed_at": LATE - TIMES.fresh - 1}, "last looked at 11 s ago"),
        ({"view": "LINSTOR cannot be reached"}, "LINSTOR cannot be reached"),
        ({"quorum": "off"}, "quorum is off"),
    ],
)
def test_nothing_rests_on_what_is_young_old_or_hearsay(
    fields: dict[str, Any], because: str
) -> None:
    said = settled(sight(**fields), LATE, times=TIMES)
    assert because in (said or "")


@pytest.mark.parametrize("alive_at", [None, SINCE - 1, LATE - TIMES.suspect - 1])
def test_a_witness_must_have_shown_life_since_it_began_and_of_late(alive_at: float | None) -> None:
    """A satellite may be "online" for long after its node has died."""
    said = settled(sight(GONE, replica("n2", alive_at=alive_at), TIE_BREAKER), LATE, times=TIMES)
    assert said == "n2, whose word it is, has not been heard of lately"


def test_the_resource_is_named_by_the_handle_and_else_by_the_volume() -> None:
    assert resource_of("Res-1", "pv") == "res-1"
    assert resource_of("pvc-1234/1", "pv") == "pvc-1234"
    assert resource_of("", "PV-7") == "pv-7"


# What it is enough for


def cut_off(*sights: ResourceSight, volumes: tuple[Volume, ...] = (DATA,)) -> Snapshot:
    """A silent node that nobody has said anything about but its storage."""
    return changed(
        facts={"looked_at": LATE},
        workload={"volumes": volumes},
        confirmations=(),
        testimony=Testimony(quorums=sights),
    )


def judged(snapshot: Snapshot) -> Verdict:
    [only] = decide(snapshot, LATE, times=TIMES, chain=CHAIN).verdicts
    return only


def test_what_has_all_its_volumes_there_is_released() -> None:
    verdict = judged(cut_off(sight()))
    assert verdict.action is Action.RELEASE
    assert verdict.evidence is not None
    assert verdict.evidence.kind is EvidenceKind.STORAGE_QUORUM
    assert verdict.evidence.volumes == ("pv-data",)
    assert "n2 and n3 have the quorum without it, for 90 s" in verdict.evidence.detail


def test_of_two_volumes_the_uncovered_one_is_named() -> None:
    other = sight(GONE, replica("n2", sees=True), TIE_BREAKER, since=None, quorum="majority")
    verdict = judged(cut_off(sight(), replace(other, resource="res-2"), volumes=(DATA, LOGS)))
    assert verdict.action is Action.HOLD
    assert "its volume logs is not covered" in verdict.why.sentence
    assert "n2 is still connected to n1" in verdict.why.sentence


def test_two_primaries_are_named_as_what_stands_in_the_way() -> None:
    verdict = judged(cut_off(sight(two_primaries=True)))
    assert verdict.action is Action.HOLD
    assert "DRBD about its volume data: it allows two primaries" in verdict.why.sentence


def test_that_a_volume_is_served_over_nfs_is_named_as_what_stands_in_the_way() -> None:
    verdict = judged(cut_off(sight(), volumes=(replace(DATA, exported=True),)))
    assert verdict.action is Action.HOLD
    assert "DRBD about its volume data: it is served over NFS" in verdict.why.sentence


@pytest.mark.parametrize(
    "volume",
    [
        replace(DATA, exported=True),
        replace(DATA, driver="other.csi"),
        replace(DATA, handle="another"),
        replace(DATA, pv=""),
    ],
)
def test_a_resource_speaks_for_no_other_volume(volume: Volume) -> None:
    assert proofs(cut_off(sight(), volumes=(volume,)).heard, LATE, times=TIMES) == ()


def test_any_driver_will_do_where_none_was_named() -> None:
    found = proofs(
        cut_off(sight(driver=""), volumes=(replace(DATA, driver="x"),)).heard, LATE, times=TIMES
    )
    assert [each.kind for each in found] == [EvidenceKind.STORAGE_QUORUM]


def test_it_frees_the_volume_that_it_speaks_of_and_no_other() -> None:
    [evidence] = proofs(cut_off(sight()).heard, LATE, times=TIMES)
    assert may_detach(evidence, DATA)
    assert not may_detach(evidence, LOGS)


# How soon a node counts as lost


def test_a_suspect_that_its_storage_has_lost_too_is_lost_at_once() -> None:
    snapshot = cut_off()
    suspect = replace(snapshot.life, state=Life.SUSPECT)
    facts = replace(snapshot.facts, looked_at=HEARD + TIMES.suspect)
    now = facts.looked_at
    assert step(suspect, facts, now, times=TIMES).state is Life.SUSPECT
    assert step(suspect, facts, now, times=TIMES, cut_off=True).state is Life.LOST


def test_a_node_that_kubernetes_hears_of_is_not_suspected_for_its_storage() -> None:
    snapshot = cut_off()
    healthy = replace(snapshot.life, state=Life.HEALTHY)
    facts = replace(snapshot.facts, looked_at=HEARD + TIMES.confirmed + 1)
    assert step(healthy, facts, LATE, times=TIMES, cut_off=True).state is Life.HEALTHY


def test_that_linstor_is_not_heard_is_named_where_its_volumes_are() -> None:
    silent = Testimony(unheard=(Unheard(LINSTOR, "LINSTOR cannot be asked: it is away"),))
    parts: dict[str, Any] = {
        "facts": {"looked_at": LATE},
        "confirmations": (),
        "testimony": silent,
    }
    mine = judged(changed(workload={"volumes": (DATA,)}, **parts))
    assert "DRBD about its volume data: LINSTOR cannot be asked: it is away" in mine.why.sentence
    others = judged(changed(workload={"volumes": (replace(DATA, driver="ceph"),)}, **parts))
    assert "LINSTOR" not in others.why.sentence

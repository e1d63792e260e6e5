"""Which volumes of a dead node are freed for others, and how."""

from typing import Any

import msgspec
import pytest

from backstay.decide.detach import (
    Holdings,
    Plan,
    consider,
    mounted_for_nobody,
    plan,
    still_mounted,
)
from backstay.decide.failover import Snapshot
from backstay.model.evidence import Fence, GuestStop, OutOfService, Testimony
from backstay.model.node import Life
from backstay.model.policy import Detach, Job, Mode, Ownership
from backstay.model.storage import Accounts, Attachment, Owed
from backstay.model.workload import Workload
from tests.decide.cases import NOW, SUSPECTED, TIMES, VM, changed, decided

DISK = Attachment(name="csi-1", uid="a1", version="9", node="n1", pv="pv-1")
OWED = Owed(
    workload="VirtualMachine/shop/till", claim="disk", pv="pv-1", driver="csi", cluster="c1"
)
RELEASED: dict[str, Any] = {"workloads": (), "life": {"state": Life.PROVEN}}


FOREIGN = Testimony(taint=OutOfService(by="snr", person=False, seen_at=SUSPECTED + 1))
STOPPED = Testimony(stops=(GuestStop(launcher="p1", detail="it stopped", observed_at=NOW),))
FENCED = Testimony(
    fences=(Fence(name="f", detail="refused", observed_at=NOW, driver="csi", cluster="c1"),)
)


def planned(
    snapshot: Snapshot, *owed: Owed, testimony: Testimony | None = None, **holdings: Any
) -> Plan:
    """On a person's word, or on this testimony alone."""
    if testimony is not None:
        snapshot = msgspec.structs.replace(snapshot, confirmations=(), testimony=testimony)
    has = Holdings(**{"attachments": (DISK,), **holdings})
    return plan(snapshot, decided(snapshot), owed or (OWED,), has, NOW, times=TIMES)


def codes(found: Plan) -> list[str]:
    return [why.code for why in found.said]


def test_a_volume_of_what_was_released_is_detached() -> None:
    found = planned(changed(**RELEASED))
    assert found.detach == (DISK,)
    assert found.settled == {OWED}
    assert codes(found) == ["VolumeDetached"]
    assert not found.taint


def test_a_volume_that_nobody_owes_stays_where_it_is() -> None:
    other = Attachment(name="csi-2", uid="a2", version="9", node="n1", pv="pv-2")
    assert planned(changed(**RELEASED), attachments=(DISK, other)).detach == (DISK,)


def test_what_is_going_already_is_the_storage_drivers_to_finish() -> None:
    going = Attachment(name="csi-1", uid="a1", version="9", node="n1", pv="pv-1", going=True)
    found = planned(changed(**RELEASED), attachments=(going,))
    assert (found.detach, found.said) == ((), ())
    assert found.settled == {OWED}


def test_a_volume_that_something_else_on_the_node_uses_stays_and_it_is_said() -> None:
    found = planned(changed(**RELEASED), used=frozenset({"shop/disk"}))
    assert found.detach == ()
    assert "something else on the node uses it" in found.said[0].sentence


def test_the_claim_of_another_namespace_is_another_claim() -> None:
    assert planned(changed(**RELEASED), used=frozenset({"bank/disk"})).detach == (DISK,)


def test_pods_that_cannot_be_read_may_use_anything() -> None:
    found = planned(changed(**RELEASED), unreadable=2)
    assert (found.detach, found.settled) == ((), frozenset())
    assert codes(found) == ["VolumeStays"]


@pytest.mark.parametrize("testimony", [Testimony(), FOREIGN, STOPPED])
def test_silence_foreign_words_and_a_stopped_guest_detach_nothing(testimony: Testimony) -> None:
    found = planned(changed(**RELEASED), testimony=testimony)
    assert (found.detach, found.taint, found.settled) == ((), False, frozenset())
    assert codes(found) == ["VolumeStays"]


def test_a_fence_frees_the_volumes_that_it_speaks_of_and_no_others() -> None:
    second = Attachment(name="csi-2", uid="a2", version="9", node="n1", pv="pv-2")
    more = Owed(workload=OWED.workload, claim="more", pv="pv-2", driver="csi", cluster="c2")
    found = planned(changed(**RELEASED), OWED, more, testimony=FENCED, attachments=(DISK, second))
    assert found.detach == (DISK,)
    assert found.settled == {OWED}
    assert any("more of VM shop/till stays" in why.sentence for why in found.said)


def test_nobody_is_told_of_a_volume_that_nobody_waits_for() -> None:
    shared = Owed(workload=OWED.workload, claim="disk", pv="pv-1", shared=True)
    found = planned(changed(**RELEASED), shared)
    assert (found.detach, found.said) == ((DISK,), ())
    assert planned(changed(**RELEASED), shared, testimony=Testimony()).said == ()


@pytest.mark.parametrize(
    ("change", "because"),
    [
        ({"policy": {"mode": Mode.OBSERVE}}, "not armed"),
        ({"policy": {"mode": Mode.DISARMED}}, "not armed"),
        ({"policy": {"rolled_back": "its version was 900 before, and then 100"}}, "and then 100"),
        ({"policy": {"owners": {Job.DETACH: Ownership.FOREIGN}}}, "not ours to detach"),
        ({"policy": {"owners": {Job.FAILOVER: Ownership.FOREIGN}}}, "not ours to put it on again"),
        ({"facts": {"exempt": True}}, "exempt"),
        ({"view_age": 60.0}, "nothing to act on"),
        ({"facts": {"lease_changed_at": NOW - 1}}, "shows life"),
    ],
)
def test_nothing_is_detached_while_we_are_not_to_act(change: dict[str, Any], because: str) -> None:
    snapshot = changed(**(RELEASED | change))
    found = consider(snapshot, [OWED], NOW, times=TIMES)
    assert found.due == ()
    assert because in found.said[0].sentence


def test_what_was_released_is_seen_to_behind_our_taint_also_when_another_is_to_fail_over() -> None:
    given_away = {"policy": {"owners": {Job.FAILOVER: Ownership.FOREIGN}}}
    found = planned(changed(**(RELEASED | given_away | {"facts": {"tainted": True}})))
    assert found.detach == (DISK,)


def test_a_node_that_is_back_keeps_its_volumes() -> None:
    snapshot = changed(**(RELEASED | {"life": {"state": Life.RETURNING}}))
    assert planned(snapshot).detach == ()


# The out-of-service taint

WITH_TAINT: dict[str, Any] = RELEASED | {"policy": {"detach": Detach.OUT_OF_SERVICE}}


def test_where_the_configuration_prefers_it_the_node_is_put_out_of_service() -> None:
    found = planned(changed(**WITH_TAINT))
    assert (found.taint, found.detach) == (True, ())
    assert codes(found) == ["OutOfService"]
    assert found.settled == {OWED}


def left_there(**more: Any) -> Workload:
    return msgspec.structs.replace(VM, name="other", **more)


@pytest.mark.parametrize(
    ("left", "because"),
    [
        (left_there(pinned_by="it has a device of n1"), "VM shop/other is held there"),
        (left_there(label=False), "VM shop/other there is not ours to touch"),
    ],
)
def test_while_something_has_to_stay_volumes_are_detached_one_by_one(
    left: Workload, because: str
) -> None:
    found = planned(changed(**(WITH_TAINT | {"workloads": (left,)})))
    assert (found.taint, found.detach) == (False, (DISK,))
    assert codes(found) == ["OutOfServiceHeld", "VolumeDetached"]
    assert because in found.said[0].sentence


def test_a_fence_of_some_volumes_does_not_put_the_node_out_of_service() -> None:
    found = planned(changed(**WITH_TAINT), testimony=FENCED)
    assert (found.taint, found.detach) == (False, (DISK,))


def test_pods_that_cannot_be_read_keep_the_node_in_service() -> None:
    assert not planned(changed(**WITH_TAINT), unreadable=1).taint


def test_the_taint_waits_for_what_is_released_next() -> None:
    found = planned(changed(**(WITH_TAINT | {"workloads": (VM,)})))
    assert (found.taint, found.detach, found.settled) == (False, (), frozenset())


# A node that is back


def test_a_volume_of_what_was_released_that_is_still_mounted_keeps_the_node_closed() -> None:
    owed = msgspec.structs.replace(OWED, handle="h")
    why = still_mounted(changed(**RELEASED), [owed], {"csi^h"})
    assert why is not None
    assert "n1 is back, but still has disk of VM shop/till mounted" in why.sentence


@pytest.mark.parametrize("mounted", [set[str](), {"csi^other"}, {"other^h"}])
def test_other_mounts_are_no_reason_to_keep_it_closed(mounted: set[str]) -> None:
    owed = msgspec.structs.replace(OWED, handle="h")
    assert still_mounted(changed(**RELEASED), [owed], mounted) is None


def test_a_volume_that_another_pod_there_uses_is_no_sign_of_the_old_one() -> None:
    owed = msgspec.structs.replace(OWED, handle="h", pv="pv")
    assert still_mounted(changed(), [owed], {"csi^h"}) is None


# Once life has refuted somebody's word


def test_a_word_that_life_refuted_frees_nothing_and_says_so() -> None:
    alive = changed(**RELEASED, facts={"lease_changed_at": NOW - 1})
    assert planned(alive).detach == ()
    [said] = planned(alive).said
    assert "declared dead, but it shows life" in said.sentence


def test_a_volume_that_its_storage_refuses_is_freed_all_the_same() -> None:
    alive = changed(**RELEASED, facts={"lease_changed_at": NOW - 1}, testimony=FENCED)
    assert planned(alive).detach == (DISK,)


# A node that is back, and of which nobody knows what was released from it


def test_what_no_pod_accounts_for_keeps_the_node_closed() -> None:
    why = mounted_for_nobody("n1", {"csi^h", "csi^i"}, Accounts(devices=frozenset({"csi^i"})))
    assert why is not None
    assert why.code == "MountedForNobody"
    assert "has csi^h mounted, and no pod there accounts for it" in why.sentence


def test_what_its_pods_account_for_does_not() -> None:
    accounts = Accounts(devices=frozenset({"csi^h", "csi^i"}), unread="a pod cannot be read")
    assert mounted_for_nobody("n1", {"csi^h"}, accounts) is None


def test_who_may_account_for_it_and_cannot_be_read_is_named() -> None:
    unread = "persistentvolumes/pv cannot be read"
    why = mounted_for_nobody("n1", {"csi^h"}, Accounts(devices=frozenset(), unread=unread))
    assert why is not None
    assert unread in why.sentence

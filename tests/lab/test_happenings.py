"""A rule is not asked about what cannot break it: asked all the same, it has nothing to say."""

from collections.abc import Iterator

import pytest

from backstay.apis.backstay import INCIDENTS
from backstay.apis.storage import ATTACHMENTS
from backstay.kube.resource import EVENTS, LEASES, NODES, PODS
from backstay.lab.happenings import subject_of
from backstay.lab.invariants import INVARIANTS, Invariant
from backstay.lab.knocks import Knocks
from backstay.lab.powers import POWER
from backstay.lab.witness import OUR_LEASE, Asked, Committed, Happening, Witness
from backstay.model.labels import TAINT
from backstay.sim.api.store import Commit, Key, Stored
from backstay.sim.nodes.truth import Entry, What

RECORDS = (INCIDENTS.label, LEASES.label, EVENTS.label)
OTHERS = (PODS.label, NODES.label, ATTACHMENTS.label, "configmaps")
BODY = {"spec": {"taints": [{"key": TAINT}]}, "metadata": {"annotations": {"a": "b"}}}


def asked(method: str, storage: str) -> Asked:
    return Asked(1.0, 1.0, "backstay-1", method, storage, ("shop", "one"), "", BODY)


def switch(reset: str) -> Asked:
    body = {"ResetType": reset, "machine": "n1", "accepted": True}
    return Asked(1.0, 1.0, "backstay-1", "POST", POWER, ("", "n1"), reset, body)


def committed(storage: str, *, ours: bool, deleted: bool, key: Key = ("shop", "one")) -> Committed:
    stored = Stored(key, {"metadata": {"name": "one", "uid": "1"}, "spec": {}}, 2)
    by = asked("DELETE", storage) if ours else None
    return Committed(1.0, Commit(2, storage, stored, stored, deleted), by)


def happenings() -> Iterator[Happening]:
    for what in What:
        yield Entry(1.0, "n1", "boot", "1", "shop", "one", what, "why")
    yield from map(switch, ("ForceOff", "On", "ForceRestart"))
    for storage in (*RECORDS, *OTHERS):
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            yield asked(method, storage)
        for ours in (False, True):
            for deleted in (False, True):
                yield committed(storage, ours=ours, deleted=deleted)


def is_asked(rule: Invariant, happening: Happening) -> bool:
    return rule.about.includes(subject_of(happening))


@pytest.mark.parametrize("rule", INVARIANTS, ids=lambda rule: rule.name)
def test_a_rule_has_nothing_to_say_of_what_it_is_not_about(rule: Invariant) -> None:
    witness = Witness(ours=(), renewal=10.0, hold=10.0, knocks=Knocks())
    unasked = [each for each in happenings() if not is_asked(rule, each)]
    assert len(unasked) > 10
    for happening in unasked:
        assert rule.check(happening, witness) is None


def asked_about(happening: Happening) -> set[str]:
    return {each.name for each in INVARIANTS if is_asked(each, happening)}


def lease_goes(before: str, after: str, *, deleted: bool = False) -> Committed:
    was, now = (
        Stored(OUR_LEASE, {"spec": {"holderIdentity": each, "leaseTransitions": 3}}, 2)
        for each in (before, after)
    )
    return Committed(1.0, Commit(2, LEASES.label, was, now, deleted), None)


def test_rules_are_asked_about_our_lease_whoever_takes_it_or_takes_it_away() -> None:
    assert asked_about(lease_goes("backstay-1", "backstay-2")) == {"Epoch", "Zombie"}
    gone = lease_goes("backstay-1", "backstay-1", deleted=True)
    assert asked_about(gone) == {"Epoch", "Zombie"}


def test_no_rule_is_asked_about_a_mere_renewal_of_our_lease() -> None:
    assert asked_about(lease_goes("backstay-1", "backstay-1")) == set()


def test_rules_are_asked_about_what_we_do_to_pods_and_nodes() -> None:
    removal = committed(PODS.label, ours=True, deleted=True)
    assert {"NoDeleteWithoutEvidence", "ProofAfterBarrier", "Storm"} <= asked_about(removal)
    assert {"Ownership", "Zombie"} <= asked_about(committed(NODES.label, ours=True, deleted=False))


def test_rules_are_asked_about_every_request_to_switch_a_node() -> None:
    assert asked_about(switch("ForceOff")) == {
        "Disarm", "Epoch", "LastCopy", "NoBystander", "NoHealthyGuestStopped", "OneOwner",
        "Ownership", "PowerOrder", "Storm", "Zombie",
    }  # fmt: skip


@pytest.mark.parametrize("storage", [*RECORDS, *OTHERS])
def test_whether_something_is_ours_is_asked_about_every_request(storage: str) -> None:
    assert "Ownership" in asked_about(asked("PATCH", storage))

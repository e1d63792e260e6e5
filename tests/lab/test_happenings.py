"""A rule is not asked about what cannot break it: asked all the same, it has nothing to say."""

from collections.abc import Iterator

import pytest

from backstay.apis.backstay import INCIDENTS
from backstay.apis.storage import ATTACHMENTS
from backstay.kube.resource import EVENTS, LEASES, NODES, PODS
from backstay.lab.happenings import About, what_about
from backstay.lab.invariants import INVARIANTS, Invariant
from backstay.lab.knocks import Knocks
from backstay.lab.witness import OUR_LEASE, Asked, Committed, Happening, Witness
from backstay.model.labels import TAINT
from backstay.sim.api.store import Commit, Key, Stored
from backstay.sim.nodes.truth import Entry, What

RECORDS = (INCIDENTS.label, LEASES.label, EVENTS.label)
OTHERS = (PODS.label, NODES.label, ATTACHMENTS.label, "configmaps")
BODY = {"spec": {"taints": [{"key": TAINT}]}, "metadata": {"annotations": {"a": "b"}}}


def asked(method: str, storage: str) -> Asked:
    return Asked(1.0, 1.0, "backstay-1", method, storage, ("shop", "one"), "", BODY)


def committed(storage: str, *, ours: bool, deleted: bool, key: Key = ("shop", "one")) -> Committed:
    stored = Stored(key, {"metadata": {"name": "one", "uid": "1"}, "spec": {}}, 2)
    by = asked("DELETE", storage) if ours else None
    return Committed(1.0, Commit(2, storage, stored, stored, deleted), by)


def happenings() -> Iterator[Happening]:
    for what in What:
        yield Entry(1.0, "n1", "boot", "1", "shop", "one", what, "why")
    for storage in (*RECORDS, *OTHERS):
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            yield asked(method, storage)
        for ours in (False, True):
            for deleted in (False, True):
                yield committed(storage, ours=ours, deleted=deleted)


def is_asked(rule: Invariant, happening: Happening) -> bool:
    about = what_about(happening)
    return about is not None and about in rule.about


@pytest.mark.parametrize("rule", INVARIANTS, ids=lambda rule: rule.name)
def test_a_rule_has_nothing_to_say_of_what_it_is_not_about(rule: Invariant) -> None:
    witness = Witness(is_ours=lambda _: True, renewal=10.0, hold=10.0, knocks=Knocks())
    unasked = [each for each in happenings() if not is_asked(rule, each)]
    assert len(unasked) > 10
    for happening in unasked:
        assert rule.check(happening, witness) is None


def test_rules_are_asked_about_our_lease_whoever_writes_it() -> None:
    taken = committed(LEASES.label, ours=False, deleted=False, key=OUR_LEASE)
    assert what_about(taken) is About.COMMITS


@pytest.mark.parametrize("storage", [PODS.label, NODES.label])
def test_rules_are_asked_about_what_we_do_to_pods_and_nodes(storage: str) -> None:
    assert what_about(committed(storage, ours=True, deleted=True)) is About.COMMITS
    assert what_about(asked("DELETE", storage)) is About.REQUESTS


def test_records_of_ours_are_more_than_that_when_they_are_deleted() -> None:
    assert what_about(asked("PATCH", INCIDENTS.label)) is About.RECORDS
    assert what_about(asked("DELETE", INCIDENTS.label)) is About.REQUESTS

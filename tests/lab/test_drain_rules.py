"""What drains are judged by, where no deliberate bug gets: budgets, people's words, the clock."""

from typing import Any

import msgspec
import pytest

from backstay.apis.kubevirt import INSTANCES
from backstay.apis.maintenance import NODE_MAINTENANCES
from backstay.kube.resource import NODES, PODS
from backstay.lab.drain_rules import FINALIZER, gives_back, not_ours_in_a_maintenance, pdb
from backstay.lab.invariants import ownership
from backstay.lab.knocks import Knocks
from backstay.lab.maintenances import SLACK, Maintenances, Part
from backstay.lab.witness import Asked, Committed, Witness
from backstay.model.labels import MAINTENANCE
from backstay.sim.api.store import Commit, Store, Stored
from backstay.sim.nodes.truth import Truth

Json = dict[str, Any]

READY = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}
LABELS = {"app": "db"}
OWNER = {"kind": "StatefulSet", "name": "db", "uid": "set", "controller": True}


def witness() -> Witness:
    made = Witness(ours=(), renewal=10.0, hold=10.0, knocks=Knocks())
    made.store = Store()
    made.truth = Truth(lambda: 1.0)
    return made


def pod(name: str, **meta: object) -> Json:
    known = {
        "name": name, "namespace": "shop", "uid": name, "labels": LABELS,
        "ownerReferences": [OWNER], **meta,
    }  # fmt: skip
    return {"metadata": known, "spec": {"nodeName": "n2"}, "status": READY}


def asked(storage: str, name: str, *, sub: str = "", at: float = 1.0, **body: Any) -> Asked:
    namespace = "" if storage in (NODES.label, NODE_MAINTENANCES.label) else "shop"
    method = "POST" if sub == "eviction" else "PATCH"
    return Asked(at, at, "backstay-1", method, storage, (namespace, name), sub, body)


def evicted(seen: Witness, name: str) -> Committed:
    """The pod is there, and is marked by an eviction."""
    before, after = pod(name), pod(name, deletionTimestamp="2026-01-01T00:00:00Z")
    seen.store.put(PODS.label, ("shop", name), after)
    key = ("shop", name)
    commit = Commit(2, PODS.label, Stored(key, before, 1), Stored(key, after, 2), deleted=False)
    return Committed(1.0, commit, asked(PODS.label, name, sub="eviction"))


def maintenance(node: str, **meta: object) -> Json:
    known = {"name": f"of-{node}", "uid": f"of-{node}", **meta}
    return {"metadata": known, "spec": {"nodeName": node}}


def made(node: str, obj: Json | None = None, *, deleted: bool = False) -> Commit:
    stored = Stored(("", f"of-{node}"), obj or maintenance(node), 2)
    return Commit(2, NODE_MAINTENANCES.label, None, stored, deleted=deleted)


@pytest.mark.parametrize(("budget", "left"), [({"minAvailable": 1}, 0), ({"maxUnavailable": 1}, 1)])
def test_an_eviction_that_leaves_too_few_healthy_pods_is_against_the_budget(
    budget: Json, left: int
) -> None:
    seen = witness()
    seen.store.put("statefulsets.apps", ("shop", "db"), {"spec": {"replicas": 3}})
    spec = {"selector": {"matchLabels": LABELS}, **budget}
    body = {"metadata": {"name": "db", "namespace": "shop"}, "spec": spec}
    seen.store.put("poddisruptionbudgets.policy", ("shop", "db"), body)
    for number in range(left):
        seen.store.put(PODS.label, ("shop", f"db-{number}"), pod(f"db-{number}"))
    found = pdb(evicted(seen, "db-9"), seen)
    assert found is not None
    assert "that the budget db asks for" in found
    seen.store.put(PODS.label, ("shop", "db-7"), pod("db-7"))
    assert pdb(evicted(seen, "db-9"), seen) is None


def test_an_eviction_is_called_for_until_a_moment_after_the_end() -> None:
    known = Maintenances()
    known.note(made("n2"), 10.0)
    assert not known.is_asked_for("n2", 9.0)
    assert known.is_asked_for("n2", 10.0)
    assert not known.is_asked_for("n1", 10.0)
    known.note(made("n2", maintenance("n2", deletionTimestamp="now")), 20.0)
    assert not known.is_asked_for("n2", 20.0)
    assert known.is_asked_for("n2", 20.0 + SLACK - 0.1, slack=SLACK)
    assert not known.is_asked_for("n2", 20.0 + SLACK, slack=SLACK)


def test_what_a_restored_api_knows_again_is_asked_for_again() -> None:
    known = Maintenances()
    known.note(made("n2"), 10.0)
    known.note(made("n2", deleted=True), 20.0)
    known.restored([maintenance("n2")], 30.0)
    assert known.is_asked_for("n2", 31.0)
    known.restored([], 40.0)
    assert not known.is_asked_for("n2", 41.0)


def test_a_dry_run_takes_nothing() -> None:
    seen = witness()
    seen.store.put(PODS.label, ("shop", "db-0"), pod("db-0"))
    exactly = {"preconditions": {"uid": "db-0"}}
    wanted = asked(PODS.label, "db-0", sub="eviction", deleteOptions=exactly)
    assert pdb(wanted, seen) == (
        "db-0 was to be evicted, and nobody asks for the maintenance of n2"
    )
    dry = msgspec.structs.replace(wanted, dry_run=True)
    assert pdb(dry, seen) is None


@pytest.mark.parametrize(
    ("body", "is_ours"),
    [
        ({"status": {"phase": "Running"}}, True),
        ({"metadata": {"finalizers": [FINALIZER, "theirs"]}}, True),
        ({"metadata": {"finalizers": ["theirs"]}}, True),
        ({"metadata": {"finalizers": [FINALIZER]}}, False),
        ({"metadata": {"finalizers": None}}, False),
        ({"spec": {"reason": "mine"}}, False),
    ],
)
def test_of_a_maintenance_its_status_is_ours_and_one_finalizer(body: Json, is_ours: bool) -> None:
    seen = witness()
    seen.store.put(NODE_MAINTENANCES.label, ("", "of-n2"), maintenance("n2", finalizers=["theirs"]))
    found = not_ours_in_a_maintenance(asked(NODE_MAINTENANCES.label, "of-n2", **body), seen)
    assert (found is None) is is_ours


def node(**spec: object) -> Json:
    return {"metadata": {"name": "n2"}, "spec": spec}


def at_node(before: Json, after: Json, *, ours: bool) -> Committed:
    was, now = (Stored(("", "n2"), each, 2) for each in (before, after))
    by = asked(NODES.label, "n2") if ours else None
    return Committed(1.0, Commit(2, NODES.label, was, now, deleted=False), by)


@pytest.mark.parametrize("ours", [True, False])
def test_a_cordon_is_taken_off_by_who_has_put_it_on(ours: bool) -> None:
    seen = witness()
    on = at_node(node(), node(unschedulable=True), ours=ours)
    seen.maintenances.note_node(on.commit, by_us=ours, now=1.0)
    assert seen.maintenances.was_put_by_us("n2", Part.CORDON) is ours
    off = at_node(node(unschedulable=True), node(), ours=True)
    found = gives_back(off, seen)
    assert found == (None if ours else "the cordon of n2 went, which others had put on")


def marked(**spec: object) -> Json:
    return {"metadata": {"name": "n2", "annotations": {MAINTENANCE: "{}"}}, "spec": spec}


def test_what_others_put_on_once_a_maintenance_is_asked_for_and_before_we_come_is_theirs() -> None:
    known = Maintenances()
    known.note(made("n2"), 10.0)
    theirs = at_node(node(), node(unschedulable=True), ours=False)
    known.note_node(theirs.commit, by_us=False, now=10.1)
    assert known.was_put_by_us("n2", Part.CORDON) is False
    ours = at_node(node(unschedulable=True), marked(unschedulable=True), ours=True)
    known.note_node(ours.commit, by_us=True, now=10.2)
    assert known.was_put_by_us("n2", Part.CORDON) is False


def test_what_others_take_off_and_put_back_in_our_midst_is_still_ours() -> None:
    known = Maintenances()
    on, off = marked(unschedulable=True), marked()
    for before, after, by_us in ((node(), on, True), (on, off, False), (off, on, False)):
        known.note_node(at_node(before, after, ours=by_us).commit, by_us=by_us, now=1.0)
    assert known.was_put_by_us("n2", Part.CORDON) is True
    known.note_node(at_node(on, node(), ours=True).commit, by_us=True, now=2.0)
    later = at_node(node(), node(unschedulable=True), ours=False)
    known.note_node(later.commit, by_us=False, now=3.0)
    assert known.was_put_by_us("n2", Part.CORDON) is False


def test_whose_a_cordon_is_nobody_can_say_once_the_api_was_restored() -> None:
    known = Maintenances()
    known.note_node(
        at_node(node(), marked(unschedulable=True), ours=True).commit, by_us=True, now=1
    )
    known.restored([], 2.0)
    assert known.was_put_by_us("n2", Part.CORDON) is None


def test_kubevirt_is_asked_to_forget_only_what_a_drain_of_ours_can_have_asked_for() -> None:
    seen = witness()
    seen.store.put(INSTANCES.label, ("shop", "till"), {"status": {"evacuationNodeName": "n2"}})
    forget = asked(INSTANCES.label, "till", sub="evacuate/cancel")
    assert ownership(forget, seen) is not None
    seen.maintenances.note(made("n2"), 10.0)
    assert ownership(forget, seen) is None

"""What a drain sees of pods, budgets and guests."""

import msgspec

from backstay.apis.drains import (
    Budget,
    DrainGuest,
    DrainPod,
    KubeVirtDefaults,
    budget_sight,
    guest_sight,
    pod_sight,
)
from backstay.model.drain import BudgetSight, GuestSight, PodSight

Json = dict[str, object]

META: Json = {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7"}


def pod(spec: Json | None = None, status: Json | None = None, **meta: object) -> PodSight:
    body = {"metadata": {**META, **meta}, "spec": spec or {}, "status": status or {}}
    return pod_sight(msgspec.json.decode(msgspec.json.encode(body), type=DrainPod))


def budget(spec: Json, status: Json | None = None, **meta: object) -> BudgetSight:
    body = {"metadata": {**META, **meta}, "spec": spec, "status": status or {}}
    return budget_sight(msgspec.json.decode(msgspec.json.encode(body), type=Budget))


def guest(spec: Json, status: Json) -> GuestSight:
    body = {"metadata": META, "spec": spec, "status": status}
    return guest_sight(msgspec.json.decode(msgspec.json.encode(body), type=DrainGuest))


def owned_by(api_version: str, kind: str, *, controller: bool = True) -> list[Json]:
    owner: Json = {"apiVersion": api_version, "kind": kind, "name": "it", "uid": "o"}
    return [{**owner, "controller": controller}]


def test_a_pod_is_known_by_what_matters_for_its_leaving() -> None:
    volumes = [
        {"name": "tmp", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "none", "emptyDir": None},
        {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}},
    ]
    seen = pod(
        {"nodeName": "n1", "volumes": volumes, "terminationGracePeriodSeconds": 5},
        {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        ownerReferences=owned_by("apps/v1", "ReplicaSet"),
    )
    assert (seen.key, seen.node, seen.phase, seen.ready) == ("ns/a", "n1", "Running", True)
    assert seen.empty_dirs == ("tmp", "memory")
    assert seen.owner == ("apps", "ReplicaSet", "it", "o")
    assert (seen.grace, seen.terminating, seen.mirror) == (5, "", False)


def test_an_owner_that_does_not_control_is_none() -> None:
    assert pod(ownerReferences=owned_by("v1", "Node", controller=False)).owner is None


def test_a_launcher_is_one_by_its_controller_and_not_by_a_label() -> None:
    launcher = pod(ownerReferences=owned_by("kubevirt.io/v1", "VirtualMachineInstance"))
    assert launcher.guest == "ns/it"
    assert pod(labels={"kubevirt.io": "virt-launcher"}).guest == ""
    impostor = pod(ownerReferences=owned_by("example.com/v1", "VirtualMachineInstance"))
    assert impostor.guest == ""


def test_static_pods_daemons_and_plugged_volumes_are_told_apart() -> None:
    assert pod(annotations={"kubernetes.io/config.mirror": "x"}).mirror
    assert pod(ownerReferences=owned_by("apps/v1", "DaemonSet")).daemon == "ns/it"
    labels = {"kubevirt.io": "hotplug-disk"}
    assert pod(labels=labels, ownerReferences=owned_by("v1", "Pod")).plugs
    assert not pod(labels=labels).plugs
    assert not pod(labels=labels, ownerReferences=owned_by("apps/v1", "ReplicaSet")).plugs


def test_what_ends_says_until_when_and_what_keeps_it() -> None:
    ending = pod(deletionTimestamp="2030-01-01T00:00:00Z", finalizers=["example.com/wait"])
    assert (ending.terminating, ending.finalizers) == (
        "2030-01-01T00:00:00Z", ("example.com/wait",),
    )  # fmt: skip
    assert ending.grace == 30


def test_a_budget_selects_by_labels_and_expressions_in_its_namespace() -> None:
    selector = {
        "matchLabels": {"app": "web"},
        "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["db"]}],
    }
    seen = budget({"selector": selector})
    assert seen.selects(pod(labels={"app": "web"}))
    assert not seen.selects(pod(labels={"app": "web", "tier": "db"}))
    assert not seen.selects(pod(labels={"app": "web"}, namespace="other"))


def test_an_empty_selector_selects_everything_and_none_selects_nothing() -> None:
    assert budget({"selector": {}}).selects(pod())
    assert not budget({}).selects(pod())


def test_an_operator_that_nobody_knows_selects_nothing() -> None:
    selector = {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}
    assert not budget({"selector": selector}).selects(pod(labels={"a": "2"}))


def test_a_budget_is_counted_when_its_numbers_are_about_what_it_asks_for() -> None:
    assert budget({}, {"observedGeneration": 2, "disruptionsAllowed": 1}, generation=2).counted
    assert not budget({}, {"observedGeneration": 1}, generation=2).counted


def test_a_guest_says_how_it_leaves() -> None:
    conditions = [
        {"type": "LiveMigratable", "status": "False", "reason": "Disks", "message": "not shared"}
    ]
    seen = guest(
        {"evictionStrategy": "LiveMigrate"},
        {"nodeName": "n1", "evacuationNodeName": "n1", "conditions": conditions},
    )
    assert (seen.strategy, seen.migratable, seen.immovable) == ("LiveMigrate", False, "not shared")
    assert seen.evacuating == "n1"
    assert guest({}, {}).migratable is None


def test_what_holds_for_guests_that_say_nothing_is_in_kubevirts_own_object() -> None:
    body = {
        "metadata": META, "spec": {"configuration": {"evictionStrategy": "LiveMigrate"}},
    }  # fmt: skip
    said = msgspec.json.decode(msgspec.json.encode(body), type=KubeVirtDefaults)
    assert said.eviction_strategy == "LiveMigrate"
    bare = msgspec.json.decode(msgspec.json.encode({"metadata": META}), type=KubeVirtDefaults)
    assert bare.eviction_strategy == ""

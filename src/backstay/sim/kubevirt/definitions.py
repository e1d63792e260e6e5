"""KubeVirt's custom resource definitions, with the parts of them that anybody here relies on.

Names, versions, subresources and columns are those of KubeVirt 1.9. The schemas are open: what a
VM may say is KubeVirt's business, and nobody in here reads more than a little of it. A VMI has no
status subresource, so that its status is written with the rest of it.
"""

from collections.abc import Sequence

from backstay.sim.api.operations import Write
from backstay.sim.api.requests import Target
from backstay.sim.api.server import ApiServer
from backstay.sim.kubevirt.eviction_webhook import EvictionWebhook
from backstay.sim.kubevirt.lifecycle import Lifecycle
from backstay.sim.kubevirt.names import (
    GROUP,
    KUBEVIRTS,
    NAMESPACE,
    POOL_GROUP,
    SUBRESOURCES,
    VMIS,
    Json,
)
from backstay.sim.kubevirt.status_mutator import keep_status

_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
_PHASE = {"name": "Phase", "type": "string", "jsonPath": ".status.phase"}
_REPLICAS = (
    {"name": "Desired", "type": "integer", "jsonPath": ".spec.replicas"},
    {"name": "Current", "type": "integer", "jsonPath": ".status.replicas"},
    {"name": "Ready", "type": "integer", "jsonPath": ".status.readyReplicas"},
    _AGE,
)
_STATUS: Json = {"status": {}}
_SCALED: Json = {
    "status": {},
    "scale": {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.labelSelector",
    },
}
_VERSIONS = ("v1", "v1alpha3")


def install(server: ApiServer, *, release: str = "v1.9.0") -> None:
    """Has an embedded API serve KubeVirt's kinds, and start, stop and restart for VMs, and ask
    before it evicts a guest's pod. ``release`` is what the installation says of itself."""
    info = server.kinds.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    namespaces = server.kinds.find("", "v1", "namespaces")
    assert info is not None
    assert namespaces is not None
    own: Json = {"metadata": {"name": NAMESPACE}}
    server.operations.create(Target(namespaces), own, Write("virt-operator"))
    for definition in definitions():
        sent = {k: v for k, v in definition.items() if k not in ("apiVersion", "kind")}
        server.operations.create(Target(info), sent, Write("virt-operator"))
    _say_which(server, release)
    server.aggregate(SUBRESOURCES, Lifecycle(server.operations).answer)
    server.intercept_evictions(EvictionWebhook(server.operations))
    server.operations.mutate(VMIS.label, keep_status)


def _say_which(server: ApiServer, release: str) -> None:
    info = server.kinds.find(KUBEVIRTS.group, KUBEVIRTS.version, KUBEVIRTS.plural)
    assert info is not None
    status = {"phase": "Deployed", "observedKubeVirtVersion": release, "operatorVersion": release}
    made: Json = {"metadata": {"name": "kubevirt"}, "spec": {}}
    server.operations.create(Target(info, NAMESPACE), made, Write("virt-operator"))
    server.operations.patch(
        Target(info, NAMESPACE, "kubevirt", "status"),
        lambda found: {**found, "status": status},
        Write("virt-operator"),
    )


def definitions() -> list[Json]:
    """As they are sent to an API server, a real one too."""
    return [
        _definition("VirtualMachine", short="vm", subresources=_STATUS, columns=(
            _AGE,
            {"name": "Status", "type": "string", "jsonPath": ".status.printableStatus",
             "description": "Human Readable Status"},
            _condition("Ready"),
        )),
        _definition("VirtualMachineInstance", short="vmi", columns=(
            _AGE,
            _PHASE,
            {"name": "IP", "type": "string", "jsonPath": ".status.interfaces[0].ipAddress"},
            {"name": "NodeName", "type": "string", "jsonPath": ".status.nodeName"},
            _condition("Ready"),
            {**_condition("LiveMigratable"), "name": "Live-Migratable", "priority": 1},
            {**_condition("Paused"), "priority": 1},
        )),
        _definition("VirtualMachineInstanceMigration", short="vmim", subresources=_STATUS, columns=(
            _PHASE,
            {"name": "VMI", "type": "string", "jsonPath": ".spec.vmiName"},
        )),
        _definition("VirtualMachineInstanceReplicaSet", short="vmirs", subresources=_SCALED,
                    columns=_REPLICAS),
        _definition("KubeVirt", short="kv", subresources=_STATUS, columns=(_AGE, _PHASE)),
        _definition("VirtualMachinePool", short="vmpool", subresources=_SCALED, columns=_REPLICAS,
                    group=POOL_GROUP, versions=("v1beta1", "v1alpha1")),
    ]  # fmt: skip


def _condition(kind: str) -> Json:
    path = f".status.conditions[?(@.type=='{kind}')].status"
    return {"name": kind, "type": "string", "jsonPath": path}


def _definition(
    kind: str,
    *,
    short: str,
    columns: Sequence[Json],
    subresources: Json | None = None,
    group: str = GROUP,
    versions: Sequence[str] = _VERSIONS,
) -> Json:
    """The first version is the one that is stored."""
    singular = kind.lower()
    plural = f"{singular}s"
    one: Json = {
        "served": True,
        "schema": {
            "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        },
        "additionalPrinterColumns": list(columns),
        **({"subresources": subresources} if subresources else {}),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "labels": {GROUP: ""}},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "plural": plural, "singular": singular, "kind": kind,
                "shortNames": [short, f"{short}s"], "categories": ["all"],
            },
            "versions": [
                {"name": name, "storage": name == versions[0], **one} for name in versions
            ],
        },
    }  # fmt: skip

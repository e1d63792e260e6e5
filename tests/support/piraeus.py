"""The manifest of the Piraeus HA controller v0.3.0 (its ``deploy/all.yaml``), as objects.

manifest("backstay:0.1.0")   what its users have on their clusters, with the image exchanged
arguments(name="ha-1")       what its container is started with, once Kubernetes has filled it in
"""

from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]

NAME = "piraeus-ha-controller"
ACCOUNT = "ha-controller"
"""Also the name of its namespace, its roles and their bindings."""

USER = f"system:serviceaccount:{ACCOUNT}:{ACCOUNT}"
LINSTOR = "http://piraeus-op-cs.default.svc:3370"

_ARGUMENTS = (
    "--leader-election=true",
    "--leader-election-lease-name=$(NAME)",
    "--leader-election-namespace=$(NAMESPACE)",
    "--v=5",
)
_RBAC = "rbac.authorization.k8s.io"


def arguments(*, name: str) -> tuple[str, ...]:
    """Of a pod of this name."""
    filled = (each.replace("$(NAMESPACE)", ACCOUNT) for each in _ARGUMENTS)
    return tuple(each.replace("$(NAME)", name) for each in filled)


def manifest(image: str) -> list[Json]:
    account = {"name": ACCOUNT, "namespace": ACCOUNT}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ACCOUNT}},
        _deployment(image),
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account},
        *rights(),
    ]


def rights() -> list[Json]:
    """Its roles and their bindings."""
    return [
        *_role(
            "ClusterRole",
            ("", "pods", "list watch delete"),
            ("storage.k8s.io", "volumeattachments", "list watch delete"),
            ("", "events", "create"),
            ("", "persistentvolumeclaims", "list watch"),
        ),
        *_role("Role", ("coordination.k8s.io", "leases", "create get update"), namespace=ACCOUNT),
    ]


def _role(kind: str, *rules: tuple[str, str, str], **where: str) -> Sequence[Json]:
    """A role of these (group, resource, verbs), bound to the account."""
    meta = {"name": ACCOUNT, **where}
    return (
        {
            "apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": meta,
            "rules": [
                {"apiGroups": [group], "resources": [resource], "verbs": verbs.split()}
                for group, resource, verbs in rules
            ],
        },
        {
            "apiVersion": f"{_RBAC}/v1", "kind": f"{kind}Binding", "metadata": meta,
            "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": ACCOUNT}],
        },
    )  # fmt: skip


def _deployment(image: str) -> Json:
    labels = {"app.kubernetes.io/name": NAME}
    linstor = {"name": "LS_CONTROLLERS", "value": LINSTOR}
    waiting = {
        "name": "wait-for-linstor", "image": image,
        "command": ["/linstor-wait-until", "api-online"], "env": [linstor],
    }  # fmt: skip
    controller = {
        "name": "controller", "image": image, "args": [*_ARGUMENTS],
        "env": [
            linstor,
            *(
                {"name": name.upper(), "valueFrom": {"fieldRef": {"fieldPath": f"metadata.{name}"}}}
                for name in ("name", "namespace")
            ),
        ],
        "livenessProbe": {"httpGet": {"port": 8080, "path": "/healthz"}},
    }  # fmt: skip
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    spec = {
        "serviceAccountName": ACCOUNT,
        "initContainers": [waiting],
        "containers": [controller],
        "affinity": {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": ACCOUNT},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }

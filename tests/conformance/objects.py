"""The objects that the conformance tests make."""

from typing import Any

from tests.conformance.targets import Json


def named(name: str, **metadata: Any) -> Json:
    """The least that most kinds accept."""
    return {"metadata": {"name": name, **metadata}}


def config(name: str, **data: str) -> Json:
    return {**named(name), "data": data}


def pod(name: str, *, labels: Json | None = None, **spec: Any) -> Json:
    """On a node that is not there, so that no scheduler and no kubelet takes part."""
    return {
        "metadata": {"name": name, "labels": labels or {"app": "web"}},
        "spec": {
            "schedulerName": "nobody",
            "nodeName": "nowhere",
            "containers": [{"name": "main", "image": "none:1"}],
            **spec,
        },
    }


def applied(name: str, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", **config(name, **data)}


def event(name: str, namespace: str, **more: Any) -> Json:
    """About an object in the namespace that the event is in, as it has to be."""
    about = {"kind": "Pod", "namespace": namespace, "name": "web"}
    return {**named(name), "involvedObject": about, **more}

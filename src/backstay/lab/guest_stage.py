"""Guests that have no VM of their own making: made by hand, by a replica set, by a pool."""

from typing import Any

from backstay.apis.machines import INSTANCE_SETS, POOLS
from backstay.kube.resource import Resource
from backstay.sim.kubevirt.names import VMIS

Json = dict[str, Any]


def made_by(kind: str, machine: Json) -> tuple[Resource, Json]:
    """What to create so that there is one guest like that of ``machine``, a VM: ``nobody`` is by
    hand."""
    meta, spec = machine["metadata"], machine["spec"]
    template = spec["template"]
    labels = {**(template["metadata"].get("labels") or {}), "app": meta["name"]}
    template = {**template, "metadata": {**template["metadata"], "labels": labels}}
    selector = {"matchLabels": {"app": meta["name"]}}
    if kind == "nobody":
        body = {
            "metadata": {**template["metadata"], "name": meta["name"]},
            "spec": template["spec"],
        }
        return VMIS, body
    if kind == "set":
        spec = {"replicas": 1, "selector": selector, "template": template}
        return INSTANCE_SETS, {"metadata": {"name": meta["name"]}, "spec": spec}
    one = {"metadata": {"labels": labels}, "spec": {**spec, "template": template}}
    pool = {"replicas": 1, "selector": selector, "virtualMachineTemplate": one}
    return POOLS, {"metadata": {"name": meta["name"]}, "spec": pool}


def member(kind: str, name: str, *, of: str) -> bool:
    """Whether a guest of that name is the one that the set or pool has made."""
    match kind:
        case "set":
            return name.startswith(of) and len(name) == len(of) + 5
        case "pool":
            return name == f"{of}-0"
        case _:
            return name == of

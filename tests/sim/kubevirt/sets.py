"""Guests of a replica set or a pool, on a node that dies. It runs against any ``Rig``."""

from typing import Any

from backstay.kube.resource import PODS
from backstay.sim.kubevirt.names import (
    APP,
    KEPT_FOR_PODS,
    LAUNCHER,
    POOLS,
    SETS,
    VMIS,
    VMS,
)
from backstay.sim.kubevirt.objects import virtual_machine
from tests.sim.kubevirt.rig import Json, Rig

NAME = "web"


def template(rig: Rig) -> Json:
    vm = virtual_machine(NAME, namespace=rig.namespace, node_selector={"test": rig.namespace})
    body: Json = vm["spec"]["template"]
    return {
        "metadata": {"labels": {"app": NAME}, "finalizers": [KEPT_FOR_PODS]},
        "spec": body["spec"],
    }


async def make_set(rig: Rig, replicas: int) -> None:
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": NAME}},
        "template": template(rig),
    }
    await _make(rig, SETS, spec)


async def make_pool(rig: Rig, replicas: int) -> None:
    labels = {"app": NAME}
    machine = {
        "metadata": {"labels": labels},
        "spec": {"runStrategy": "Always", "template": template(rig)},
    }
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "virtualMachineTemplate": machine,
    }
    await _make(rig, POOLS, spec)


async def _make(rig: Rig, resource: Any, spec: Json) -> None:
    made = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": NAME},
        "spec": spec,
    }
    await rig.client.create(resource, made, namespace=rig.namespace)
    await until_complete(rig, resource, spec["replicas"])


async def until_complete(rig: Rig, resource: Any, replicas: int) -> None:
    def is_complete(found: Json) -> bool:
        return bool((found.get("status") or {}).get("readyReplicas") == replicas)

    await rig.until(resource, is_complete, NAME)


async def launcher_of_dead_node(rig: Rig) -> Json:
    """One of them, whose node has just died."""
    pod = (await rig.listed(PODS, f"{APP}={LAUNCHER}"))[0]
    node = pod["spec"]["nodeName"]
    await rig.keep_scheduler_away(node)
    rig.nodes[node].kill()
    return pod


async def set_replaces_what_was_removed(rig: Rig) -> None:
    await make_set(rig, 1)
    pod = await launcher_of_dead_node(rig)
    lost = pod["metadata"]["ownerReferences"][0]["name"]
    await rig.remove_pod(pod["metadata"]["name"])
    await rig.until_none(VMIS, lost)
    await until_complete(rig, SETS, 1)
    [left] = await rig.listed(VMIS)
    assert left["metadata"]["name"] != lost
    assert left["metadata"]["name"].startswith(NAME)


async def set_does_not_wait_for_what_is_going(rig: Rig) -> None:
    """A pod that is only marked is enough for it to make another."""
    await make_set(rig, 1)
    pod = await launcher_of_dead_node(rig)
    lost = pod["metadata"]["ownerReferences"][0]["name"]
    name = pod["metadata"]["name"]
    await rig.client.delete(PODS, name, namespace=rig.namespace)
    both = await rig.until_there(VMIS, 2)
    assert lost in {each["metadata"]["name"] for each in both}, "it waits for its pod"
    await until_complete(rig, SETS, 1)
    await rig.remove_pod(name)
    await rig.until_none(VMIS, lost)


async def machine_of_pool_keeps_its_name(rig: Rig) -> None:
    await make_pool(rig, 1)
    [before] = await rig.listed(VMIS)
    pod = await launcher_of_dead_node(rig)
    await rig.remove_pod(pod["metadata"]["name"])
    name = before["metadata"]["name"]
    await rig.until_running(name, after=before["metadata"]["uid"])
    [machine] = await rig.listed(VMS)
    assert machine["metadata"]["name"] == name
    [owner] = machine["metadata"]["ownerReferences"]
    assert (owner["apiVersion"].partition("/")[0], owner["kind"]) == (POOLS.group, POOLS.kind)


CASES = (
    set_replaces_what_was_removed,
    set_does_not_wait_for_what_is_going,
    machine_of_pool_keeps_its_name,
)

"""Volumes of a pod, as a kubelet finds them: its claims, what they are bound to, and whether that
is attached to the node.

A volume of a CSI driver has to be attached unless the driver says otherwise (CSIDriver,
``attachRequired``). It may be used when the node's status says both that this kubelet has it in
use, so that nobody detaches it, and that it is attached.
"""

from typing import Any, TypeAlias

from backstay.kube.client import KubeClient
from backstay.kube.errors import NotFound
from backstay.kube.resource import Resource
from backstay.sim.nodes.runtime import Mount
from backstay.sim.nodes.wire import Json, Pod

CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
DRIVERS = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False)


def device_name(driver: str, handle: str) -> str:
    """As a node's ``volumesInUse`` and ``volumesAttached`` call it."""
    return f"kubernetes.io/csi/{driver}^{handle}"


Drivers: TypeAlias = dict[str, bool]
"""Whether the volumes of each driver have to be attached: a driver says it for good, so a kubelet
asks once. Unlike a real one, it does not notice a driver that comes after the first of its volumes
was used here: nobody brings drivers into a world that runs."""


async def resolve(client: KubeClient, pod: Pod, drivers: Drivers) -> tuple[Mount, ...] | None:
    """What the claims of a pod stand for; None while one of them is not bound."""
    mounts = []
    for claim in pod.claims:
        found = (await client.get(CLAIMS, claim.claim_name, namespace=pod.namespace)).json()
        if found.get("status", {}).get("phase") != "Bound":
            return None
        volume = (await client.get(VOLUMES, found["spec"]["volumeName"])).json()
        device = await _device(client, volume["spec"], drivers)
        mounts.append(Mount(volume["metadata"]["name"], device, not claim.read_only))
    return tuple(mounts)


def attached(status: Json, mounts: tuple[Mount, ...]) -> bool:
    """By the status of the node."""
    wanted = {mount.device for mount in mounts if mount.device}
    there = {each["name"] for each in status.get("volumesAttached") or ()}
    return wanted <= there and wanted <= set(status.get("volumesInUse") or ())


async def _device(client: KubeClient, spec: dict[str, Any], drivers: Drivers) -> str:
    source = spec.get("csi")
    if source is None:
        return ""
    driver = source["driver"]
    if driver not in drivers:
        drivers[driver] = await _has_to_be_attached(client, driver)
    return device_name(driver, source["volumeHandle"]) if drivers[driver] else ""


async def _has_to_be_attached(client: KubeClient, driver: str) -> bool:
    try:
        found = (await client.get(DRIVERS, driver)).json()
    except NotFound:
        return True
    return found.get("spec", {}).get("attachRequired") is not False

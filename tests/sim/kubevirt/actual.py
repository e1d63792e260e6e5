"""A real virt-controller on a real control plane, for the scenarios that the stand-in goes through.

``BACKSTAY_VIRT_CONTROLLER`` names the program (KubeVirt 1.9). There is neither virt-api nor a real
virt-handler beside it: the VMs say all that the first would fill in, and the hollow nodes have
ours for the second. So what is seen is virt-controller's own doing.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from backstay.kube.client import KubeClient
from backstay.kube.errors import AlreadyExists
from backstay.kube.resource import LEASES, NAMESPACES, NODES, Resource
from backstay.sim.kubevirt import Copying, VirtHandler, definitions
from backstay.sim.kubevirt.names import KUBEVIRTS
from harness.cluster import ControlPlane
from harness.connect import FAST_PACE, connect, hollow_nodes, until
from harness.processes import Child
from tests.sim.kubevirt.rig import HANDLER, Rig

VARIABLE = "BACKSTAY_VIRT_CONTROLLER"

_DEFINITIONS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
_NAMESPACE = "kubevirt"
DEVICES = {f"devices.kubevirt.io/{name}": "1k" for name in ("kvm", "tun", "vhost-net")}
LABELS = {"machine-type.node.kubevirt.io/q35": "true"}
_PATIENCE = 60.0


def program() -> Path | None:
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


@asynccontextmanager
async def virt_controller(plane: ControlPlane, path: Path) -> AsyncIterator[None]:
    """Runs it, from the moment at which it leads."""
    log = plane.directory / "virt-controller.log"
    child = Child(
        "virt-controller", [str(path), f"--kubeconfig={plane.kubeconfig}", "--port=0"], log=log
    )
    async with connect(plane) as client:
        await _install(client)
        child.start()
        try:
            await until(client, LEASES, _is_led, namespace=_NAMESPACE, timeout=_PATIENCE)
        except TimeoutError:
            raise AssertionError(f"virt-controller does not lead:\n{child.tail()}") from None
        try:
            yield
        finally:
            await child.stop()


def _is_led(leases: list[dict[str, Any]]) -> bool:
    return any((lease.get("spec") or {}).get("holderIdentity") for lease in leases)


async def _install(client: KubeClient) -> None:
    with suppress(AlreadyExists):
        await client.create(NAMESPACES, {"metadata": {"name": _NAMESPACE}})
    policies = _cluster_wide("migrations.kubevirt.io", "v1alpha1", "MigrationPolicy", "ies")
    for definition in (*definitions(), policies):
        with suppress(AlreadyExists):
            await client.create(_DEFINITIONS, definition)
    await until(client, _DEFINITIONS, lambda all_of_them: all(map(_is_served, all_of_them)))
    await _configure(client)


async def _configure(client: KubeClient) -> None:
    emulation = {"developerConfiguration": {"useEmulation": True}}
    kubevirt = {
        "apiVersion": KUBEVIRTS.api_version,
        "kind": KUBEVIRTS.kind,
        "metadata": {"name": "kubevirt"},
        "spec": {"configuration": emulation},
    }
    with suppress(AlreadyExists):
        await client.create(KUBEVIRTS, kubevirt, namespace=_NAMESPACE)
    status = {"status": {"phase": "Deployed", "defaultArchitecture": "amd64"}}
    await client.merge_patch(
        KUBEVIRTS, "kubevirt", status, namespace=_NAMESPACE, subresource="status"
    )


def _is_served(definition: dict[str, Any]) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def _cluster_wide(group: str, version: str, kind: str, ending: str) -> dict[str, Any]:
    plural = kind.lower().removesuffix("y") + ending
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    one = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": _DEFINITIONS.api_version,
        "kind": _DEFINITIONS.kind,
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": plural, "kind": kind},
            "versions": [one],
        },
    }


@asynccontextmanager
async def actual(
    client: KubeClient, namespace: str, *, nodes: int = 3, copying: Copying | None = None
) -> AsyncIterator[Rig]:
    async with hollow_nodes(client, pace=FAST_PACE) as fleet:
        rig = Rig(client, fleet.nodes, fleet.ground, namespace, _PATIENCE)
        for number in range(nodes):
            # The control plane is shared, so names must not be.
            name = f"{namespace}-n{number + 1}"
            labels = {"test": namespace, **LABELS}
            fleet.add(name, labels=labels, agents={HANDLER: VirtHandler(copying)})
            await rig.until_open(name)
            status = {"status": {"capacity": DEVICES, "allocatable": DEVICES}}
            await client.strategic_patch(NODES, name, status, subresource="status")
        async with rig.recorder.running():
            yield rig

"""A real control plane for the rows that need one: ``python -m bench.plane``.

It answers with one line of JSON, a ``Job`` that leads to it, and ends when its stdin does. Our
kinds are installed, and one node lives: where nobody lives, a controller doubts its own eyes.
"""

import asyncio
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

from backstay.apis.definitions import definitions
from backstay.kube.resource import LEASES
from backstay.model.labels import LEASE_NAMESPACE
from bench.worker import Job
from harness.build import ensure_binaries
from harness.cluster import ControlPlane
from harness.connect import connect

NAMESPACE = "bench"
_LIVING = "alive"
LEASES_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_RENEW_EVERY = 0.5


def node(name: str) -> dict[str, Any]:
    """One that is ready, as far as anybody was told."""
    info = dict.fromkeys(
        (
            "architecture", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion",
            "kubeletVersion", "machineID", "operatingSystem", "osImage", "systemUUID",
        ),
        "bench",
    )  # fmt: skip
    ready = {"type": "Ready", "status": "True", "reason": "Bench", "message": ""}
    status = {"nodeInfo": {**info, "bootID": f"boot-of-{name}"}, "conditions": [ready]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def lease(name: str) -> dict[str, Any]:
    renewed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renewed},
    }


async def _furnish(plane: ControlPlane) -> None:
    for definition in definitions():
        await plane.call("POST", DEFINITIONS, definition)
    for name in (NAMESPACE, "backstay-system"):
        await plane.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    await plane.call("POST", "/api/v1/nodes", node(_LIVING))
    await plane.call("POST", LEASES_PATH, lease(_LIVING))
    names = [f"crd/{definition['metadata']['name']}" for definition in definitions()]
    await plane.kubectl("wait", "--for=condition=Established", *names, "--timeout=30s")


async def _serve() -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    async with ControlPlane(ensure_binaries()) as plane:
        await _furnish(plane)
        job = Job(
            amount=0,
            server=plane.url,
            authority=str(plane.identities.file("ca.pem")),
            kubeconfig=str(plane.kubeconfig),
        )
        print(msgspec.json.encode(job).decode(), flush=True)
        async with connect(plane) as client:
            while not ended.is_set():
                renewal = {"spec": lease(_LIVING)["spec"]}
                await client.merge_patch(LEASES, _LIVING, renewal, namespace=LEASE_NAMESPACE)
                await asyncio.sleep(_RENEW_EVERY)


if __name__ == "__main__":
    asyncio.run(_serve())

"""A cluster to try Backstay on, in memory: ``backstay run --embedded``.

Three nodes, three virtual machines and a database, served on loopback for ``backstay`` and
``kubectl``. A node loses its power, and gets it back, by an annotation::

    kubectl annotate node n1 embedded.backstay.dev/power=off --overwrite

Whoever can reach this machine's loopback is its administrator; there is nothing to protect.
"""

import asyncio
import dataclasses
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from backstay import __version__
from backstay.apis.apps import STATEFUL_SETS
from backstay.apis.definitions import definitions
from backstay.apis.kubevirt import VIRTUAL_MACHINES
from backstay.cli.session import Session
from backstay.kube.client import KubeClient
from backstay.kube.resource import NAMESPACES, Resource
from backstay.seam import Seams
from backstay.seam.tasks import Tasks
from backstay.sim.cluster.desk import NODES, Desk
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.cluster.ground import on_this_loop
from backstay.sim.cluster.timers import Timers
from backstay.sim.kubevirt import KubeVirt, VirtHandler, install, virtual_machine

POWER = "embedded.backstay.dev/power"

_MACHINES = ("n1", "n2", "n3")
_GUESTS = ("web", "mail", "files")
_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
    namespaced=False,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Embedded:
    """``kubeconfig`` is a file that others on this machine can use meanwhile."""

    session: Session
    kubeconfig: str


@asynccontextmanager
async def open_embedded(
    seams: Seams, *, namespace: str, scale: float = 1.0
) -> AsyncIterator[Embedded]:
    """The cluster, furnished and settled, until the end of the block."""
    async with on_this_loop(seams) as ground, Tasks("embedded") as tasks:
        cluster = EmbeddedCluster(ground, timers=Timers().scaled(scale))
        install(cluster.api)
        cluster.add_controller(
            "virt-controller", lambda own: KubeVirt(cluster.api.operations, rng=own.rng)
        )
        for name in _MACHINES:
            cluster.add_node(name, agents={"virt-handler": VirtHandler()})
        await cluster.settled()
        await _furnish(cluster.client(), namespace)
        tasks.spawn(_obey_annotations(cluster), name="power")
        client = KubeClient(
            ground.transport, cluster.access(), user_agent=f"backstay/{__version__}"
        )
        inside = dataclasses.replace(seams, transport=ground.transport)
        async with cluster.serve(seams.serve) as served:
            with _in_a_file(served.kubeconfig) as path:
                yield Embedded(Session(inside, client), path)


async def _furnish(client: KubeClient, namespace: str) -> None:
    for definition in definitions():
        await client.create(_DEFINITIONS, definition)
    await client.create(NAMESPACES, {"metadata": {"name": namespace}})
    for guest in _GUESTS:
        await client.create(VIRTUAL_MACHINES, virtual_machine(guest), namespace="default")
    await client.create(STATEFUL_SETS, _database(), namespace="default")


def _database() -> dict[str, Any]:
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    container = {
        "name": "db",
        "image": "db",
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    return {
        "metadata": {"name": "db"},
        "spec": {
            "serviceName": "db",
            "replicas": 2,
            "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [container]},
            },
            "volumeClaimTemplates": [claim],
        },
    }


async def _obey_annotations(cluster: EmbeddedCluster) -> None:
    """The power of each node is what its annotation says, on if it says nothing."""
    news = asyncio.Event()
    release = cluster.api.store.follow(NODES, lambda _: news.set())
    desk = Desk(cluster.api.operations)
    try:
        while True:
            await news.wait()
            news.clear()
            for name, node in cluster.nodes.items():
                annotations = (desk.get(NODES, name) or {})["metadata"].get("annotations") or {}
                if annotations.get(POWER) == "off":
                    if node.boot_id is not None:
                        node.kill()
                elif node.boot_id is None:
                    node.reboot()
    finally:
        release()


@contextmanager
def _in_a_file(kubeconfig: bytes) -> Iterator[str]:
    """Readable by nobody else, and gone at the end."""
    descriptor, path = tempfile.mkstemp(prefix="backstay-embedded-", suffix=".kubeconfig")
    try:
        with open(descriptor, "wb") as file:
            file.write(kubeconfig)
        yield path
    finally:
        os.unlink(path)

"""An embedded cluster whose volumes are LINSTOR's, in a world."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from backstay.kube.resource import NAMESPACES, NODES, PODS, Resource
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.cluster.ground import WorldGround
from backstay.sim.linstor.database import QUORUM
from backstay.sim.linstor.install import DEPLOYMENT, add_satellite, class_object, install
from backstay.sim.linstor.replicas import Kind
from backstay.sim.linstor.storage import NAMESPACE, Linstor, Placement
from backstay.sim.nodes.truth import What
from backstay.sim.world import World
from tests.sim.cluster.stages import CLASSES, STATEFUL_SETS, Json

ATTACHMENTS = Resource(
    "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False
)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
EVERYWHERE = {"n1": Kind.DISKFUL, "n2": Kind.DISKFUL, "n3": Kind.DISKFUL}
CLASS = "replicated"
NO_META: Mapping[str, str] = {}


class Rig:
    """Three nodes; LINSTOR's controller runs on ``n3``."""

    def __init__(self, world: World, replicas: Mapping[str, Kind], quorum: str) -> None:
        ground = WorldGround(world)
        self.world = world
        self.linstor = Linstor(world.dice("linstor"), now=ground.now)
        self.linstor.classes[CLASS] = Placement(replicas, {QUORUM: quorum})
        self.cluster = EmbeddedCluster(ground, devices=self.linstor)
        install(self.linstor, self.cluster)
        self.client = self.cluster.client()
        self.nodes = self.cluster.nodes
        self.most_writers = 0
        self.cluster.truth.follow(lambda _: self._count())

    async def set_up(self) -> None:
        for name in ("n1", "n2", "n3"):
            self.cluster.add_node(name)
            add_satellite(self.linstor, self.cluster, name, shown=name)
        await self.cluster.settled()
        await self.client.create(CLASSES, class_object(CLASS))
        await self.client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        self.prefer("n3")
        await self.client.create(DEPLOYMENTS, DEPLOYMENT, namespace=NAMESPACE)
        await self.until(lambda: self.served_by("n3"))

    async def run_database(self, *, on: str = "n1", **meta: Mapping[str, str]) -> None:
        """One replica ``db-0`` with one volume; ``meta`` are its labels and annotations."""
        self.prefer(on)
        await self.client.create(STATEFUL_SETS, _database(**meta), namespace="default")
        await self.until(lambda: self.copies == [on])
        self.prefer("")

    def prefer(self, node: str) -> None:
        self.cluster.prefers = lambda _: node

    async def until(self, holds: Callable[[], bool], *, timeout: float = 200) -> None:
        await self.cluster.until(holds, timeout=timeout)

    # What is so

    def served_by(self, node: str) -> bool:
        return self.linstor.is_served and self.linstor.host == node

    @property
    def copies(self) -> list[str]:
        return self.cluster.truth.copies("default", "db-0")

    @property
    def volume(self) -> str:
        (name,) = self.linstor.volumes
        return name

    @property
    def writers(self) -> list[str]:
        return [each.node for each in self.cluster.truth.writers(self.volume)]

    @property
    def replicas(self) -> dict[str, str]:
        resource = self.linstor.drbd.resources[self.linstor.volumes[self.volume].resource]
        return {node: str(each.kind) for node, each in resource.replicas.items()}

    def attached(self) -> dict[str, Json]:
        found = (dict(each.object) for each in self.cluster.api.store.all(ATTACHMENTS.label))
        return {each["spec"]["nodeName"]: each for each in found}

    def turns(self, node: str) -> list[str]:
        """What DRBD has decided about this node, in order."""
        log = self.cluster.truth.log
        kinds = (What.ADMITTED, What.BARRED)
        return [each.what.value for each in log if each.node == node and each.what in kinds]

    # What people do

    async def release(self, node: str) -> None:
        """Somebody deletes the pod without grace, and the attachment."""
        await self.client.delete(PODS, "db-0", namespace="default", conditions={"grace": 0})
        name = self.attached()[node]["metadata"]["name"]
        await self.client.delete(ATTACHMENTS, name)

    async def keep_out(self, node: str) -> None:
        await self.client.merge_patch(NODES, node, {"spec": {"unschedulable": True}})

    def _count(self) -> None:
        for name in self.linstor.volumes:
            self.most_writers = max(self.most_writers, len(self.cluster.truth.writers(name)))


def play(
    story: Callable[[Rig], Awaitable[None]],
    *,
    replicas: Mapping[str, Kind] = EVERYWHERE,
    quorum: str = "majority",
    seed: int = 3,
) -> None:
    async def told(world: World) -> None:
        rig = Rig(world, replicas, quorum)
        await rig.set_up()
        await story(rig)

    with World(seed=seed) as world:
        world.run(told(world))


def _database(
    *, labels: Mapping[str, str] = NO_META, annotations: Mapping[str, str] = NO_META
) -> Json:
    own: dict[str, Any] = {"app": "db"}
    claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": CLASS}
    return {
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 1,
            "serviceName": "db",
            "selector": {"matchLabels": own},
            "template": {
                "metadata": {"labels": {**own, **labels}, "annotations": dict(annotations)},
                "spec": {"containers": [{"name": "main", "image": "none"}]},
            },
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "data"},
                    "spec": {**claim, "resources": {"requests": {"storage": "1Gi"}}},
                }
            ],
        },
    }

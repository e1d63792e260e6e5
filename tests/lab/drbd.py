"""A cluster with LINSTOR, for tests that do by hand what no scenario can say.

``staged`` sets up what a scenario begins with, hands it to the test as a ``Scene`` and gives it
back when the test has done its worst: what was stored, told and running then can still be looked
at. No invariant may have been broken on the way.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from backstay.apis.apps import STATEFUL_SETS
from backstay.apis.backstay import INCIDENTS
from backstay.apis.storage import ATTACHMENTS, VOLUMES
from backstay.kube.resource import NODES, PODS
from backstay.lab.cluster import NAMESPACE, LabCluster
from backstay.lab.linstor_spec import What
from backstay.lab.linstor_stage import LinstorStage
from backstay.lab.scenario import load
from backstay.lab.stage import CLAIMS, DEPLOYMENTS, Stage
from backstay.lab.timeline import is_tainted
from backstay.lab.witness import Committed, Happening
from backstay.model.labels import ON_STORAGE_LOST
from backstay.sim.chance import Chance
from backstay.sim.cluster.ground import WorldGround
from backstay.sim.linstor.storage import DRIVER, Linstor, Volume
from backstay.sim.world import World

Json = dict[str, Any]

LABEL = {ON_STORAGE_LOST: "remove"}
"""What asks the Piraeus HA controller to help."""

FAILED_OVER = 150.0
"""Seconds from a death to when all has been moved that can be."""

_KINDS = {"StatefulSet": STATEFUL_SETS, "Deployment": DEPLOYMENTS, "Pod": PODS}

BASE = """
name: drbd
question: What if?
nodes: [n1, n2, n3]
linstor: {controller: n3}
until: 1
"""
LABELLED_ONLY = BASE + "policy: {virtualMachines: false, statefulSets: false}\n"
"""Nothing is protected but what carries a label, as with the Piraeus HA controller."""
ONE_DATABASE = BASE + "workloads: {statefulSets: [{name: db, node: n1, claims: [linstor]}]}\n"
DATABASE = "db-0"
DISK = "data-1-db-0"
"""Its pod, and its claim."""
ELSEWHERE = (["n2"], ["n3"])
"""Where something of n1 can be found once it was moved: in one place."""


class Scene:
    """See the module."""

    def __init__(self, world: World, cluster: LabCluster, linstor: Linstor, stage: Stage) -> None:
        self.world = world
        self.cluster = cluster
        self.client = cluster.client
        self.linstor = linstor
        self.stage = stage
        self.first = cluster.leader
        """The program that led at first."""
        self.touched: list[str] = []
        """The pods that were marked or removed by us, once for each time."""
        cluster.witness.watch(self._note)

    def _note(self, happening: Happening) -> None:
        if isinstance(happening, Committed) and happening.by is not None:
            commit = happening.commit
            if commit.storage == PODS.label and commit.before is not None:
                self.touched.append(commit.before.key[1])

    # Setting up

    async def start(
        self,
        name: str,
        *,
        kind: str = "Deployment",
        claim: str = "",
        on: str = "n1",
        labels: Json | None = None,
        annotations: Json | None = None,
        **spec: Any,
    ) -> None:
        """Something with one pod there, which uses a claim of its own unless one is named; until
        it runs. ``spec`` is of its pod; ``mounts`` are beside the claim, which it ``only_reads``
        if that is true."""
        claim = claim or await self.claim(f"{name}-data")
        pod = _pod(name, claim, {**(labels or {}), "app": name}, annotations or {}, spec)
        body = {"metadata": {"name": name, **pod["metadata"]}, "spec": pod["spec"]}
        if kind != "Pod":
            selector = {"matchLabels": {"app": name}}
            body = {
                "metadata": {"name": name},
                "spec": {"replicas": 1, "selector": selector, "serviceName": name, "template": pod},
            }
        if kind == "Deployment":
            del body["spec"]["serviceName"]
        self.cluster.embedded.prefers = lambda _: on
        await self.client.create(_KINDS[kind], body, namespace=NAMESPACE)
        await self.cluster.until(lambda: on in self.places(name))

    async def claim(
        self,
        name: str,
        *,
        of: str = "linstor",
        mode: str = "ReadWriteOnce",
        volume: str = "",
    ) -> str:
        spec = {
            "accessModes": [mode],
            "storageClassName": of,
            "resources": {"requests": {"storage": "1Gi"}},
            **({"volumeName": volume} if volume else {}),
        }
        body = {"metadata": {"name": name}, "spec": spec}
        await self.client.create(CLAIMS, body, namespace=NAMESPACE)
        return name

    async def volume(self, claim: str, *, resource: str, handle: str, **attributes: str) -> str:
        """A claim whose volume and resource somebody has made by hand."""
        csi = {"driver": DRIVER, "volumeHandle": handle, "volumeAttributes": attributes}
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "storageClassName": "linstor",
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": NAMESPACE, "name": claim},
            "csi": csi,
        }
        placed = self.linstor.classes["linstor"]
        self.linstor.add_volume(f"pv-{claim}", Volume(resource, shared=False))
        self.linstor.database.define(resource, placed.replicas, props=placed.props)
        await self.client.create(VOLUMES, {"metadata": {"name": f"pv-{claim}"}, "spec": spec})
        return await self.claim(claim, volume=f"pv-{claim}")

    # Doing

    async def lose(self, node: str, *, seconds: float = FAILED_OVER) -> None:
        """Its power, and waits."""
        self.cluster.nodes[node].kill()
        await asyncio.sleep(seconds)

    def happen(self, what: What) -> None:
        self.on_stage.happen(what, 0.0)

    @property
    def on_stage(self) -> LinstorStage:
        assert self.stage.linstor is not None
        return self.stage.linstor

    # Looking

    def places(self, name: str) -> list[str]:
        """The nodes on which something of this name really runs."""
        return [each.node for each in self.cluster.truth.running() if _is(each.name, name)]

    def attached(self, node: str) -> set[str]:
        """The claims whose volumes are attached to it, by the API."""
        stored = (each.object["spec"] for each in self.cluster.store.all(ATTACHMENTS.label))
        names = {
            each["source"]["persistentVolumeName"] for each in stored if each["nodeName"] == node
        }
        return {claim for claim, volume in self.volumes().items() if volume in names}

    def volumes(self) -> dict[str, str]:
        """By claim."""
        stored = (each.object for each in self.cluster.store.all(CLAIMS.label))
        return {each["metadata"]["name"]: each["spec"].get("volumeName", "") for each in stored}

    def resource(self, claim: str) -> str:
        return self.linstor.volumes[self.volumes()[claim]].resource

    def tainted(self) -> set[str]:
        nodes = (each.object for each in self.cluster.store.all(NODES.label))
        return {node["metadata"]["name"] for node in nodes if is_tainted(node)}

    def incidents(self) -> list[Json]:
        return [dict(each.object) for each in self.cluster.store.all(INCIDENTS.label)]

    def timeline(self) -> list[str]:
        """What all incidents have told."""
        return [
            f"{moment['code']}: {moment['sentence']}"
            for incident in self.incidents()
            for moment in (incident.get("status") or {}).get("timeline") or ()
        ]

    def events(self, about: str) -> list[Json]:
        """About an object of this name, the oldest first."""
        stored = [dict(each.object) for each in self.cluster.store.all("events")]
        found = [each for each in stored if _is(each["involvedObject"]["name"], about)]
        return sorted(found, key=lambda each: str(each["lastTimestamp"]))

    def why(self, name: str) -> tuple[str, str]:
        """What is told of it: a code and a sentence."""
        for incident in self.cluster.open_incidents():
            for record in (incident.get("status") or {}).get("workloads") or ():
                if _is(record["workload"].rpartition("/")[2], name):
                    return record["code"], record["sentence"]
        return "", ""


def staged(text: str, test: Callable[[Scene], Awaitable[None]]) -> Scene:
    """See the module."""
    scenario = load(text)

    async def perform(world: World) -> Scene:
        ground = WorldGround(world)
        linstor = Linstor(Chance(scenario.seed, "linstor"), now=ground.now)
        cluster = LabCluster(ground, linstor=linstor)
        stage = Stage(cluster, scenario)
        await stage.set_up()
        scene = Scene(world, cluster, linstor, stage)
        await test(scene)
        await cluster.replay()
        return scene

    with World(scenario.seed) as world:
        scene = world.run(perform(world))
    broken = [f"{each.invariant}: {each.sentence}" for each in scene.cluster.inspector.broken]
    assert not broken, broken
    return scene


def _is(name: str, of: str) -> bool:
    """Whether it is this, or a pod of it."""
    return name == of or name.startswith(f"{of}-")


def _pod(name: str, claim: str, labels: Json, annotations: Json, spec: Json) -> Json:
    mounts = [{"name": "data", "mountPath": "/data"}, *spec.pop("mounts", ())]
    source = {"claimName": claim, "readOnly": spec.pop("only_reads", False)}
    volumes = [{"name": "data", "persistentVolumeClaim": source}]
    container = {"name": "main", "image": f"example/{name}", "volumeMounts": mounts}
    return {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": {
            "containers": [container],
            "volumes": [*volumes, *spec.pop("volumes", ())],
            **spec,
        },
    }

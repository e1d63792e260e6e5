"""Lagging: milliseconds from the end of a grace to the last write about it, under virtual time.

A LINSTOR has ``amount`` volumes. A node dies that used a twentieth of them, in as many pods of a
StatefulSet; all others are in use elsewhere. Ours is the whole controller, with everything that it
asks and tells: for each volume it is the time from the moment at which DRBD's word has lasted for
the grace until its attachment is deleted, with the pod marked and removed before, and the slowest
counts. No CPU time is in it: what is measured is how many things are done one after the other.

The other figure is what the Piraeus HA controller (v0.x) does at the end of its grace, by the same
client on the same network: it deletes pod and attachment of one volume after the other, without
asking anybody before or telling anybody after.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from backstay.apis.storage import ATTACHMENTS
from backstay.control.guard import Guard, Leave
from backstay.control.outcomes import Freed
from backstay.decide.detach import Plan
from backstay.kube.resource import PODS
from backstay.lab.cluster import NAMESPACE, LabCluster
from backstay.lab.linstor_spec import LinstorSpec
from backstay.lab.scenario import Claim, PolicySpec, Scenario, StatefulSet, Workloads
from backstay.lab.stage import Stage
from backstay.model.drbd import ResourceSight
from backstay.model.policy import Mode
from backstay.sim.chance import Chance
from backstay.sim.cluster.ground import WorldGround
from backstay.sim.linstor.replicas import Kind
from backstay.sim.linstor.storage import Linstor
from backstay.sim.world import World
from backstay.sources.linstor import LinstorSource
from bench.worker import Job, Measure

T = TypeVar("T")

_NODES = ("n1", "n2", "n3")
_SHARE = 20
_LONG = 120.0
"""Seconds in which all of it has happened."""


def ours(job: Job) -> Measure:
    """A run that leaves a volume behind gives no figure."""

    def measure() -> float:
        due: dict[str, float] = {}
        done: dict[str, float] = {}

        async def main(world: World) -> None:
            stage = Stage(
                _cluster(world),
                _scenario(job.amount, Mode.ARMED),
                linstor=_noting_source(due),
                guard=_noting_guard(done),
            )
            await _die(stage, job.amount)
            await asyncio.sleep(_LONG)

        _in_a_world(main)
        if len(done) != _used(job.amount):
            raise RuntimeError(f"{len(done)} of {_used(job.amount)} volumes were detached")
        return max(done[volume] - due[volume] for volume in done) * 1e3

    return measure


def one_by_one(job: Job) -> Measure:
    def measure() -> float:
        async def main(world: World) -> float:
            stage = Stage(_cluster(world), _scenario(job.amount, Mode.OBSERVE))
            await _die(stage, job.amount)
            return await _delete_each(stage.cluster)

        return _in_a_world(main) * 1e3

    return measure


def _in_a_world(main: Callable[[World], Coroutine[Any, Any, T]]) -> T:
    with World(seed=1) as world:
        return world.run(main(world))


def _used(amount: int) -> int:
    return max(1, amount // _SHARE)


def _cluster(world: World) -> LabCluster:
    ground = WorldGround(world)
    return LabCluster(ground, linstor=Linstor(Chance(1, "linstor"), now=ground.now))


def _scenario(amount: int, mode: Mode) -> Scenario:
    database = StatefulSet(name="db", replicas=_used(amount), node="n1", claims=(Claim.LINSTOR,))
    return Scenario(
        name="lag",
        question="How long does it take from the end of the grace?",
        nodes=_NODES,
        linstor=LinstorSpec(controller="n2"),
        workloads=Workloads(stateful_sets=(database,)),
        policy=PolicySpec(mode=mode),
        until=_LONG,
    )


async def _die(stage: Stage, amount: int) -> None:
    await stage.set_up()
    linstor = stage.cluster.linstor
    assert linstor is not None
    for number in range(amount - _used(amount)):
        name = f"elsewhere-{number}"
        linstor.database.define(name, dict.fromkeys(_NODES, Kind.DISKFUL))
        linstor.drbd.promote(name, _NODES[1 + number % 2])
    stage.cluster.nodes["n1"].kill()


def _noting_source(due: dict[str, float]) -> type[LinstorSource]:
    """Notes when the grace of each volume ends: a resource is called like its volume here."""

    class Noting(LinstorSource):
        def _take(self, sight: ResourceSight) -> None:
            super()._take(sight)
            taken = self._tracks[sight.resource, sight.node]
            if taken.since is not None:
                due[taken.resource] = taken.since + taken.grace

    return Noting


def _noting_guard(done: dict[str, float]) -> type[Guard]:
    """Notes when the attachment of each volume was deleted."""

    class Noting(Guard):
        async def _detach(self, decided: Plan, leave: Leave) -> Freed:
            freed = await super()._detach(decided, leave)
            now = asyncio.get_running_loop().time()
            done.update((attachment.pv, now) for attachment in decided.detach)
            return freed

    return Noting


async def _delete_each(cluster: LabCluster) -> float:
    client, loop = cluster.client, asyncio.get_running_loop()
    found = (await client.list(ATTACHMENTS)).json()["items"]
    attachments = [each["metadata"]["name"] for each in found if each["spec"]["nodeName"] == "n1"]
    pods = (await client.list(PODS, fields="spec.nodeName=n1", namespace=NAMESPACE)).json()["items"]
    began = loop.time()
    for pod, attachment in zip(pods, attachments, strict=True):
        name = pod["metadata"]["name"]
        await client.delete(PODS, name, namespace=NAMESPACE, conditions={"grace": 0})
        await client.delete(ATTACHMENTS, attachment)
    return loop.time() - began

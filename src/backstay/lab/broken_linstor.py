"""Broken parts that have to do with LINSTOR and DRBD; see ``broken.py``."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from backstay.control.failover import FailoverLoop
from backstay.control.guard import Guard
from backstay.control.incident import OpenIncident
from backstay.control.witnesses import Witnesses
from backstay.decide import quorum
from backstay.decide.detach import Holdings, Plan
from backstay.decide.failover import Snapshot
from backstay.decide.succession import is_succeeded
from backstay.drivers.linstor.wire import Options
from backstay.kube.lease import Term
from backstay.kube.resource import PODS
from backstay.lab.broken import Credulous, Reading
from backstay.model.drbd import ReplicaSight, ResourceSight
from backstay.model.evidence import Testimony
from backstay.model.node import NodeFacts
from backstay.model.reasons import Why
from backstay.model.storage import Owed
from backstay.model.workload import Volume, Workload, WorkloadKind
from backstay.sources.linstor import LinstorSource, LinstorTerms
from backstay.sources.linstor_look import Look

# What LINSTOR says


class Believing(LinstorSource):
    """Takes every look for what ``_believe`` and ``_hear`` make of it."""

    def _sight(self, resource: str, node: str, options: Options, look: Look) -> ResourceSight:
        seen = self._believe(super()._sight(resource, node, options, look))
        heard = tuple(
            each if each.node == node else self._hear(each, seen) for each in seen.replicas
        )
        return msgspec.structs.replace(seen, replicas=heard)

    def _believe(self, sight: ResourceSight) -> ResourceSight:
        return sight

    def _hear(self, replica: ReplicaSight, _sight: ResourceSight) -> ReplicaSight:
        """Not that of the node that it is about."""
        return replica


class AsIfQuorate(Believing):
    def _believe(self, sight: ResourceSight) -> ResourceSight:
        return msgspec.structs.replace(sight, quorum="majority")


class AsIfOnePrimary(Believing):
    def _believe(self, sight: ResourceSight) -> ResourceSight:
        return msgspec.structs.replace(sight, two_primaries=False)


class WithoutPrimaries(Believing):
    """Takes no satellite's word that a replica is in use."""

    def _believe(self, sight: ResourceSight) -> ResourceSight:
        unused = tuple(msgspec.structs.replace(each, in_use=False) for each in sight.replicas)
        return msgspec.structs.replace(sight, replicas=unused)


class WithoutFreePrimaries(WithoutPrimaries):
    """Nor does it know what is set for one replica alone: a primary that loses the quorum cannot
    write, so that its word is needed only where it goes by none."""

    def _believe(self, sight: ResourceSight) -> ResourceSight:
        return msgspec.structs.replace(super()._believe(sight), quorum="majority")


class OneLossIsEnough(Believing):
    """Nor does it ask whether anybody could take over, by which DRBD itself would say that a
    primary is in sight of somebody."""

    def _hear(self, replica: ReplicaSight, sight: ResourceSight) -> ReplicaSight:
        lost = any(each.sees is False for each in sight.replicas)
        seen = replica.sees and not lost
        return msgspec.structs.replace(replica, sees=seen, may_promote=True)


class WithoutMajority(Believing):
    """Counts those who can be asked and nobody else; nor does it ask whether they could take over,
    by which DRBD itself counts."""

    def _believe(self, sight: ResourceSight) -> ResourceSight:
        there = tuple(
            msgspec.structs.replace(each, diskful=each.node != sight.node)
            for each in sight.replicas
            if each.online or each.node == sight.node
        )
        return msgspec.structs.replace(sight, replicas=there)

    def _hear(self, replica: ReplicaSight, _sight: ResourceSight) -> ReplicaSight:
        return msgspec.structs.replace(replica, may_promote=True)


class FromHearsay(Believing):
    """Nor does it ask whether anybody could take over: who is alive would deny it."""

    def _hear(self, replica: ReplicaSight, sight: ResourceSight) -> ReplicaSight:
        now = asyncio.get_running_loop().time()
        return msgspec.structs.replace(replica, alive_at=now, may_promote=True)


class OnceInAWhile(LinstorSource):
    """Counts the grace from the first look that has ever shown the node shut out."""

    def __init__(self, *args: Any, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self._first: dict[tuple[str, str], float] = {}

    def _take(self, sight: ResourceSight) -> None:
        super()._take(sight)
        key = (sight.resource, sight.node)
        since = self._tracks[key].since
        if since is not None:
            first = self._first.setdefault(key, since)
            self._tracks[key] = msgspec.structs.replace(self._tracks[key], since=first)


class OldNews(LinstorSource):
    """What was seen once counts as seen now, whether LINSTOR can be heard and asked or not."""

    async def ask(self, node: NodeFacts, workloads: Sequence[Workload]) -> Testimony:
        await super().ask(node, workloads)
        return self.testimony(node)

    def _testimony(self, node: str, *, after: float) -> Testimony:
        return Testimony(
            quorums=tuple(self._renewed_sight(s) for (_, name), s in self._sights() if name == node)
        )

    def _renewed_sight(self, sight: ResourceSight) -> ResourceSight:
        """Whose word it is may well be alive."""
        alive = tuple(
            msgspec.structs.replace(each, alive_at=self._alive_at(each.node))
            for each in sight.replicas
        )
        now = asyncio.get_running_loop().time()
        return msgspec.structs.replace(sight, observed_at=now, replicas=alive)

    def _begin_anew(self, resource: str) -> None:
        pass


class ReadsOptionsOnce(LinstorSource):
    def __init__(self, *args: Any, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self._read: dict[str, Options] = {}

    def _sight(self, resource: str, node: str, options: Options, look: Look) -> ResourceSight:
        return super()._sight(resource, node, self._read.setdefault(resource, options), look)


# What it says it of


class OnlyLinstors(Reading):
    """Looks at no volumes but those of LINSTOR, where there are any."""

    def _take(self, workload: Workload) -> Workload:
        mine = tuple(each for each in workload.volumes if _is_linstors(each))
        return msgspec.structs.replace(workload, volumes=mine or workload.volumes)


class ExportsLikeDevices(Reading):
    """Does not know that a volume is served over NFS."""

    def _take(self, workload: Workload) -> Workload:
        volumes = tuple(msgspec.structs.replace(v, exported=False) for v in workload.volumes)
        return msgspec.structs.replace(workload, volumes=volumes)


class OfAnyDriver(Reading):
    """Takes every volume for one of the resource that some other one is on."""

    def _take(self, workload: Workload) -> Workload:
        handle = next((each.handle for each in workload.volumes if _is_linstors(each)), "")
        if not handle:
            return workload
        taken = tuple(
            msgspec.structs.replace(each, driver=LinstorTerms().driver, handle=handle)
            for each in workload.volumes
        )
        return msgspec.structs.replace(workload, volumes=taken)


def _is_linstors(volume: Volume) -> bool:
    return volume.driver == LinstorTerms().driver


class DetachesEverything(Guard):
    """Detaches all that is attached to the node as soon as anything may be."""

    def _plan(self, snapshot: Snapshot, owed: Sequence[Owed], holdings: Holdings) -> Plan:
        decided = super()._plan(snapshot, owed, holdings)
        if not decided.detach:
            return decided
        everything = tuple(each for each in holdings.attachments if not each.going)
        return msgspec.structs.replace(decided, detach=everything)


class RobsTheReady(Credulous):
    """Takes a node that DRBD has lost for one that is silent."""

    def is_interesting(self, name: str) -> bool:
        return True

    def _see(self, facts: NodeFacts, testimony: Testimony) -> NodeFacts:
        if all(quorum.shut_out(each) is not None for each in testimony.quorums):
            return facts
        return msgspec.structs.replace(
            facts, ready="Unknown", lease_seen_at=0.0, lease_changed_at=None,
            status_changed_at=None,
        )  # fmt: skip


# LINSTOR's controller


class RemovesLinstor(Guard):
    async def succeed(
        self, node: str, *, term: Term, incident: OpenIncident
    ) -> tuple[Workload, ...]:
        marked = await super().succeed(node, term=term, incident=incident)
        for pod in (pod for workload in marked for pod in workload.pods):
            conditions: Any = {"uid": pod.uid, "grace": 0}
            await self._client.delete(
                PODS,
                pod.name,
                namespace=pod.namespace,
                conditions=conditions,
                not_after=term.require(),
            )
        return marked


class _Hasty(Witnesses):
    """Leaves it to the guard to look."""

    async def bring_back(
        self,
        snapshot: Snapshot,
        incident: OpenIncident,
        *,
        term: Term,
        told: Callable[[Why], None],
    ) -> None:
        await self._guard.succeed(snapshot.facts.name, term=term, incident=incident)


class WithHastyWitnesses(FailoverLoop):
    def __init__(self, *args: Any, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self._witnesses = _Hasty(rest["guard"], rest["linstor"], times=self._times)


class SucceedsTheLiving(Guard):
    """Does not ask what became of the node."""

    def _succeeded(self, snapshot: Snapshot) -> tuple[Workload, ...]:
        return tuple(each for each in snapshot.workloads if is_succeeded(each) and not each.marked)


class SucceedsThoughDeaf(Guard):
    """Does not ask whether most other nodes are silent as well."""

    def _succeeded(self, snapshot: Snapshot) -> tuple[Workload, ...]:
        return super()._succeeded(msgspec.structs.replace(snapshot, view_age=0.0))


class SucceedsAnybody(Guard):
    """Has every pod replaced that somebody would start again."""

    def _succeeded(self, snapshot: Snapshot) -> tuple[Workload, ...]:
        found = super()._succeeded(snapshot)
        others = (each for each in snapshot.workloads if each.kind is WorkloadKind.OTHER)
        return (*found, *(each for each in others if each.restarts and each not in found))

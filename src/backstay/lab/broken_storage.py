"""Broken parts that have to do with volumes; see ``broken.py``."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from backstay.apis.csiaddons import NETWORK_FENCES, UNFENCED
from backstay.control.failover import FailoverLoop
from backstay.control.fences import Fences
from backstay.control.guard import Guard
from backstay.control.incident import OpenIncident
from backstay.control.volumes import Volumes
from backstay.decide.detach import Holdings, Plan
from backstay.decide.failover import Decision, Snapshot
from backstay.kube.lease import Term
from backstay.kube.resource import NODES
from backstay.lab.broken import Credulous, Reading
from backstay.model.evidence import Silence, Testimony
from backstay.model.fences import FenceOrder, Fencing
from backstay.model.labels import OUT_OF_SERVICE, TAINT
from backstay.model.node import NodeFacts
from backstay.model.reasons import Why
from backstay.model.storage import Owed
from backstay.model.workload import Volume, Workload


class _Rash(Volumes):
    """Frees everything that is owed, whatever is known of the node."""

    async def free(
        self,
        snapshot: Snapshot,
        incident: OpenIncident,
        *,
        term: Term,
        told: Callable[[Why], None],
    ) -> str:
        settled = self._settled.setdefault(snapshot.facts.name, set())
        owed = [each for each in incident.owed() if each not in settled]
        if not owed:
            return ""
        freed = await self._guard.detach(snapshot.facts.name, owed, term=term, incident=incident)
        settled |= freed.settled
        return freed.outcome


class WithRashVolumes(FailoverLoop):
    def __init__(self, *args: Any, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self._volumes = _Rash(self._client, rest["guard"], times=self._times)


class _Blind(Volumes):
    async def left_behind(
        self, snapshot: Snapshot, incident: OpenIncident | None, *, told: Callable[[Why], None]
    ) -> bool:
        return False


class GivesBackWhatIsMounted(FailoverLoop):
    def __init__(self, *args: Any, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self._volumes = _Blind(self._client, rest["guard"], times=self._times)


class DetachesOnAnyWord(Guard):
    def _plan(self, snapshot: Snapshot, owed: Sequence[Owed], holdings: Holdings) -> Plan:
        wanted = {each.pv for each in owed}
        detach = tuple(a for a in holdings.attachments if a.pv in wanted and not a.going)
        return Plan(detach=detach, settled=frozenset(owed))


class OutOfServiceAtOnce(Guard):
    """Puts the node out of service, whatever else is there."""

    def _plan(self, snapshot: Snapshot, owed: Sequence[Owed], holdings: Holdings) -> Plan:
        decided = super()._plan(snapshot, owed, holdings)
        return msgspec.structs.replace(decided, taint=True, detach=())


class WithoutAttachmentsVersion(Guard):
    """Deletes attachments by name alone."""

    def _plan(self, snapshot: Snapshot, owed: Sequence[Owed], holdings: Holdings) -> Plan:
        decided = super()._plan(snapshot, owed, holdings)
        careless = tuple(msgspec.structs.replace(a, version="") for a in decided.detach)
        return msgspec.structs.replace(decided, detach=careless)


class TakesOffAnybodysTaint(Guard):
    async def let_go(self, node: str, *, uid: str, term: Term) -> None:
        live = (await self._client.get(NODES, node)).json()
        taints = live["spec"].get("taints") or []
        left = [each for each in taints if each["key"] not in (TAINT, OUT_OF_SERVICE)]
        version = live["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version}, "spec": {"taints": left or None}}
        await self._client.merge_patch(NODES, node, patch, not_after=term.require())


class LiftsAnybodysFence(Guard):
    async def let_go(self, node: str, *, uid: str, term: Term) -> None:
        for fence in (await self._client.list(NETWORK_FENCES)).json()["items"]:
            patch = {"spec": {"fenceState": UNFENCED}}
            name = fence["metadata"]["name"]
            await self._client.merge_patch(NETWORK_FENCES, name, patch, not_after=term.require())
        await super().let_go(node, uid=uid, term=term)


class OfAnyFence(Credulous):
    """Takes every fence for one that speaks of all volumes."""

    def _listen(self, facts: NodeFacts, testimony: Testimony) -> Testimony:
        watched = self.watched.get(facts.name)
        workloads = (watched.workloads if watched else None) or ()
        volumes = tuple(volume.pv for each in workloads for volume in each.volumes)
        fences = tuple(
            msgspec.structs.replace(fence, volumes=volumes) for fence in testimony.fences
        )
        return msgspec.structs.replace(testimony, fences=fences)


class WithoutPlugged(Reading):
    def _take(self, workload: Workload) -> Workload:
        return msgspec.structs.replace(workload, volumes=workload.volumes[:1])


class WithoutHostPaths(Reading):
    """Does not read what a pod has mounted besides its claims."""

    def _take(self, workload: Workload) -> Workload:
        bound = any(
            path.removeprefix("hostPath ") in workload.pinned_by for path in _paths(workload)
        )
        pinned_by = "" if bound else workload.pinned_by
        return msgspec.structs.replace(workload, also_writes=(), pinned_by=pinned_by)


def _paths(workload: Workload) -> list[str]:
    return [each for each in workload.also_writes if each.startswith("hostPath ")]


_NOTHING = "nothing"


class NothingIsCovered(Reading, Credulous):
    """Takes whoever has no volumes for one whose volumes are all refused."""

    def _take(self, workload: Workload) -> Workload:
        if workload.volumes:
            return workload
        return msgspec.structs.replace(workload, volumes=(Volume(claim=_NOTHING, pv=_NOTHING),))

    def _listen(self, _facts: NodeFacts, testimony: Testimony) -> Testimony:
        fences = tuple(
            msgspec.structs.replace(fence, volumes=(*fence.volumes, _NOTHING))
            for fence in testimony.fences
        )
        return msgspec.structs.replace(testimony, fences=fences)


# Fences against the living


class _RashFences(Fences):
    """Leaves it to the guard to look."""

    async def put_up(
        self,
        snapshot: Snapshot,
        decision: Decision,
        incident: OpenIncident,
        *,
        term: Term,
        told: Callable[[Why], None],
    ) -> str:
        node = snapshot.facts.name
        raised = await self._guard.fence(node, self._source.fencing, term=term, incident=incident)
        return f"raised {len(raised)} fences" if raised else ""


class WithRashFences(FailoverLoop):
    def __init__(self, *args: Any, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self._fences = _RashFences(rest["guard"], rest["fences"], times=self._times)


class FencesTheLiving(Guard):
    """Does not ask whether anything of the node is heard."""

    def _orders(self, snapshot: Snapshot, fencing: Fencing) -> tuple[FenceOrder, ...]:
        return super()._orders(_as_if_silent(snapshot), fencing)


def _as_if_silent(snapshot: Snapshot) -> Snapshot:
    now = snapshot.facts.looked_at
    silence = Silence(channel="kubelet", vantage="", since=now, asked_at=now, proven_at=now)
    return msgspec.structs.replace(
        snapshot,
        facts=msgspec.structs.replace(snapshot.facts, heartbeat_changed_at=None),
        testimony=msgspec.structs.replace(snapshot.testimony, answers=(), silences=(silence,)),
    )

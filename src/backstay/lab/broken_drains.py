"""Broken parts of drains, each without one thing that protects what runs on a node that lives.

See ``broken.py``.
"""

from typing import Any, cast

import msgspec

from backstay.apis.kubevirt import VIRTUAL_MACHINES
from backstay.apis.maintenance import MaintenanceRow
from backstay.control.control_plane import ControlPlane
from backstay.control.drain import Drain, Leave
from backstay.control.maintenance import MaintenanceLoop
from backstay.decide.drain import plan
from backstay.kube.calls import Preconditions, write
from backstay.kube.client import KubeClient
from backstay.kube.lease import Term
from backstay.kube.resource import NODES, PODS, Resource
from backstay.model.drain import Blocker, DaemonSight, Plan, Planned, PodSight
from backstay.model.labels import MANAGER
from backstay.model.maintenance import Marks
from backstay.model.policy import Job, Ownership, Policy
from backstay.model.reasons import Why
from backstay.sources.drains import read_node_pods
from backstay.sources.operator import OperatorSource

_SUBRESOURCES = Resource(
    "subresources.kubevirt.io", "v1", VIRTUAL_MACHINES.plural, VIRTUAL_MACHINES.kind
)


# How a pod is asked to leave


class ByDeletion(Drain):
    async def request(self, pod: PodSight, not_after: float | None) -> None:
        exactly: Preconditions = {"uid": pod.uid}
        await self._client.delete(
            PODS, pod.name, namespace=pod.namespace, conditions=exactly, not_after=not_after
        )


class WithoutUid(Drain):
    async def request(self, pod: PodSight, not_after: float | None) -> None:
        await self._client.evict(pod.name, namespace=pod.namespace, not_after=not_after)


class WithoutGrace(Drain):
    async def request(self, pod: PodSight, not_after: float | None) -> None:
        exactly: Preconditions = {"uid": pod.uid, "grace": 0}
        await self._client.evict(
            pod.name, namespace=pod.namespace, conditions=exactly, not_after=not_after
        )


class Restarting(Drain):
    """Has guests stopped and started again, which is faster than to move them."""

    async def request(self, pod: PodSight, not_after: float | None) -> None:
        if not pod.guest or pod.ended:
            await super().request(pod, not_after)
            return
        name = pod.guest.partition("/")[2]
        path = _SUBRESOURCES.path(namespace=pod.namespace, name=name, subresource="restart")
        await self._client.send(write("PUT", _SUBRESOURCES, path, {}, not_after=not_after))


# Who is asked, and when


class WithDaemons(Drain):
    """Takes every DaemonSet for gone."""

    async def _look_behind(self) -> None:
        await super()._look_behind()
        self._daemons = dict.fromkeys(self._daemons, DaemonSight(False))


class OfAnyNode(Drain):
    """Forgets which node it is about."""

    _elsewhere: tuple[PodSight, ...] = ()

    async def _look_behind(self) -> None:
        await super()._look_behind()
        found: list[PodSight] = []
        for node in (await self._client.list(NODES)).json()["items"]:
            page = await read_node_pods(self._client, node["metadata"]["name"])
            found += [msgspec.structs.replace(pod, node=self.node) for pod in page.rows]
        self._elsewhere = tuple(found)

    def plan(self) -> Plan:
        return plan(self.node, self._elsewhere, options=self.options, guests=self._guests)


class Deaf(Drain):
    """Asks each pod once."""

    def _is_due(self, planned: Planned, now: float) -> bool:
        return planned.pod.uid not in self._asked and super()._is_due(planned, now)


class Impatient(Drain):
    """Asks every second."""

    def _due(self, planned: Plan, now: float) -> list[Planned]:
        return [each for each in planned.planned if each.asked]

    def _pause(self, more: bool, held: Why | None) -> float:
        return 1.0


class Silent(Drain):
    def _blockers(self, planned: Plan, now: float) -> tuple[Blocker, ...]:
        return ()


class WithoutCopies(Drain):
    async def _look_at_copies(self) -> None:
        self._copied = ()


# When it begins, and when it ends


class OfItsOwnAccord(MaintenanceLoop):
    """Looks whether it may, and goes on whatever it sees."""

    async def _permit(self, row: MaintenanceRow, term: Term) -> Leave | Why:
        await super()._permit(row, term)
        return term.require


class WithoutEnd(OfItsOwnAccord):
    """Gives the node back, and forgets to stop."""

    def _is_marked(self, row: MaintenanceRow) -> bool:
        return True

    async def _stop(self, uid: str) -> Drain | None:
        running = self.running.pop(uid, None)
        return None if running is None else running.drain


class WithoutCordon(MaintenanceLoop):
    """Takes it for granted."""

    async def _begin(self, row: MaintenanceRow, term: Term) -> Why | None:
        return None

    def _is_marked(self, row: MaintenanceRow) -> bool:
        return True


class _Heedless:
    async def objection(self, node: str) -> Why | None:
        return None


class OfTheWholeControlPlane(MaintenanceLoop):
    """Asks nobody whether another node of the control plane is missing."""

    def __init__(self, client: KubeClient, **parts: Any) -> None:
        super().__init__(client, **parts)
        self._control_plane = cast(ControlPlane, _Heedless())


class GivingEverythingBack(MaintenanceLoop):
    async def _give_back(self, row: MaintenanceRow, node: str, term: Term) -> Marks | None:
        given = await super()._give_back(row, node, term)
        live = (await self._client.get(NODES, node)).json()
        version = live["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version}, "spec": {"unschedulable": None}}
        await self._client.merge_patch(
            NODES, node, patch, manager=MANAGER, not_after=term.require()
        )
        return given


class KeepingIt(MaintenanceLoop):
    async def _give_back(self, row: MaintenanceRow, node: str, term: Term) -> Marks | None:
        return None

    async def _clear_up(self, name: str, row: MaintenanceRow | None, term: Term) -> None:
        return None


class Presumptuous:
    """An operator's words, but for whose job maintenance is."""

    def __init__(self, operator: OperatorSource) -> None:
        self._operator = operator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operator, name)

    @property
    def policy(self) -> Policy:
        return self._ours(self._operator.policy)

    async def look_closely(self, node: str) -> tuple[Policy, Any]:
        policy, words = await self._operator.look_closely(node)
        return self._ours(policy), words

    def is_outdated(self, _policy: Policy) -> bool:
        return False

    def _ours(self, policy: Policy) -> Policy:
        owners = {**policy.owners, Job.MAINTENANCE: Ownership.OURS}
        return msgspec.structs.replace(policy, owners=owners)


class DoesOthersJob(MaintenanceLoop):
    def __init__(self, client: KubeClient, *, operator: OperatorSource, **parts: Any) -> None:
        super().__init__(client, operator=cast(OperatorSource, Presumptuous(operator)), **parts)

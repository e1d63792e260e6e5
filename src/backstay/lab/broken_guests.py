"""Broken parts that have to do with guests which live, each without one thing that protects them.

See ``broken.py``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import msgspec

from backstay.apis.kubevirt import INSTANCES
from backstay.apis.machines import MIGRATIONS
from backstay.control.guard import Guard, Leave
from backstay.control.machines import Machines
from backstay.control.outcomes import Outcome
from backstay.kube.lease import Term
from backstay.kube.resource import PODS
from backstay.lab.broken_policy import Unruly
from backstay.model.evidence import GuestStop, Testimony
from backstay.model.labels import LAUNCHER_UID
from backstay.model.node import NodeFacts
from backstay.model.policy import OnKubeletLoss, Policy
from backstay.model.reasons import Why
from backstay.model.workload import Workload
from backstay.sources.guests import GuestSource

_FINAL = ("Succeeded", "Failed")


class OfItsOwnMind(Unruly):
    """Takes it that every policy asks for as much as one can."""

    def _obey(self, policy: Policy) -> Policy:
        bold = OnKubeletLoss.STOP_AND_MOVE
        return msgspec.structs.replace(policy, on_kubelet_loss=bold, start=True)


class Hasty(GuestSource, ABC):
    """Believes that a guest has stopped without a word of the virt-handler that lives."""

    @abstractmethod
    def _has_stopped(self, phase: str, *, going: bool) -> bool: ...

    def testimony(self, node: NodeFacts) -> Testimony:
        heard, watch = super().testimony(node), self._watches.get(node.name)
        stops = [
            GuestStop(launcher=uid, detail="it looks like it", observed_at=node.looked_at)
            for row in (watch.instances if watch is not None else ())
            if self._has_stopped(row.phase, going=row.deleting)
            for uid, place in row.pods.items()
            if place == node.name
        ]
        return msgspec.structs.replace(heard, stops=tuple(stops), stopping=())


class WithoutNextHeartbeat(Hasty):
    def _has_stopped(self, phase: str, *, going: bool) -> bool:
        return phase in _FINAL


class AskedIsDone(Hasty):
    def _has_stopped(self, phase: str, *, going: bool) -> bool:
        return going


class WithoutMoves(GuestSource):
    """Forgets what it has asked for."""

    def testimony(self, node: NodeFacts) -> Testimony:
        return msgspec.structs.replace(super().testimony(node), moves=())


class MovingAgain(Machines):
    async def _migrate(self, workload: Workload, leave: Leave) -> None:
        meta = {
            "generateName": "again-", "labels": {LAUNCHER_UID: workload.pods[0].uid},
        }  # fmt: skip
        await self._client.create(
            MIGRATIONS,
            {"metadata": meta, "spec": {"vmiName": workload.name}},
            namespace=workload.namespace,
            not_after=leave.require(),
        )


class WithBothEnds(Guard):
    """Removes every launcher of a guest, also the one that it is being moved to."""

    async def _remove_what_is_proven(
        self,
        node: str,
        targets: Sequence[Workload],
        term: Term,
        told: Callable[[Why], None],
    ) -> Outcome:
        for workload in targets:
            reply = await self._client.list(
                PODS, namespace=workload.namespace, labels=f"vm.kubevirt.io/name={workload.name}"
            )
            for pod in reply.json()["items"]:
                meta = pod["metadata"]
                if any(o["kind"] == INSTANCES.kind for o in meta.get("ownerReferences") or ()):
                    await self._client.delete(
                        PODS, meta["name"], namespace=meta["namespace"],
                        conditions={
                            "uid": meta["uid"], "resource_version": meta["resourceVersion"],
                            "grace": 0,
                        },
                        not_after=term.require(),
                    )  # fmt: skip
        return await super()._remove_what_is_proven(node, targets, term, told)

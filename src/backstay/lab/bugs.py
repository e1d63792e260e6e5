"""Deliberate bugs: each takes away one thing that keeps us safe, and an invariant notices.

A rule that nothing can break proves nothing. Every bug here replaces one part of a built
controller (a check of the chain, a step of the guarded write) and names the invariants that must
catch it; tests/lab holds them to it. The shipped rooms contain no switch for any of this.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from backstay.control.guard import Guard, Proof
from backstay.control.observe import Observer
from backstay.decide import failover
from backstay.decide.failover import CHAIN, Check, Snapshot
from backstay.kube.client import KubeClient
from backstay.kube.lease import Term
from backstay.kube.resource import PODS
from backstay.model.evidence import Confirmation
from backstay.model.workload import PodRef, Workload

Verb = Callable[..., Awaitable[None]]


@dataclass(frozen=True)
class Bug:
    """``cut`` says in which disaster it shows: the node lives on, cut off, or has lost its power.
    ``confirmed`` and ``armed`` say what people have done about it."""

    name: str
    caught_by: frozenset[str]
    chain: Sequence[Check] = CHAIN
    guard: type[Guard] = Guard
    cut: bool = False
    confirmed: bool = True
    armed: bool = True


class _WithoutEvidence(Guard):
    """Takes it that somebody has confirmed the death."""

    def _proof(self, after: Snapshot, targets: Sequence[Workload]) -> Proof | None:
        facts = after.facts
        made_up = Confirmation(
            name="",
            uid="",
            node=facts.name,
            node_uid=facts.uid,
            boot_id=facts.boot_id,
            by="nobody",
            reason="it is silent",
            seen_at=facts.looked_at,
            last_renewal=facts.renewal,
            last_heartbeat=facts.heartbeat,
        )
        return super()._proof(msgspec.structs.replace(after, confirmations=(made_up,)), targets)


class _WithoutPreconditions(Guard):
    """Deletes whatever has that name by now."""

    async def _each(self, pods: Iterable[PodRef], verb: Verb, term: Term) -> set[str]:
        async def by_name(client: KubeClient, pod: PodRef, *, not_after: float) -> None:
            conditions: Any = {"grace": 0} if pod.marked else {}
            await client.delete(
                PODS, pod.name, namespace=pod.namespace, conditions=conditions, not_after=not_after
            )

        return await super()._each(pods, by_name, term)


class _WithoutTaint(Guard):
    """Leaves the node open to new pods."""

    async def _keep_scheduler_away(self, before: Snapshot, term: Term) -> bool:
        return True

    def _proof(self, after: Snapshot, targets: Sequence[Workload]) -> Proof | None:
        facts = msgspec.structs.replace(after.facts, tainted=True)
        return super()._proof(msgspec.structs.replace(after, facts=facts), targets)


class _WithoutMark(Guard):
    """Removes pods that a kubelet could still start."""

    async def _mark(self, targets: Sequence[Workload], term: Term) -> None:
        return

    def _proof(self, after: Snapshot, targets: Sequence[Workload]) -> Proof | None:
        seen = msgspec.structs.replace(after, workloads=tuple(map(_as_if_marked, after.workloads)))
        return super()._proof(seen, targets)


def _as_if_marked(workload: Workload) -> Workload:
    pods = tuple(msgspec.structs.replace(pod, marked=True) for pod in workload.pods)
    return msgspec.structs.replace(workload, pods=pods)


class _Glancing(Observer):
    """Believes its caches where it should ask the API."""

    def __init__(self, observer: Observer) -> None:
        self.__dict__ = observer.__dict__

    async def look_closely(self, name: str) -> Snapshot | None:
        await self.read_workloads(name)
        return self.look(name)


class _WithoutSecondLook(Guard):
    """Acts on what was known before the barrier."""

    def __init__(self, client: KubeClient, observer: Observer, **rest: Any) -> None:
        super().__init__(client, _Glancing(observer), **rest)


def _chain_without(check: Check) -> tuple[Check, ...]:
    return tuple(each for each in CHAIN if each is not check)


BUGS: tuple[Bug, ...] = (
    Bug(
        "silence counts as death",
        frozenset({"OneWriter", "NoDeleteWithoutEvidence", "NoHealthyGuestStopped", "NoBystander"}),
        chain=_chain_without(failover.is_it_proven),
        guard=_WithoutEvidence,
        cut=True,
        confirmed=False,
    ),
    Bug(
        "it acts while it should only observe",
        frozenset({"Disarm"}),
        chain=_chain_without(failover.may_we_act),
        armed=False,
    ),
    Bug(
        "pods are deleted by name alone",
        frozenset({"Preconditions"}),
        guard=_WithoutPreconditions,
    ),
    Bug(
        "the node is not tainted",
        frozenset({"TaintBeforeRemoval"}),
        guard=_WithoutTaint,
    ),
    Bug(
        "pods are not marked before they are removed",
        frozenset({"NoDeleteWithoutEvidence"}),
        guard=_WithoutMark,
    ),
    Bug(
        "nobody looks again after the barrier",
        frozenset({"ProofAfterBarrier"}),
        guard=_WithoutSecondLook,
    ),
)

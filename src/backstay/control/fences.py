"""Fences of the storage against a silent node: put up where nothing else proves its death, and
lifted when it is back.

That a fence does not hold, because csi-addons is not running or the storage has refused, is said
once after a while, and holds up nothing else.
"""

import asyncio
import logging
from collections.abc import Callable

from backstay.control.guard import Guard
from backstay.control.incident import OpenIncident
from backstay.decide.failover import Decision, Snapshot
from backstay.decide.fencing import decide_fencing
from backstay.kube.errors import KubeError
from backstay.kube.lease import Term
from backstay.model.fences import FenceSight
from backstay.model.node import NodeFacts
from backstay.model.policy import Times
from backstay.model.reasons import Reason, Why
from backstay.sources.fences import FenceSource

_log = logging.getLogger("backstay.fences")


class Fences:
    """See the module."""

    def __init__(self, guard: Guard, source: FenceSource, *, times: Times) -> None:
        self._guard = guard
        self._source = source
        self._times = times
        self._since: dict[str, float] = {}
        self._said: set[str] = set()

    async def put_up(
        self,
        snapshot: Snapshot,
        decision: Decision,
        incident: OpenIncident,
        *,
        term: Term,
        told: Callable[[Why], None],
    ) -> str:
        """What became of it, in words; empty if there was nothing to do."""
        if not (decision.held and snapshot.policy.network_fences):
            return ""
        fencing = self._source.fencing(snapshot.facts)
        self._complain(fencing.ours, snapshot.facts, told)
        verdict = decide_fencing(snapshot, decision, fencing, times=self._times)
        if not verdict.orders:
            return ""
        raised = await self._guard.fence(
            snapshot.facts.name, self._source.fencing, term=term, incident=incident
        )
        for why in raised:
            told(why)
        return f"raised {len(raised)} fences" if raised else ""

    async def lift(
        self, node: NodeFacts, *, term: Term, told: Callable[[Why], None] = lambda _: None
    ) -> bool:
        """Whether none of ours is left against this node."""
        try:
            ours = await self._source.ours(node.uid)
        except KubeError as error:
            _log.warning("whether %s is still fenced cannot be read: %s", node.name, error)
            return False
        for fence in ours:
            if await self._guard.lower(fence, term=term) and fence.lifted:
                told(Reason.FenceLifted.because(driver=fence.driver, node=node.name))
        self._complain(ours, node, told)
        return not ours

    def forget(self, node: str) -> None:
        self._since = {k: v for k, v in self._since.items() if not k.startswith(f"{node}/")}
        self._said = {each for each in self._said if not each.startswith(f"{node}/")}

    def _complain(
        self, ours: tuple[FenceSight, ...], node: NodeFacts, told: Callable[[Why], None]
    ) -> None:
        now = asyncio.get_running_loop().time()
        for fence in ours:
            key = f"{node.name}/{fence.name}/{fence.fenced}"
            since = self._since.setdefault(key, now)
            done = fence.holds if fence.fenced else fence.lifted
            if done or now - since < self._times.lost or key in self._said:
                continue
            self._said.add(key)
            because = fence.answer or "csi-addons has not answered; is its controller running?"
            told(
                Reason.FenceUnanswered.because(
                    fence=fence.name, node=node.name, because=because.rstrip(".")
                )
            )

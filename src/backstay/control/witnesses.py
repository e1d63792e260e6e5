"""Witnesses: LINSTOR's controller, whose word proofs rest on, is brought back if it died with a
node; and it is told when it speaks again.
"""

import asyncio
from collections.abc import Callable

from backstay.control.guard import Guard
from backstay.control.incident import OpenIncident
from backstay.decide.failover import Snapshot
from backstay.decide.succession import to_be_succeeded
from backstay.kube.lease import Term
from backstay.model.policy import Times
from backstay.model.reasons import Reason, Why
from backstay.sources.linstor import LinstorSource


class Witnesses:
    """See the module. Without a ``source`` nobody waits for LINSTOR, and nothing is done."""

    def __init__(self, guard: Guard, source: LinstorSource | None, *, times: Times) -> None:
        self._guard = guard
        self._source = source
        self._times = times
        self._awaited: dict[str, float] = {}

    async def bring_back(
        self,
        snapshot: Snapshot,
        incident: OpenIncident,
        *,
        term: Term,
        told: Callable[[Why], None],
    ) -> None:
        """Has the controller on this node replaced, if it ran there."""
        if self._source is None:
            return
        node, loop = snapshot.facts.name, asyncio.get_running_loop()
        silent = not self._has_spoken(since=snapshot.life.suspected_at or 0.0)
        if silent and to_be_succeeded(snapshot, times=self._times):
            for workload in await self._guard.succeed(node, term=term, incident=incident):
                self._awaited[node] = loop.time()
                told(Reason.LinstorReplaced.because(workload=workload, node=node))
        elif node in self._awaited and self._has_spoken(since=self._awaited[node]):
            seconds = round(loop.time() - self._awaited.pop(node))
            told(Reason.LinstorIsBack.because(seconds=seconds, node=node))

    def are_awaited(self, node: str) -> bool:
        """Whether one that was replaced on this node has not spoken since."""
        return node in self._awaited

    def _has_spoken(self, *, since: float) -> bool:
        """A stream that still looks open proves nothing: it may be that of the dead one."""
        now = asyncio.get_running_loop().time()
        age = None if self._source is None else self._source.age(now)
        return age is not None and age < now - since

    def forget(self, node: str) -> None:
        self._awaited.pop(node, None)

"""Volumes of what was released: freed on the dead node, so that nobody waits for them.

Which they are is in the incident, so that a successor finishes what a predecessor began. What has
been seen to is remembered, and looked at no more: to look means to list all attachments.
"""

import asyncio
from collections.abc import Callable, Iterable

from backstay.control.guard import Guard
from backstay.control.incident import OpenIncident
from backstay.decide import detach
from backstay.decide.failover import Snapshot
from backstay.kube.client import KubeClient
from backstay.kube.lease import Term
from backstay.model.policy import Times
from backstay.model.reasons import Why
from backstay.model.storage import Attachment, Owed
from backstay.sources.attachments import read_accounted_for, read_mounted


class Volumes:
    """See the module. ``outvoted`` is told what was detached because DRBD has shut the node out."""

    def __init__(
        self,
        client: KubeClient,
        guard: Guard,
        *,
        times: Times,
        outvoted: Callable[[Iterable[Attachment]], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._guard = guard
        self._outvoted = outvoted
        self._times = times
        self._settled: dict[str, set[Owed]] = {}
        self._said: dict[str, set[Why]] = {}

    async def free(
        self,
        snapshot: Snapshot,
        incident: OpenIncident,
        *,
        term: Term,
        told: Callable[[Why], None],
    ) -> str:
        """What became of it, in words; empty if there was nothing to do."""
        node = snapshot.facts.name
        owed = self.owes(node, incident)
        if not owed:
            return ""
        now = asyncio.get_running_loop().time()
        prospect = detach.consider(snapshot, owed, now, times=self._times)
        self._say_once(node, prospect.said, told)
        if not prospect.due:
            return ""
        freed = await self._guard.detach(node, prospect.due, term=term, incident=incident)
        self._settled.setdefault(node, set()).update(freed.settled)
        self._say_once(node, freed.said, told)
        self._outvoted(freed.outvoted)
        return freed.outcome

    def owes(self, node: str, incident: OpenIncident) -> list[Owed]:
        """What has not been seen to yet."""
        settled = self._settled.get(node, ())
        return [each for each in incident.owed() if each not in settled]

    async def left_behind(
        self, snapshot: Snapshot, incident: OpenIncident | None, *, told: Callable[[Why], None]
    ) -> bool:
        """Whether the node is back and still has something mounted that was released from it.

        Where nobody knows any more what that was, because somebody has deleted the incident and
        whoever remembered it is gone, it is whatever no pod there accounts for.
        """
        if incident is None:
            why = await self._left_by_nobody(snapshot.facts.name)
        else:
            why = await self._left_of(snapshot, incident)
        if why is not None:
            self._say_once(snapshot.facts.name, (why,), told)
        return why is not None

    async def _left_of(self, snapshot: Snapshot, incident: OpenIncident) -> Why | None:
        owed = incident.owed()
        if not owed or incident.row.spec.boot_id != snapshot.facts.boot_id:
            return None
        mounted = await read_mounted(self._client, snapshot.facts.name)
        return detach.still_mounted(snapshot, owed, mounted)

    async def _left_by_nobody(self, node: str) -> Why | None:
        mounted = await read_mounted(self._client, node)
        if not mounted:
            return None
        accounted = await read_accounted_for(self._client, node)
        return detach.mounted_for_nobody(node, mounted, accounted)

    def _say_once(self, node: str, said: tuple[Why, ...], told: Callable[[Why], None]) -> None:
        known = self._said.setdefault(node, set())
        for why in said:
            if why not in known:
                known.add(why)
                told(why)

    def forget(self, node: str) -> None:
        self._settled.pop(node, None)
        self._said.pop(node, None)

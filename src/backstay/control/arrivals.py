"""Arrivals: what was released is watched until it runs elsewhere, and then until it is ready.

To run is what ends our part: an incident waits for nothing else. To be ready is what its users
wait for, so it is told as a moment of its own, and looked for no longer than ten minutes: whether
a probe inside a guest ever succeeds is not ours to wait for.
"""

import asyncio

from backstay.control.incident import OpenIncident
from backstay.control.laps import Laps
from backstay.control.tell import Teller
from backstay.kube.client import KubeClient
from backstay.model.incident import Progress, WorkloadRecord
from backstay.model.node import NodeFacts
from backstay.model.reasons import Reason
from backstay.model.workload import spoken
from backstay.record.metrics import Stage
from backstay.record.telling import Advance
from backstay.sources.recovered import Whereabouts, whereabouts

PATIENCE = 600.0


class Arrivals:
    """See the module."""

    def __init__(self, client: KubeClient, teller: Teller) -> None:
        self._client = client
        self._teller = teller

    async def look(
        self, facts: NodeFacts, incident: OpenIncident, laps: Laps
    ) -> dict[str, Advance]:
        """What has come up, or become ready, since the last look; or never will."""
        awaited = (*incident.under_way(), *getting_ready(incident, laps))
        due = {record.workload: record for record in awaited}
        found = await whereabouts(self._client, due.values(), away_from=facts.name)
        advances = {}
        for key, seen in found.items():
            advance = self._advance(due[key], seen, laps)
            if advance is not None:
                advances[key] = advance
                if not seen.unwanted:
                    self._teller.arrived(key, advance.why, node=facts, objects=seen.objects)
        return advances

    def _advance(self, record: WorkloadRecord, seen: Whereabouts, laps: Laps) -> Advance | None:
        key, now = record.workload, asyncio.get_running_loop().time()
        if seen.ready:
            laps.ready.setdefault(key, now)
        if record.progress is not Progress.RELEASED:
            return self._is_ready(key, seen, laps) if key in laps.ready else None
        if seen.unwanted:
            why = Reason.NoLongerWanted.because(workload=spoken(key), because=seen.unwanted)
            return Advance(Progress.LEFT, why)
        laps.running[key] = now
        self._took(Stage.RECOVERED, laps, key, now)
        why = Reason.Recovered.because(workload=spoken(key), target=seen.node)
        return Advance(Progress.RECOVERED, why, laps.after(now), phases=seen.phases)

    def _is_ready(self, key: str, seen: Whereabouts, laps: Laps) -> Advance:
        since = laps.ready[key]
        self._took(Stage.GUEST_READY, laps, key, since)
        why = Reason.ReadyAgain.because(workload=spoken(key), target=seen.node)
        after = laps.after(since)
        return Advance(Progress.RECOVERED, why, after, ready=True, phases=seen.phases)

    def _took(self, stage: Stage, laps: Laps, key: str, until: float) -> None:
        if key in laps.released:
            self._teller.took(stage, until - laps.released[key])


def getting_ready(incident: OpenIncident, laps: Laps) -> list[WorkloadRecord]:
    """What runs again and has not been ready yet, unless it has been looked at for too long."""
    now = asyncio.get_running_loop().time()
    return [
        record
        for record in incident.row.status.workloads
        if record.progress is Progress.RECOVERED
        and not record.ready
        and now - laps.running.setdefault(record.workload, now) <= PATIENCE
    ]

"""Arrivals: what was released is watched until it runs elsewhere, and then until it is ready.

To run is what ends our part: an incident waits for nothing else. To be ready is what its users
wait for, so it is told as a moment of its own, and looked for no longer than ten minutes: whether
a probe inside a guest ever succeeds is not ours to wait for.

What has not come up after a while is looked at more closely: KubeVirt says of a VM what it waits
for, and of some that it waits for somebody to start it.
"""

import asyncio
from dataclasses import dataclass, field

from backstay.control.incident import OpenIncident
from backstay.control.laps import Laps
from backstay.control.tell import Teller
from backstay.decide.guests import aftermath, is_due_to_start, spoken_set
from backstay.decide.policy import terms_of
from backstay.kube.client import KubeClient
from backstay.model.incident import Progress, WorkloadRecord
from backstay.model.node import NodeFacts
from backstay.model.policy import OptIn, Policy
from backstay.model.reasons import Reason, Why
from backstay.model.workload import Workload, spoken
from backstay.record.metrics import Stage
from backstay.record.telling import Advance
from backstay.sources.recovered import Whereabouts, whereabouts

PATIENCE = 600.0

_CLOSELY = 10.0
"""Seconds after which what has not come up is looked at more closely."""

_TROUBLES = frozenset({
    "CrashLoopBackOff", "DataVolumeError", "ErrImagePull", "ErrorPvcNotFound",
    "ErrorUnschedulable", "ImagePullBackOff",
})  # fmt: skip
"""What KubeVirt says of a VM that something keeps from starting."""


@dataclass(frozen=True)
class Arrived:
    """``due`` are VMs that nobody but us would start."""

    advances: dict[str, Advance] = field(default_factory=dict)
    due: list[Workload] = field(default_factory=list)


class Arrivals:
    """See the module."""

    def __init__(self, client: KubeClient, teller: Teller, *, opt_in: OptIn) -> None:
        self._client = client
        self._teller = teller
        self._opt_in = opt_in

    async def look(
        self, facts: NodeFacts, incident: OpenIncident, laps: Laps, policy: Policy
    ) -> Arrived:
        """What has come up, or become ready, since the last look; or never will."""
        awaited = (*incident.under_way(), *getting_ready(incident, laps))
        due = {record.workload: record for record in awaited}
        found = await whereabouts(
            self._client,
            due.values(),
            away_from=facts.name,
            closely=_overdue(due, laps),
            opt_in=self._opt_in,
        )
        arrived = Arrived()
        for key, seen in found.items():
            machine = seen.machine
            if machine is not None and _is_to_start(due[key], machine, policy):
                arrived.due.append(machine)
                continue
            advance = self._advance(due[key], seen, laps, policy)
            if advance is not None:
                arrived.advances[key] = advance
                if seen.node:
                    self._teller.arrived(key, advance.why, node=facts, objects=seen.objects)
        return arrived

    def _advance(
        self, record: WorkloadRecord, seen: Whereabouts, laps: Laps, policy: Policy
    ) -> Advance | None:
        key, now = record.workload, asyncio.get_running_loop().time()
        if seen.ready:
            laps.ready.setdefault(key, now)
        if record.progress is not Progress.RELEASED:
            return self._is_ready(key, seen, laps) if seen.node and key in laps.ready else None
        if seen.unwanted:
            why = Reason.NoLongerWanted.because(workload=spoken(key), because=seen.unwanted)
            return Advance(Progress.LEFT, why)
        if seen.machine is not None:
            return _waiting(seen.machine, seen.word, policy)
        laps.running[key] = now
        self._took(Stage.RECOVERED, laps, key, now)
        why, complete = _recovered(record, seen), seen.replicas is not None
        return Advance(Progress.RECOVERED, why, laps.after(now), ready=complete, phases=seen.phases)

    def _is_ready(self, key: str, seen: Whereabouts, laps: Laps) -> Advance:
        since = laps.ready[key]
        self._took(Stage.GUEST_READY, laps, key, since)
        why = Reason.ReadyAgain.because(workload=spoken(key), target=seen.node)
        after = laps.after(since)
        return Advance(Progress.RECOVERED, why, after, ready=True, phases=seen.phases)

    def _took(self, stage: Stage, laps: Laps, key: str, until: float) -> None:
        if key in laps.released:
            self._teller.took(stage, until - laps.released[key])


def _overdue(due: dict[str, WorkloadRecord], laps: Laps) -> set[str]:
    """Those that were released a while ago, or by somebody else."""
    now = asyncio.get_running_loop().time()
    return {
        key
        for key, record in due.items()
        if record.progress is Progress.RELEASED
        and now - laps.released.get(key, -_CLOSELY) >= _CLOSELY
    }


def _is_to_start(record: WorkloadRecord, machine: Workload, policy: Policy) -> bool:
    released = record.progress is Progress.RELEASED
    return released and is_due_to_start(machine) and terms_of(machine, policy).start


def _waiting(machine: Workload, word: str, policy: Policy) -> Advance | None:
    """What keeps a VM from running, if it is more than time."""
    guest = machine.guest
    if is_due_to_start(machine) or (guest is not None and guest.needs_recovery):
        then = aftermath(machine, terms_of(machine, policy))
        return Advance(Progress.STAYS_DOWN, then.why) if then.down else None
    if guest is not None and guest.retry_after:
        why = Reason.StartBackoff.because(
            workload=machine, count=guest.failures, until=guest.retry_after
        )
        return Advance(Progress.RELEASED, why)
    if word in _TROUBLES:
        about = {"name": machine.name, "namespace": machine.namespace}
        return Advance(
            Progress.RELEASED, Reason.StartFails.because(workload=machine, word=word, **about)
        )
    return None


def _recovered(record: WorkloadRecord, seen: Whereabouts) -> Why:
    workload = spoken(record.workload)
    if seen.replicas is not None:
        by = spoken_set(record.replaced_by)
        return Reason.Replaced.because(workload=workload, set=by, count=seen.replicas)
    if seen.paused:
        _, namespace, name = record.workload.split("/", 2)
        return Reason.RecoveredPaused.because(
            workload=workload, target=seen.node, name=name, namespace=namespace
        )
    return Reason.Recovered.because(workload=workload, target=seen.node)


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

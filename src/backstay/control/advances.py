"""Advances: how far workloads have come through what was done, or through what others have done."""

from backstay.control.incident import OpenIncident
from backstay.decide.failover import Decision, Snapshot
from backstay.decide.guests import aftermath
from backstay.decide.policy import terms_of
from backstay.model.incident import Progress
from backstay.model.policy import Policy
from backstay.model.reasons import Reason
from backstay.model.workload import Workload, spoken
from backstay.record.telling import Advance

_ARRIVED = (Progress.RECOVERED, Progress.STAYS_DOWN)


def departures(snapshot: Snapshot, incident: OpenIncident) -> dict[str, Advance]:
    """What was released without a word of it, as of the look that this decision is from."""
    node = snapshot.facts.name
    return {
        record.workload: Advance(
            Progress.RELEASED,
            Reason.Released.because(workload=spoken(record.workload), node=node),
        )
        for record in incident.vanished(snapshot)
    }


def migrated(decision: Decision, incident: OpenIncident) -> dict[str, Advance]:
    """What runs elsewhere by now, because KubeVirt has moved it at our request."""
    known = {r.workload for r in incident.row.status.workloads if r.progress in _ARRIVED}
    return {
        verdict.workload.key: Advance(Progress.RECOVERED, verdict.why)
        for verdict in decision.verdicts
        if verdict.why.code == Reason.Migrated.name and verdict.workload.key not in known
    }


def released(workload: Workload, policy: Policy, *, after: float | None) -> Advance:
    """What the guard has just taken from the node."""
    then = aftermath(workload, terms_of(workload, policy))
    return Advance(Progress.STAYS_DOWN if then.down else Progress.RELEASED, then.why, after)

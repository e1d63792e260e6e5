"""Restraint: what keeps us from doing to a silent node what would hurt if it lives after all.

To have the storage refuse it (``fencing.py``) and to switch it off (``power.py``) are deeds before
there is proof, to get it. Each has a chain of its own; what they have in common is asked here.
"""

from backstay.decide import life as lives
from backstay.decide import proof
from backstay.decide.failover import Snapshot
from backstay.decide.storm import is_storm, most_down
from backstay.model.policy import Mode, Policy, Times
from backstay.model.reasons import Reason, Why


def stale(snapshot: Snapshot, times: Times) -> Why | None:
    if snapshot.view_age <= times.fresh:
        return None
    return Reason.StaleView.because(because="it is too old, or most nodes are silent")


def heard(snapshot: Snapshot, times: Times, *, waiting: object) -> Why | None:
    """Anything at all of the node. ``waiting`` is what it would be done for."""
    node = snapshot.facts.name
    answer = proof.answered(snapshot.heard, times)
    if answer is not None:
        return Reason.NodeAnswers.because(node=node, channel=answer.channel)
    if lives.guests_alive(snapshot.life, snapshot.facts, times):
        return Reason.GuestAliveKubeletDead.because(node=node, workload=waiting or "something")
    return None


def is_silent_elsewhere(snapshot: Snapshot, now: float, times: Times) -> bool:
    """A kubelet that died leaves its guests running: more than the lease must be silent. If its
    ports cannot be asked from here, virt-handler is given the time in which it would be heard."""
    if proof.sound_silences(snapshot.heard, now, times):
        return True
    facts = snapshot.facts
    beat = facts.heartbeat_changed_at
    recent = beat is not None and facts.looked_at - beat < times.heartbeat
    return not recent and lives.silence(facts) >= times.heartbeat


def stormy(snapshot: Snapshot, *, waiting: object) -> Why | None:
    fleet, policy = snapshot.fleet, snapshot.policy
    if not is_storm(fleet, policy):
        return None
    return Reason.StormHold.because(
        workload=waiting or "everything",
        count=len(fleet.down),
        nodes=fleet.nodes,
        most=most_down(fleet.nodes, policy),
    )


def rolled_back(policy: Policy) -> Why | None:
    because = policy.rolled_back
    return Reason.ApiRolledBack.because(because=because) if because else None


def unarmed(policy: Policy, what: str) -> Why | None:
    """``what`` would be acted on."""
    if policy.mode is Mode.ARMED:
        return None
    if policy.mode is Mode.OBSERVE:
        return Reason.Observing.because(workload=what)
    return Reason.Disarmed.because(until=policy.disarmed_until, because=policy.disarmed_because)

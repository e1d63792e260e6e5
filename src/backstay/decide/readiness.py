"""Readiness: what would happen if a node died now.

The very decision of a failover, asked of a death that has not happened: once with nothing to
prove it, which shows what is held; once with a person's word, which shows what that would settle.
"""

from collections.abc import Sequence

import msgspec

from backstay.decide.failover import Action, Check, Snapshot, decide
from backstay.model.evidence import Confirmation
from backstay.model.node import Life, NodeLife
from backstay.model.policy import Mode, Times
from backstay.model.reasons import Reason, Why
from backstay.model.workload import Workload, WorkloadKind

_STAYS_DOWN = {
    "Manual": "its run strategy is Manual",
    "Once": "its run strategy is Once",
    "Halted": "its run strategy is Halted",
}


class Outlook(msgspec.Struct, frozen=True):
    """One workload: what would hold it (None: nothing), and how it ends once that is settled."""

    workload: Workload
    held_by: Why | None
    then: Why
    recovers: bool


class NodeOutlook(msgspec.Struct, frozen=True):
    """One node. ``proof`` says what could prove its death at present."""

    node: str
    outlooks: tuple[Outlook, ...]
    proof: tuple[str, ...]

    @property
    def recovering(self) -> int:
        return sum(outlook.recovers for outlook in self.outlooks)


def readiness(snapshot: Snapshot, *, times: Times, chain: Sequence[Check]) -> NodeOutlook:
    """See the module. The snapshot's own life, policy mode and age are put aside."""
    dead = _as_if_dead(snapshot)
    unproven = decide(dead, 0.0, times=times, chain=chain)
    proven = decide(_confirmed(dead), 0.0, times=times, chain=chain)
    outlooks = []
    for before, after in zip(unproven.verdicts, proven.verdicts, strict=True):
        if before.action is Action.LEAVE:
            outlooks.append(Outlook(before.workload, None, before.why, recovers=False))
            continue
        why, recovers = _ending(after.workload, after.action, after.why, snapshot.facts.name)
        held = before.why if before.action is Action.HOLD else None
        outlooks.append(Outlook(before.workload, held, why, recovers=recovers))
    return NodeOutlook(snapshot.facts.name, tuple(outlooks), ("a person: backstay confirm-dead",))


def stays_down(workload: Workload) -> str | None:
    """Why a workload would not start again by itself after its pod is gone, if so."""
    if workload.kind is WorkloadKind.VIRTUAL_MACHINE:
        return _STAYS_DOWN.get(workload.run_strategy)
    return None if workload.restarts else "nobody creates it anew"


def _ending(workload: Workload, action: Action, why: Why, node: str) -> tuple[Why, bool]:
    if action is not Action.RELEASE:
        return why, False
    because = stays_down(workload)
    if because is None:
        return why, True
    about = {"name": workload.name, "namespace": workload.namespace}
    return Reason.StaysDown.because(workload=workload, node=node, because=because, **about), False


def _as_if_dead(snapshot: Snapshot) -> Snapshot:
    facts = msgspec.structs.replace(
        snapshot.facts, lease_seen_at=-1.0, lease_changed_at=None, heartbeat_changed_at=None
    )
    life = NodeLife(
        node_uid=facts.uid,
        boot_id=facts.boot_id,
        state=Life.LOST,
        since=0.0,
        suspected_at=0.0,
        why=Reason.NodeLost.because(node=facts.name, seconds=40),
    )
    policy = msgspec.structs.replace(snapshot.policy, mode=Mode.ARMED)
    return msgspec.structs.replace(
        snapshot, facts=facts, life=life, policy=policy, confirmations=(), view_age=0.0
    )


def _confirmed(dead: Snapshot) -> Snapshot:
    facts = dead.facts
    word = Confirmation(
        name=facts.name,
        uid="",
        node=facts.name,
        node_uid=facts.uid,
        boot_id=facts.boot_id,
        by="somebody",
        reason="asked in advance",
        seen_at=0.0,
    )
    return msgspec.structs.replace(dead, confirmations=(word,))

"""Detaching: which volumes of a dead node are freed for others, and how.

A pod that was removed from the API leaves its volumes attached to the dead node, and where they
are for one node at a time, the workload waits for them: six minutes, unless somebody does
something. ``plan`` says what:

* The attachments of exactly those volumes that released workloads had are deleted. What shows that
  the node is dead must speak of the whole node, and be more than silence; or it must speak of that
  very volume (``decide/proof.py``).
* A volume that anything else on the node uses stays. So does everything while we are not to act.
  What was released while that was our job is seen to also when it is no longer.
* Where the configuration prefers Kubernetes' out-of-service taint, one taint takes the place of
  all that. It makes Kubernetes remove *everything* from the node, so it needs proof about the
  whole node, and nothing there may be held, kept from us or unreadable; else the volumes are
  detached one by one.

It says in words what stands in the way.
"""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from backstay.decide import proof
from backstay.decide.failover import Decision, Snapshot
from backstay.decide.policy import terms_of
from backstay.model.evidence import Evidence, EvidenceKind, Scope, Strength
from backstay.model.node import Life
from backstay.model.policy import Detach, Job, Mode, Ownership, Times
from backstay.model.reasons import Reason, Why
from backstay.model.storage import Accounts, Attachment, Owed
from backstay.model.workload import Volume, spoken

_UNPROVEN = "what is known of the node's death is not enough for that"
_USED = "something else on the node uses it"

_DOWN = (Life.LOST, Life.PROVEN, Life.RECOVERED)


class Holdings(msgspec.Struct, frozen=True, kw_only=True):
    """What the node has, looked at just now: its attachments, the claims (``namespace/name``) that
    pods there use, and how many of its pods could not be read."""

    attachments: tuple[Attachment, ...] = ()
    used: frozenset[str] = frozenset()
    unreadable: int = 0


class Prospect(msgspec.Struct, frozen=True, kw_only=True):
    """``due`` may be freed as far as is known without a closer look, those ``outvoted`` (by the
    names of their volumes) because of DRBD's quorum; ``said`` is why others may not."""

    due: tuple[Owed, ...] = ()
    said: tuple[Why, ...] = ()
    outvoted: frozenset[str] = frozenset()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """``taint`` and ``detach`` are what is to be done, ``said`` what is told of it. ``settled`` are
    those of which nothing is left to do once it is done, ``outvoted`` the volumes that are free
    because of DRBD's quorum."""

    taint: bool = False
    detach: tuple[Attachment, ...] = ()
    said: tuple[Why, ...] = ()
    settled: frozenset[Owed] = frozenset()
    outvoted: frozenset[str] = frozenset()


def consider(snapshot: Snapshot, owed: Sequence[Owed], now: float, *, times: Times) -> Prospect:
    """What is worth a closer look."""
    veto = _veto(snapshot, times)
    if veto is not None:
        return Prospect(said=_stays(snapshot, _awaited(owed), veto))
    evidence = _evidence(snapshot, owed, now, times)
    grounds = {each: _ground(each, evidence) for each in owed}
    due = tuple(each for each in owed if grounds[each] is not None)
    unproven = [each for each in owed if grounds[each] is None]
    contradiction = proof.refuted(snapshot.heard)
    because = _UNPROVEN if contradiction is None else contradiction.sentence.rstrip(".")
    return Prospect(
        due=due,
        said=_stays(snapshot, _awaited(unproven), because),
        outvoted=frozenset(each.pv for each in due if grounds[each] is EvidenceKind.STORAGE_QUORUM),
    )


def still_mounted(snapshot: Snapshot, owed: Sequence[Owed], mounted: Collection[str]) -> Why | None:
    """What a node that is back still has of what was released, if it has: a pod that waits for a
    write which nobody completes cannot be ended. What another pod there uses is no sign of it."""
    here = {volume.pv for workload in snapshot.workloads for volume in workload.volumes}
    left = [each for each in owed if each.device in mounted and each.pv not in here]
    return next(iter(_told(Reason.StillMounted, snapshot, left)), None)


def mounted_for_nobody(node: str, mounted: Collection[str], accounts: Accounts) -> Why | None:
    """What it has mounted that none of its pods accounts for, where nobody knows what was released
    from it: it may be that. What cannot be read may account for it, and is waited for."""
    left = sorted(set(mounted) - accounts.devices)
    if not left:
        return None
    because = f": {accounts.unread}" if accounts.unread else ""
    more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
    return Reason.MountedForNobody.because(node=node, volume=f"{left[0]}{more}", because=because)


def plan(
    snapshot: Snapshot,
    decision: Decision,
    owed: Sequence[Owed],
    holdings: Holdings,
    now: float,
    *,
    times: Times,
) -> Plan:
    """What is done about them, after a closer look."""
    here = {each.pv for each in holdings.attachments if not each.going}
    gone = frozenset(each for each in owed if each.pv not in here)
    prospect = consider(snapshot, [each for each in owed if each not in gone], now, times=times)
    if not prospect.due:
        return Plan(said=prospect.said, settled=gone)
    held: tuple[Why, ...] = ()
    if snapshot.policy.detach is Detach.OUT_OF_SERVICE:
        if decision.releases:
            # They go first, through the barrier; then there is nothing left for the taint to take.
            return Plan(settled=gone)
        because = _in_the_way(snapshot, decision, holdings)
        if because is None:
            said = Reason.OutOfService.because(node=snapshot.facts.name)
            return Plan(taint=True, said=(said,), settled=frozenset(owed))
        held = (Reason.OutOfServiceHeld.because(node=snapshot.facts.name, because=because),)
    return _one_by_one(snapshot, prospect, holdings, gone, held)


def _veto(snapshot: Snapshot, times: Times) -> str | None:
    policy = snapshot.policy
    if snapshot.life.state not in _DOWN:
        return snapshot.life.why.sentence.rstrip(".")
    if policy.mode is not Mode.ARMED:
        return "Backstay is not armed"
    if policy.rolled_back:
        return f"the API was rolled back ({policy.rolled_back})"
    owner = policy.owner_of(Job.DETACH)
    if owner is not Ownership.OURS:
        return f"the configuration says that it is not ours to detach ({owner})"
    owner = policy.owner_of(Job.FAILOVER)
    if owner is not Ownership.OURS and not snapshot.facts.tainted:
        # Nothing is freed but behind our taint, and to put that on is a part of failing over.
        return f"our taint was taken off, and it is not ours to put it on again ({owner})"
    if snapshot.facts.exempt:
        return f"{snapshot.facts.name} is exempt"
    if snapshot.view_age > times.fresh:
        return "our view of the cluster is nothing to act on"
    return None


def _evidence(
    snapshot: Snapshot, owed: Sequence[Owed], now: float, times: Times
) -> tuple[Evidence, ...]:
    """All that counts, also about volumes that nothing on the node has mounted any more."""
    heard = msgspec.structs.replace(snapshot.heard, volumes=tuple(map(_volume, owed)))
    return proof.proofs(heard, now, times=times)


def _ground(owed: Owed, evidence: Sequence[Evidence]) -> EvidenceKind | None:
    """What shows that it may be freed; the strongest, if several things do."""
    volume = _volume(owed)
    return next((each.kind for each in evidence if proof.may_detach(each, volume)), None)


def _volume(owed: Owed) -> Volume:
    return Volume(
        claim=owed.claim,
        pv=owed.pv,
        driver=owed.driver,
        cluster=owed.cluster,
        handle=owed.handle,
        exported=owed.exported,
    )


def _in_the_way(snapshot: Snapshot, decision: Decision, holdings: Holdings) -> str | None:
    """Why not everything on the node may go."""
    whole = (each.kind for each in decision.evidence if each.kind.scope is Scope.NODE)
    if not any(kind.strength is not Strength.PRESUMED for kind in whole):
        return "nothing but silence, or only some volumes, speaks for its death"
    if holdings.unreadable:
        return f"{holdings.unreadable} of its pods cannot be read"
    for verdict in decision.held:
        return f"{verdict.workload} is held there"
    for workload in snapshot.workloads:
        if terms_of(workload, snapshot.policy).protect is False:
            return f"{workload} there is not ours to touch"
    return None


def _one_by_one(
    snapshot: Snapshot,
    prospect: Prospect,
    holdings: Holdings,
    gone: frozenset[Owed],
    held: tuple[Why, ...],
) -> Plan:
    free = [each for each in prospect.due if each.key not in holdings.used]
    used = [each for each in prospect.due if each.key in holdings.used]
    said = (*held, *prospect.said, *_stays(snapshot, used, _USED))
    if holdings.unreadable:
        because = f"{holdings.unreadable} pods of the node cannot be read, and may use it"
        return Plan(said=(*said, *_stays(snapshot, free, because)), settled=gone)
    names = {each.pv for each in free}
    return Plan(
        detach=tuple(a for a in holdings.attachments if a.pv in names and not a.going),
        said=(*said, *_told(Reason.VolumeDetached, snapshot, _awaited(free))),
        settled=gone.union(free, used),
        outvoted=prospect.outvoted,
    )


def _awaited(owed: Iterable[Owed]) -> list[Owed]:
    """Nobody waits for what can be attached twice."""
    return [each for each in owed if not each.shared]


def _stays(snapshot: Snapshot, owed: Iterable[Owed], because: str) -> tuple[Why, ...]:
    return _told(Reason.VolumeStays, snapshot, owed, because=because)


def _told(reason: Reason, snapshot: Snapshot, owed: Iterable[Owed], **more: str) -> tuple[Why, ...]:
    """What happens to many at once is one line."""
    claims: dict[str, list[str]] = {}
    for each in owed:
        claims.setdefault(each.workload, []).append(each.claim)
    first = next(iter(claims), None)
    if first is None:
        return ()
    others = len(claims) - 1
    volumes = " and ".join(claims[first])
    workload = spoken(first) + (f" (and those of {others} more)" if others else "")
    return (reason.because(volumes=volumes, workload=workload, node=snapshot.facts.name, **more),)

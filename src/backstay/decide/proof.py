"""Proof: what testimony amounts to, for a node and for each of its workloads.

``proofs`` says what shows that the node, some volumes or a guest can no longer write, and
``objection`` whether one of them is enough for one workload:

* **Life refutes.** Whatever speaks of the whole node is void once the node was heard of after
  suspicion began, on any channel. What the storage refuses stays refused. Where life has refuted
  somebody's word about this boot, neither another word nor silence outweighs that: only what was
  observed does, of the whole node after its last sign of life.
* **Scope.** Evidence about volumes covers a workload only if all that it can write to is known,
  and covered. Evidence about a guest covers that guest.
* **Strength.** What rests on silence, or on the word of another program, takes the consent of the
  owner within the bounds of the cluster, and never covers a volume for one node at a time: where
  two copies would write to one disk, silence is not enough.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from backstay.decide import life as lives
from backstay.decide import quorum
from backstay.model.drbd import ResourceSight, resource_of
from backstay.model.evidence import (
    Answer,
    Confirmation,
    Evidence,
    EvidenceKind,
    Fence,
    Scope,
    Silence,
    Strength,
    Testimony,
)
from backstay.model.node import NodeFacts, NodeLife
from backstay.model.policy import Policy, Terms, Times
from backstay.model.reasons import Reason, Why
from backstay.model.workload import Volume, Workload

VANTAGES = 2
"""From so many places a node must be seen to be silent before it is presumed dead."""

_SHARED = "ReadWriteMany"
_SHIPPED_PATIENCE = Times().presume


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a node's death, apart from who ran there."""

    facts: NodeFacts
    life: NodeLife
    policy: Policy
    confirmations: tuple[Confirmation, ...]
    testimony: Testimony
    volumes: tuple[Volume, ...] = ()
    """All that its workloads have mounted."""


Rule = Callable[[Heard, float, Times], Iterator[Evidence]]


def proofs(heard: Heard, now: float, *, times: Times) -> tuple[Evidence, ...]:
    """All evidence that counts at this moment, the strongest first."""
    alive, disputed = _alive(heard, times), refuted(heard) is not None
    found = [
        evidence
        for rule in _RULES
        for evidence in rule(heard, now, times)
        if evidence.kind.scope is not Scope.NODE
        or not (alive or (disputed and not _outweighs(evidence, heard)))
    ]
    return tuple(sorted(found, key=lambda each: each.kind.strength.rank))


def best(proofs: Sequence[Evidence], workload: Workload, terms: Terms) -> Evidence | None:
    """The strongest that is enough for this workload."""
    return next((each for each in proofs if objection(each, workload, terms) is None), None)


def objection(evidence: Evidence, workload: Workload, terms: Terms) -> str | None:
    """Why it is not enough for this workload, in words that follow "because"."""
    uncovered = _uncovered(evidence, workload, terms)
    if uncovered is not None:
        return uncovered
    strength = evidence.kind.strength
    if not strength.suffices(terms.minimum):
        return f"{_NAMES[strength]} is less than its owner asks for ({terms.minimum})"
    return _unconsented(workload, terms) if strength is Strength.PRESUMED else None


def may_detach(evidence: Evidence, volume: Volume) -> bool:
    """Whether a volume may be taken from the node on the strength of this."""
    match evidence.kind.scope:
        case Scope.NODE:
            return evidence.kind.strength is not Strength.PRESUMED
        case Scope.VOLUMES:
            return volume.pv in evidence.volumes
        case Scope.GUEST:
            # Its filesystem may still be mounted there.
            return False


def words(evidence: Evidence) -> str:
    """As a part of a sentence that says that the death is proven, or presumed."""
    match evidence.kind:
        case EvidenceKind.OPERATOR_CONFIRMED:
            return f"{evidence.source} confirmed it ({evidence.detail}), and it was silent since"
        case EvidenceKind.PRESUMED:
            return evidence.detail
        case _:
            return f"{evidence.source}: {evidence.detail}"


# Signs of life


def answered(heard: Heard, times: Times) -> Answer | None:
    """What answered at one of its ports since suspicion began, of late."""
    suspected = heard.life.suspected_at
    for answer in heard.testimony.answers:
        late = suspected is not None and answer.at > suspected
        if late and heard.facts.looked_at - answer.at < times.answer:
            return answer
    return None


def _alive(heard: Heard, times: Times) -> bool:
    life, facts = heard.life, heard.facts
    return (
        lives.shows_life(life, facts)
        or lives.guests_alive(life, facts, times)
        or answered(heard, times) is not None
    )


def refuted(heard: Heard) -> Why | None:
    """That somebody's word about this boot is contradicted by a sign of life, if it is."""
    facts = heard.facts
    for confirmation in heard.confirmations:
        sign = _sign_after(confirmation, facts, heard.testimony.answers)
        if sign is not None and is_about(confirmation, facts):
            return Reason.EvidenceContradicted.because(node=facts.name, sign=sign)
    return None


def refutations(heard: Heard) -> tuple[tuple[Confirmation, str], ...]:
    """The words about this boot that a sign of life contradicts, and it; without those at which
    that is written already."""
    signs = (
        (word, _sign_after(word, heard.facts, heard.testimony.answers))
        for word in heard.confirmations
        if is_about(word, heard.facts) and not word.refuted
    )
    return tuple((word, sign) for word, sign in signs if sign is not None)


def _outweighs(evidence: Evidence, heard: Heard) -> bool:
    """Whether it is about what came after the life that has refuted somebody's word."""
    observed = evidence.kind.strength is Strength.OBSERVED
    return observed and _came_last(evidence.observed_at, heard)


def _came_last(moment: float, heard: Heard) -> bool:
    """Whether nothing of the node was heard since, on any channel."""
    facts = heard.facts
    last = (facts.lease_changed_at, facts.status_changed_at, facts.heartbeat_changed_at)
    signs = [*last, *(answer.at for answer in heard.testimony.answers)]
    return all(at is None or at < moment for at in signs)


def is_cut_off(heard: Heard) -> bool:
    """Whether its storage has lost the node too, and so a second kind of channel."""
    return any(quorum.shut_out(each) is None for each in heard.testimony.quorums)


def is_hastened(heard: Heard, now: float, *, times: Times) -> bool:
    """Whether something stronger than silence says that the node is dead: then one needs not wait
    for the whole of the silence that raises the alarm otherwise."""
    return any(
        each.kind.scope is Scope.NODE and each.kind.strength is not Strength.PRESUMED
        for each in proofs(heard, now, times=times)
    )


# What a person has confirmed


def counts(confirmation: Confirmation, facts: NodeFacts, answers: Sequence[Answer] = ()) -> bool:
    """Whether it is about this boot, and nothing of the node was heard since it was given."""
    return void(confirmation, facts, answers) is None


def is_about(confirmation: Confirmation, facts: NodeFacts) -> bool:
    """Whether it speaks of this very boot."""
    return (confirmation.node_uid, confirmation.boot_id) == (facts.uid, facts.boot_id)


def void(
    confirmation: Confirmation, facts: NodeFacts, answers: Sequence[Answer] = ()
) -> str | None:
    """Why a confirmation does not count, in words."""
    if not is_about(confirmation, facts):
        return "it was given for another boot of the node"
    if confirmation.lapsed:
        return "the API was restored from a backup after it was given"
    if _sign_after(confirmation, facts, answers) is not None:
        return "the node has shown life since"
    if confirmation.last_renewal != facts.renewal:
        return "the node's lease was renewed after it was given"
    if confirmation.last_heartbeat != facts.heartbeat:
        return "the node's virt-handler sent a heartbeat after it was given"
    # Who writes one by hand need not name it.
    if confirmation.last_status not in ("", facts.status):
        return "the node's kubelet posted its status after it was given"
    return None


def _sign_after(
    confirmation: Confirmation, facts: NodeFacts, answers: Sequence[Answer]
) -> str | None:
    """A sign of life that came after the confirmation.

    We hear of a confirmation at once, of a renewal with the next look at the leases, and of a node
    by another watch, so what we saw later may be older. Where the confirmation names it as the last
    one, it is.
    """
    if confirmation.refuted:
        return confirmation.refuted
    if confirmation.lapsed:
        # Nobody says so any more, and there is nothing to contradict.
        return None
    moment = confirmation.seen_at
    known = confirmation.last_renewal and confirmation.last_renewal == facts.renewal
    if facts.lease_changed_at is not None and facts.lease_changed_at > moment and not known:
        return "its kubelet renewed its lease"
    known = confirmation.last_status and confirmation.last_status == facts.status
    if facts.status_changed_at is not None and facts.status_changed_at > moment and not known:
        return "its kubelet posted its status"
    known = confirmation.last_heartbeat and confirmation.last_heartbeat == facts.heartbeat
    if facts.heartbeat_changed_at is not None and facts.heartbeat_changed_at > moment and not known:
        return "its virt-handler sent a heartbeat"
    answer = next((each for each in answers if each.at > moment), None)
    return None if answer is None else f"its {answer.channel} answered"


def _confirmed(heard: Heard, now: float, times: Times) -> Iterator[Evidence]:
    for word in heard.confirmations:
        if counts(word, heard.facts, heard.testimony.answers):
            kind = EvidenceKind.OPERATOR_CONFIRMED
            yield _about(heard, kind, source=word.by, detail=word.reason, observed_at=now)
            return


def _out_of_service(heard: Heard, now: float, times: Times) -> Iterator[Evidence]:
    """The taint counts only if it came during this incident, and nothing was heard since."""
    taint, suspected = heard.testimony.taint, heard.life.suspected_at
    if taint is None or taint.seen_at is None or suspected is None or taint.seen_at < suspected:
        return
    facts = heard.facts
    last = (facts.lease_changed_at, facts.heartbeat_changed_at, facts.status_changed_at)
    signs = [*last, *(answer.at for answer in heard.testimony.answers)]
    if any(sign is not None and sign > taint.seen_at for sign in signs):
        return
    kind = EvidenceKind.OPERATOR_CONFIRMED if taint.person else EvidenceKind.FOREIGN_ASSERTION
    source = f"somebody (by {taint.by})" if taint.person else taint.by
    detail = "the out-of-service taint was put on the node"
    yield _about(heard, kind, source=source, detail=detail, observed_at=now)


# What is observed


def _provider_off(heard: Heard, now: float, times: Times) -> Iterator[Evidence]:
    state, suspected = heard.testimony.provider, heard.life.suspected_at
    if state is None or not state.off or suspected is None or state.observed_at < suspected:
        return
    if now - state.observed_at <= times.fresh:
        yield _about(
            heard,
            EvidenceKind.PROVIDER_OFF,
            source=state.source,
            detail=state.detail,
            observed_at=state.observed_at,
        )


def _powered_off(heard: Heard, now: float, times: Times) -> Iterator[Evidence]:
    """Only what the right device said after all else was silent: a command is no proof."""
    sight, suspected = heard.testimony.power, heard.life.suspected_at
    if sight is None or sight.on is not False or not sight.identified:
        return
    if suspected is None or sight.observed_at < suspected:
        return
    if now - sight.observed_at <= times.fresh and _came_last(sight.observed_at, heard):
        yield _about(
            heard,
            EvidenceKind.POWERED_OFF,
            source=sight.device,
            detail=sight.detail,
            observed_at=sight.observed_at,
        )


def _fenced(heard: Heard, now: float, times: Times) -> Iterator[Evidence]:
    """All that the storage refuses, together: a workload may have its volumes in several."""
    fences = [f for f in heard.testimony.fences if now - f.observed_at <= times.fresh]
    if fences:
        yield _about(
            heard,
            EvidenceKind.STORAGE_FENCED,
            source=", ".join(fence.name for fence in fences),
            detail="; ".join(fence.detail for fence in fences),
            observed_at=min(fence.observed_at for fence in fences),
            volumes=tuple(sorted({pv for fence in fences for pv in _refused(fence, heard)})),
        )


def _refused(fence: Fence, heard: Heard) -> Iterator[str]:
    """The volumes that it speaks of, by name or by where they are."""
    yield from fence.volumes
    for volume in heard.volumes:
        same = (volume.driver, volume.cluster) == (fence.driver, fence.cluster)
        if volume.pv and fence.driver and same:
            yield volume.pv


def _outvoted(heard: Heard, now: float, times: Times) -> Iterator[Evidence]:
    """All resources that DRBD has shut the node out of, together."""
    sights = [
        each for each in heard.testimony.quorums if quorum.settled(each, now, times=times) is None
    ]
    if not sights:
        return
    volumes = {v.pv for v in heard.volumes for sight in sights if v.pv and is_of(v, sight)}
    if volumes:
        who = " and ".join(sorted({node for sight in sights for node in quorum.survivors(sight)}))
        lasted = min(int(now - (sight.since or now)) for sight in sights)
        yield _about(
            heard,
            EvidenceKind.STORAGE_QUORUM,
            source="DRBD",
            detail=f"{who} have the quorum without it, for {lasted} s",
            observed_at=min(sight.observed_at for sight in sights),
            volumes=tuple(sorted(volumes)),
        )


def is_of(volume: Volume, sight: ResourceSight) -> bool:
    """Whether the volume is on that resource, and written to by the node that mounts it."""
    same = sight.driver in ("", volume.driver)
    return same and not volume.exported and sight.resource == resource_of(volume.handle, volume.pv)


def why_not_outvoted(heard: Heard, volume: Volume, now: float, *, times: Times) -> str | None:
    """What DRBD has to say against it, or why nothing is heard of it, in words; None where it has
    nothing to do with it."""
    if volume.exported:
        return "it is served over NFS, and whoever reaches a server writes, whomever DRBD has lost"
    for sight in heard.testimony.quorums:
        if is_of(volume, sight):
            return quorum.settled(sight, now, times=times)
    for unheard in heard.testimony.unheard:
        if unheard.driver in ("", volume.driver):
            return unheard.because
    return None


def _stopped(heard: Heard, now: float, times: Times) -> Iterator[Evidence]:
    for stop in heard.testimony.stops:
        yield _about(
            heard,
            EvidenceKind.GUEST_STOPPED,
            source="virt-handler",
            detail=stop.detail,
            observed_at=stop.observed_at,
            guest=stop.launcher,
        )


# What is presumed


def _presumed(heard: Heard, now: float, times: Times) -> Iterator[Evidence]:
    if why_not_presumed(heard, now, times=times) is None:
        places = sorted({each.vantage for each in sound_silences(heard, now, times)})
        silent = round(lives.silence(heard.facts))
        yield _about(
            heard,
            EvidenceKind.PRESUMED,
            source="silence",
            detail=f"nothing was heard of it for {silent} s, from {' and from '.join(places)}",
            observed_at=now,
        )


def why_not_presumed(heard: Heard, now: float, *, times: Times) -> str | None:
    """What is missing before the node may be presumed dead, in words."""
    facts = heard.facts
    if facts.in_maintenance:
        return "it has to be out of maintenance"
    patience, silent = presumed_after(heard.policy, times), lives.silence(facts)
    if silent < patience:
        return f"it has to be silent for {round(patience - silent)} s more"
    if facts.heartbeat_changed_at is not None and now - facts.heartbeat_changed_at < patience:
        return f"virt-handler was heard of {round(now - facts.heartbeat_changed_at)} s ago"
    if any(now - answer.at < patience for answer in heard.testimony.answers):
        return "it answered at one of its ports of late"
    places = {
        each.vantage for each in sound_silences(heard, now, times) if now - each.since >= patience
    }
    if len(places) < VANTAGES:
        return f"it was seen to be silent from {len(places)} of {VANTAGES} places"
    return None


def presumed_after(policy: Policy, times: Times) -> float:
    """The configuration can ask for more patience than the floor, never for less."""
    return max(times.presume, policy.presume_after * times.presume / _SHIPPED_PATIENCE)


def sound_silences(heard: Heard, now: float, times: Times) -> list[Silence]:
    """The silences that mean something: asked of late, over a channel that works elsewhere."""
    return [
        each
        for each in heard.testimony.silences
        if now - each.asked_at <= times.answer
        and each.proven_at is not None
        and now - each.proven_at <= times.answer
    ]


_RULES: tuple[Rule, ...] = (
    _powered_off, _confirmed, _out_of_service, _provider_off, _fenced, _outvoted, _stopped,
    _presumed,
)  # fmt: skip


# Whether it is enough for a workload

_NAMES = {
    Strength.OBSERVED: "what was observed",
    Strength.CONFIRMED: "a person's word",
    Strength.PRESUMED: "silence",
}


def _uncovered(evidence: Evidence, workload: Workload, terms: Terms) -> str | None:
    match evidence.kind.scope:
        case Scope.NODE:
            return None
        case Scope.GUEST:
            mine = any(pod.uid == evidence.guest for pod in workload.pods)
            return None if mine else "another guest was stopped"
        case Scope.VOLUMES:
            return _open_to_writes(evidence, workload, terms)


def _open_to_writes(evidence: Evidence, workload: Workload, terms: Terms) -> str | None:
    if terms.singleton:
        return "it must not run twice even without its volumes"
    if workload.also_writes:
        return f"it also writes to {workload.also_writes[0]}, which is not covered"
    if not workload.volumes:
        return "it has no volumes of which that could be said"
    if not workload.began_with_volumes:
        # One that is plugged in once its node is cut off never gets there.
        return "it was started without volumes, and runs on without those that were plugged in"
    open_ones = [volume for volume in workload.volumes if volume.pv not in evidence.volumes]
    return f"its volume {open_ones[0].claim} is not covered" if open_ones else None


def _unconsented(workload: Workload, terms: Terms) -> str | None:
    """What silence is never enough for, whatever the owner consents to."""
    if workload.also_writes:
        return f"it writes to {workload.also_writes[0]}"
    for volume in workload.volumes:
        if not volume.access_modes:
            return f"it is not known how its volume {volume.claim} may be used"
        if _SHARED not in volume.access_modes:
            modes = ", ".join(volume.access_modes)
            return f"its volume {volume.claim} is for one node at a time ({modes})"
        if volume.block and not terms.presume_block:
            return f"its volume {volume.claim} is a block device that nothing locks"
    return None


def _about(
    heard: Heard,
    kind: EvidenceKind,
    *,
    source: str,
    detail: str,
    observed_at: float,
    volumes: tuple[str, ...] = (),
    guest: str = "",
) -> Evidence:
    facts = heard.facts
    return Evidence(
        kind=kind,
        node=facts.name,
        node_uid=facts.uid,
        boot_id=facts.boot_id,
        source=source,
        detail=detail,
        observed_at=observed_at,
        volumes=volumes,
        guest=guest,
    )

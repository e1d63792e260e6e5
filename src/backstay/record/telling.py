"""Telling an incident: its status, folded from decisions one after the other.

All of it is pure: ``told`` takes the status as it was written last and says what it is now. The
rules:

* Nothing changes unless there is news. That a silence or a view grew older by a second is none, so
  the same decision made again costs no write.
* The timeline has a line for each change of code or sentence. What happens to many workloads at
  once is one line.
* A workload that was released is never told to be held again on account of the same pods: a view
  that lags behind still shows them.
* It fits into the API whatever happens: ``bounded`` leaves out the oldest middle of the timeline.
  How it began and how it stands are never left out.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from backstay.decide.failover import Action, Decision, Verdict
from backstay.model.evidence import Evidence, EvidenceKind
from backstay.model.incident import (
    EvidenceRecord,
    IncidentStatus,
    Intent,
    Moment,
    PhaseTime,
    Progress,
    StageTime,
    VolumeRecord,
    WorkloadRecord,
)
from backstay.model.node import NodeLife
from backstay.model.policy import Detach, Mode
from backstay.model.reasons import Reason, Why

MOST_MOMENTS = 200
MOST_BYTES = 400_000

_BEGINNING = 20
"""So many of the first moments are kept for ever."""

# The schema of an Incident accepts twice as much of each; all of them together must stay below
# ``MOST_BYTES`` whatever people write into a reason.
_LONGEST_TEXT = 500
_MOST_WORKLOADS = 1000
_MOST_EVIDENCE = 8
MOST_PODS = 500
"""In one batch, and so in one intent."""

_BEHIND_US = frozenset({Progress.RELEASED, Progress.RECOVERED, Progress.STAYS_DOWN})
_SHARED = frozenset({"ReadWriteMany", "ReadOnlyMany"})
_SECONDS = re.compile(r"\b(?:\d+ of )?\d+ s\b")


class Advance(msgspec.Struct, frozen=True):
    """How far one workload has come through what was done, and why that is said. ``after`` is in
    seconds since its node's last sign of life, if that was seen."""

    progress: Progress
    why: Why
    after: float | None = None
    ready: bool = False
    phases: tuple[PhaseTime, ...] = ()


CLOSED = "Closed"

NO_ADVANCE: Mapping[str, Advance] = {}


def same_why(one: Why, other: Why) -> bool:
    """Whether two reasons say the same thing, but for how many seconds it has lasted."""
    if (one.code, one.next) != (other.code, other.next):
        return False
    return _timeless(one.sentence) == _timeless(other.sentence)


def told(
    status: IncidentStatus,
    *,
    life: NodeLife,
    decision: Decision,
    now_text: str,
    mode: Mode,
    epoch: int,
    advances: Mapping[str, Advance] = NO_ADVANCE,
    moments: Sequence[Why] = (),
    stages: Sequence[StageTime] = (),
) -> IncidentStatus:
    """The status after this decision.

    ``advances`` are what became of workloads since, by ``Workload.key``, and go before what the
    decision says of them. ``moments`` are further lines for the timeline (the barrier, a proof
    that held), in order. Of the ``stages`` each is told once, as it was measured first.
    """
    workloads = _workloads(status.workloads, decision, advances)
    evidence_now = evidence(status.evidence, decision.evidence, now_text)
    why = _kept(status, decision.why)
    lines = [] if (why.code, why.sentence) == (status.code, status.sentence) else [why]
    lines += [_found(each) for each in decision.evidence if not _is_known(status.evidence, each)]
    lines += [*moments, *_changes(status.workloads, workloads)]
    why = _next_step(why, workloads)
    progress = [record.progress for record in workloads]
    now = msgspec.structs.replace(
        status,
        state=life.state.value,
        code=why.code,
        sentence=why.sentence,
        next=why.next,
        mode=mode.value,
        epoch=max(epoch, status.epoch),
        opened_at=status.opened_at or now_text,
        evidence=evidence_now,
        stages=_stages(status.stages, stages),
        workloads=workloads,
        timeline=_timeline(status.timeline, lines, now_text) if lines else status.timeline,
        held=progress.count(Progress.HELD),
        recovered=progress.count(Progress.RECOVERED),
    )
    # As a rule; and what was written fits into the API.
    return status if now == status else bounded(now)


def intended(status: IncidentStatus, intent: Intent) -> IncidentStatus:
    """Before a batch of writes. One that was cut off has to be settled first."""
    if len(intent.pods) > MOST_PODS:
        raise ValueError(f"a batch has at most {MOST_PODS} pods, not {len(intent.pods)}")
    if unsettled(status):
        raise ValueError("the last intent has no outcome yet: look what became of it first")
    return msgspec.structs.replace(status, intent=intent, epoch=max(status.epoch, intent.epoch))


def settled(status: IncidentStatus, outcome: str) -> IncidentStatus:
    """After a batch, or once it was seen what became of one that was cut off."""
    if status.intent is None:
        raise ValueError("there is no intent to settle")
    intent = msgspec.structs.replace(status.intent, outcome=_cut(outcome) or "done")
    return msgspec.structs.replace(status, intent=intent)


def unsettled(status: IncidentStatus) -> Intent | None:
    """The intent of which nobody knows yet what became of it."""
    return status.intent if status.intent and not status.intent.outcome else None


def closed(status: IncidentStatus, why: Why, *, now_text: str) -> IncidentStatus:
    """The end. Whoever reads it learns why it ended."""
    return bounded(
        msgspec.structs.replace(
            status,
            code=why.code,
            sentence=why.sentence,
            next=why.next,
            state=CLOSED,
            held=0,
            closed_at=status.closed_at or now_text,
            timeline=_timeline(status.timeline, [why], now_text),
        )
    )


def bounded(status: IncidentStatus) -> IncidentStatus:
    """The same, in a size that the API accepts."""
    status = msgspec.structs.replace(
        status,
        sentence=_cut(status.sentence),
        next=_cut(status.next),
        workloads=_held_first(status.workloads)[:_MOST_WORKLOADS],
        timeline=_shortened(status.timeline, MOST_MOMENTS),
    )
    for smaller in (_fewer_moments, _no_phases, _fewer_words, _fewer_workloads):
        while len(msgspec.json.encode(status)) > MOST_BYTES:
            shorter = smaller(status)
            if shorter == status:
                break
            status = shorter
    return status


def _fewer_moments(status: IncidentStatus) -> IncidentStatus:
    most = max(_BEGINNING + 2, len(status.timeline) // 2)
    return msgspec.structs.replace(status, timeline=_shortened(status.timeline, most))


def _no_phases(status: IncidentStatus) -> IncidentStatus:
    """KubeVirt has them too, for as long as the guest runs."""
    plain = tuple(msgspec.structs.replace(record, phases=()) for record in status.workloads)
    return msgspec.structs.replace(status, workloads=plain)


def _fewer_words(status: IncidentStatus) -> IncidentStatus:
    """The code says it too, if less kindly."""
    terse = tuple(
        msgspec.structs.replace(record, sentence="", next="") for record in status.workloads
    )
    return msgspec.structs.replace(status, workloads=terse)


def _fewer_workloads(status: IncidentStatus) -> IncidentStatus:
    kept = _held_first(status.workloads)[: len(status.workloads) // 2]
    return msgspec.structs.replace(status, workloads=kept)


def _shortened(timeline: tuple[Moment, ...], most: int) -> tuple[Moment, ...]:
    if len(timeline) <= most:
        return timeline
    gap = timeline[_BEGINNING].at
    why = Reason.TimelineShortened.because()
    newest = timeline[len(timeline) - (most - _BEGINNING - 1) :]
    return (*timeline[:_BEGINNING], Moment(gap, why.code, why.sentence), *newest)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"


# Workloads


def _workloads(
    before: Sequence[WorkloadRecord], decision: Decision, advances: Mapping[str, Advance]
) -> tuple[WorkloadRecord, ...]:
    """In the order in which they were first told of. What the decision no longer mentions has
    left the node, and stays as it was told last."""
    records = {record.workload: record for record in before}
    for verdict in decision.verdicts:
        key = verdict.workload.key
        records[key] = _judged(records.get(key), verdict)
    for key, advance in advances.items():
        records[key] = _moved(key, records.get(key), advance)
    unchanged = {old.workload: _same_or_new(old, records[old.workload]) for old in before}
    return tuple((records | unchanged).values())


def _judged(before: WorkloadRecord | None, verdict: Verdict) -> WorkloadRecord:
    uids = tuple(pod.uid for pod in verdict.workload.pods)
    # What had ended when the rest of it was released, and so was left, is no news either.
    is_old = verdict.workload.ended or (before is not None and set(uids) <= set(before.uids))
    if before and before.progress in _BEHIND_US and is_old:
        return before
    record = _record(verdict.workload.key, _progress(verdict), verdict.why, uids)
    guest = verdict.workload.guest
    replaced_by = guest.replaced_by if guest is not None else verdict.workload.replaced_by
    return msgspec.structs.replace(record, volumes=_volumes(verdict), replaced_by=replaced_by)


def _volumes(verdict: Verdict) -> tuple[VolumeRecord, ...]:
    """Those that are to be freed after its release. They are told as soon as that may come: who
    releases it can die before a word is said of it."""
    if verdict.action is Action.LEAVE or verdict.detach is Detach.LEAVE:
        return ()
    return tuple(
        VolumeRecord(
            volume.claim,
            volume.pv,
            volume.driver,
            volume.cluster,
            bool(_SHARED.intersection(volume.access_modes)),
            volume.handle,
            volume.exported,
        )
        for volume in verdict.workload.volumes
        if volume.pv
    )


def _progress(verdict: Verdict) -> Progress:
    match verdict.action:
        case Action.LEAVE:
            return Progress.LEFT
        case Action.HOLD:
            return Progress.HELD
        case Action.MIGRATE | Action.STOP:
            return Progress.DUE
        case Action.RELEASE:
            return Progress.MARKED if verdict.workload.marked else Progress.DUE


def _record(key: str, progress: Progress, why: Why, uids: tuple[str, ...]) -> WorkloadRecord:
    return WorkloadRecord(key, progress, why.code, _cut(why.sentence), _cut(why.next), uids)


def _moved(key: str, before: WorkloadRecord | None, advance: Advance) -> WorkloadRecord:
    """A step further. What was measured of the steps before stays."""
    record = _record(key, advance.progress, advance.why, before.uids if before else ())
    if before is not None:
        record = msgspec.structs.replace(
            record, volumes=before.volumes, replaced_by=before.replaced_by
        )
    anew = advance.progress is Progress.RELEASED and advance.after is not None
    if before is not None and not anew:
        record = msgspec.structs.replace(
            record,
            ready=before.ready,
            released_after=before.released_after,
            running_after=before.running_after,
            ready_after=before.ready_after,
            phases=before.phases,
        )
    record = msgspec.structs.replace(record, phases=advance.phases or record.phases)
    if advance.ready:
        return msgspec.structs.replace(record, ready=True, ready_after=advance.after)
    match advance.progress:
        case Progress.RELEASED | Progress.STAYS_DOWN if advance.after is not None:
            return msgspec.structs.replace(record, released_after=advance.after)
        case Progress.RECOVERED:
            return msgspec.structs.replace(record, running_after=advance.after)
        case _:
            return record


def _same_or_new(old: WorkloadRecord, new: WorkloadRecord) -> WorkloadRecord:
    if old is new or (old.progress, old.uids, old.ready) != (new.progress, new.uids, new.ready):
        return new
    said = Why(old.code, old.sentence, old.next)
    return old if same_why(said, Why(new.code, new.sentence, new.next)) else new


def _held_first(records: tuple[WorkloadRecord, ...]) -> tuple[WorkloadRecord, ...]:
    """Whoever waits for a person must not be what is left out."""
    return tuple(sorted(records, key=lambda record: record.progress is not Progress.HELD))


def _stages(before: tuple[StageTime, ...], new: Sequence[StageTime]) -> tuple[StageTime, ...]:
    known = {each.stage for each in before}
    return (*before, *(each for each in new if each.stage not in known))


# Evidence


def evidence(
    before: tuple[EvidenceRecord, ...], found: Sequence[Evidence], now_text: str
) -> tuple[EvidenceRecord, ...]:
    new = (
        EvidenceRecord(each.kind.value, _cut(each.source), _cut(each.detail), now_text)
        for each in found
        if not _is_known(before, each)
    )
    return (*before, *new)[-_MOST_EVIDENCE:]


def _is_known(before: Sequence[EvidenceRecord], evidence: Evidence) -> bool:
    """Silence grows by the second and is the same silence."""
    kind, source, detail = evidence.kind.value, _cut(evidence.source), _cut(evidence.detail)
    return any(
        (each.kind, each.source) == (kind, source) and _timeless(each.detail) == _timeless(detail)
        for each in before
    )


# The same few sentences are compared at every look.
@lru_cache(maxsize=1024)
def _timeless(text: str) -> str:
    return _SECONDS.sub("", text)


def _found(evidence: Evidence) -> Why:
    node, because = evidence.node, evidence.detail
    if evidence.kind is EvidenceKind.OPERATOR_CONFIRMED:
        return Reason.DeathConfirmed.because(by=evidence.source, node=node, because=because)
    because = f"{evidence.source} says that {because}"
    return Reason.EvidenceFound.because(kind=evidence.kind, node=node, because=because)


# The words


def _kept(status: IncidentStatus, why: Why) -> Why:
    why = Why(why.code, _cut(why.sentence), why.next)
    before = Why(status.code, status.sentence, why.next)
    return before if same_why(before, why) else why


def _next_step(why: Why, workloads: Sequence[WorkloadRecord]) -> Why:
    """The node's own, or else what would help the first workload that is held."""
    if why.next:
        return why
    waiting = (record.next for record in workloads if record.progress is Progress.HELD)
    return msgspec.structs.replace(why, next=next(filter(None, waiting), ""))


def _changes(before: Sequence[WorkloadRecord], after: Sequence[WorkloadRecord]) -> list[Why]:
    """One line for each code that is news to some workload; of those left alone, none."""
    codes = {record.workload: (record.code, record.progress) for record in before}
    news: dict[str, list[WorkloadRecord]] = {}
    for record in after:
        known = codes.get(record.workload) == (record.code, record.progress)
        if not known and record.progress is not Progress.LEFT:
            news.setdefault(record.code, []).append(record)
    return [Why(code, _together(records)) for code, records in news.items()]


def _together(records: Sequence[WorkloadRecord]) -> str:
    more = len(records) - 1
    return records[0].sentence + (f" ({more} more like it.)" if more else "")


def _timeline(
    before: tuple[Moment, ...], lines: Sequence[Why], now_text: str
) -> tuple[Moment, ...]:
    timeline = list(before)
    for why in lines:
        line = Why(why.code, _cut(why.sentence))
        last = Why(timeline[-1].code, timeline[-1].sentence) if timeline else None
        if last is None or not same_why(last, line):
            timeline.append(Moment(now_text, line.code, line.sentence))
    return tuple(timeline)

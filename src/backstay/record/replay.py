"""Replay: recorded decisions made again, with today's rules.

A frame holds all that its decision rested on, so the same rules give the same decision; where they
do not, the rules have changed since, and that is what a replay shows. A file is read as a whole or
not at all: what is no recording of ours is one sentence. Only the last line may be incomplete,
because that is what a crash leaves behind.
"""

from collections.abc import Iterable, Sequence

import msgspec

from backstay.decide.failover import Check, decide
from backstay.kube.errors import UNREADABLE
from backstay.model.evidence import Evidence
from backstay.model.reasons import Why
from backstay.record.frames import (
    FORMAT,
    VERSION,
    Frame,
    Header,
    Outcome,
    chain_names,
    outcome_of,
)


class NotARecording(Exception):
    """One sentence that names the file and what is wrong with it."""


class Recording(msgspec.Struct, frozen=True):
    """``cut_off`` says that the last line was incomplete and left out."""

    header: Header
    frames: tuple[Frame, ...]
    cut_off: bool = False


class Difference(msgspec.Struct, frozen=True):
    """``subject`` is a workload, or the node itself. Sentences are "" where there is none."""

    at: str
    node: str
    subject: str
    recorded: str
    today: str


class Replayed(msgspec.Struct, frozen=True):
    """What came of one recording. ``rules`` says how the checks differ from those recorded."""

    frames: int
    differences: tuple[Difference, ...]
    rules: str = ""


_header = msgspec.json.Decoder(Header)
_frame = msgspec.json.Decoder(Frame)


def read_recording(name: str, data: bytes) -> Recording:
    """Raises ``NotARecording``."""
    first, *lines = data.split(b"\n")
    header = _read_header(name, first)
    # What follows the last newline is a line that was not finished, or nothing at all.
    unfinished = lines.pop() if lines else b""
    frames = [_read_frame(name, number, line) for number, line in enumerate(lines, start=2)]
    return Recording(header, tuple(frames), cut_off=bool(unfinished))


def _read_header(name: str, line: bytes) -> Header:
    try:
        header = _header.decode(line)
    except UNREADABLE:
        raise NotARecording(
            f"{name} is not a recording of Backstay: its first line does not say {FORMAT!r}."
        ) from None
    if header.version != VERSION:
        raise NotARecording(
            f"{name} has version {header.version} of the format, and this is version {VERSION}: "
            f"replay it with {header.program}."
        )
    return header


def _read_frame(name: str, number: int, line: bytes) -> Frame:
    try:
        return _frame.decode(line)
    except UNREADABLE as error:
        raise NotARecording(f"{name} is damaged: line {number} is no frame ({error}).") from None


def replay(recording: Recording, chain: Sequence[Check]) -> Replayed:
    """Decides every frame anew."""
    today = chain_names(chain)
    differences: list[Difference] = []
    for frame in recording.frames:
        decision = decide(frame.question, frame.now, times=frame.times, chain=chain)
        differences += _compare(frame, outcome_of(decision))
    rules = {frame.chain for frame in recording.frames} - {today}
    return Replayed(len(recording.frames), tuple(differences), _changed_rules(rules, today))


def _compare(frame: Frame, today: Outcome) -> Iterable[Difference]:
    before, after = _sentences(frame.outcome), _sentences(today)
    for subject in dict.fromkeys((*before, *after)):
        recorded, now = before.get(subject, ""), after.get(subject, "")
        if recorded != now:
            name = subject or f"Node/{frame.node}"
            yield Difference(frame.at, frame.node, name, recorded, now)
    if frame.outcome.evidence != today.evidence:
        recorded, now = _proof(frame.outcome.evidence), _proof(today.evidence)
        yield Difference(frame.at, frame.node, f"evidence about {frame.node}", recorded, now)


def _sentences(outcome: Outcome) -> dict[str, str]:
    each = {"": _said(outcome.why)}
    return each | {v.workload: f"{v.action}: {_said(v.why)}" for v in outcome.verdicts}


def _proof(evidence: Iterable[Evidence]) -> str:
    return "; ".join(f"{each.kind} by {each.source}: {each.detail}" for each in evidence)


def _said(why: Why) -> str:
    return f"{why.code}: {why.sentence}" + (f" NEXT: {why.next}" if why.next else "")


def _changed_rules(recorded: set[tuple[str, ...]], today: tuple[str, ...]) -> str:
    then = {name for chain in recorded for name in chain}
    added, gone = sorted(set(today) - then), sorted(then - set(today))
    if not recorded:
        return ""
    words = [f"new: {', '.join(added)}"] if added else []
    words += [f"gone: {', '.join(gone)}"] if gone else []
    return f"the checks have changed ({'; '.join(words) or 'their order'})"

"""Logs: one line for each thing that happened, as JSON for machines or plain for a terminal.

What a line is about (its node, incident, workload, the code of the reason) comes from around it::

    with about(node="n1", incident="n1-20261116-080512"):
        ...  # whatever is logged in here, however deep, says so

``install`` is for the program's outermost shell: libraries log, only programs decide where to.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO

import msgspec

from backstay.model.reasons import Why
from backstay.seam.clock import WallClock


class Subject(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is being talked about."""

    code: str = ""
    node: str = ""
    incident: str = ""
    workload: str = ""


_NOTHING = Subject()

_subject: ContextVar[Subject] = ContextVar("subject", default=_NOTHING)


@contextmanager
def about(
    *,
    code: str | None = None,
    node: str | None = None,
    incident: str | None = None,
    workload: str | None = None,
) -> Iterator[None]:
    """Everything said inside is about this as well as about what surrounds it."""
    given = {"code": code, "node": node, "incident": incident, "workload": workload}
    named = {key: value for key, value in given.items() if value is not None}
    token = _subject.set(msgspec.structs.replace(_subject.get(), **named))
    try:
        yield
    finally:
        _subject.reset(token)


def say(logger: logging.Logger, why: Why, *, level: int = logging.INFO) -> None:
    """A reason, in the same words as everywhere."""
    with about(code=why.code):
        logger.log(level, "%s", f"{why.sentence} NEXT: {why.next}" if why.next else why.sentence)


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, what it is about, and any error."""

    def __init__(self, wall: WallClock) -> None:
        super().__init__()
        self._wall = wall

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, str] = {
            "time": self._wall.now().isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **msgspec.to_builtins(_subject.get()),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


class PlainLines(logging.Formatter):
    """For people: the time of day, who is concerned, and the sentence."""

    def __init__(self, wall: WallClock) -> None:
        super().__init__()
        self._wall = wall

    def format(self, record: logging.LogRecord) -> str:
        subject = _subject.get()
        who = subject.workload or subject.node
        words = [f"{self._wall.now():%H:%M:%S}"]
        if record.levelno >= logging.WARNING:
            words.append(record.levelname)
        if who:
            words.append(f"[{who}]")
        words.append(record.getMessage())
        text = " ".join(words)
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


@contextmanager
def install(stream: TextIO, formatter: logging.Formatter, *, level: int) -> Iterator[None]:
    """What Backstay says goes to ``stream`` until the end of the block."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logger = logging.getLogger("backstay")
    before = logger.level
    logger.setLevel(level)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)

"""Settled: one set-up for many plays.

A quarter of what a small scenario costs goes into the cluster that it begins with: nodes boot,
workloads start, a controller is elected. Siblings (see ``Scenario.beginning``) share all of that.
So a world is set up once, in a process of its own, and that process makes a copy of itself for
each sibling, which goes on from there and tells what came of it::

    with Settled(scenario) as settled:
        played = [settled.play(sibling) for sibling in siblings]

Nothing that happens in a copy is seen in another, and what is played is the same, to the last
line, as if it had been set up for itself. A scenario that cannot be played to its end raises
``CutShort``, which tells what ``play`` would have raised.
"""

import asyncio
import contextlib
import gc
import os
import signal
import struct
from collections.abc import Collection
from typing import Self, Unpack

import msgspec

from backstay.app import Parts
from backstay.lab.play import Performance, Played, seed_of_beginning
from backstay.lab.scenario import Scenario
from backstay.sim.world import World

_LENGTH = struct.Struct("!Q")


class CutShort(Exception):
    """A play that did not come to its end; ``kind`` is the name of the exception that ended it."""

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind


class _Wish(msgspec.Struct, frozen=True):
    """What is asked of the process in which everything is set up."""

    scenario: Scenario
    enough: frozenset[str] | None


class _Answer(msgspec.Struct, frozen=True):
    """``played``, or what ended it early."""

    played: Played | None = None
    kind: str = ""
    sentence: str = ""


class Settled:
    """See the module. ``instead`` is as with ``play``."""

    def __init__(self, scenario: Scenario, **instead: Unpack[Parts]) -> None:
        self._beginning = scenario.beginning
        wishes, self._wishes = os.pipe()
        self._answers, answers = os.pipe()
        self._process = _fork()
        if self._process == 0:
            os.close(self._wishes)
            os.close(self._answers)
            _be_the_other(scenario, instead, wishes, answers)
        os.close(wishes)
        os.close(answers)

    def fits(self, scenario: Scenario) -> bool:
        """Whether it begins with what is set up here."""
        return scenario.beginning == self._beginning

    def play(self, scenario: Scenario, *, enough: Collection[str] | None = None) -> Played:
        """As ``play`` of that name. Raises ``CutShort``."""
        if not self.fits(scenario):
            raise ValueError(f"{scenario.name} begins with something else than what is set up")
        # If it is broken, the set-up has failed, and the last answer tells why.
        with contextlib.suppress(BrokenPipeError):
            wish = _Wish(scenario, None if enough is None else frozenset(enough))
            _send(self._wishes, msgspec.msgpack.encode(wish))
        body = _receive(self._answers)
        if body is None:
            raise CutShort("ProcessDied", "the process in which it was played has died")
        answer = msgspec.msgpack.decode(body, type=_Answer)
        if answer.played is None:
            raise CutShort(answer.kind, answer.sentence)
        return answer.played

    def close(self) -> None:
        os.close(self._wishes)
        os.close(self._answers)
        os.waitpid(self._process, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _fork() -> int:
    """As ``os.fork``. Around it Python runs callbacks in which whatever is raised is dropped: who
    presses Ctrl-C in that moment would not be heard, so it is kept until it is over."""
    heeded = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        return os.fork()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, heeded)


def _be_the_other(scenario: Scenario, instead: Parts, wishes: int, answers: int) -> None:
    """All that the other process does, and its copies; none of them returns."""
    code = 1
    # What is left at its end goes with the process, and needs no looking through.
    gc.disable()
    try:
        answer = _attempt(scenario, instead, wishes, answers)
        if answer is not None:
            _send(answers, msgspec.msgpack.encode(answer))
        code = 0
    finally:
        # Not by the way of the program that it is a copy of, which has its own end to come to.
        os._exit(code)


def _attempt(scenario: Scenario, instead: Parts, wishes: int, answers: int) -> _Answer | None:
    """What there is to tell; nothing when nobody wishes for anything any more."""
    # It is not closed: the process ends.
    world = World(seed_of_beginning(scenario))
    try:
        played = world.run(_serve(world, scenario, instead, (wishes, answers)))
    except Exception as error:  # noqa: BLE001 - whatever ends a play early is told
        return _Answer(kind=type(error).__name__, sentence=str(error))
    return None if played is None else _Answer(played)


async def _serve(
    world: World, scenario: Scenario, instead: Parts, pipes: tuple[int, int]
) -> Played | None:
    """Makes a copy for every wish. Returns what came of it in the copy, and nothing at the end in
    the process that was copied."""
    wishes, answers = pipes
    task = asyncio.current_task()
    assert task is not None, "a coroutine is carried out by a task"
    performance = Performance(world, scenario, instead)
    await performance.set_up()
    # What is there now stays, and looking at it again would only make each copy take its own.
    gc.freeze()
    while (body := _receive(wishes)) is not None:
        if _is_the_copy(answers):
            world.loop.after_fork(task)
            wish = msgspec.msgpack.decode(body, type=_Wish)
            return await performance.perform(wish.scenario, wish.enough)
    return None


def _is_the_copy(answers: int) -> bool:
    """True in the copy of this process; false in this one, when the copy has ended. (Nothing else
    is to happen meanwhile.)"""
    copy = _fork()
    if copy == 0:
        return True
    _, status = os.waitpid(copy, 0)
    if status:
        died = _Answer(kind="ProcessDied", sentence=f"it ended with the status {status}")
        _send(answers, msgspec.msgpack.encode(died))
    return False


def _send(pipe: int, body: bytes) -> None:
    left = memoryview(_LENGTH.pack(len(body)) + body)
    while left:
        left = left[os.write(pipe, left) :]


def _receive(pipe: int) -> bytes | None:
    """Nothing at the end."""
    head = _exactly(pipe, _LENGTH.size)
    return None if head is None else _exactly(pipe, _LENGTH.unpack(head)[0])


def _exactly(pipe: int, length: int) -> bytes | None:
    found = bytearray()
    while len(found) < length:
        piece = os.read(pipe, length - len(found))
        if not piece:
            return None
        found += piece
    return bytes(found)

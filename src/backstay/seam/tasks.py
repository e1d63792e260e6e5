"""Tasks: an owner for work that runs in the background.

asyncio itself keeps only a weak reference to a task and mentions its exception when, and if, it
is collected. Here each task has an owner with a lifetime: it is kept alive, its failure is
logged once and at once, with its name, and it has ended when the owner's block has.

A failure does not end its siblings. Where it should, use ``asyncio.TaskGroup``; and where the same
is to be done with many things, a few at a time, ``side_by_side``.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Self, TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def side_by_side(
    things: Iterable[T], do: Callable[[T], Awaitable[R]], *, at_once: int
) -> list[R]:
    """What came of each, in the order of the things. The first failure ends the others and is
    raised as it is: who wants each to be tried has ``do`` deal with its failures."""
    waiting = list(things)
    if len(waiting) < 2:
        # As a rule; what is alone needs no task of its own.
        return [await do(thing) for thing in waiting]
    turns = asyncio.Semaphore(at_once)

    async def one(thing: T) -> R:
        async with turns:
            return await do(thing)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(thing)) for thing in waiting]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


class Tasks:
    """``async with Tasks("informers") as tasks: tasks.spawn(watch(), name="pods")``."""

    def __init__(self, name: str, *, logger: logging.Logger | None = None) -> None:
        self._name = name
        self._logger = logger or logging.getLogger("backstay.tasks")
        # A dict for its order: what is cancelled first must not depend on addresses in memory.
        self._running: dict[asyncio.Task[Any], None] = {}
        self._closed = False

    def spawn(self, coro: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Start ``coro`` as the task ``owner/name``; whoever awaits it also sees its failure."""
        if self._closed:
            coro.close()
            raise RuntimeError(f"{self._name} has ended and cannot start {name!r}")
        task = asyncio.get_running_loop().create_task(coro, name=f"{self._name}/{name}")
        self._running[task] = None
        task.add_done_callback(self._ended)
        return task

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        # In rounds, because what is being cancelled may start one last thing in its cleanup.
        while self._running:
            for task in self._running:
                task.cancel()
            await asyncio.wait(self._running)
        self._closed = True

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._logger.error("task %s failed", task.get_name(), exc_info=error)

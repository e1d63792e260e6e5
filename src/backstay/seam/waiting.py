"""Waiting with a bound that costs nothing where nothing waits.

``asyncio.timeout`` sets a timer, and takes it back, also for what is there already: a credential
that was read a minute ago, a token of a rate limit that is not used up. Most of what a request
asks for on its way is of that kind, and a request must not pay for it.
"""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


async def by(deadline: float, coroutine: Coroutine[Any, Any, T]) -> T:
    """What ``coroutine`` returns; ``TimeoutError`` if it still waits at ``deadline``
    (``loop.time()``). It is not interrupted before it waits for the first time."""
    steps = coroutine.__await__()
    try:
        waits_for = steps.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    async with asyncio.timeout_at(deadline):
        return await _Begun(steps, waits_for)


class _Begun(Generic[T]):
    """The rest of a coroutine that has come as far as its first wait."""

    def __init__(self, steps: Generator[Any, Any, T], waits_for: Any) -> None:
        self._steps = steps
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, T]:
        steps, waits_for = self._steps, self._waits_for
        try:
            while True:
                try:
                    sent = yield waits_for
                except BaseException as error:  # noqa: BLE001 - whatever it is, it is not for us
                    waits_for = steps.throw(error)
                else:
                    waits_for = steps.send(sent)
        except StopIteration as end:
            result: T = end.value
            return result

"""``@virtual_time``: an ``async def test_...`` that runs under virtual time.

The test stays a plain function for pytest and may ask for fixtures, but not for asynchronous
ones: those would live on another loop.
"""

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from backstay.sim import loop

P = ParamSpec("P")


def virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run_it(*args: P.args, **kwargs: P.kwargs) -> None:
        loop.run(test(*args, **kwargs))

    # Spelled out for pytest, which finds fixtures by the names of a test's parameters.
    run_it.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
    return run_it

"""``held_to``: a contract's tests, run in a simulated world and under its time.

A contract is a class of asynchronous tests that ask for what they test as fixtures. Here each of
those fixtures is made inside a world, by a function that is given the world::

    @held_to(FilesContract, files=disk_of_a_process)
    class TestFiles: ...

Other fixtures of a test (``caplog``, parameters) are pytest's, as ever.
"""

import functools
import inspect
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

from backstay.sim.world import World

Test = Callable[..., Coroutine[Any, Any, None]]
Maker = Callable[[World], AbstractAsyncContextManager[Any]]


def held_to(contract: type, **makers: Maker) -> Callable[[type], type]:
    def fill(empty: type) -> type:
        tests = {name: test for name, test in vars(contract).items() if name.startswith("test_")}
        for name, test in tests.items():
            setattr(empty, name, _in_a_world(test, makers))
        return empty

    return fill


def _in_a_world(test: Test, makers: dict[str, Maker]) -> Callable[..., None]:
    signature = inspect.signature(test)
    asked_for = list(signature.parameters.values())

    @functools.wraps(test)
    def run_it(self: object, **fixtures: Any) -> None:
        async def scenario(world: World) -> None:
            async with AsyncExitStack() as stack:
                for each in asked_for:
                    if each.name in makers:
                        made = makers[each.name](world)
                        fixtures[each.name] = await stack.enter_async_context(made)
                await test(self, **fixtures)

        with World(seed=1) as world:
            world.run(scenario(world))

    # Spelled out for pytest, which finds fixtures by the names of a test's parameters.
    others = [each for each in asked_for if each.name not in makers]
    run_it.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
    return run_it

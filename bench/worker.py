"""One contender in a process of its own: ``python -m bench.worker MODULE:FUNCTION JOB``.

The function gets the ``Job``, prepares what is not to be measured, and returns what measures once.
For each line on stdin the worker measures and answers with a line of JSON: the figure, or a
sentence that says why there is none. It ends when its stdin does.
"""

import gc
import importlib
import logging
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """How much to do, and against which server if one is needed."""

    amount: int
    server: str = ""
    authority: str = ""
    kubeconfig: str = ""


class Outcome(msgspec.Struct, frozen=True):
    """Exactly one of the two is set."""

    figure: float | None = None
    failure: str | None = None


Measure = Callable[[], float]
Contender = Callable[[Job], Measure]


def in_loop(work: Callable[[], Coroutine[Any, Any, float]]) -> Measure:
    """Measures as Backstay's programs run, on a new event loop each time."""
    from backstay.seam.real import run  # half a second that decoders need not wait for

    return lambda: run(work())


def _prepare(name: str, job: Job) -> Measure:
    module, _, function = name.partition(":")
    contender: Contender = getattr(importlib.import_module(module), function)
    return contender(job)


def _answer(outcome: Outcome) -> None:
    print(msgspec.json.encode(outcome).decode(), flush=True)


def main() -> None:
    # Contenders complain about a server that goes silent, as they should; here it is on purpose.
    logging.disable(logging.WARNING)
    name, job = sys.argv[1], msgspec.json.decode(sys.argv[2], type=Job)
    try:
        measure = _prepare(name, job)
    except ModuleNotFoundError as error:
        _answer(Outcome(failure=f"{error.name} is not installed: make bench installs the peers"))
        return
    _answer(Outcome(figure=0.0))
    for _ in sys.stdin:
        gc.collect()
        _answer(Outcome(figure=measure()))


if __name__ == "__main__":
    main()

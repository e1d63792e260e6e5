"""Ending: whoever tells a command to end ends it as a person does who presses Ctrl-C, so that it
puts everything back, takes with it what it has started, and says what came of it."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def end_as_after_ctrl_c() -> None:
    """For what runs without a loop."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """For what runs in a loop: SIGTERM and SIGHUP cancel it as Ctrl-C does, except for those that
    it was started to ignore (nohup)."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    heeded = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
    ended = False

    def end() -> None:
        nonlocal ended
        if not ended:
            ended = True
            task.cancel()

    for number in heeded:
        loop.add_signal_handler(number, end)
    try:
        yield
    except asyncio.CancelledError:
        if not ended:
            raise
        raise KeyboardInterrupt from None
    finally:
        for number in heeded:
            loop.remove_signal_handler(number)

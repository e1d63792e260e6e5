"""Starting: wall milliseconds from the start of a command to its end, many times, by a person's
clock. The floor is an interpreter that starts and does nothing."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.worker import Job, Measure


def backstay_help(job: Job) -> Measure:
    command = Path(sys.executable).with_name("backstay")
    if not command.exists():
        raise ModuleNotFoundError(name="the backstay command")
    return _wall(job, [str(command), "--help"])


def nothing(job: Job) -> Measure:
    return _wall(job, [sys.executable, "-c", "pass"])


def _wall(job: Job, command: list[str]) -> Measure:
    def once() -> float:
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return (time.perf_counter() - started) * 1e3

    return lambda: statistics.median(once() for _ in range(job.amount))

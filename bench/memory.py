"""Memory per pod: how much the resident set grows while pods are taken in, page by page.

Resident pages are what the kernel counts against a container, fragmentation and all. Before both
readings garbage is collected and the C library hands back what it keeps for later, so that a page
of JSON that was freed is in nobody's figure.
"""

import ctypes
import gc
import json
import os
from collections.abc import Callable
from pathlib import Path

from backstay.apis.core import POD_PROJECTION
from bench import pods
from bench.decode import new_cache
from bench.worker import Job, Measure

_WARM_UP = 2_000

_libc = ctypes.CDLL(None)


def ours(job: Job) -> Measure:
    cache = new_cache()

    def take_in(count: int) -> object:
        staged = cache.replacement()
        for body in pods.pages(count):
            page = POD_PROJECTION.page(body, call="bench")
            staged.add(page.rows, page.unreadable)
        for _ in staged.settle(version="1", as_of=0.0):
            pass
        return cache

    return _growth(job, take_in)


def dicts(job: Job) -> Measure:
    def take_in(count: int) -> object:
        return [item for body in pods.pages(count) for item in json.loads(body)["items"]]

    return _growth(job, take_in)


def _growth(job: Job, take_in: Callable[[int], object]) -> Measure:
    def measure() -> float:
        # Code, decoders and the shapes of the pods come into memory with the first pages.
        take_in(_WARM_UP)
        take_in(0)
        before = _resident()
        kept = take_in(job.amount)
        grown = _resident() - before
        del kept
        return grown / job.amount

    return measure


def _resident() -> int:
    gc.collect()
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")

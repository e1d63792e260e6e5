"""A controller with nothing to do: what it costs to watch over 1,000 healthy nodes.

Ours is the program as people run it (``backstay run``), leading, seen from outside: resident pages
and CPU time as the kernel counts them for that process. The floor lists the nodes' leases as often
with bare aiohttp, and looks at nothing that it gets: whoever watches leases does at least that.

``amount`` is for how many seconds it is watched; memory is read at the end of that time.
"""

import contextlib
import json
import os
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from backstay.settings import Settings
from bench.worker import Job, Measure

_BACKSTAY = Path(sys.executable).parent / "backstay"
_LEASE = "/apis/coordination.k8s.io/v1/namespaces/backstay-system/leases/backstay-controller"
_PATIENCE = 60.0
_POLL = 0.2

_Start = Callable[[Job], contextlib.AbstractContextManager[int]]


def our_memory(job: Job) -> Measure:
    return _memory(job, _controller)


def bare_memory(job: Job) -> Measure:
    return _memory(job, _lister)


def our_cpu(job: Job) -> Measure:
    return _cpu(job, _controller)


def bare_cpu(job: Job) -> Measure:
    return _cpu(job, _lister)


def _memory(job: Job, start: _Start) -> Measure:
    def measure() -> float:
        with start(job) as pid:
            time.sleep(job.amount)
            return _resident(pid) / 1e6

    return measure


def _cpu(job: Job, start: _Start) -> Measure:
    def measure() -> float:
        with start(job) as pid:
            # What it does first it does once.
            time.sleep(min(job.amount, 10))
            before, began = _cpu_seconds(pid), time.monotonic()
            time.sleep(job.amount)
            return (_cpu_seconds(pid) - before) / (time.monotonic() - began) * 100

    return measure


@contextlib.contextmanager
def _controller(job: Job) -> Iterator[int]:
    """Its process id, as soon as it leads."""
    argv = [str(_BACKSTAY), "run", "--kubeconfig", job.kubeconfig, "--metrics-address", "off"]
    with _process(argv) as process:
        give_up = time.monotonic() + _PATIENCE
        while not _is_led(job):
            if process.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"{' '.join(argv)} does not lead")
            time.sleep(_POLL)
        yield process.pid


@contextlib.contextmanager
def _lister(job: Job) -> Iterator[int]:
    """Its process id, as soon as it has listed them once."""
    interval = str(Settings(identity="").poll_leases)
    argv = [sys.executable, "-m", "bench.lister", job.server, job.authority, interval]
    with _process(argv) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid


@contextlib.contextmanager
def _process(argv: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(argv, stdin=nothing, stdout=pipe, stderr=nothing) as process:
        try:
            yield process
        finally:
            process.terminate()


def _is_led(job: Job) -> bool:
    context = ssl.create_default_context(cafile=job.authority)
    try:
        with urllib.request.urlopen(job.server + _LEASE, context=context) as answer:
            lease = json.load(answer)
    except urllib.error.HTTPError:
        return False
    return bool(lease["spec"].get("holderIdentity"))


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def _cpu_seconds(pid: int) -> float:
    # The name comes second, in parentheses, and may have spaces in it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = fields[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

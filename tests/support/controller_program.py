"""A controller as a process of its own, which stops or dies at the worst of all moments.

``controller_program.py NAME KUBECONFIG JOURNAL [--at-removal SIGNAL]``: with ``--at-removal`` the
process sends that signal to itself when its first removal is about to leave, that is after the
barrier and after the proof, with nothing left to do but to hand the request to the transport.

Every request that changes something is noted in the journal, one line of JSON each, with what
became of it: the answer's status, or why it was not sent. ``at`` is when that was known, in seconds
since the machine started: this program's ``loop.time()``, and a clock that all processes share.
"""

import asyncio
import logging
import os
import signal
import sys
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from backstay.app import run as run_controller
from backstay.kube.client import KubeClient
from backstay.kube.find_access import find_access
from backstay.kube.lease import LeaseTimes
from backstay.model.policy import Times
from backstay.seam.errors import TransportError
from backstay.seam.real import open_seams, run
from backstay.seam.system import boot_time
from backstay.seam.transport import Request, Response, Stream, Transport
from backstay.settings import Settings

TIMES = Times(suspect=2.2, lost=4.0, confirmed=1.3, fresh=2.0)
"""For kubelets that renew their lease every second."""

LEASE_TIMES = LeaseTimes(duration=3.0, hold=2.0, renew=0.5)


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the journal. ``path`` is the end of the URL; ``status`` is 0 if nothing came."""

    at: float
    method: str
    path: str
    status: int = 0
    refused: str = ""


def settings(identity: str) -> Settings:
    """Short times, for tests that have to wait in real time."""
    return Settings(identity=identity, times=TIMES, lease_times=LEASE_TIMES, poll_leases=0.25)


def removes(request: Request) -> bool:
    """Whether it takes a pod from the API without waiting for a kubelet."""
    return is_deletion(request) and msgspec.json.decode(request.body).get("gracePeriodSeconds") == 0


def is_deletion(request: Request) -> bool:
    return request.method == "DELETE" and "/pods/" in request.url


class _Journal:
    """A transport that notes what is written, and comes to harm when the first removal is due."""

    def __init__(self, inner: Transport, path: Path, fate: signal.Signals | None) -> None:
        self._inner = inner
        self._file = path.open("ab", buffering=0)
        self._fate = fate

    async def request(self, request: Request) -> Response:
        if request.method == "GET":
            return await self._inner.request(request)
        if self._fate is not None and removes(request):
            fate, self._fate = self._fate, None
            os.kill(os.getpid(), fate)
        try:
            response = await self._inner.request(request)
        except TransportError as error:
            self._note(request, refused=type(error).__name__)
            raise
        self._note(request, status=response.status)
        return response

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self._inner.stream(request)

    def _note(self, request: Request, *, status: int = 0, refused: str = "") -> None:
        path = request.url.partition("://")[2].partition("/")[2]
        note = Note(boot_time(), request.method, path, status, refused)
        self._file.write(msgspec.json.encode(note) + b"\n")


async def main(name: str, kubeconfig: str, journal: str, fate: signal.Signals | None) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with open_seams() as opened:
        seams = replace(opened, transport=_Journal(opened.transport, Path(journal), fate))
        access = await find_access(seams, environ={}, kubeconfig=kubeconfig)
        client = KubeClient(seams.transport, access, user_agent=name)
        with suppress(asyncio.CancelledError):
            await run_controller(settings(name), seams, client)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    _, who, config, notes, *options = sys.argv
    wish = signal.Signals[options[1]] if options else None
    run(main(who, config, notes, wish))

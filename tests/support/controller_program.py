"""A controller as a process of its own, which stops or dies at the worst of all moments.

``controller_program.py NAME KUBECONFIG JOURNAL``

* ``--at-removal SIGNAL``: it sends that signal to itself when its first removal is about to leave,
  that is after the barrier and after the proof, with nothing left to do but to hand the request to
  the transport.
* ``--killed-after NUMBER --about WORD``: it kills itself when so many of its writes were answered
  whose path or body has the word in it. Leases, Events and recordings are not counted.
* ``--hurried``: its lease runs out sooner.

Every request that changes something is noted in the journal, one line of JSON each, with what
became of it: the answer's status, or why it was not sent. ``at`` is when that was known, in seconds
since the machine started: this program's ``loop.time()``, and a clock that all processes share.
"""

import argparse
import asyncio
import logging
import os
import signal
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
HURRIED = LeaseTimes(duration=1.5, hold=1.2, renew=0.3)


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
    """A transport that notes what is written, and comes to harm when it is told to."""

    def __init__(self, inner: Transport, options: argparse.Namespace) -> None:
        self._inner = inner
        self._file = options.journal.open("ab", buffering=0)
        self._fate: signal.Signals | None = options.at_removal
        self._left: int = options.killed_after
        self._about: str = options.about

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
        if response.status < 300 and self._counts(request):
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return response

    def _counts(self, request: Request) -> bool:
        kept = any(f"/{kind}" in request.url for kind in ("incidents", "nodes/", "pods/"))
        return kept and (self._about in request.url or self._about.encode() in request.body)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self._inner.stream(request)

    def _note(self, request: Request, *, status: int = 0, refused: str = "") -> None:
        path = request.url.partition("://")[2].partition("/")[2]
        note = Note(boot_time(), request.method, path, status, refused)
        self._file.write(msgspec.json.encode(note) + b"\n")


async def main(options: argparse.Namespace) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    name = options.name
    chosen = settings(name)
    if options.hurried:
        chosen = msgspec.structs.replace(chosen, lease_times=HURRIED)
    async with open_seams() as opened:
        seams = replace(opened, transport=_Journal(opened.transport, options))
        access = await find_access(seams, environ={}, kubeconfig=options.kubeconfig)
        client = KubeClient(seams.transport, access, user_agent=name)
        with suppress(asyncio.CancelledError):
            await run_controller(chosen, seams, client)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("kubeconfig")
    parser.add_argument("journal", type=Path)
    parser.add_argument("--at-removal", type=lambda name: signal.Signals[name])
    parser.add_argument("--killed-after", type=int, default=0)
    parser.add_argument("--about", default="")
    parser.add_argument("--hurried", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    run(main(_options()))

"""The child processes of a run: contenders and the measuring server.

They end with their block. They also end when we are killed, because each reads its stdin and
leaves at its end. What they share (certificates, a kubeconfig) is in a temporary directory.
"""

import contextlib
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import msgspec
import trustme

from bench.server import Setup
from bench.worker import Job, Outcome

_PATIENCE = 300.0

_KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: bench
contexts: [{{name: bench, context: {{cluster: bench, user: bench}}}}]
clusters: [{{name: bench, cluster: {{server: "{server}", certificate-authority: "{authority}"}}}}]
users: [{{name: bench, user: {{token: not-a-secret}}}}]
"""


class BenchError(Exception):
    """A row that cannot be measured, in a sentence."""


class Worker:
    """A contender that is ready to be measured."""

    def __init__(self, contender: str, process: "subprocess.Popen[bytes]") -> None:
        self._contender = contender
        self._process = process

    def begin(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(b"\n")
        except BrokenPipeError:
            raise BenchError(f"{self._contender} ended before it was measured") from None

    def figure(self) -> float:
        """The answer to ``begin``."""
        line = _line(self._process, self._contender)
        outcome = msgspec.json.decode(line, type=Outcome)
        if outcome.figure is None:
            raise BenchError(outcome.failure or f"{self._contender} has no figure")
        return outcome.figure

    def measure(self) -> float:
        self.begin()
        return self.figure()


@contextlib.contextmanager
def worker(contender: str, job: Job) -> Iterator[Worker]:
    argument = msgspec.json.encode(job).decode()
    with _child("bench.worker", contender, argument) as process:
        made = Worker(contender, process)
        made.figure()  # It is prepared, or says what is missing.
        yield made


def server(*, pods: int = 0, events: int = 0) -> contextlib.AbstractContextManager[Job]:
    """A measuring server, as the job that leads to it."""
    return _served("bench.server", Setup(certificate="", pods=pods, events=events))


def fleet(*, nodes: int, guests: int = 0) -> contextlib.AbstractContextManager[Job]:
    """An embedded API with many nodes, as the job that leads to it."""
    return _served("bench.fleet", Setup(certificate="", nodes=nodes, guests=guests))


@contextlib.contextmanager
def _served(module: str, setup: Setup) -> Iterator[Job]:
    with TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        authority, certificate = directory / "ca.pem", directory / "server.pem"
        ca = trustme.CA()
        ca.cert_pem.write_to_path(authority)
        ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
        setup = msgspec.structs.replace(setup, certificate=str(certificate))
        with _child(module, msgspec.json.encode(setup).decode()) as process:
            url = f"https://127.0.0.1:{int(_line(process, module))}"
            kubeconfig = directory / "kubeconfig"
            kubeconfig.write_text(_KUBECONFIG.format(server=url, authority=authority))
            yield Job(amount=0, server=url, authority=str(authority), kubeconfig=str(kubeconfig))


@contextlib.contextmanager
def control_plane() -> Iterator[Job]:
    """A real one, as the job that leads to it."""
    with _child("bench.plane") as process:
        yield msgspec.json.decode(_line(process, "the control plane"), type=Job)


@contextlib.contextmanager
def _child(module: str, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        cwd=Path(__file__).parent.parent,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _line(process: "subprocess.Popen[bytes]", who: str) -> bytes:
    stdout: IO[bytes] | None = process.stdout
    assert stdout is not None
    readable, _, _ = select.select([stdout], [], [], _PATIENCE)
    if not readable:
        raise BenchError(f"{who} did not answer within {_PATIENCE:g} s")
    line = stdout.readline()
    if not line:
        raise BenchError(f"{who} ended without an answer: its own words are above")
    return line

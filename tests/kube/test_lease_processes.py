"""Leadership of real processes, which are stopped, continued and killed.

A request may be sent in time and arrive late on a busy machine, so no moment of arrival is judged
here. Each write says until when it was allowed. Whatever a process sent before it was stopped has
long been received when it is continued; what comes from it after that was sent after that, and may
not state a deadline that had passed by then.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from backstay.seam.aiohttp_serve import AiohttpServe
from backstay.seam.serve import Answer, Inbound, Listener
from backstay.seam.system import boot_time
from harness.processes import Child
from tests.seam.worlds import authority, server_tls
from tests.support import kubeconfigs, leader_program
from tests.support.leader_program import PAPER, TIMES
from tests.support.lease_store import LeaseStore

PATIENCE = 20.0
"""For what must happen sooner or later, on a machine that may be very busy."""


@dataclass(frozen=True)
class Write:
    by: str
    epoch: int
    not_after: float


@dataclass(frozen=True)
class Renewal:
    by: str
    at: float


class Gate:
    """A TCP proxy that can keep new connections waiting, after the kernel has accepted them."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._opened = asyncio.Event()
        self._opened.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._answered = asyncio.Event()
        self.waiting = 0

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def shut(self) -> None:
        """What is connected is cut; what connects has to wait."""
        self._opened.clear()
        for writer in self._writers:
            writer.close()

    async def open(self) -> None:
        """Returns when an answer is on its way to somebody who had to wait."""
        self._answered.clear()
        self._opened.set()
        async with asyncio.timeout(PATIENCE):
            await self._answered.wait()

    async def close(self) -> None:
        self._opened.set()
        self.shut()
        if self._server is not None:
            self._server.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.waiting += 1
        await self._opened.wait()
        self.waiting -= 1
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers.add(back)
        await asyncio.gather(self._pump(reader, back), self._pump(there, writer, answers=True))

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool = False
    ) -> None:
        try:
            while chunk := await source.read(65536):
                sink.write(chunk)
                await sink.drain()
                if answers:
                    self._answered.set()
        except ConnectionError:
            pass
        finally:
            sink.close()
            self._writers.discard(sink)


class Hall:
    """An API server on loopback, the programs that talk to it, and a record of what they sent."""

    def __init__(self, directory: Path) -> None:
        self.store = LeaseStore()
        self.store.create(PAPER, {})
        self.writes: list[Write] = []
        self.renewals: list[Renewal] = []
        self.heard: list[str] = []
        self.deaf_to: set[str] = set()
        self._directory = directory
        self._programs: list[Child] = []
        self._listeners: list[Listener] = []
        self._gates: list[Gate] = []
        self._news = asyncio.Event()

    async def open(self) -> None:
        serve = AiohttpServe(grace=0.2)
        self._listeners = [
            await serve.listen(self._answer),
            await serve.listen(self._answer, tls=server_tls()),
        ]
        self.kubeconfig = self._kubeconfig("plain", {"server": self._listeners[0].url})

    async def close(self) -> None:
        for program in self._programs:
            await program.stop(patience=0.0)
        for gate in self._gates:
            await gate.close()
        for listener in self._listeners:
            await listener.close()

    async def gate(self) -> tuple[Gate, str]:
        """A gate in front of the API, and the kubeconfig of those who have to go through it."""
        gate = Gate(int(self._listeners[1].url.rpartition(":")[2]))
        self._gates.append(gate)
        port = await gate.start()
        ca = self._directory / "ca.pem"
        ca.write_bytes(authority().cert_pem.bytes())
        cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(ca)}
        return gate, self._kubeconfig("gated", cluster)

    def start(self, name: str, *options: str, writes: str | None = None) -> Child:
        argv = [sys.executable, str(leader_program.__file__), name]
        argv += [self.kubeconfig, writes or self.kubeconfig, *options]
        program = Child(name, argv, log=self._directory / f"{name}.log")
        self._programs.append(program)
        program.start()
        return program

    async def until(self, holds: Callable[[], bool]) -> None:
        """Waits for something that is due to what the programs send."""
        async with asyncio.timeout(PATIENCE):
            while not holds():
                self._news.clear()
                await self._news.wait()

    async def until_leads(self, name: str) -> None:
        before = len(self.writes)
        await self.until(lambda: any(write.by == name for write in self.writes[before:]))

    async def until_heard(self, name: str, *, times: int = 1) -> None:
        """Until it has asked for the lease that often, from now on."""
        before = self.heard.count(name)
        await self.until(lambda: self.heard.count(name) >= before + times)

    def _kubeconfig(self, name: str, cluster: dict[str, str]) -> str:
        return kubeconfigs.write(
            self._directory / f"{name}.kubeconfig", kubeconfigs.one_context(cluster=cluster)
        )

    async def _answer(self, inbound: Inbound) -> Answer:
        self._news.set()
        if inbound.path.endswith(f"/{PAPER}"):
            note = msgspec.json.decode(inbound.body)["metadata"]["annotations"]
            self.writes.append(Write(note["by"], int(note["epoch"]), float(note["not-after"])))
            return await self.store(inbound)
        name = inbound.headers["user-agent"]
        self.heard.append(name)
        if name in self.deaf_to:
            await asyncio.Event().wait()
        answer = await self.store(inbound)
        if inbound.method != "GET" and answer.status < 300:
            self.renewals.append(Renewal(name, boot_time()))
        return answer


@pytest.fixture
async def hall(tmp_path: Path) -> AsyncIterator[Hall]:
    opened = Hall(tmp_path)
    await opened.open()
    yield opened
    await opened.close()


def stop(program: Child) -> None:
    """It executes nothing any more when this returns."""
    assert program.pid is not None
    program.send(signal.SIGSTOP)
    os.waitid(os.P_PID, program.pid, os.WSTOPPED | os.WNOWAIT)


@dataclass(frozen=True)
class Continued:
    """A process that was continued at a moment when ``before`` writes had been received."""

    name: str
    hall: Hall
    before: int
    at: float

    def overdue(self) -> list[Write]:
        """What it sent since then and should not have."""
        since = [write for write in self.hall.writes[self.before :] if write.by == self.name]
        return [write for write in since if write.not_after < self.at]


def go_on(hall: Hall, program: Child) -> Continued:
    continued = Continued(program.name, hall, len(hall.writes), boot_time())
    program.send(signal.SIGCONT)
    return continued


async def test_a_process_that_was_stopped_for_three_terms_sends_nothing_that_is_overdue(
    hall: Hall,
) -> None:
    a = hall.start("a")
    await hall.until_leads("a")
    hall.start("b")
    await hall.until_heard("b")
    stop(a)
    await asyncio.gather(hall.until_leads("b"), asyncio.sleep(3 * TIMES.duration))
    continued = go_on(hall, a)
    await hall.until_heard("a")
    await hall.until_heard("b", times=4)
    assert continued.overdue() == []


async def stop_while_it_waits_for_connections(hall: Hall, *options: str) -> Continued:
    """It is stopped while its writes have no connection yet; these come while it is stopped."""
    gate, gated = await hall.gate()
    a = hall.start("a", *options, writes=gated)
    await hall.until_leads("a")
    hall.start("b")
    gate.shut()
    # Where no connection comes within 2 s, it is tried once more with all the time there is.
    await hall.until_heard("a", times=round(3.0 / TIMES.renew))
    assert gate.waiting > 0
    stop(a)
    await hall.until_leads("b")
    await gate.open()
    return go_on(hall, a)


async def test_a_process_that_was_stopped_while_it_connected_sends_nothing_that_is_overdue(
    hall: Hall,
) -> None:
    continued = await stop_while_it_waits_for_connections(hall)
    await hall.until_heard("a")
    await hall.until_heard("b", times=4)
    assert continued.overdue() == []


async def test_a_process_that_does_not_care_for_the_deadline_is_noticed(hall: Hall) -> None:
    continued = await stop_while_it_waits_for_connections(hall, "--careless")
    await hall.until(lambda: continued.overdue() != [])


async def test_a_standby_takes_over_from_a_process_that_was_killed(hall: Hall) -> None:
    a = hall.start("a")
    await hall.until_leads("a")
    hall.start("b")
    await hall.until_heard("b")
    a.send(signal.SIGKILL)
    await hall.until_leads("b")
    last = [renewal for renewal in hall.renewals if renewal.by == "a"][-1]
    took = next(renewal for renewal in hall.renewals if renewal.by == "b")
    assert took.at - last.at >= TIMES.duration
    epochs = {name: {w.epoch for w in hall.writes if w.by == name} for name in "ab"}
    assert max(epochs["a"]) < min(epochs["b"])


async def test_a_leader_that_gets_no_answers_stops_before_anybody_takes_over(hall: Hall) -> None:
    hall.start("a")
    await hall.until_leads("a")
    hall.start("b")
    await hall.until_heard("b")
    hall.deaf_to.add("a")
    last = [renewal for renewal in hall.renewals if renewal.by == "a"][-1]
    await hall.until_leads("b")
    took = next(renewal for renewal in hall.renewals if renewal.by == "b")
    allowed = max(write.not_after for write in hall.writes if write.by == "a")
    assert allowed <= last.at + TIMES.hold
    assert allowed < took.at

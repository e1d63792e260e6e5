"""Candidates for one lease, under virtual time, and the rules that no fault may break.

Each candidate has a network of its own to one ``LeaseStore``, so that each can be cut off alone.
While it leads it never stops writing: every 100 ms another guarded write sets out, whether or not
those before it were answered. A world looks on from outside and notes in ``broken`` whenever

* a write is *sent* after its own deadline, or later than ``hold`` after the last renewal that
  landed was sent, or for a term that its sender has left behind;
* the terms of two candidates are valid at one moment;
* a term begins under an epoch that was there before;
* a lease is released while its holder still works;
* a candidate takes the store for restored that was not.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import msgspec

from backstay.kube.access import GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.kube.errors import Json, KubeError
from backstay.kube.lease import Leadership, LeaseTimes, Term, Trace, Work
from backstay.kube.resource import LEASES
from backstay.seam.clock import Rng, WallClock
from backstay.seam.serve import Answer, Inbound
from backstay.seam.tasks import Tasks
from backstay.seam.transport import Request
from backstay.sim.clock import LoopClock
from backstay.sim.network import Link, Network, Sent
from tests.support.dice import LOWEST
from tests.support.lease_store import LeaseStore

URL = "http://api:6443"
LEASE = "backstay"
PAPER = "paper"
"""What the leader writes on: a lease too, because that is what the store can keep."""

TIMES = LeaseTimes()


def now() -> float:
    return asyncio.get_running_loop().time()


async def rest(term: Term) -> None:
    """Work that waits to be stopped."""
    await asyncio.sleep(1e6)


async def keep_writing(
    write: Callable[[int], Coroutine[Any, Any, None]], *, every: float
) -> NoReturn:
    """Work that goes on asking for permission when there is none, until it is stopped, and then
    waits for what is under way: nothing but its deadline can keep a write from leaving."""
    loop = asyncio.get_running_loop()
    under_way: set[asyncio.Task[None]] = set()
    number = 0
    try:
        while True:
            task = loop.create_task(write(number))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            await asyncio.sleep(every)
            number += 1
    finally:
        while under_way:
            await asyncio.wait(under_way)


class Watched(list[Sent]):
    """A link's record that looks at each request as it leaves."""

    def __init__(self, look: Callable[[Sent], None]) -> None:
        super().__init__()
        self._look = look

    def append(self, sent: Sent) -> None:
        super().append(sent)
        self._look(sent)


class Candidate:
    """One process, as it were.

    ``refusal`` is what the API answers to it, if not what was asked. ``answer_lag`` is how many
    seconds it takes until the answer to what was done is sent, ``watch_lag`` the same for each
    event of a watch, as from a server that is behind.
    """

    def __init__(
        self, world: "World", name: str, *, kind: type[Leadership], wall: WallClock, rng: Rng
    ) -> None:
        self.name = name
        self.network = Network()
        self.trace = Trace()
        self.client = KubeClient(self.network.transport, GivenAccess(URL, Grant()))
        self.leadership = kind(
            self.client,
            namespace="default",
            name=LEASE,
            identity=name,
            wall=wall,
            rng=rng,
            floor=self.floor,
            times=TIMES,
            trace=self.trace,
        )
        self.write_every = 0.1
        self.refusal: Answer | None = None
        self.answer_lag = 0.0
        self.watch_lag = 0.0
        self.working = False
        self.link.sent = Watched(self._sent)
        self._world = world
        self._renewals: dict[bytes, float] = {}
        self._may_write_until = 0.0

    @property
    def link(self) -> Link:
        return self.network.link(URL)

    def die(self) -> None:
        """Nothing leaves it any more, as if its node had lost power."""
        self.link.refuse = True
        self.link.cut()

    @property
    def leads(self) -> bool:
        term = self.leadership.term
        return term is not None and not term.over

    @property
    def requests(self) -> list[Request]:
        """What it sent on account of its lease."""
        return [sent.request for sent in self.link.sent if not is_guarded(sent.request)]

    @property
    def writes(self) -> list[Sent]:
        return [sent for sent in self.link.sent if is_guarded(sent.request)]

    async def write_for_ever(self, term: Term) -> None:
        await keep_writing(lambda number: self.write(term, number), every=self.write_every)

    async def write(self, term: Term, number: int) -> None:
        note = {"by": self.name, "epoch": str(term.epoch), "number": str(number)}
        try:
            await self.client.merge_patch(
                LEASES, PAPER, {"metadata": {"annotations": note}},
                namespace="default", timeout=5.0, not_after=self.permission(term),
            )  # fmt: skip
        except KubeError:
            return

    def permission(self, term: Term) -> float | None:
        return term.require()

    async def floor(self) -> int:
        await self.client.get(LEASES, PAPER, namespace="default", timeout=TIMES.attempt)
        return self._world.recorded

    async def handle(self, inbound: Inbound) -> Answer:
        if self.refusal is not None:
            return self.refusal
        answer = await self._world.store(inbound)
        if inbound.body in self._renewals and answer.status < 300:
            self._landed(inbound.body)
        if isinstance(answer.body, bytes):
            await asyncio.sleep(self.answer_lag)
            return answer
        return msgspec.structs.replace(answer, body=self._lagging(answer.body))

    async def _lagging(self, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for event in events:
            await asyncio.sleep(self.watch_lag)
            yield event

    def _landed(self, body: bytes) -> None:
        began = self._renewals.pop(body)
        self._may_write_until = max(self._may_write_until, began + TIMES.hold)
        if msgspec.json.decode(body)["spec"]["holderIdentity"] == "" and self.working:
            self._world.note(f"{self.name} released the lease and still works")

    def _sent(self, sent: Sent) -> None:
        request = sent.request
        if not is_guarded(request):
            if request.method != "GET":
                self._renewals[request.body] = sent.at
            return
        term = self.leadership.term
        epoch = int(msgspec.json.decode(request.body)["metadata"]["annotations"]["epoch"])
        if term is None or term.epoch != epoch:
            self._world.note(f"{self.name} wrote for term {epoch}, which was over")
        if sent.at >= min(self._may_write_until, request.not_after or math.inf):
            self._world.note(f"{self.name} wrote after the deadline of term {epoch}")
        self._world.count_leaders()


def is_guarded(request: Request) -> bool:
    return request.method == "PATCH" and request.url.endswith(f"/{PAPER}")


def heal(candidate: Candidate) -> None:
    link = candidate.link
    link.refuse = link.silent = False
    link.delay = link.connect_delay = 0.0
    link.lose_answer = None
    candidate.refusal = None


class World:
    """One store and the candidates that were started on it."""

    def __init__(self, tasks: Tasks) -> None:
        self.store = LeaseStore()
        self.store.create(PAPER, {})
        self.candidates: list[Candidate] = []
        self.terms: list[tuple[str, int]] = []
        self.recorded = 0
        self.broken: list[str] = []
        self._tasks = tasks
        self._runs: dict[str, asyncio.Task[None]] = {}

    async def start(
        self,
        name: str,
        work: Work | None = None,
        *,
        kind: type[Leadership] = Leadership,
        candidate: type[Candidate] = Candidate,
        wall: WallClock | None = None,
        rng: Rng = LOWEST,
    ) -> Candidate:
        """A candidate that stands for election from now on."""
        born = candidate(self, name, kind=kind, wall=wall or LoopClock(), rng=rng)
        await born.network.serve.listen(born.handle, host="api", port=6443)
        self.candidates.append(born)

        async def noted(term: Term) -> None:
            self._begins(born, term)
            try:
                await (work or born.write_for_ever)(term)
            finally:
                born.working = False

        self._runs[name] = self._tasks.spawn(born.leadership.run(noted), name=name)
        return born

    async def stop(self, candidate: Candidate) -> None:
        """As SIGTERM does: cancelled from outside, and waited for."""
        run = self._runs[candidate.name]
        run.cancel()
        await asyncio.wait({run})

    def run(self, candidate: Candidate) -> asyncio.Task[None]:
        return self._runs[candidate.name]

    @property
    def lease(self) -> Json:
        spec: Json = self.store.lease(LEASE)["spec"]
        return spec

    @property
    def leaders(self) -> list[str]:
        return [each.name for each in self.candidates if each.leads]

    def count_leaders(self) -> None:
        if len(self.leaders) > 1:
            self.note(f"{' and '.join(self.leaders)} lead at once")

    def note(self, what: str) -> None:
        self.broken.append(f"{now():g} s: {what}")

    def _begins(self, candidate: Candidate, term: Term) -> None:
        candidate.working = True
        if term.epoch <= self.recorded:
            self.note(f"epoch {term.epoch} of {candidate.name} was there before")
        self.terms.append((candidate.name, term.epoch))
        self.recorded = max(self.recorded, term.epoch)
        self.count_leaders()

    async def look_on(self) -> None:
        while True:
            self.count_leaders()
            for each in self.candidates:
                if each.trace.lowered and not self.store.backups:
                    self.note(f"{each.name} says that the lease went back: {each.trace.lowered}")
            await asyncio.sleep(0.1)


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    """A world in which nothing may have been broken when it ends."""
    async with Tasks("world", logger=logging.getLogger("tests")) as tasks:
        born = World(tasks)
        tasks.spawn(born.look_on(), name="look on")
        yield born
    assert not born.broken, born.broken

"""Reach: whether a silent node still answers at the port of its kubelet, from here and elsewhere.

While a node is silent it is knocked at, every few seconds, at all of its addresses. Whatever comes
back is a sign of life: an answer, nonsense, a refusal, or just that somebody took the connection.
Only where nothing comes back at all is it silence.

* **A knock needs no trust.** It is a plain request to a port that speaks TLS: the kubelet says so
  and hangs up. No secret is sent and no certificate looked at, because whoever answers can only
  keep us from acting. What would let us act is silence, and nobody can forge that for both of us.
* **Silence needs proof.** In every round another node, one whose lease is being renewed, is knocked
  at as well. If its kubelet does not answer, the fault may be ours. Our own node is no proof, since
  nothing leaves the machine; and where a node has addresses of both families, both must be proven.
* **Nobody may answer for everybody.** Where a proxy takes all connections that leave a pod, each
  dead node would seem to live. So a knock goes to an address that is nobody's, too; where that is
  taken, neither answers nor silence mean anything, and it is said.
* **Silence needs two places.** Controllers tell each other what they see (``views.py``), and right
  before anything is done they ask each other to look again. One that does not know where it runs
  counts for nothing.
* A connection is made anew for each knock: on an old one, bytes leave whether or not anybody is
  there to read them.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn

from backstay.model.evidence import Answer, Silence, Testimony
from backstay.model.node import NodeFacts
from backstay.model.workload import Workload
from backstay.seam.errors import BadAnswer, MaybeSent, Refused, TransportError
from backstay.seam.transport import Request, Transport
from backstay.sources.nodes import NodeSource
from backstay.sources.views import MOST_NODES, Sight, Told, Views

_CHANNEL = "kubelet port"
_KERNEL = "kernel"
"""What answers where the kubelet does not: it refuses, or takes a connection that stays silent."""

_NOBODY = "192.0.2.1:10250"
"""An address that is set aside for examples: no machine has it, and no network leads there."""

_PARALLEL = 64
_MOST_BYTES = 64 * 1024


class Heard(Enum):
    """What came of a knock."""

    NOTHING = "nothing"
    REFUSAL = "refusal"
    CONNECTION = "connection"
    PROGRAM = "program"


@dataclass
class _Watch:
    """One boot of one node. ``since`` is the first knock without an answer after the last one with
    one; each is when the knock began."""

    uid: str
    boot_id: str
    since: float | None = None
    asked_at: float | None = None
    answered_at: float | None = None
    answered_by: str = ""

    def note(self, heard: Heard, asked_at: float, now: float) -> None:
        self.asked_at = asked_at
        if heard is Heard.NOTHING:
            self.since = asked_at if self.since is None else self.since
        else:
            self.since = None
            self.answered_at = now
            self.answered_by = _CHANNEL if heard is Heard.PROGRAM else _KERNEL


class ReachSource:
    """See the module; a ``Source``. ``patience`` is the silence from which a death may be presumed:
    only then is it worth waiting for what others see at this very moment."""

    name = "reach"

    def __init__(
        self,
        transport: Transport,
        nodes: NodeSource,
        views: Views,
        *,
        interval: float,
        deadline: float,
        patience: float,
    ) -> None:
        self._transport = transport
        self._nodes = nodes
        self._views = views
        self._interval = interval
        self._deadline = deadline
        self._patience = patience
        self._watches: dict[str, _Watch] = {}
        self._proven: dict[int, tuple[float, str]] = {}
        self._last_proof = ""
        self._heard: Mapping[str, int] = {}
        self._turns = asyncio.Semaphore(_PARALLEL)
        self._unproven_since: float | None = None
        self._is_fooled = False

    # What is known

    @property
    def trouble(self) -> str:
        """Only what stands in the way of a presumption; answers are heard all the same."""
        if not self._views.node:
            return (
                "no death can be presumed from here, because this controller was not told on which "
                "node it runs (--node-name)"
            )
        if (error := self._views.is_deaf) is not None:
            return f"what other controllers see is not heard here: {error}"
        if (error := self._views.trouble) is not None:
            return f"other controllers are not told what is seen here: {error}"
        if self._is_fooled:
            return (
                f"something here takes connections to everybody, also to {_NOBODY}, which is "
                "nobody's, so that neither answers nor silence of nodes mean anything: let no "
                "proxy stand between the controller and port 10250 of the nodes"
            )
        now = asyncio.get_running_loop().time()
        since = self._unproven_since
        if since is not None and now - since > 2 * (self._interval + self._deadline):
            return (
                "no kubelet of any node that is alive can be reached from here, so that nobody's "
                "silence means anything: let the controller connect to port 10250 of the nodes"
            )
        return ""

    def age(self, now: float) -> float | None:
        """How long ago a kubelet last answered us; None while we have nobody to look after."""
        if not self._watches:
            return None
        return now - max((at for at, _ in self._proven.values()), default=float("-inf"))

    def watch(self, nodes: Sequence[NodeFacts]) -> None:
        before, self._watches = self._watches, {}
        for node in nodes:
            known = before.get(node.name)
            same = known is not None and (known.uid, known.boot_id) == (node.uid, node.boot_id)
            fresh = _Watch(node.uid, node.boot_id)
            self._watches[node.name] = known if known is not None and same else fresh
            if not same:
                self._views.hurried.set()

    def testimony(self, node: NodeFacts) -> Testimony:
        return self._testimony(node, since=float("-inf"))

    def _testimony(self, node: NodeFacts, *, since: float) -> Testimony:
        """Silences count only if they were still there ``since`` then; answers always do."""
        silences = [each for each in self._silences(node) if each.asked_at >= since]
        return Testimony(silences=tuple(silences), answers=tuple(self._answers(node)))

    def _silences(self, node: NodeFacts) -> Iterable[Silence]:
        watch = self._watch_of(node)
        if watch is not None and watch.since is not None and watch.asked_at is not None:
            proven_at, proven_on = self._proof_for(node.name)
            if self._views.node not in ("", node.name):
                yield Silence(
                    channel=_CHANNEL,
                    vantage=self._views.node,
                    since=watch.since,
                    asked_at=watch.asked_at,
                    proven_at=proven_at,
                    proven_on=proven_on,
                )
        for told in self._views.told(node):
            if told.sight.silent is not None:
                yield _silence_of(told, told.sight.silent)

    def _answers(self, node: NodeFacts) -> Iterable[Answer]:
        watch = self._watch_of(node)
        if watch is not None and watch.answered_at is not None:
            yield Answer(watch.answered_by, watch.answered_at)
        for told in self._views.told(node):
            if told.sight.answered is not None:
                at = told.seen_at - told.sight.answered
                yield Answer(f"{_CHANNEL} (seen from {told.vantage})", at)

    def _watch_of(self, node: NodeFacts) -> _Watch | None:
        watch = self._watches.get(node.name)
        if watch is None or (watch.uid, watch.boot_id) != (node.uid, node.boot_id):
            return None
        return watch

    def _proof_for(self, name: str) -> tuple[float | None, str]:
        """When the way to this node's addresses was last known to work, and towards whom."""
        families = {_family(port) for port in self._ports(name)}
        proofs = [self._proven[each] for each in families if each in self._proven]
        if not proofs or len(proofs) < len(families):
            return None, ""
        return min(proofs)

    # Knocking

    async def run(self) -> NoReturn:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._views.run(), name="views")
            while True:
                began = asyncio.get_running_loop().time()
                self._views.hurried.clear()
                if self._watches:
                    await self._round()
                    await self._until(began + self._interval)
                else:
                    self._unproven_since = None
                    await self._views.withdraw()
                    await self._until(None)

    async def _until(self, moment: float | None) -> None:
        """Then, or as soon as there is somebody new to look after, or somebody asks us to look."""
        try:
            async with asyncio.timeout_at(moment):
                await self._views.hurried.wait()
        except TimeoutError:
            pass

    async def _round(self) -> None:
        heard = self._views.heard()
        await self._knock_at(list(self._watches))
        self._heard = heard
        await self._publish()

    async def _publish(self, *, hurry: bool = False) -> None:
        """What was found in the last round, or since."""
        now = asyncio.get_running_loop().time()
        sights = [self._sight(name, watch, now) for name, watch in self._watches.items()]
        await self._views.publish(
            sights[:MOST_NODES], heard=self._heard, not_after=now + self._interval, hurry=hurry
        )

    def _sight(self, name: str, watch: _Watch, now: float) -> Sight:
        proven_at, proven_on = self._proof_for(name)
        answered = watch.answered_at
        return Sight(
            name=name,
            uid=watch.uid,
            boot_id=watch.boot_id,
            silent=None if watch.since is None else now - watch.since,
            proven=None if proven_at is None else now - proven_at,
            proven_on=proven_on,
            answered=None if answered is None else now - answered,
        )

    async def _knock_at(self, names: Iterable[str]) -> None:
        """At all of these, and at one that should answer."""
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(self._look_at(name))
            group.create_task(self._prove())
            group.create_task(self._doubt())
        if self._is_fooled:
            for watch in self._watches.values():
                watch.since = watch.answered_at = None

    async def _doubt(self) -> None:
        heard = await self._ask_port(_NOBODY)
        self._is_fooled = heard in (Heard.CONNECTION, Heard.PROGRAM)

    async def _look_at(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        watch, ports = self._watches.get(name), self._ports(name)
        if watch is None:
            return
        if not ports:
            # Nowhere to ask: what was silence at an address of before is none now.
            watch.since = None
            return
        async with self._turns:
            asked_at = loop.time()
            found = await self._knock(ports)
        loudest = max(found.values(), key=list(Heard).index)
        watch.note(loudest, asked_at, loop.time())

    async def _prove(self) -> None:
        name = self._next_witness()
        asked_at = asyncio.get_running_loop().time()
        self._unproven_since = self._unproven_since or asked_at
        if not name:
            return
        self._last_proof = name
        found = await self._knock(self._ports(name))
        for port, heard in found.items():
            if heard is Heard.PROGRAM:
                self._proven[_family(port)] = (asked_at, name)
                self._unproven_since = None

    def _next_witness(self) -> str:
        """Each in its turn of the nodes that are alive, are not our own, and have an address."""
        names = sorted(
            name
            for name in self._nodes.lively
            if name not in (*self._watches, self._views.node) and self._ports(name)
        )
        later = [name for name in names if name > self._last_proof]
        return (later or names or [""])[0]

    async def _knock(self, ports: Sequence[str]) -> dict[str, Heard]:
        if len(ports) == 1:
            # As a rule; what is alone needs no task of its own.
            return {ports[0]: await self._ask_port(ports[0])}
        async with asyncio.TaskGroup() as group:
            asked = {port: group.create_task(self._ask_port(port)) for port in ports}
        return {port: task.result() for port, task in asked.items()}

    async def _ask_port(self, port: str) -> Heard:
        request = Request(
            method="GET",
            url=f"http://{port}/healthz",
            timeout=self._deadline,
            headers={"Connection": "close"},
            max_body=_MOST_BYTES,
        )
        try:
            await self._transport.request(request)
        except BadAnswer:
            return Heard.PROGRAM
        except Refused:
            return Heard.REFUSAL
        except MaybeSent:
            # What may have been sent was sent over a connection that somebody took.
            return Heard.CONNECTION
        except TransportError:
            return Heard.NOTHING
        return Heard.PROGRAM

    def _ports(self, name: str) -> tuple[str, ...]:
        row = self._nodes.cache.get(name)
        return () if row is None else row.ports

    # Looking right before something is done

    async def ask(self, node: NodeFacts, workloads: Sequence[Workload]) -> Testimony:
        """What stronger evidence rests on is not held up by waiting for somebody who is silent:
        only where two places have seen silence for long enough are both asked to look again."""
        if not self._is_worth_asking(node):
            return self.testimony(node)
        began = asyncio.get_running_loop().time()
        await self._publish(hurry=True)
        await self._knock_at([node.name])
        try:
            async with asyncio.timeout_at(began + 2 * self._deadline + self._interval):
                while not any(told.asked_at >= began for told in self._views.told(node)):
                    await self._views.news()
        except TimeoutError:
            pass
        return self._testimony(node, since=began)

    def _is_worth_asking(self, node: NodeFacts) -> bool:
        now = asyncio.get_running_loop().time()
        silences = self._silences(node)
        places = {each.vantage for each in silences if now - each.since >= self._patience}
        return len(places) > 1


def _silence_of(told: Told, silent: float) -> Silence:
    proven = told.sight.proven
    return Silence(
        channel=_CHANNEL,
        vantage=told.vantage,
        since=told.seen_at - silent,
        asked_at=told.asked_at,
        proven_at=None if proven is None else told.asked_at - proven,
        proven_on=told.sight.proven_on,
    )


def _family(port: str) -> int:
    return 6 if port.startswith("[") else 4

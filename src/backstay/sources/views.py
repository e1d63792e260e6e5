"""Views: what controllers on other nodes see of the nodes that are silent.

Silence that is seen from one place may be that place's own fault. So each controller tells the
others what it sees, in a Lease of our own namespace that is named after the node that it runs on:
two controllers on one node are one place. A Lease, because it is small, because nothing else reads
it, and because our role is about leases there already. It is written only while some node is
silent, and emptied afterwards; a handful of nodes fit in it, which is all that silence is ever
enough for (``decide/storm.py``).

No clock of another machine is believed, and no message to be fresh because it arrived:

* Views are numbered. Each says which views of others its author had read *before* it asked its
  questions. What it says was therefore seen after we had begun to publish the one that it names:
  that moment, on our own clock, is when it was asked. A view that names none of ours is not used.
* How long something lasted is a difference, and taken as it stands; it is counted back from the
  moment at which we saw the view, which makes every silence shorter than it was.

In an annotation beside it stands what a controller has to say of the API itself (``hearsay.py``).

What is written there is input like any other. Who could forge it could also forge the lease by
which our controllers agree on who leads: both are kept by the roles of our namespace.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NoReturn

import msgspec

from backstay.kube.cache import Cache
from backstay.kube.client import KubeClient
from backstay.kube.errors import KubeError, NotFound
from backstay.kube.projection import Meta, Projection
from backstay.kube.reflector import Reflector
from backstay.kube.resource import LEASES
from backstay.model.labels import COMPONENT, ROLLED_BACK, VIEW
from backstay.model.node import NodeFacts
from backstay.seam.clock import Rng

_log = logging.getLogger("backstay.views")

MOST_NODES = 100
"""That are told of at once; of more, only these can be presumed dead."""

_MOST_BYTES = 64 * 1024
_MOST_COLLEAGUES = 64
_ROUNDS_KEPT = 64
_LONGEST_NAME = 253

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST_NAME)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
_Round = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Sight(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What one controller sees of one boot of a node, in seconds before it said so: since when it
    is ``silent``, when the way was ``proven`` to work, when something ``answered``."""

    name: _Name
    uid: _Name
    boot_id: _Name
    silent: _Seconds | None = None
    proven: _Seconds | None = None
    proven_on: Annotated[str, msgspec.Meta(max_length=_LONGEST_NAME)] = ""
    answered: _Seconds | None = None


class View(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """``by`` is one process, ``heard`` the last rounds that it had read of others. Whoever is in a
    ``hurry`` would like them to look at once."""

    by: _Name
    node: _Name
    round: _Round
    heard: dict[_Name, _Round] = {}
    nodes: Annotated[list[Sight], msgspec.Meta(max_length=MOST_NODES)] = []
    hurry: bool = False


@dataclass(frozen=True)
class Told:
    """What a colleague says of a node, on our clock. ``asked_at`` is not later than it asked."""

    vantage: str
    sight: Sight
    asked_at: float
    seen_at: float


class _LeaseMeta(Meta, frozen=True, gc=False, rename="camel"):
    annotations: dict[str, str] | None = None


class _Lease(msgspec.Struct, frozen=True, gc=False):
    metadata: _LeaseMeta


class ViewRow(msgspec.Struct, frozen=True, gc=False):
    key: str
    uid: str
    version: str
    name: str
    text: str
    remark: str = ""


def _row(lease: _Lease) -> ViewRow:
    meta = lease.metadata
    said = meta.annotations or {}
    remark = said.get(ROLLED_BACK, "")[:_MOST_BYTES]
    return ViewRow(meta.key, meta.uid, meta.resource_version, meta.name, said.get(VIEW, ""), remark)


_OURS = f"{VIEW}=true"
_TIMEOUT = 5.0
_PROJECTION: Projection[_Lease, ViewRow] = Projection(_Lease, _row)
_decoder = msgspec.json.Decoder(View)


def lease_name(node: str) -> str:
    """Of the view of a controller on this node."""
    return f"backstay-view-{node}"[:_LONGEST_NAME].rstrip("-.")


class Views:
    """See the module. ``node`` is where we run; where that is not known, we are told by others and
    tell nothing."""

    def __init__(self, client: KubeClient, *, rng: Rng, namespace: str, node: str) -> None:
        self.cache: Cache[ViewRow] = Cache()
        self.node = node
        self.trouble: KubeError | None = None
        self.hurried = asyncio.Event()
        """Set when somebody would like us to look."""
        self._client = client
        self._namespace = namespace
        self._reflector = Reflector(
            client, LEASES, _PROJECTION, self.cache, rng=rng, namespace=namespace,
            labels=_OURS,
        )  # fmt: skip
        self._token = rng.token(12)
        self._round = 0
        self._begun: dict[int, float] = {}
        self._is_told = False
        self._writing = asyncio.Lock()
        self._others: dict[str, tuple[View, float]] = {}
        self._unreadable: set[str] = set()
        self._news = asyncio.Event()
        self.cache.subscribe(self._changed)

    async def run(self) -> NoReturn:
        await self._reflector.run()

    @property
    def is_deaf(self) -> KubeError | None:
        """Why others cannot be heard at present."""
        return self._reflector.trouble

    # What others say

    def heard(self) -> Mapping[str, int]:
        """The last round of each of them."""
        views = (view for view, _ in self._others.values())
        return {view.by: view.round for view in list(views)[:_MOST_COLLEAGUES]}

    def told(self, facts: NodeFacts) -> Iterator[Told]:
        """What there is about this boot, of controllers elsewhere; not of one on that very node,
        which proves nothing by what it cannot reach."""
        for view, seen_at in self._others.values():
            asked_at = self._begun.get(view.heard.get(self._token, -1))
            if asked_at is None or view.node == facts.name:
                continue
            for sight in view.nodes:
                if (sight.name, sight.uid, sight.boot_id) == (facts.name, facts.uid, facts.boot_id):
                    yield Told(view.node, sight, asked_at, seen_at)

    async def news(self) -> None:
        """Returns when somebody has said something new."""
        await self._news.wait()

    async def remarks(self) -> list[str]:
        """What all of us remark at this moment. Raises ``KubeError``."""
        reply = await self._client.list(
            LEASES, namespace=self._namespace, labels=_OURS, timeout=_TIMEOUT
        )
        return [row.remark for row in _PROJECTION.page(reply.body, call=reply.call).rows]

    # What we say

    async def publish(
        self,
        sights: Sequence[Sight],
        *,
        heard: Mapping[str, int],
        not_after: float,
        hurry: bool = False,
    ) -> None:
        """``heard`` is from before the questions that led to these sights. It is not sent after
        ``not_after``: a process that was stopped would call old what is older still."""
        if not self.node:
            return
        async with self._writing:
            self._round += 1
            self._begun[self._round] = asyncio.get_running_loop().time()
            self._begun.pop(self._round - _ROUNDS_KEPT, None)
            view = View(
                by=self._token,
                node=self.node,
                round=self._round,
                heard=dict(heard),
                nodes=list(sights[:MOST_NODES]),
                hurry=hurry,
            )
            self._is_told = True
            await self._write(VIEW, msgspec.json.encode(view).decode(), not_after)

    async def withdraw(self) -> None:
        """Nothing is silent: there is nothing to say."""
        if not self._is_told:
            return
        async with self._writing:
            self._is_told = not await self._write(VIEW, None, self._soon)

    @property
    def own_remark(self) -> str:
        """What stands at our own place beside the view, as far as we know."""
        row = self.cache.get(f"{self._namespace}/{lease_name(self.node)}")
        return "" if row is None else row.remark

    async def own_remark_now(self) -> str:
        """The same, by a read that no cache answers. Raises ``KubeError``."""
        if not self.node:
            return ""
        try:
            reply = await self._client.get(
                LEASES, lease_name(self.node), namespace=self._namespace, timeout=_TIMEOUT
            )
        except NotFound:
            return ""
        return _row(reply.into(_Lease)).remark

    async def remark(self, text: str | None) -> bool:
        """Says that beside the view, or takes it back. False if it has to be tried again."""
        if not self.node:
            return True
        async with self._writing:
            return await self._write(ROLLED_BACK, text, self._soon)

    @property
    def _soon(self) -> float:
        return asyncio.get_running_loop().time() + 10.0

    async def _write(self, key: str, text: str | None, not_after: float) -> bool:
        try:
            await self._put(key, text, not_after)
        except KubeError as error:
            if self.trouble is None:
                _log.warning("cannot tell other controllers what is seen from here: %s", error)
            self.trouble = error
            return False
        self.trouble = None
        return True

    async def _put(self, key: str, text: str | None, not_after: float) -> None:
        name, where = lease_name(self.node), self._namespace
        marks = {VIEW: "true", COMPONENT: "backstay"}
        patch = {"metadata": {"labels": marks, "annotations": {key: text}}}
        try:
            await self._client.merge_patch(
                LEASES, name, patch, namespace=where, not_after=not_after
            )
        except NotFound:
            lease = {"metadata": {**patch["metadata"], "name": name}}
            await self._client.create(LEASES, lease, namespace=where, not_after=not_after)

    # Taking note

    def _changed(self, old: ViewRow | None, new: ViewRow | None) -> None:
        row = new or old
        assert row is not None
        known = self._others.pop(row.name, None)
        view = None if new is None else self._read(new)
        if view is None or view.node == self.node:
            return
        now = asyncio.get_running_loop().time()
        is_old = known is not None and (known[0].by, known[0].round) == (view.by, view.round)
        # A label put on the lease does not make what it says any newer.
        self._others[row.name] = known if known is not None and is_old else (view, now)
        if not is_old:
            self._tell_news(view)

    def _tell_news(self, view: View) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
        if view.hurry:
            self.hurried.set()

    def _read(self, row: ViewRow) -> View | None:
        """None for what is empty, or is no view; the latter is said once."""
        try:
            view = _view(row)
        except ValueError as error:
            if row.name not in self._unreadable:
                _log.warning("lease %s is no view of ours: %s", row.key, error)
            self._unreadable.add(row.name)
            return None
        self._unreadable.discard(row.name)
        return view


def _view(row: ViewRow) -> View | None:
    if not row.text:
        return None
    if len(row.text) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES} bytes")
    try:
        view = _decoder.decode(row.text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if row.name != lease_name(view.node):
        raise ValueError(f"it speaks for {view.node}")
    return view

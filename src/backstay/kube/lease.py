"""Leadership on a Lease: who may act, and until when.

A lease only keeps two controllers from doing the same work; it never makes an action safe (see
docs/architecture.md). Still it must not lie, so:

* The right to act ends at a moment of our own monotonic clock, ``Term.not_after``. It is counted
  from when the last *confirmed* renewal was **started**, so a slow answer gains us nothing, and
  it lies well before the moment at which anyone else may take the lease. Writes carry it to the
  transport, which checks it with the connection in hand: a process that was stopped in between
  sends nothing when it wakes up.
* Nobody's wall clock is believed. A lease is free when *we* have seen no change in it for its
  whole duration.
* A term is over for good: whoever leads again, leads under a higher ``epoch``. It is
  ``max(the lease's transitions, the highest epoch recorded anywhere else) + 1`` and becomes the
  lease's transitions by the very compare-and-swap that takes it. So no two terms share one; if
  somebody deletes the lease, no two that left a record do.
* Work is joined before the lease is released, and before the next term begins. On the way out
  the lease is kept alive until the work has ended, then given up, so that a standby starts at
  once.
* A standby watches the lease. It does not poll, and it knows of a release as it happens. The
  leader watches it too, and stops as soon as it sees another name there.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from backstay.kube import errors
from backstay.kube.cache import Cache
from backstay.kube.calls import Reply
from backstay.kube.client import KubeClient
from backstay.kube.errors import KubeError
from backstay.kube.limits import Backoff
from backstay.kube.projection import Meta, Projection
from backstay.kube.reflector import Reflector
from backstay.kube.resource import LEASES
from backstay.seam.clock import Rng, WallClock
from backstay.seam.tasks import Tasks

_log = logging.getLogger("backstay.lease")


@dataclass(frozen=True)
class LeaseTimes:
    """``duration``: how long others wait without a sign of ours. ``hold``: how long we act
    without a confirmed renewal. ``renew``: how often we renew."""

    duration: float = 15.0
    hold: float = 10.0
    renew: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.renew * 2 <= self.hold < self.duration:
            raise errors.ConfigError(
                f"lease times {self.duration:g}/{self.hold:g}/{self.renew:g} s cannot be safe: "
                "the duration must be longer than the hold, and the hold at least two renewals"
            )

    @property
    def attempt(self) -> float:
        """How long one renewal may take: short enough for three more after a silent one."""
        return self.hold / 4


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct, frozen=True):
    metadata: Meta
    spec: _Spec | None = None


class LeaseRow(msgspec.Struct, frozen=True):
    """What a lease says."""

    key: str
    uid: str
    version: str
    holder: str
    duration: float
    renewed: str
    transitions: int

    def says_the_same(self, other: "LeaseRow") -> bool:
        """Whether nobody has renewed: a label put on the lease is no sign of life."""
        return (self.uid, self.holder, self.renewed, self.transitions) == (
            other.uid, other.holder, other.renewed, other.transitions,
        )  # fmt: skip


def _row(lease: _Lease) -> LeaseRow:
    spec = lease.spec or _Spec()
    return LeaseRow(
        key=lease.metadata.key,
        uid=lease.metadata.uid,
        version=lease.metadata.resource_version,
        holder=spec.holder_identity or "",
        duration=float(spec.lease_duration_seconds or 0),
        renewed=spec.renew_time or "",
        transitions=spec.lease_transitions or 0,
    )


_PROJECTION: Projection[_Lease, LeaseRow] = Projection(_Lease, _row)


class Term:
    """One time of leading. ``not_after`` moves on while renewals succeed; the epoch never does."""

    def __init__(self, epoch: int, not_after: float) -> None:
        self.epoch = epoch
        self.not_after = not_after

    def require(self) -> float:
        """``not_after``, for a write that is about to be made. Raises ``TooLate`` when over."""
        if asyncio.get_running_loop().time() >= self.not_after:
            raise errors.TooLate("this process no longer leads: its lease was not renewed in time")
        return self.not_after

    def end(self) -> None:
        self.not_after = -math.inf


Work = Callable[[Term], Awaitable[None]]
Floor = Callable[[], Awaitable[int]]
"""Reads the highest epoch that was ever recorded outside the lease."""


class Leadership:
    """One candidate. ``identity`` must be unique to this process, not to this machine."""

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        wall: WallClock,
        rng: Rng,
        floor: Floor,
        times: LeaseTimes | None = None,
    ) -> None:
        self.identity = identity
        self.times = times or LeaseTimes()
        self.term: Term | None = None
        self.terms = 0
        self._client = client
        self._namespace = namespace
        self._name = name
        self._key = f"{namespace}/{name}"
        self._wall = wall
        self._floor = floor
        self._backoff = Backoff(base=self.times.renew / 2, cap=self.times.renew, rng=rng)
        self._cache: Cache[LeaseRow] = Cache()
        self._cache.subscribe(self._observe)
        self._reflector = Reflector(
            client, LEASES, _PROJECTION, self._cache,
            rng=rng, namespace=namespace, fields=f"metadata.name={name}",
        )  # fmt: skip
        self._changed = asyncio.Event()
        self._unchanged_since = 0.0
        self._highest = 0
        self._trouble = ""

    @property
    def holder(self) -> str:
        """Who holds the lease, as far as we know; empty for nobody."""
        row = self._cache.get(self._key)
        return row.holder if row else ""

    async def run(self, work: Work) -> None:
        """Stands by, leads, and stands by again, until ``work`` returns or this is cancelled."""
        async with Tasks("leadership") as tasks:
            tasks.spawn(self._reflector.run(), name="watch")
            while True:
                term, row = await self._acquire()
                self.term, self.terms = term, self.terms + 1
                _log.info("leading under epoch %d as %s", term.epoch, self.identity)
                try:
                    if await self._lead(term, row, work, tasks):
                        return
                finally:
                    self.term = None
                _log.warning("no longer leading (epoch %d): standing by", term.epoch)

    # Standing by

    def _observe(self, old: LeaseRow | None, new: LeaseRow | None) -> None:
        if new is not None:
            self._highest = max(self._highest, new.transitions)
        if old is None or new is None or not old.says_the_same(new):
            self._unchanged_since = asyncio.get_running_loop().time()
        self._changed.set()

    async def _acquire(self) -> tuple[Term, LeaseRow]:
        while True:
            row = await self._until_free()
            try:
                return await self._take(row)
            except (errors.Conflict, errors.AlreadyExists):
                # Somebody was faster. The watch will show who; until then, do not ask again.
                self._unchanged_since = asyncio.get_running_loop().time()
            except KubeError as error:
                self._say(f"cannot take the lease {self._key}: {error}")
            await asyncio.sleep(self._backoff.next())

    async def _until_free(self) -> LeaseRow | None:
        """The lease as it is when it may be taken; None if there is none."""
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            row = self._cache.get(self._key)
            wait: float | None = None
            if self._cache.synced:
                if row is None or row.holder in ("", self.identity):
                    return row
                free_at = self._unchanged_since + max(row.duration, self.times.duration)
                if loop.time() >= free_at:
                    return row
                wait = free_at - loop.time()
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _take(self, row: LeaseRow | None) -> tuple[Term, LeaseRow]:
        self._highest = max(self._highest, row.transitions if row else 0, await self._floor())
        epoch = self._highest + 1
        loop = asyncio.get_running_loop()
        started = loop.time()
        now = self._now()
        spec = {**self._spec(now), "acquireTime": now, "leaseTransitions": epoch}
        if row is None:
            body = {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": {"name": self._name, "namespace": self._namespace},
                "spec": spec,
            }
            reply = await self._client.create(
                LEASES, body, namespace=self._namespace, timeout=self.times.attempt
            )
        else:
            reply = await self._patch(row, spec, self.times.attempt)
        self._backoff.reset()
        self._trouble = ""
        return Term(epoch, started + self.times.hold), _row(reply.into(_Lease))

    # Leading

    async def _lead(self, term: Term, row: LeaseRow, work: Work, tasks: Tasks) -> bool:
        """True when the work is done; False when the lease was lost."""
        self._held = row
        keeper = tasks.spawn(self._keep(term), name="renew")
        worker = tasks.spawn(_run(work, term), name="work")
        finished = False
        try:
            await asyncio.wait({keeper, worker}, return_when=asyncio.FIRST_COMPLETED)
            finished = worker.done()
        finally:
            if keeper.done():
                term.end()
            # The keeper goes on while the work winds up: the lease must outlive the work.
            await self._join(worker)
            kept = not keeper.done()
            keeper.cancel()
            await asyncio.wait({keeper})
            if kept:
                await self._release(term)
            term.end()
        if finished:
            worker.result()
        return finished

    async def _join(self, worker: asyncio.Task[None]) -> None:
        worker.cancel()
        done, _ = await asyncio.wait({worker}, timeout=self.times.duration - self.times.hold)
        if not done:
            _log.error("the work of the last term does not end: not leading again before it does")
            await asyncio.wait({worker})

    async def _keep(self, term: Term) -> None:
        """Renews; returns when leadership is lost, and says why."""
        loop = asyncio.get_running_loop()
        unconfirmed: dict[str, float] = {}
        pause = self.times.renew
        while True:
            await self._doze(min(loop.time() + pause, term.not_after), term)
            if self._usurped(term):
                return self._say(f"{self.holder} has taken the lease")
            if loop.time() >= term.not_after:
                return self._say(f"the lease was not renewed for {self.times.hold:g} s")
            try:
                row = await self._renew(term, unconfirmed)
            except errors.NotFound:
                return self._say("the lease was deleted")
            except KubeError as error:
                self._say(f"cannot renew the lease {self._key}: {error}")
                pause = self._backoff.next()
                continue
            if (row.holder, row.transitions) != (self.identity, term.epoch):
                return self._say(f"{row.holder or 'nobody'} holds the lease now")
            self._held = row
            if row.renewed in unconfirmed:
                # The write that the lease now shows was begun then, so nobody can have started
                # to wait for its end any earlier.
                term.not_after = unconfirmed[row.renewed] + self.times.hold
                unconfirmed.clear()
                self._backoff.reset()
                self._trouble = ""
                pause = self.times.renew
            else:
                pause = 0.0

    async def _doze(self, until: float, term: Term) -> None:
        """Waits, unless the watch shows that somebody else has taken over."""
        while not self._usurped(term):
            self._changed.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self._changed.wait()
            except TimeoutError:
                return

    def _usurped(self, term: Term) -> bool:
        """The watch lags behind our own writes, but transitions never go back."""
        row = self._cache.get(self._key)
        return row is not None and row.transitions > term.epoch

    async def _renew(self, term: Term, unconfirmed: dict[str, float]) -> LeaseRow:
        """The lease after an attempt to renew it, whether by this attempt or an earlier one whose
        answer was lost."""
        started = asyncio.get_running_loop().time()
        timeout = min(self.times.attempt, term.not_after - started)
        now = self._now()
        unconfirmed.setdefault(now, started)
        try:
            reply = await self._patch(self._held, self._spec(now), timeout, term.not_after)
        except errors.Conflict:
            reply = await self._client.get(
                LEASES, self._name, namespace=self._namespace, timeout=timeout
            )
        return _row(reply.into(_Lease))

    async def _release(self, term: Term) -> None:
        """Best effort: if it fails, the others wait for the lease to run out."""
        spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._now()}
        row = self._held
        for _ in range(2):
            left = min(self.times.attempt, term.not_after - asyncio.get_running_loop().time())
            if left <= 0 or (row.holder, row.transitions) != (self.identity, term.epoch):
                return
            try:
                await self._patch(row, spec, left, term.not_after)
            except errors.Conflict:
                # A renewal was under way when the keeper stopped, and landed.
                row = await self._read_again(row, left)
            except KubeError as error:
                self._say(f"could not release the lease: {error}")
                return
            else:
                _log.info("released the lease (epoch %d)", term.epoch)
                return

    async def _read_again(self, row: LeaseRow, timeout: float) -> LeaseRow:
        try:
            reply = await self._client.get(
                LEASES, self._name, namespace=self._namespace, timeout=timeout
            )
            return _row(reply.into(_Lease))
        except KubeError:
            return row

    # Wire

    def _spec(self, now: str) -> dict[str, object]:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": math.ceil(self.times.duration),
            "renewTime": now,
        }

    async def _patch(
        self,
        row: LeaseRow,
        spec: dict[str, object],
        timeout: float,
        not_after: float | None = None,
    ) -> Reply:
        """A patch and not a replacement: what others put on the lease stays on it."""
        patch = {"metadata": {"resourceVersion": row.version, "uid": row.uid}, "spec": spec}
        return await self._client.merge_patch(
            LEASES, self._name, patch,
            namespace=self._namespace, timeout=timeout, not_after=not_after,
        )  # fmt: skip

    def _now(self) -> str:
        return self._wall.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def _say(self, sentence: str) -> None:
        if sentence != self._trouble:
            _log.warning("%s", sentence)
        self._trouble = sentence


async def _run(work: Work, term: Term) -> None:
    await work(term)

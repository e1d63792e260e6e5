"""Leadership on a Lease: who may act, and until when.

A lease only keeps two controllers from doing the same work; it never makes an action safe (see
docs/architecture.md). Still it must not lie, so:

* The right to act ends at a moment of our own monotonic clock, ``Term.not_after``. It is counted
  from when the last *confirmed* renewal was **started**, so a slow answer gains us nothing, and
  it lies well before the moment at which anyone else may take the lease. Writes carry it to the
  transport, which checks it with the connection in hand: a process that was stopped in between
  sends nothing when it wakes up.
* Nobody's wall clock is believed. A lease is free when *we* have seen no change in it for its
  whole duration. One that is gone is waited for as well, if there is any trace that it was there:
  to delete a lease must not make two leaders.
* A term is over for good: whoever leads again, leads under a higher ``epoch``. It is
  ``max(the lease's transitions, the highest epoch recorded anywhere else) + 1`` and becomes the
  lease's transitions by the very compare-and-swap that takes it. So no two terms share one; if
  somebody deletes the lease, no two that left a record do.
* Work is joined before the lease is released, and before the next term begins. On the way out
  the lease is kept alive until the work has ended, then given up, so that a standby starts at
  once.
* A standby watches the lease. It does not poll, and it knows of a release as it happens. The
  leader watches it too, and stops as soon as it sees another name there, or the lease gone.

Whatever shows the lease (an answer, a read, the watch) goes through ``_see``, and every write
names the version that it is meant for. A view that is out of date can therefore cost time, and
nothing else.

The versions of one object only grow, whoever writes or deletes it. So a lease that is at a lower
one than was seen before, by a read that no cache answers or by a write that was meant for it, tells
that somebody has put the whole store back (``Trace``), also where the store itself counts on from a
higher one.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec

from backstay.kube import errors
from backstay.kube.cache import Cache
from backstay.kube.client import KubeClient
from backstay.kube.errors import KubeError
from backstay.kube.limits import Backoff
from backstay.kube.projection import Meta, Projection
from backstay.kube.reflector import Compare, Reflector
from backstay.kube.resource import LEASES
from backstay.kube.versions import is_older
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
        if not 0 < self.renew * 4 <= self.hold < self.duration:
            raise errors.ConfigError(
                f"lease times {self.duration:g}/{self.hold:g}/{self.renew:g} s cannot be safe: "
                "the duration must be longer than the hold, and the hold at least four renewals"
            )

    @property
    def attempt(self) -> float:
        """How long one renewal may take: after a silent one there is time for a whole other."""
        return self.hold / 4


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _LeaseMeta(Meta, frozen=True, rename="camel"):
    annotations: dict[str, str] | None = None


class _Lease(msgspec.Struct, frozen=True):
    metadata: _LeaseMeta
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
    annotations: Mapping[str, str] = {}

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
        annotations=lease.metadata.annotations or {},
    )


_PROJECTION: Projection[_Lease, LeaseRow] = Projection(_Lease, _row)


class Term:
    """One time of leading. ``not_after`` moves on while renewals succeed; the epoch never does."""

    def __init__(self, epoch: int, not_after: float) -> None:
        self.epoch = epoch
        self.not_after = not_after

    @property
    def over(self) -> bool:
        return asyncio.get_running_loop().time() >= self.not_after

    def require(self) -> float:
        """``not_after``, for a write that is about to be made. Raises ``TooLate`` when over."""
        if self.over:
            raise errors.TooLate("this process no longer leads: its time to act is over")
        return self.not_after

    def extend(self, not_after: float) -> None:
        """Late news takes nothing away, and brings no term back that was over."""
        if not self.over:
            self.not_after = max(self.not_after, not_after)

    def end(self) -> None:
        self.not_after = -math.inf


Work = Callable[[Term], Awaitable[None]]
Floor = Callable[[], Awaitable[int]]
"""Reads the highest epoch that was ever recorded outside the lease."""


class Trace:
    """How far the lease had come: somebody may remember that for longer than one candidate lives.
    ``highest`` is the highest version that was seen, also if the lease is gone by now; ``lowered``
    is from which to which it went back the last time; ``followed`` says that somebody else held it,
    whose writes hide that it went back from whoever only looked on."""

    def __init__(self) -> None:
        self.highest = ""
        self.lowered: tuple[str, str] | None = None
        self.followed = False
        self._first = ""
        """Where it certainly stood at first."""

    def knew(self, version: str) -> None:
        """It was seen there before this was made, which may be learned late."""
        if self._first:
            self.stood_at(self._first, version)
        else:
            self.saw(version)

    def saw(self, version: str) -> None:
        """Perhaps in an answer that comes late."""
        if not is_older(version, self.highest):
            self.highest = version

    def stood_at(self, version: str, before: str) -> None:
        """It certainly did; ``before`` was the highest when it was asked. Since then it may have
        gone on, while the answer was under way."""
        self._first = self._first or version
        if is_older(version, before):
            self.lowered = before, version
            self.highest = version


class Leadership:
    """One candidate. ``identity`` must be unique to this process, not to this machine. ``compare``
    is called before each write, and what it returns is told the version that came of it."""

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
        compare: Compare = lambda: lambda _: None,
        trace: Trace | None = None,
    ) -> None:
        self.identity = identity
        self.times = times or LeaseTimes()
        self.term: Term | None = None
        self.terms = 0
        self.remarks: dict[str, str | None] = {}
        """Annotations that the lease is to carry while we renew it; None takes one off."""
        self._client = client
        self._namespace = namespace
        self._name = name
        self._key = f"{namespace}/{name}"
        self._wall = wall
        self._floor = floor
        self._compare = compare
        self._trace = trace or Trace()
        self._backoff = Backoff(base=self.times.renew / 2, cap=self.times.renew, rng=rng)
        cache: Cache[LeaseRow] = Cache()
        cache.subscribe(self._hear)
        self._reflector = Reflector(
            client, LEASES, _PROJECTION, cache,
            rng=rng, namespace=namespace, fields=f"metadata.name={name}",
            # A lease that is held changes all the time. If it does not, ask another way.
            idle=self.times.hold,
        )  # fmt: skip
        self._seen: LeaseRow | None = None
        self._quiet_since = -math.inf
        self._highest = 0
        self._begun: dict[str, float] = {}
        self._waits_until = -math.inf
        self._waiter: asyncio.Future[None] | None = None
        self._last_stamp = datetime.min.replace(tzinfo=UTC)
        self._trouble = ""

    @property
    def holder(self) -> str:
        """Who holds the lease, as far as we know; empty for nobody."""
        return self._seen.holder if self._seen else ""

    @property
    def annotations(self) -> Mapping[str, str]:
        """Of the lease, as far as we know; also those that somebody before us has left there."""
        return self._seen.annotations if self._seen else {}

    async def run(self, work: Work) -> None:
        """Stands by, leads, and stands by again, until ``work`` ends within its term or this is
        cancelled. Once its term is over, work is cancelled, and how it ends is only logged."""
        async with Tasks("leadership") as tasks:
            tasks.spawn(self._reflector.run(), name="watch")
            while True:
                self.term = term = await self._acquire()
                self.terms += 1
                _log.info("leading under epoch %d as %s", term.epoch, self.identity)
                try:
                    if await self._lead(term, work, tasks):
                        return
                finally:
                    self.term = None
                _log.warning("no longer leading (epoch %d): standing by", term.epoch)

    # What is known of the lease

    def _see(self, row: LeaseRow | None) -> None:
        """The lease as it is now, None if there is none."""
        before, self._seen = self._seen, row
        if row is not None:
            self._trace.saw(row.version)
            self._trace.followed |= row.holder not in ("", self.identity)
        # What is gone may have come and gone again since we last looked.
        if not (row and before and row.says_the_same(before)):
            self._quiet_since = asyncio.get_running_loop().time()
        if row and row.transitions > self._highest:
            self._highest = row.transitions
        if self.term and row and self._is_ours(row, self.term):
            self._confirm(row, self.term)
        elif self.term:
            self.term.end()
            self._wake()
        elif self._free_at < self._waits_until:
            self._wake()

    @property
    def _free_at(self) -> float:
        row, duration = self._seen, self.times.duration
        if row is None:
            somebody_led = self._highest > 0
            return self._quiet_since + (duration if somebody_led else 0.0)
        if row.holder in ("", self.identity):
            return self._quiet_since
        return self._quiet_since + max(row.duration, duration)

    def _confirm(self, row: LeaseRow, term: Term) -> None:
        """If the lease shows a renewal of ours, nobody can have begun to wait for its end before
        we began with it. The others were meant for an older version and can no longer land."""
        if row.renewed in self._begun:
            term.extend(self._begun[row.renewed] + self.times.hold)
            self._begun.clear()
            self._backoff.reset()
            self._trouble = ""

    def _is_ours(self, row: LeaseRow, term: Term) -> bool:
        return row.holder == self.identity and row.transitions == term.epoch

    def _hear(self, _old: LeaseRow | None, new: LeaseRow | None) -> None:
        """From the watch or in an answer, each of which may come later than the other."""
        seen = self._seen
        if new is not None and seen is not None:
            # What the other has said already is no news, unless a renewal of ours waits for it.
            heard_before = new == seen and not self._begun
            if heard_before or is_older(new.version, seen.version):
                return
        self._see(new)

    async def _look(self, *, deadline: float) -> None:
        """What is read counts even if it is older: then the API was rolled back."""
        timeout, before = deadline - asyncio.get_running_loop().time(), self._trace.highest
        try:
            reply = await self._client.get(
                LEASES, self._name, namespace=self._namespace, timeout=timeout
            )
        except errors.NotFound:
            self._see(None)
        else:
            row = _row(reply.into(_Lease))
            self._trace.stood_at(row.version, before)
            self._see(row)

    # Standing by

    async def _acquire(self) -> Term:
        loop = asyncio.get_running_loop()
        while True:
            try:
                # Also after a failure: what we sent may have arrived all the same.
                await self._look(deadline=loop.time() + self.times.attempt)
                return await self._take(await self._until_free())
            except (errors.Conflict, errors.AlreadyExists):
                _log.debug("somebody else was faster to take the lease %s", self._key)
            except KubeError as error:
                self._say(f"cannot take the lease {self._key}: {error}")
            await asyncio.sleep(self._backoff.next())

    async def _until_free(self) -> LeaseRow | None:
        """The lease as it is when it may be taken; None if there is none."""
        loop = asyncio.get_running_loop()
        while True:
            while loop.time() < self._free_at:
                await self._wait(until=self._free_at)
            # Last, so that no epoch is missed. It may tell that a lease which is gone was there.
            recorded = await self._floor()
            self._highest = max(self._highest, recorded)
            if loop.time() >= self._free_at:
                return self._seen

    async def _take(self, row: LeaseRow | None) -> Term:
        epoch = self._highest + 1
        started = asyncio.get_running_loop().time()
        deadline = started + self.times.attempt
        stamp = self._stamp()
        spec = {**self._spec(stamp), "acquireTime": stamp, "leaseTransitions": epoch}
        if row is None:
            await self._create(spec, deadline=deadline)
        else:
            await self._patch(row, spec, deadline=deadline)
        self._begun.clear()
        self._backoff.reset()
        self._trouble = ""
        return Term(epoch, started + self.times.hold)

    # Leading

    async def _lead(self, term: Term, work: Work, tasks: Tasks) -> bool:
        """True when the work is done; False when the lease was lost."""
        keeper = tasks.spawn(self._keep(term), name="renew")
        worker = tasks.spawn(_run(work, term), name="work")
        finished = False
        try:
            await asyncio.wait({keeper, worker}, return_when=asyncio.FIRST_COMPLETED)
            finished = worker.done() and not term.over
        finally:
            # The keeper goes on while the work winds up: the lease must outlive the work.
            await self._join(worker)
            not_after = term.not_after
            keeper.cancel()
            await asyncio.wait({keeper})
            await self._release(term, not_after)
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
        """Renews until the lease is lost. However this ends, the term ends with it."""
        try:
            self._say(f"lost the lease {self._key}: {await self._until_lost(term)}")
        finally:
            term.end()

    async def _until_lost(self, term: Term) -> str:
        """Why it is lost."""
        loop = asyncio.get_running_loop()
        next_at = loop.time() + self.times.renew
        while True:
            row = self._seen
            if row is None:
                return "it was deleted"
            if not self._is_ours(row, term):
                return f"{row.holder or 'nobody'} holds it now"
            now = loop.time()
            if now >= term.not_after:
                return f"it was not renewed for {self.times.hold:g} s"
            if now < next_at:
                await self._wait(until=min(next_at, term.not_after))
            else:
                next_at = await self._renew(row, term)

    async def _renew(self, row: LeaseRow, term: Term) -> float:
        """One attempt, within the term; when to make the next."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        deadline = min(started + self.times.attempt, term.not_after)
        stamp = self._stamp()
        self._begun[stamp] = started
        try:
            await self._patch(
                row, self._spec(stamp), remarks=self._new_remarks(row), deadline=deadline,
                not_after=term.not_after,
            )  # fmt: skip
        except errors.Conflict:
            _log.debug("the lease %s is not what we thought", self._key)
        except KubeError as error:
            self._say(f"cannot renew the lease {self._key}: {error}")
        confirmed = not self._begun
        return loop.time() + (self.times.renew if confirmed else self._backoff.next())

    async def _release(self, term: Term, not_after: float) -> None:
        """Best effort: if it fails, the others wait for the lease to run out."""
        loop = asyncio.get_running_loop()
        spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._stamp()}
        while (row := self._seen) and self._is_ours(row, term) and loop.time() < not_after:
            deadline = min(loop.time() + self.times.attempt, not_after)
            try:
                await self._patch(row, spec, deadline=deadline, not_after=not_after)
            except errors.Conflict:
                # A renewal was under way when the keeper stopped, and landed.
                continue
            except KubeError as error:
                self._say(f"cannot release the lease {self._key}: {error}")
            else:
                _log.info("released the lease %s (epoch %d)", self._key, term.epoch)
            return

    # Wire

    def _spec(self, stamp: str) -> dict[str, object]:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": math.ceil(self.times.duration),
            "renewTime": stamp,
        }

    def _new_remarks(self, row: LeaseRow) -> dict[str, str | None]:
        said = self.remarks.items()
        return {key: value for key, value in said if row.annotations.get(key) != value}

    async def _create(self, spec: dict[str, object], *, deadline: float) -> None:
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": spec,
        }
        timeout = deadline - asyncio.get_running_loop().time()
        written = self._compare()
        reply = await self._client.create(LEASES, body, namespace=self._namespace, timeout=timeout)
        self._has_written(_row(reply.into(_Lease)), written)

    async def _patch(
        self,
        row: LeaseRow,
        spec: dict[str, object],
        *,
        deadline: float,
        remarks: Mapping[str, str | None] | None = None,
        not_after: float | None = None,
    ) -> None:
        """Raises ``Conflict`` or ``NotFound`` if the lease is not ``row``; then it has been read.

        A patch and not a replacement: what others put on the lease stays on it.
        """
        meta: dict[str, object] = {"resourceVersion": row.version, "uid": row.uid}
        if remarks:
            meta["annotations"] = remarks
        patch = {"metadata": meta, "spec": spec}
        timeout = deadline - asyncio.get_running_loop().time()
        written, before = self._compare(), self._trace.highest
        try:
            reply = await self._client.merge_patch(
                LEASES, self._name, patch,
                namespace=self._namespace, timeout=timeout, not_after=not_after,
            )  # fmt: skip
        except (errors.Conflict, errors.NotFound):
            await self._look(deadline=deadline)
            raise
        self._trace.stood_at(row.version, before)
        self._has_written(_row(reply.into(_Lease)), written)

    def _has_written(self, row: LeaseRow, written: Callable[[str], None]) -> None:
        written(row.version)
        self._hear(None, row)

    def _stamp(self) -> str:
        """The time of day, for people, but never the same twice: a renewal that changes nothing
        is none for those who watch, and a clock can stand still or be set back."""
        now = self._wall.now()
        if now <= self._last_stamp:
            now = self._last_stamp + timedelta(microseconds=1)
        self._last_stamp = now
        return now.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"

    async def _wait(self, *, until: float) -> None:
        """Until then, or until what was seen of the lease allows no waiting that long: it is lost,
        or free before. A renewal, ours or another's, only puts off what is waited for."""
        loop = asyncio.get_running_loop()
        self._waits_until, self._waiter = until, loop.create_future()
        timer = loop.call_at(until, self._wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waits_until, self._waiter = -math.inf, None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _say(self, sentence: str) -> None:
        if sentence != self._trouble:
            _log.warning("%s", sentence)
        self._trouble = sentence


async def _run(work: Work, term: Term) -> None:
    await work(term)

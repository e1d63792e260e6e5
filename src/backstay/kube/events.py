"""Events: telling people what was done and why, where ``kubectl describe`` shows it.

Whoever records an Event must not suffer from it: ``EventRecorder.record`` neither waits nor
raises. What the API server is asked to store is kept small, in the way that people know from
Kubernetes' own components:

* The same thing said again about the same object is one Event whose ``count`` grows, until it has
  not been said for ten minutes. Repeats that come while a send waits or is under way only raise
  the count of the next one.
* More than ten different messages for one object and reason become one Event,
  "(combined from similar events)".
* Each object may cause 25 sends at once and then one in five minutes. What is over the limit is
  not sent, but counted: the next send about the same thing carries the full count.
* Memory is bounded: series, objects and waiting sends each have a limit, and what does not fit is
  dropped and counted.

``Aggregator`` decides what to send; it is pure (told the time, given its dice). ``EventRecorder``
is its shell: it sends one at a time and pauses, with everything that waits, while the API fails.
An Event that cannot be stored (no permission, namespace gone) is dropped and said once in the log.
"""

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Generic, Literal, Protocol, Self, TypeVar

import msgspec

from backstay.kube.errors import AlreadyExists, Json, KubeError, NotFound, Retryable
from backstay.kube.limits import Backoff, TokenBucket
from backstay.kube.resource import EVENTS, Resource
from backstay.seam.clock import Rng, WallClock

_WINDOW = 600.0
_MOST_MESSAGES = 10
_BURST = 25
_SECONDS_PER_TOKEN = 300.0
_MOST_SERIES = 4096
_MOST_WAITING = 1024
_TIMEOUT = 10.0
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0

# What the API accepts, in bytes.
_MESSAGE_LIMIT = 1024
_WORD_LIMIT = 128
_NAME_LIMIT = 253
_HEX_DIGITS = 13

EventType = Literal["Normal", "Warning"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ObjectRef(msgspec.Struct, frozen=True, kw_only=True):
    """What an Event is about. Without a namespace the object is a cluster's, such as a node."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    @classmethod
    def to(cls, resource: Resource, *, name: str, uid: str, namespace: str = "") -> Self:
        """One of that kind."""
        return cls(
            api_version=resource.api_version,
            kind=resource.kind,
            namespace=namespace,
            name=name,
            uid=uid,
        )


class Occurrence(msgspec.Struct, frozen=True, kw_only=True):
    """Something happened, once."""

    about: ObjectRef
    type: EventType
    reason: str
    message: str
    action: str = ""


class Series:
    """Everything that one Event stands for. Two series are never equal."""

    def __init__(self, what: Occurrence, *, name: str, at: datetime, now: float) -> None:
        self.what = what
        self.namespace = what.about.namespace or "default"
        self.name = name
        self.first = at
        self.last = at
        self.seen = now
        self.count = 0
        self.exists = False


class Send(msgspec.Struct, frozen=True):
    """One request: a new Event, or a patch of one that is there."""

    series: Series
    creates: bool
    body: Json


# What to send


class _Lru(Generic[K, V]):
    """A dictionary that forgets what has not been used for longest."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[K, V] = OrderedDict()

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K, make: Callable[[], V]) -> V:
        if key not in self._entries:
            self.put(key, make())
        self._entries.move_to_end(key)
        return self._entries[key]

    def put(self, key: K, value: V) -> None:
        self._entries[key] = value
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)


class _Similar:
    """The different messages that one object had for one reason of late, by their hashes."""

    def __init__(self) -> None:
        self.seen = 0.0
        self.messages: set[int] = set()


class Aggregator:
    """What to tell the API server, given everything that happened.

    ``limited`` counts occurrences that were over their object's limit, ``dropped`` those for
    which there was no room.
    """

    def __init__(self, *, component: str, instance: str, rng: Rng) -> None:
        self.limited = 0
        self.dropped = 0
        self._component = component
        self._instance = _cut(instance, _WORD_LIMIT)
        self._rng = rng
        self._series: _Lru[tuple[ObjectRef, EventType, str, str | None], Series]
        self._series = _Lru(_MOST_SERIES)
        self._similar: _Lru[tuple[ObjectRef, EventType, str], _Similar] = _Lru(_MOST_SERIES)
        self._buckets: _Lru[ObjectRef, TokenBucket] = _Lru(_MOST_SERIES)
        self._waiting: OrderedDict[Series, None] = OrderedDict()

    @property
    def waiting(self) -> int:
        """How many sends wait."""
        return len(self._waiting)

    def observe(self, what: Occurrence, *, now: float, at: datetime) -> None:
        """Take note of what happened; ``now`` is monotonic, ``at`` is what people read."""
        series = self._series_of(_within_limits(what), now, at)
        series.count += 1
        series.last = at
        series.seen = now
        if series in self._waiting:
            return
        if len(self._waiting) >= _MOST_WAITING:
            self.dropped += 1
        elif not self._buckets.get(what.about, _new_bucket).take(now):
            self.limited += 1
        else:
            self._waiting[series] = None

    def next(self) -> Send | None:
        """The send whose turn it is; one of the methods below tells how it went."""
        if not self._waiting:
            return None
        series, _ = self._waiting.popitem(last=False)
        return self._send(series)

    def delivered(self, send: Send) -> None:
        send.series.exists = True

    def postponed(self, send: Send) -> None:
        """It did not go through and has to wait for its turn again, behind the others."""
        self._waiting[send.series] = None

    def other_way(self, send: Send) -> Send:
        """The Event turned out to be there, or not to be there, against our belief."""
        send.series.exists = send.creates
        return self._send(send.series)

    def _series_of(self, what: Occurrence, now: float, at: datetime) -> Series:
        key = (what.about, what.type, what.reason)
        similar = self._similar.get(key, _Similar)
        if now - similar.seen > _WINDOW:
            similar.messages.clear()
        similar.seen = now
        message: str | None = what.message
        if hash(message) not in similar.messages:
            if len(similar.messages) < _MOST_MESSAGES:
                similar.messages.add(hash(message))
            else:
                message = None
                what = _combined(what)
        series = self._series.get((*key, message), partial(self._new_series, what, now, at))
        if now - series.seen > _WINDOW:
            series = self._new_series(what, now, at)
            self._series.put((*key, message), series)
        series.what = what
        return series

    def _new_series(self, what: Occurrence, now: float, at: datetime) -> Series:
        number = int(self._rng.random() * 16**_HEX_DIGITS)
        return Series(what, name=_event_name(what.about.name, number), at=at, now=now)

    def _send(self, series: Series) -> Send:
        changing: Json = {
            "count": series.count,
            "lastTimestamp": _timestamp(series.last),
            "message": series.what.message,
        }
        if series.exists:
            return Send(series, creates=False, body=changing)
        return Send(series, creates=True, body=changing | self._unchanging(series))

    def _unchanging(self, series: Series) -> Json:
        about = series.what.about
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": series.name, "namespace": series.namespace},
            "involvedObject": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
            "type": series.what.type,
            "reason": series.what.reason,
            "action": series.what.action,
            "firstTimestamp": _timestamp(series.first),
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }


def _new_bucket() -> TokenBucket:
    return TokenBucket(rate=1 / _SECONDS_PER_TOKEN, burst=_BURST)


def _within_limits(what: Occurrence) -> Occurrence:
    return msgspec.structs.replace(
        what,
        reason=_cut(what.reason, _WORD_LIMIT),
        action=_cut(what.action, _WORD_LIMIT),
        message=_cut(what.message, _MESSAGE_LIMIT),
    )


def _combined(what: Occurrence) -> Occurrence:
    message = f"(combined from similar events): {what.message}"
    return msgspec.structs.replace(what, message=_cut(message, _MESSAGE_LIMIT))


def _cut(text: str, limit: int) -> str:
    """At most ``limit`` bytes of UTF-8, and no half characters at the end."""
    return text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def _event_name(about: str, number: int) -> str:
    """``<object>.<hex>``. Names of some objects (roles, for one) are not valid for an Event."""
    plain = re.sub(r"[^a-z0-9.-]", "-", about.lower())
    labels = [label.strip("-") for label in plain.split(".")]
    stem = ".".join(filter(None, labels))[: _NAME_LIMIT - _HEX_DIGITS - 1].rstrip("-.")
    return f"{stem or 'unnamed'}.{number:0{_HEX_DIGITS}x}"


def _timestamp(at: datetime) -> str:
    return at.replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


# Sending it


class EventClient(Protocol):
    """The two verbs of a client that Events need."""

    async def create(
        self, resource: Resource, body: object, /, *, namespace: str, timeout: float
    ) -> object: ...

    async def merge_patch(
        self,
        resource: Resource,
        name: str,
        patch: Mapping[str, object],
        /,
        *,
        namespace: str,
        timeout: float,
    ) -> object: ...


class EventRecorder:
    """Records from anywhere; ``run`` sends. ``sent`` and ``refused`` count requests that ended."""

    def __init__(
        self,
        client: EventClient,
        *,
        component: str,
        instance: str,
        wall: WallClock,
        rng: Rng,
        logger: logging.Logger | None = None,
    ) -> None:
        self.sent = 0
        self.refused = 0
        self._client = client
        self._wall = wall
        self._aggregator = Aggregator(component=component, instance=instance, rng=rng)
        self._backoff = Backoff(base=_FIRST_PAUSE, cap=_LONGEST_PAUSE, rng=rng)
        self._log = logger or logging.getLogger("backstay.events")
        self._said: _Lru[tuple[str, str], None] = _Lru(256)
        self._news = asyncio.Event()
        self._hurry = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def waiting(self) -> int:
        return self._aggregator.waiting

    @property
    def limited(self) -> int:
        return self._aggregator.limited

    @property
    def dropped(self) -> int:
        return self._aggregator.dropped

    def record(
        self, *, about: ObjectRef, type: EventType, reason: str, message: str, action: str = ""
    ) -> None:
        """Say something about an object. Never waits, never raises."""
        what = Occurrence(about=about, type=type, reason=reason, message=message, action=action)
        try:
            now = asyncio.get_running_loop().time()
            self._aggregator.observe(what, now=now, at=self._wall.now())
        except Exception:  # noqa: BLE001
            # Saying what was done must not undo it, however wrong the words are.
            self._aggregator.dropped += 1
            self._log.exception("an Event (%s) could not be recorded", reason)
            return
        if self._aggregator.waiting:
            self._idle.clear()
            self._news.set()

    async def run(self) -> None:
        """Send what is recorded, until cancelled; what was under way then stays waiting."""
        while True:
            self._news.clear()
            send = self._aggregator.next()
            if send is None:
                self._idle.set()
                await self._news.wait()
            else:
                await self._deliver(send)

    async def flush(self, timeout: float) -> bool:
        """Wait until all is sent while ``run`` does it; False if it took longer than allowed."""
        self._backoff.reset()
        self._hurry.set()
        try:
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def _deliver(self, send: Send) -> None:
        try:
            await self._put(send)
        except asyncio.CancelledError:
            self._aggregator.postponed(send)
            raise
        except Retryable as error:
            self._aggregator.postponed(send)
            await self._pause(error)
        except Exception as error:  # noqa: BLE001
            # The next one may well go through: no single Event may end the sending of all.
            self._refused(send, error)
        else:
            self._aggregator.delivered(send)
            self._backoff.reset()
            self.sent += 1

    async def _put(self, send: Send) -> None:
        try:
            await self._request(send)
        except (AlreadyExists, NotFound) as error:
            # There: an attempt whose outcome we never learnt had worked. Not there: it expired.
            # But a creation that does not find something has no namespace to be in.
            if isinstance(error, AlreadyExists) != send.creates:
                raise
            await self._request(self._aggregator.other_way(send))

    async def _request(self, send: Send) -> None:
        namespace, name = send.series.namespace, send.series.name
        if send.creates:
            await self._client.create(EVENTS, send.body, namespace=namespace, timeout=_TIMEOUT)
        else:
            await self._client.merge_patch(
                EVENTS, name, send.body, namespace=namespace, timeout=_TIMEOUT
            )

    async def _pause(self, error: Retryable) -> None:
        """Let the API come back to its senses; ``flush`` ends the pause."""
        if not self._backoff.attempts:
            self._log.warning("Events wait, because the API does not take them: %s", error)
        pause = max(self._backoff.next(), min(error.retry_after or 0.0, _LONGEST_PAUSE))
        self._hurry.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._hurry.wait()

    def _refused(self, send: Send, error: Exception) -> None:
        self.refused += 1
        kind = (send.series.namespace, type(error).__name__)
        if kind in self._said:
            return
        self._said.put(kind, None)
        self._log.warning(
            "an Event in namespace %s was dropped, and more like it will be without a word: %s",
            send.series.namespace,
            error,
            exc_info=None if isinstance(error, KubeError) else error,
        )

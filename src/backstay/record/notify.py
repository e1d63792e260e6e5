"""Notifier: the turns of an incident, told to one webhook.

A message is one POST of JSON (``Notification``; docs/operations.md shows one). The rules:

* It never gets in the way: ``tell`` neither waits nor raises. What waits is bounded, and of too
  much the oldest message of the same incident goes first, counted.
* What happens to many workloads at once, for one reason, is one message.
* Only the leader tells, and nothing leaves after its term. It is best effort: a change of leader
  may lose a message or repeat one. The incident in the cluster is the record.
* The address may hold a secret. It is read from a file, anew for each attempt so that it can be
  rotated, and stands in no log, error or repr: what went wrong is said in our words alone.
* The receiver proves who it is, redirects are not followed, and every attempt has an end. What
  may yet work (no connection, no answer, 408, 429, 5xx) is tried again, with pauses that grow,
  until the message is too old; what the receiver refuses is not. A trouble is said once.
"""

import asyncio
import hashlib
import hmac
import logging
import re
from enum import StrEnum
from http import HTTPStatus
from urllib.parse import urlsplit

import msgspec

from backstay.kube.lease import Term
from backstay.kube.limits import Backoff
from backstay.model.moments import time_text
from backstay.model.reasons import Why
from backstay.record.metrics import Delivery, Metrics
from backstay.seam import errors
from backstay.seam.clock import Rng, WallClock
from backstay.seam.files import Files
from backstay.seam.transport import Request, Tls, Transport

VERSION = 1
"""Of the message. Fields may be added to a version; a change of meaning is a new one."""

SIGNATURE = "x-backstay-signature"

MOST_WAITING = 256
TOO_OLD = 3600.0
"""Seconds after which a message that could not be delivered is news no more."""

_ATTEMPT = 10.0
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_WORTH_ANOTHER_TRY = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)

_SILENT = f"the receiver has not answered within {_ATTEMPT:g} s"

_URL = re.compile(r"https://[!-~]+", re.IGNORECASE)

_log = logging.getLogger("backstay.notify")


class Turn(StrEnum):
    """What has happened."""

    OPENED = "opened"
    HELD = "held"
    RELEASED = "released"
    RECOVERED = "recovered"
    CONTRADICTED = "contradicted"
    CLOSED = "closed"
    DISARMED = "disarmed"


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """Where to tell, by the names of files. ``key_file`` holds the key that messages are signed
    with, ``ca_file`` whom to trust instead of the system's authorities. ``cluster`` is what the
    cluster is called in a message."""

    url_file: str
    key_file: str = ""
    ca_file: str = ""
    cluster: str = ""


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """One message. ``workload`` is there if it is about one workload, and only one."""

    version: int = VERSION
    cluster: str
    event: Turn
    incident: str
    node: str
    workload: str | msgspec.UnsetType = msgspec.UNSET
    code: str
    sentence: str
    next: str
    at: str


class Unusable(Exception):
    """Why a message cannot be sent as things are set up: one sentence that names a file."""


class _Destination(msgspec.Struct, frozen=True):
    url: str
    key: bytes
    ca: bytes | None

    def __repr__(self) -> str:
        return "_Destination()"


class _Result(msgspec.Struct, frozen=True):
    """Of one attempt. Without a ``delivery`` it is worth another; ``trouble`` says why."""

    delivery: Delivery | None
    trouble: str = ""


class _Waiting:
    """A message that is still to be sent. What is told meanwhile of the same, joins it."""

    def __init__(self, message: Notification, now: float) -> None:
        self.message = message
        self.since = now
        self._others: set[str] = set()

    def joins(self, message: Notification) -> bool:
        mine, its = self.message, message
        if (mine.event, mine.incident, mine.code) != (its.event, its.incident, its.code):
            return False
        return isinstance(mine.workload, str) and isinstance(its.workload, str)

    def join(self, message: Notification) -> None:
        assert isinstance(message.workload, str)
        if message.workload != self.message.workload:
            self._others.add(message.workload)

    def encoded(self) -> bytes:
        message = self.message
        if self._others:
            sentence = f"{message.sentence} ({len(self._others)} more like it.)"
            message = msgspec.structs.replace(message, sentence=sentence, workload=msgspec.UNSET)
        return msgspec.json.encode(message)


class Notifier:
    """See the module. ``run`` sends, for as long as a term lasts."""

    def __init__(
        self,
        transport: Transport,
        files: Files,
        webhook: Webhook,
        *,
        wall: WallClock,
        rng: Rng,
        metrics: Metrics,
    ) -> None:
        self._transport = transport
        self._files = files
        self._webhook = webhook
        self._wall = wall
        self._counts = metrics.notifications
        self._backoff = Backoff(base=_FIRST_PAUSE, cap=_LONGEST_PAUSE, rng=rng)
        self._waiting: list[_Waiting] = []
        self._news = asyncio.Event()
        self._said = ""

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def trouble(self) -> str:
        """Why the last message was not delivered; empty if it was."""
        return self._said

    def tell(
        self, turn: Turn, why: Why, *, incident: str = "", node: str = "", workload: str = ""
    ) -> None:
        """Something happened. ``workload`` is a ``Workload.key``."""
        message = Notification(
            cluster=self._webhook.cluster,
            event=turn,
            incident=incident,
            node=node,
            workload=workload or msgspec.UNSET,
            code=why.code,
            sentence=why.sentence,
            next=why.next,
            at=time_text(self._wall.now()),
        )
        like = next((each for each in self._waiting if each.joins(message)), None)
        if like is not None:
            like.join(message)
            return
        if len(self._waiting) >= MOST_WAITING:
            self._drop_for(message)
        self._waiting.append(_Waiting(message, asyncio.get_running_loop().time()))
        self._news.set()

    async def run(self, term: Term) -> None:
        """Deliver until the term is over. What an earlier one left behind is old news: whoever
        leads tells how things stand now."""
        self._waiting.clear()
        while not term.over:
            self._news.clear()
            if not self._waiting:
                await self._news.wait()
                continue
            waiting = self._waiting.pop(0)
            delivery = await self._deliver(waiting.encoded(), waiting.since + TOO_OLD, term)
            self._counts.add(delivery.value)

    def _drop_for(self, message: Notification) -> None:
        same = (each for each in self._waiting if each.message.incident == message.incident)
        self._waiting.remove(next(same, self._waiting[0]))
        self._counts.add(Delivery.DROPPED.value)
        self._say(f"more than {MOST_WAITING} of them wait, so the oldest are dropped")

    async def _deliver(self, body: bytes, too_old: float, term: Term) -> Delivery:
        loop = asyncio.get_running_loop()
        while not term.over:
            result = await self._attempt(body, term)
            self._say(result.trouble)
            if result.delivery is not None:
                self._backoff.reset()
                return result.delivery
            if loop.time() >= too_old:
                break
            await asyncio.sleep(self._backoff.next())
        return Delivery.GIVEN_UP

    async def _attempt(self, body: bytes, term: Term) -> _Result:
        try:
            async with asyncio.timeout(_ATTEMPT):
                destination = await read_destination(self._files, self._webhook)
                request = _request(destination, body, not_after=term.not_after)
                async with self._transport.stream(request) as answer:
                    return _answered(answer.status)
        except Unusable as error:
            return _Result(None, str(error))
        except TimeoutError:
            return _Result(None, _SILENT)
        except errors.BadAnswer:
            return _Result(Delivery.REFUSED, "the receiver's answer is not HTTP as we accept it")
        except errors.TransportError as error:
            return _Result(None, _in_our_words(error))

    def _say(self, trouble: str) -> None:
        if trouble and trouble != self._said:
            _log.warning("notifications are not delivered: %s", trouble)
        self._said = trouble


def _answered(status: int) -> _Result:
    if 200 <= status < 300:
        return _Result(Delivery.SENT)
    if status >= 500 or status in _WORTH_ANOTHER_TRY:
        return _Result(None, f"the receiver answered {status}")
    redirects = " (redirects are not followed)" if 300 <= status < 400 else ""
    return _Result(Delivery.REFUSED, f"the receiver refused with {status}{redirects}")


async def read_destination(files: Files, webhook: Webhook) -> _Destination:
    """What the files say now. Raises ``Unusable``."""
    try:
        url = (await _content(files, webhook.url_file)).decode("ascii")
    except UnicodeDecodeError:
        url = ""
    if not _is_usable(url):
        raise Unusable(
            f"{webhook.url_file} does not hold an address that begins with https:// "
            "and has no user name in it"
        )
    key = await _content(files, webhook.key_file) if webhook.key_file else b""
    if webhook.key_file and not key:
        raise Unusable(f"{webhook.key_file} is empty, so messages cannot be signed")
    ca = await _content(files, webhook.ca_file) if webhook.ca_file else None
    return _Destination(url, key, ca)


async def _content(files: Files, path: str) -> bytes:
    try:
        return (await files.read(path)).strip()
    except OSError as error:
        raise Unusable(f"{path} cannot be read: {error.strerror or type(error).__name__}") from None


def _is_usable(url: str) -> bool:
    if not _URL.fullmatch(url):
        return False
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and "@" not in parts.netloc and (parts.port or 443) > 0
    except ValueError:
        return False


def _request(destination: _Destination, body: bytes, *, not_after: float) -> Request:
    headers = {"content-type": "application/json", "user-agent": "backstay"}
    if destination.key:
        headers[SIGNATURE] = signature(destination.key, body)
    return Request(
        method="POST",
        url=destination.url,
        headers=headers,
        body=body,
        timeout=_ATTEMPT,
        not_after=not_after,
        tls=Tls(ca=destination.ca),
    )


def signature(key: bytes, body: bytes) -> str:
    """What a receiver computes from the bytes that it got, and compares."""
    return f"sha256={hmac.new(key, body, hashlib.sha256).hexdigest()}"


def _in_our_words(error: errors.TransportError) -> str:
    """The error's own words may quote the address."""
    match error:
        case errors.TlsFailed():
            return "the receiver could not prove who it is"
        case errors.NotSent():
            return "the receiver cannot be reached"
        case errors.TimedOut():
            return _SILENT
        case _:
            return "the receiver ended the connection before it had answered"

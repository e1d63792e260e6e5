"""Reading: lists in pages, and watches.

A page that continues an older list shows the picture of then, rebuilt from the history. A watch
starts from a version, from "any", or with the objects that are there (``sendInitialEvents``);
it sends bookmarks, and it never loses, repeats or reorders an event. A watcher that does not
read is cut off when too much waits for it, as the server does it.

Whoever asks for a version that is forgotten is told so, in the words of the part of a server that
notices: its memory of recent changes, or for what it does not keep there (Events) its storage.
"""

import asyncio
import base64
import re
from collections.abc import AsyncGenerator, Awaitable, Sequence
from functools import lru_cache

import msgspec

from backstay.sim.api import gotext
from backstay.sim.api.kinds import KindInfo, Object
from backstay.sim.api.requests import Query, Target, complaint
from backstay.sim.api.selectors import everything, named, select
from backstay.sim.api.status import Cause, Refusal, bad_request, expired, invalid_options
from backstay.sim.api.store import Commit, Expired, Key, Store, Stored
from backstay.sim.wire import Feed

BOOKMARK_EVERY = 60.0
WATCH_SECONDS = 1800
_BACKLOG = 10_000
_BATCH = 500

_CONTINUE_VERSION = "meta.k8s.io/v1"
_LATEST = -1
"""In a token: go on in the list as it is by then."""

_NOT_KEPT_IN_MEMORY = frozenset({"events"})
_TOKEN_TYPES = {"v": str, "rv": int, "start": str}
# Parts of a path that lead elsewhere.
_NOT_A_PLACE = frozenset({"", ".", ".."})
_NOT_BASE64 = re.compile(r"[^-A-Za-z0-9_]")

_json = msgspec.json.Encoder()


class _Token(msgspec.Struct, frozen=True):
    """What a continue token says: the version of the list, and the key after which to go on."""

    v: str = ""
    rv: int = 0
    start: str = ""


class _Listing(msgspec.Struct, frozen=True):
    """What a list is asked for, checked. A ``limit`` of 0 is none."""

    token: _Token | None
    version: int | None
    exact: bool
    limit: int
    labels: str
    fields: str


class Page(msgspec.Struct, frozen=True):
    """What a list answers."""

    items: Sequence[Stored]
    version: int
    token: str = ""
    remaining: int = 0


class Reader:
    """Reads one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def page(self, target: Target, query: Query) -> Page:
        asked = _listing(query)
        token, version = asked.token, self._store.version
        if asked.version and asked.version > version:
            raise _too_large(asked.version, version)
        if token:
            version = version if token.rv == _LATEST else token.rv
        elif asked.exact and asked.version:
            version = asked.version
        if version == self._store.version:
            found = self._store.all(target.info.storage, target.namespace)
        else:
            found = self._past(target, version, token)
        if asked.labels or asked.fields:
            test = select(target.info, asked.labels, asked.fields)
            found = [stored for stored in found if test(stored.object)]
        if token:
            after = tuple(token.start.split("/", 1))
            found = [stored for stored in found if stored.key > after]
        if not asked.limit or len(found) <= asked.limit:
            return Page(found, version)
        last = "/".join(found[asked.limit - 1].key)
        # Of a selection, a server does not know how much is left without reading on.
        remaining = 0 if asked.labels or asked.fields else len(found) - asked.limit
        return Page(found[: asked.limit], version, _encode_token(version, last), remaining)

    def _past(self, target: Target, version: int, token: _Token | None) -> Sequence[Stored]:
        try:
            found = self._store.as_of(target.info.storage, version)
        except Expired:
            raise _expired(token) from None
        namespace = target.namespace
        return [stored for stored in found if not namespace or stored.key[0] == namespace]

    def watch(self, target: Target, query: Query) -> "Watcher":
        """The answer's body. Raises a ``Refusal`` before anything is sent."""
        _check_watch(query)
        return Watcher(self._store, target, query)


class Watcher(Feed):
    """One watch. It follows the store from the moment it is made, so that nothing falls in between,
    until it is closed."""

    def __init__(self, store: Store, target: Target, query: Query) -> None:
        self._store = store
        self._info = target.info
        self._head = target.info.head
        labels, fields = query.text("labelSelector"), query.text("fieldSelector")
        name = named(fields)
        # The store tells of one name only, so there is nothing left to test of that.
        self._test = select(target.info, labels, "" if name else fields)
        self._within = (target.namespace, name)
        self._bookmarks = query.flag("allowWatchBookmarks")
        self._initial = query.flag("sendInitialEvents")
        self._seconds = query.number("timeoutSeconds") or WATCH_SECONDS
        self._waiting: list[bytes] = []
        self._idle: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._overrun = False
        # A version that is yet to come is waited for: one that a restored store has not seen.
        self._after = query.version() or 0
        self._begin(query.version())
        self._release = store.follow(
            target.info.storage, self._follow, within=self._within, ended=self._end
        )
        self._lines = self._read()

    def __anext__(self) -> Awaitable[bytes]:
        return self._lines.__anext__()

    async def aclose(self) -> None:
        self._release()
        if self._alarm is not None:
            self._alarm.cancel()
        await self._lines.aclose()

    def _begin(self, version: int | None) -> None:
        if self._initial or not version:
            for stored in self._store.all(self._info.storage):
                if _is_within(stored.key, self._within) and self._test(stored.object):
                    self._waiting.append(stored.line(self._head, b"ADDED"))
            if self._initial and self._bookmarks:
                self._waiting.append(self._bookmark(initial_end=True))
            return
        try:
            for commit in self._store.since(self._info.storage, version):
                if _is_within(commit.after.key, self._within):
                    self._follow(commit)
        except Expired as error:
            self._waiting.append(_error_line(_too_old(self._info, error)))
            self._overrun = True

    def _end(self) -> None:
        """What waits is still sent; nothing follows."""
        self._overrun = True
        self._wake()

    def _follow(self, commit: Commit) -> None:
        """By whether the object matched before and matches now: a watcher sees only its own."""
        if commit.version <= self._after:
            return
        before, now = commit.before is not None, not commit.deleted
        if self._test is not everything:
            before = commit.before is not None and self._test(commit.before.object)
            now = now and self._test(commit.after.object)
        if now:
            line = commit.after.line(self._head, b"MODIFIED" if before else b"ADDED")
        elif not before:
            return
        elif commit.deleted:
            line = commit.after.line(self._head, b"DELETED")
        else:
            assert commit.before is not None
            line = _as_last_seen(commit.before, commit.after).line(self._head, b"DELETED")
        # Whoever reads waits only when it has read everything: nothing is overtaken.
        idle = self._idle
        if idle is not None and not idle.done() and self.offer is not None and self.offer(line):
            return
        self._waiting.append(line)
        if len(self._waiting) > _BACKLOG:
            self._overrun = True
        self._wake()

    def _wake(self) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def _read(self) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        now = loop.time()
        ends_at, bookmark_at = now + self._seconds, now + BOOKMARK_EVERY
        while True:
            while batch := self._waiting[:_BATCH]:
                del self._waiting[:_BATCH]
                yield b"".join(batch)
            if self._overrun:
                return
            # One alarm for many waits, because most end with an event long before.
            if self._alarm is None:
                now = loop.time()
                if now >= ends_at:
                    return
                if self._bookmarks and now >= bookmark_at:
                    bookmark_at = now + BOOKMARK_EVERY
                    yield self._bookmark()
                    continue
                due = min(ends_at, bookmark_at) if self._bookmarks else ends_at
                self._alarm = loop.call_at(due, self._ring)
            self._idle = loop.create_future()
            await self._idle

    def _ring(self) -> None:
        self._alarm = None
        self._wake()

    def _bookmark(self, *, initial_end: bool = False) -> bytes:
        meta: Object = {"resourceVersion": str(self._store.version)}
        if initial_end:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        body = {"kind": self._info.kind, "apiVersion": self._info.api_version, "metadata": meta}
        return b'{"type":"BOOKMARK","object":%s}\n' % _json.encode(body)


def _as_last_seen(before: Stored, after: Stored) -> Stored:
    """What has ceased to match: as it was when it did, under the version of the change."""
    meta = {**before.object["metadata"], "resourceVersion": str(after.version)}
    return Stored(before.key, {**before.object, "metadata": meta}, after.version)


def _too_old(info: KindInfo, error: Expired) -> Refusal:
    if info.storage in _NOT_KEPT_IN_MEMORY:
        return expired("The resourceVersion for the provided watch is too old.")
    return expired(str(error))


def _expired(token: _Token | None) -> Refusal:
    if token is None:
        return expired("The resourceVersion for the provided list is too old.")
    refusal = expired(
        "The provided continue parameter is too old to display a consistent list result. You can "
        "start a new list without the continue parameter, or use the continue token in this "
        "response to retrieve the remainder of the results. Continuing with the provided token "
        "results in an inconsistent list - objects that were created, modified, or deleted between "
        "the time the first chunk was returned and now may show up in the list."
    )
    refusal.continue_token = _encode_token(_LATEST, token.start)
    return refusal


def _error_line(refusal: Refusal) -> bytes:
    return b'{"type":"ERROR","object":%s}\n' % _json.encode(refusal.body())


def _is_within(key: Key, within: Key) -> bool:
    return within[0] in ("", key[0]) and within[1] in ("", key[1])


def _encode_token(version: int, start: str) -> str:
    token = _json.encode(_Token(_CONTINUE_VERSION, version, start))
    return base64.urlsafe_b64encode(token).decode().rstrip("=")


def _decode_token(text: str) -> _Token | None:
    if not text:
        return None
    try:
        token = msgspec.json.decode(_decoded(text), type=_Token)
    except msgspec.MsgspecError:
        raise _bad_token(_why_no_token(_decoded(text))) from None
    if token.v != _CONTINUE_VERSION:
        raise _bad_token(f"server does not recognize this encoded version {token.v}")
    if token.rv == 0:
        why = f"incorrect encoded start resourceVersion (version {_CONTINUE_VERSION})"
        raise _bad_token(why)
    if not token.start:
        raise _bad_token(f"encoded start key empty (version {_CONTINUE_VERSION})")
    if not _NOT_A_PLACE.isdisjoint(token.start.removeprefix("/").split("/")):
        raise _bad_token(token.start)
    return token


def _decoded(text: str) -> bytes:
    """Base64 without padding. What is wrong with it is said by position, as Go does."""
    wrong = _NOT_BASE64.search(text)
    # Four characters are three bytes; of one that is left over nothing can be made.
    at = wrong.start() if wrong else len(text) - 1 if len(text) % 4 == 1 else None
    if at is not None:
        raise _bad_token(f"illegal base64 data at input byte {at}")
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _why_no_token(raw: bytes) -> str:
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return complaint(raw, error)
    if type(found) is not dict:
        kind = gotext.json_kind(found)
        return f"json: cannot unmarshal {kind} into Go value of type storage.continueToken"
    for name, wanted in _TOKEN_TYPES.items():
        value = found.get(name)
        if value is not None and type(value) is not wanted:
            return (
                f"json: cannot unmarshal {gotext.json_kind(value)} into Go struct field "
                f"continueToken.{name} of type {gotext.type_name(wanted())}"
            )
    return ""


def _bad_token(why: str) -> Refusal:
    return bad_request(f"invalid continue token: continue key is not valid: {why}")


def _too_large(asked: int, current: int) -> Refusal:
    cause = Cause("ResourceVersionTooLarge", "Too large resource version")
    return Refusal(
        504, "Timeout", f"Timeout: Too large resource version: {asked}, current: {current}",
        details={}, causes=[cause], retry_after=1,
    )  # fmt: skip


_NEEDS_VERSION = "resourceVersionMatch is forbidden unless resourceVersion is provided"
_NOT_FOR_MORE = "resourceVersionMatch is forbidden when continue is provided"
_NOT_EXACTLY_ZERO = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
_NEEDS_MATCH = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
_NOT_FOR_WATCH = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"


@lru_cache(maxsize=1024)
def _listing(query: Query) -> _Listing:
    """Checked once, because whoever polls asks the same again and again."""
    _check_match(query)
    token, version = _decode_token(query.text("continue")), query.version()
    if token and version:
        raise bad_request("specifying resource version is not allowed when using continue")
    return _Listing(
        token=token,
        version=version,
        exact=query.text("resourceVersionMatch") == "Exact",
        limit=max(query.number("limit") or 0, 0),
        labels=query.text("labelSelector"),
        fields=query.text("fieldSelector"),
    )


def _check_match(query: Query) -> None:
    match = query.text("resourceVersionMatch")
    if query.flag("sendInitialEvents"):
        raise _list_options("sendInitialEvents", "sendInitialEvents is forbidden for list")
    if match and query.text("continue"):
        raise _list_options("resourceVersionMatch", _NOT_FOR_MORE)
    if match and match not in ("Exact", "NotOlderThan"):
        why = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""'
        cause = Cause("FieldValueNotSupported", why, "resourceVersionMatch")
        raise invalid_options("ListOptions", cause)
    if match and query.version() is None:
        raise _list_options("resourceVersionMatch", _NEEDS_VERSION)
    if match == "Exact" and query.version() == 0:
        raise _list_options("resourceVersionMatch", _NOT_EXACTLY_ZERO)


def _check_watch(query: Query) -> None:
    match = query.text("resourceVersionMatch")
    if query.flag("sendInitialEvents") and match != "NotOlderThan":
        raise _list_options("resourceVersionMatch", _NEEDS_MATCH)
    if match and not query.flag("sendInitialEvents"):
        raise _list_options("resourceVersionMatch", _NOT_FOR_WATCH)


def _list_options(field: str, why: str) -> Refusal:
    cause = Cause("FieldValueForbidden", f"Forbidden: {why}", field)
    return invalid_options("ListOptions", cause)

"""Projection: from what the server sends to the few fields that we keep.

A pod is 9 KB of JSON, of which a controller needs a few hundred bytes. A ``Projection`` names
a *wire* type, which decodes only the fields that matter, and a function that flattens it into a
*row*: one Struct without garbage-collector tracking, its repeated strings shared. Rows are what
caches hold; wire objects live for an instant.

One bad object must not blind us to the others. Where a page or an event does not decode as a
whole, its objects are decoded one by one, and those that still do not are handed out as
``Unreadable`` with as much of an identity as can be told.
"""

import sys
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from backstay.kube import errors


class Meta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The identity that every object has. Wire types extend it."""

    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Row(Protocol):
    """What a cache asks of a row. ``key`` is ``namespace/name``, or the name alone."""

    @property
    def key(self) -> str: ...

    @property
    def uid(self) -> str: ...

    @property
    def version(self) -> str: ...


W = TypeVar("W")
R = TypeVar("R", bound=Row)


class Unreadable(msgspec.Struct, frozen=True):
    """An object that is no row; ``key`` is empty where not even its name could be told."""

    key: str
    version: str
    why: str


class Page(msgspec.Struct, Generic[R]):
    """One answer to a LIST."""

    rows: list[R]
    unreadable: list[Unreadable]
    version: str
    token: str | None


class Change(msgspec.Struct, Generic[R]):
    """One line of a watch.

    ``kind`` is ADDED, MODIFIED, DELETED or BOOKMARK. Exactly one of ``row`` and ``unreadable``
    is set, except for a bookmark, which has neither; ``complete`` marks the bookmark that ends
    the initial events of a streaming list.
    """

    kind: str
    version: str
    row: R | None = None
    unreadable: Unreadable | None = None
    complete: bool = False


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    token: str | None = msgspec.field(default=None, name="continue")


class _RawList(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _RawEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _BookmarkMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Bookmark(msgspec.Struct):
    metadata: _BookmarkMeta


class _OnlyMeta(msgspec.Struct):
    metadata: Meta


_INITIAL_EVENTS_END = "k8s.io/initial-events-end"

# What a projection's own function may stumble over in an object that decoded: an unexpected
# shape, a number that is none. Anything else is a bug of ours and should be seen.
_BAD_OBJECT = (msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError)


share = sys.intern
"""The one copy of a string that many objects repeat (names of nodes, labels, phases).

It is dropped when its last user goes, so that unlike a table of our own it cannot grow for ever.
A name and not a function: it is called twenty times for each pod.
"""


class Projection(Generic[W, R]):
    """Decodes one kind of object. ``wire`` must have ``metadata: Meta`` (or a child of it)."""

    def __init__(self, wire: type[W], row: Callable[[W], R]) -> None:
        self._row = row
        self._object: msgspec.json.Decoder[W] = msgspec.json.Decoder(wire)
        self._list: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_list_of(wire))
        self._raw_list = msgspec.json.Decoder(_RawList)
        self._raw_event = msgspec.json.Decoder(_RawEvent)
        self._bookmark = msgspec.json.Decoder(_Bookmark)
        self._status = msgspec.json.Decoder(errors.Status)
        self._meta = msgspec.json.Decoder(_OnlyMeta)

    def page(self, body: bytes, *, call: str) -> Page[R]:
        """A LIST's answer. Raises ``Undecodable`` only when it is no list at all."""
        try:
            whole = self._list.decode(body)
            rows = [self._row(item) for item in whole.items or ()]
            return Page(rows, [], whole.metadata.resource_version, whole.metadata.token or None)
        except _BAD_OBJECT:
            return self._piecewise(body, call)

    def _piecewise(self, body: bytes, call: str) -> Page[R]:
        try:
            raw = self._raw_list.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise errors.Undecodable(f"{call}: the answer is not a list ({error})") from None
        rows: list[R] = []
        unreadable: list[Unreadable] = []
        for item in raw.items or ():
            row = self._one(item)
            if isinstance(row, Unreadable):
                unreadable.append(row)
            else:
                rows.append(row)
        meta = raw.metadata
        return Page(rows, unreadable, meta.resource_version, meta.token or None)

    def change(self, line: bytes, *, call: str) -> Change[R]:
        """A watch's line. Raises what an ERROR event says, or ``Undecodable``."""
        try:
            event = self._raw_event.decode(line)
            if event.type == "BOOKMARK":
                meta = self._bookmark.decode(event.object).metadata
                complete = (meta.annotations or {}).get(_INITIAL_EVENTS_END) == "true"
                return Change("BOOKMARK", meta.resource_version, complete=complete)
            if event.type == "ERROR":
                raise errors.from_status(self._status.decode(event.object), call=call)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise errors.Undecodable(f"{call}: a line is not a watch event ({error})") from None
        if event.type not in ("ADDED", "MODIFIED", "DELETED"):
            raise errors.Undecodable(f"{call}: {event.type!r} is not a kind of watch event")
        row = self._one(event.object)
        if isinstance(row, Unreadable):
            if not row.version:
                raise errors.Undecodable(f"{call}: an event without a version ({row.why})")
            return Change(event.type, row.version, unreadable=row)
        return Change(event.type, row.version, row=row)

    def _one(self, raw: msgspec.Raw) -> R | Unreadable:
        try:
            return self._row(self._object.decode(raw))
        except _BAD_OBJECT as error:
            why = str(error)
        try:
            meta = self._meta.decode(raw).metadata
        except _BAD_OBJECT:
            return Unreadable("", "", why)
        return Unreadable(meta.key if meta.name else "", meta.resource_version, why)


def _list_of(wire: Any) -> Any:
    return msgspec.defstruct(
        f"{wire.__name__}List", [("metadata", _ListMeta), ("items", list[wire] | None, None)]
    )

"""Projection: from what the server sends to the few fields that we keep.

A pod is 9 KB of JSON, of which a controller needs a few hundred bytes. A ``Projection`` names
a *wire* type, which decodes only the fields that matter, and a function that flattens it into a
*row*: one Struct without garbage-collector tracking, its repeated strings shared. Rows are what
caches hold; wire objects live for an instant.

One bad object must not blind us to the others. Where a page or an event does not decode as a
whole, its objects are decoded one by one, and those that still do not are handed out as
``Unreadable``. But what has no version, or objects without a name, is no answer at all
(``Undecodable``): to take it for an empty list would be to believe that everything is gone.
"""

import re
import sys
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar, cast

import msgspec

from backstay.kube import errors

_Text = Annotated[str, msgspec.Meta(min_length=1)]


class Meta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The identity that every object has. Wire types extend it."""

    name: _Text
    resource_version: _Text
    namespace: str | None = None
    uid: str = ""

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


T = TypeVar("T")
W = TypeVar("W")
R = TypeVar("R", bound=Row)


class Unreadable(msgspec.Struct, frozen=True):
    """An object that is no row; ``version`` is empty where it could not be told."""

    key: str
    version: str
    why: str


class Page(msgspec.Struct, Generic[R], frozen=True):
    """One answer to a LIST."""

    rows: list[R]
    unreadable: list[Unreadable]
    version: str
    token: str | None


Kind = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


class Change(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """One line of a watch.

    Exactly one of ``row`` and ``unreadable`` is set, except for a bookmark, which has neither;
    ``complete`` marks the bookmark that ends the initial events of a streaming list.
    """

    kind: Kind
    version: str
    row: R | None = None
    unreadable: Unreadable | None = None
    complete: bool = False

    @property
    def key(self) -> str:
        """Of the object that changed; empty for a bookmark."""
        thing = self.row or self.unreadable
        return thing.key if thing else ""


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: _Text
    token: str | None = msgspec.field(default=None, name="continue")


class _RawList(msgspec.Struct):
    # A list without items says so with null. Whatever does not mention them is something else.
    metadata: _ListMeta
    items: list[msgspec.Raw] | None


class _RawEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _BookmarkMeta(msgspec.Struct, rename="camel"):
    resource_version: _Text
    annotations: dict[str, str] | None = None


class _Bookmark(msgspec.Struct):
    metadata: _BookmarkMeta


class _BookmarkEvent(msgspec.Struct):
    type: Literal["BOOKMARK"]
    object: _Bookmark


class _Identity(msgspec.Struct, rename="camel"):
    name: _Text
    namespace: str | None = None
    resource_version: Any = ""


class _Identified(msgspec.Struct):
    metadata: _Identity


# About a millisecond's work.
_ROWS_AT_ONCE = 100

_A_BOOKMARK = b'{"type":"BOOKMARK"'
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"

_raw_list = msgspec.json.Decoder(_RawList)
_raw_event = msgspec.json.Decoder(_RawEvent)
_bookmark = msgspec.json.Decoder(_Bookmark)
_bookmark_event = msgspec.json.Decoder(_BookmarkEvent)
_status = msgspec.json.Decoder(errors.Status)
_identified = msgspec.json.Decoder(_Identified)

_BAD_JSON = (msgspec.MsgspecError, UnicodeDecodeError)

# What a projection's own function may stumble over in an object that decoded: an unexpected
# shape, a number that is none. Anything else is a bug of ours and should be seen.
_BAD_OBJECT = (*_BAD_JSON, RecursionError, ValueError, TypeError, LookupError, AttributeError)


share = sys.intern
"""The one copy of a string that many objects repeat (names of nodes, labels, phases).

It is dropped when its last user goes, so that unlike a table of our own it cannot grow for ever.
A name and not a function: it is called for every object that comes in.
"""

NOTHING = msgspec.Raw(b"null")
"""What a part that is not mentioned says."""

# As a rule some 700 bytes each, with what they became: 1.4 MB. At worst, where they are full of
# the shortest of strings and no row has these any more, 20 MB.
_PARTS = 2048
_LONGEST_PART = 1024


def shared_part(wire: Any, part: Callable[[Any], T]) -> Callable[[msgspec.Raw], T]:
    """A decoder of what many objects repeat byte for byte, as the pods of one owner do its labels.

    The same bytes give the very same value, which is neither decoded nor kept twice. The parts
    that were seen last are remembered; what is too long to be one of many is not.
    """
    decoder = msgspec.json.Decoder(wire)

    def decode(json: bytes) -> T:
        return part(decoder.decode(json))

    remembered = lru_cache(maxsize=_PARTS)(decode)

    def shared(raw: msgspec.Raw) -> T:
        json = bytes(raw)
        return remembered(json) if len(json) <= _LONGEST_PART else decode(json)

    return shared


class Projection(Generic[W, R]):
    """Decodes one kind of object. ``wire`` must have ``metadata: Meta`` (or a child of it)."""

    def __init__(self, wire: type[W], row: Callable[[W], R]) -> None:
        self._row = row
        self._object: msgspec.json.Decoder[W]
        self._object, self._list, self._event = _decoders(cast(Any, wire))

    def page(self, body: bytes, *, call: str) -> Page[R]:
        """A LIST's answer. Raises ``Undecodable`` only when it is no list at all."""
        try:
            whole = self._list.decode(body)
            rows = list(map(self._row, whole.items or ()))
            return Page(rows, [], whole.metadata.resource_version, whole.metadata.token or None)
        except _BAD_OBJECT:
            return _patiently(self._page_piecewise, body, call)

    def page_in_slices(self, body: bytes, *, call: str) -> Generator[None, None, Page[R]]:
        """The same, with a pause wherever enough has been done for one turn of the loop."""
        try:
            whole = self._list.decode(body)
            rows: list[R] = []
            items = whole.items or ()
            for start in range(0, len(items), _ROWS_AT_ONCE):
                yield
                rows += map(self._row, items[start : start + _ROWS_AT_ONCE])
            return Page(rows, [], whole.metadata.resource_version, whole.metadata.token or None)
        except _BAD_OBJECT:
            return _patiently(self._page_piecewise, body, call)

    def change(self, line: bytes, *, call: str) -> Change[R]:
        """A watch's line. Raises what an ERROR event says, or ``Undecodable``."""
        try:
            # It would be found out all the same, but every other line of a quiet watch is one.
            if line.startswith(_A_BOOKMARK):
                return _bookmark_change(_bookmark_event.decode(line).object)
            event = self._event.decode(_without_managed_fields(line))
            row = self._row(event.object)
            return Change(event.type, row.version, row)
        except _BAD_OBJECT:
            return _patiently(self._change_piecewise, line, call)

    def _page_piecewise(self, body: bytes, call: str) -> Page[R]:
        try:
            raw = _raw_list.decode(body)
            found = [self._one(item) for item in raw.items or ()]
        except _BAD_JSON as error:
            raise errors.Undecodable(f"{call}: the answer is not a list ({error})") from None
        rows = [one for one in found if not isinstance(one, Unreadable)]
        unreadable = [one for one in found if isinstance(one, Unreadable)]
        return Page(rows, unreadable, raw.metadata.resource_version, raw.metadata.token or None)

    def _change_piecewise(self, line: bytes, call: str) -> Change[R]:
        try:
            event = _raw_event.decode(line)
            match event.type:
                case "ADDED" | "MODIFIED" | "DELETED":
                    found = self._one(event.object)
                case "BOOKMARK":
                    return _bookmark_change(_bookmark.decode(event.object))
                case "ERROR":
                    raise errors.from_status(_status.decode(event.object), call=call)
                case unknown:
                    raise errors.Undecodable(f"{call}: {unknown!r} is not a kind of watch event")
        except _BAD_JSON as error:
            raise errors.Undecodable(f"{call}: a line is not a watch event ({error})") from None
        if not isinstance(found, Unreadable):
            return Change(event.type, found.version, found)
        if not found.version:
            raise errors.Undecodable(f"{call}: an event without a version ({found.why})")
        return Change(event.type, found.version, unreadable=found)

    def _one(self, raw: msgspec.Raw) -> R | Unreadable:
        """Raises a decoding error where not even the object's name can be told."""
        try:
            return self._row(self._object.decode(raw))
        except _BAD_OBJECT as error:
            meta = _identified.decode(raw).metadata
            version = meta.resource_version if isinstance(meta.resource_version, str) else ""
            return Unreadable(_key(meta.namespace, meta.name), version, str(error))


def _key(namespace: str | None, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


_MANAGED_FIELDS = b',"managedFields":['


def _without_managed_fields(line: bytes) -> bytes:
    """The same, without the server's books on who set which field: nobody here reads them, they
    are close to half of an object, and to find their end is ten times as fast as to decode them.

    A quote in a string is escaped, so these bytes are nothing but a member and the beginning of
    its array, and the first bracket that closes is its end. Where that bracket closes something
    else, or stands in a string, what is left is no JSON, and the line will be decoded whole.
    """
    start = line.find(_MANAGED_FIELDS)
    if start < 0:
        return line
    end = line.find(b"]", start)
    return line if end < 0 else line[:start] + line[end + 1 :]


def _bookmark_change(bookmark: _Bookmark) -> Change[Any]:
    meta = bookmark.metadata
    complete = (meta.annotations or {}).get(_INITIAL_EVENTS_END) == "true"
    return Change("BOOKMARK", meta.resource_version, complete=complete)


# To make them takes as long as to decode a thousand objects, and whoever flattens one kind of
# object in a way of its own, as each of many nodes does, makes a projection of its own.
@lru_cache(maxsize=256)
def _decoders(wire: Any) -> tuple[msgspec.json.Decoder[Any], ...]:
    """Of one object, of a list of them, and of an event."""
    kinds = (wire, _list_of(wire), _event_of(wire))
    return tuple(msgspec.json.Decoder(kind) for kind in kinds)


def _list_of(wire: Any) -> Any:
    return msgspec.defstruct(
        f"{wire.__name__}List", [("metadata", _ListMeta), ("items", list[wire] | None)]
    )


def _event_of(wire: Any) -> Any:
    kinds = Literal["ADDED", "MODIFIED", "DELETED"]
    fields = [("type", kinds), ("object", wire)]
    return msgspec.defstruct(f"{wire.__name__}Event", fields, gc=False)


def _patiently(decode: Callable[[bytes, str], T], json: bytes, call: str) -> T:
    try:
        return decode(json, call)
    except RecursionError:
        return decode(_shallow(json), call)


_DEPTH = 100
_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[][{}]', re.DOTALL)


def _shallow(json: bytes) -> bytes:
    """The same, with null in place of whatever nests deeper than any object that we know.

    An API server stores ten thousand levels without a word, but a decoder gives up after about
    a thousand: one object would keep all the others from being read.
    """
    kept: list[bytes] = []
    depth = since = 0
    for token in _STRING_OR_BRACKET.finditer(json):
        start = token.start()
        if json[start] in b"[{":
            depth += 1
            if depth == _DEPTH:
                kept += json[since:start], b"null"
        elif json[start] in b"]}":
            if depth == _DEPTH:
                since = start + 1
            depth -= 1
    if depth < _DEPTH:
        kept.append(json[since:])
    return b"".join(kept)

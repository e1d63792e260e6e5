"""Kinds: what the embedded API stores, and how the fields of each kind merge.

Built-in kinds come from ``facts.json``, which ``harness/facts.py`` reads off a real server;
nothing of it is typed by hand. Custom resource definitions add and remove kinds at run time.

A ``Schema`` says of a field just what merging needs to know: whether it is a struct, a map, a
list (and of which kind) or a value. Types refer to each other by name and some to themselves,
so references are resolved when they are followed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from importlib import resources
from typing import Any

import msgspec

from backstay.kube.resource import Resource


class Schema(msgspec.Struct, frozen=True, rename="camel"):
    """One node of a type. At most one of ``ref``, ``fields``, ``map`` and ``list`` is set; none
    of them means a plain value, or with ``type == "any"`` whatever JSON was sent. ``format`` tells
    of integers that they are ``int64`` and of strings that they are ``byte``.

    For lists, ``kind`` is how server-side apply sees it (``atomic``, ``set`` or ``map`` with
    ``keys``), ``patch`` and ``merge_key`` how a strategic merge patch does. A key that an item
    does not say has its ``default``. A field that every object of its type has, with a zero value
    if need be, is ``always`` there.
    """

    ref: str | None = None
    type: str | None = None
    format: str | None = None
    fields: dict[str, "Schema"] | None = None
    atomic: bool = False
    map: "Schema | None" = None
    list: "Schema | None" = None
    kind: str = "atomic"
    keys: tuple[str, ...] = ()
    patch: str | None = None
    merge_key: str | None = None
    default: Any = None
    always: bool = False


ANY = Schema(type="any")


class Subresource(msgspec.Struct, frozen=True):
    """A part of an object with a URL of its own."""

    kind: str
    verbs: tuple[str, ...] = ()


class KindInfo(msgspec.Struct, frozen=True, rename="camel", dict=True):
    """Everything that is known of a kind without looking at an object of it."""

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    list_kind: str = ""
    verbs: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: dict[str, Subresource] = {}
    selectable: tuple[str, ...] = ()
    type: str = ""
    built_in: bool = True

    @property
    def resource(self) -> Resource:
        return Resource(self.group, self.version, self.plural, self.kind, self.namespaced)

    @property
    def kind_of_lists(self) -> str:
        return self.list_kind or f"{self.kind}List"

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def head(self) -> bytes:
        """How an encoded object of this kind begins."""
        return b'{"kind":"%s","apiVersion":"%s",' % (self.kind.encode(), self.api_version.encode())

    @cached_property
    def head_of_lists(self) -> bytes:
        kind, version = self.kind_of_lists.encode(), self.api_version.encode()
        return b'{"kind":"%s","apiVersion":"%s","metadata":' % (kind, version)

    @cached_property
    def storage(self) -> str:
        """Where its objects are kept: all versions of a kind are the same objects."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


class _Facts(msgspec.Struct, frozen=True):
    kubernetes: str
    resources: tuple[KindInfo, ...]
    types: dict[str, Schema]


@lru_cache(maxsize=1)
def facts() -> _Facts:
    """The built-in kinds; read once, never changed."""
    data = resources.files(__package__).joinpath("facts.json").read_bytes()
    return msgspec.json.decode(data, type=_Facts)


@lru_cache(maxsize=1)
def built_in_groups() -> frozenset[str]:
    return frozenset(info.group for info in facts().resources)


class Types(Mapping[str, Schema]):
    """Named types: the built-in ones, and those of custom resources beside them."""

    def __init__(self) -> None:
        self._types = dict(facts().types)

    def __getitem__(self, name: str) -> Schema:
        return self._types[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def __len__(self) -> int:
        return len(self._types)

    def add(self, name: str, schema: Schema) -> None:
        self._types[name] = schema

    def remove(self, name: str) -> None:
        self._types.pop(name, None)

    def named(self, name: str) -> Schema:
        """A type that nobody described merges as plain JSON."""
        return self._types.get(name, ANY)

    def resolve(self, schema: Schema) -> Schema:
        """Follows a reference."""
        while schema.ref is not None:
            schema = self._types.get(schema.ref, ANY)
        return schema

    def child(self, schema: Schema, field: str) -> Schema:
        """The schema of a field of an object, resolved."""
        schema = self.resolve(schema)
        if schema.fields is not None:
            return self.resolve(schema.fields.get(field, ANY))
        return self.resolve(schema.map) if schema.map is not None else ANY


class Kinds:
    """All kinds that are served at the moment."""

    def __init__(self) -> None:
        self.types = Types()
        self.paths: dict[str, Any] = {}
        """What ``requests.route`` has found paths to mean, until a kind comes or goes."""
        self.shapes: dict[str, Any] = {}
        """What ``shapes.shape_of_kind`` has made of types, as long."""
        self._kinds: dict[tuple[str, str, str], KindInfo] = {}
        for info in facts().resources:
            self.add(info)

    def __iter__(self) -> Iterator[KindInfo]:
        return iter(self._kinds.values())

    def add(self, info: KindInfo, schema: Schema | None = None) -> None:
        self._kinds[info.group, info.version, info.plural] = info
        self._forget()
        if schema is not None:
            self.types.add(info.type, schema)

    def remove(self, info: KindInfo) -> None:
        self._kinds.pop((info.group, info.version, info.plural), None)
        self.types.remove(info.type)
        self._forget()

    def _forget(self) -> None:
        self.paths.clear()
        self.shapes.clear()

    def find(self, group: str, version: str, plural: str) -> KindInfo | None:
        return self._kinds.get((group, version, plural))

    def of_kind(self, group: str, kind: str) -> Iterable[KindInfo]:
        return (k for k in self._kinds.values() if (k.group, k.kind) == (group, kind))

    def schema(self, info: KindInfo) -> Schema:
        return self.types.named(info.type)


_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?\Z")
_STAGES = {None: 0, "beta": 1, "alpha": 2}


def version_priority(name: str) -> tuple[Any, ...]:
    """Sorts the versions of a group with the one that clients should prefer first."""
    match = _VERSION.match(name)
    if match is None:
        return (1, name)
    major, stage, minor = match.groups()
    return (0, _STAGES[stage], -int(major), -int(minor or 0))


Object = dict[str, Any]
"""A stored object. Never modified in place: whoever changes one copies the path to the change."""

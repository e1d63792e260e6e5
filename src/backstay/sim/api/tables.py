"""Other views of objects: tables, as ``kubectl get`` asks for them, and bare metadata.

A client says in ``Accept`` how it wants to see what it reads. A table has the columns of its kind
(``columns``, or those that a custom resource's definition names) and one row per object, with
the object, its metadata or nothing beside the cells. A watch sends tables of one row, and says
only in the first of them what the columns are.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Any

import msgspec

from backstay.seam.clock import WallClock
from backstay.seam.serve import Answer, Inbound
from backstay.sim.api import columns, custom, jsonpath
from backstay.sim.api.columns import Column
from backstay.sim.api.kinds import KindInfo, Object
from backstay.sim.api.reading import Page, Watcher
from backstay.sim.api.requests import Query
from backstay.sim.api.rules import KindRules
from backstay.sim.api.status import Refusal, bad_request
from backstay.sim.api.store import Stored

Json = Mapping[str, Any]

_META = "meta.k8s.io/v1"
_JSON = {"content-type": "application/json"}
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_sorted = msgspec.json.Encoder(order="deterministic").encode

_PLAIN = frozenset({"application/json", "application/*", "*/*", "application/yaml"})
_VIEWS = frozenset({"Table", "PartialObjectMetadata", "PartialObjectMetadataList"})
_INCLUDES = ("", "Metadata", "Object", "None")

_CUSTOM_AGE = msgspec.structs.replace(columns.AGE, type="date")

_ENDED = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}


def view_of(inbound: Inbound) -> str:
    """How the client wants to see what it reads: a name from ``_VIEWS``, or empty for as it is.
    Raises a ``Refusal`` (406)."""
    accept = inbound.headers.get("accept", "")
    if accept in ("", "application/json"):
        return ""
    for each in accept.split(","):
        media, *parameters = (part.strip() for part in each.split(";"))
        said = dict(part.split("=", 1) for part in parameters if "=" in part)
        if media not in _PLAIN:
            continue
        if "as" not in said:
            return ""
        is_meta = said.get("g") == "meta.k8s.io" and said.get("v") in ("v1", "v1beta1")
        if is_meta and said["as"] in _VIEWS:
            return said["as"]
    raise Refusal(
        406, "NotAcceptable", "only the following media types are accepted: application/json, "
        "application/yaml, application/vnd.kubernetes.protobuf",
    )  # fmt: skip


class Views:
    """Makes them."""

    def __init__(self, rules: Callable[[KindInfo], KindRules], wall: WallClock) -> None:
        self._rules = rules
        self._wall = wall

    def one(self, info: KindInfo, stored: Stored, view: str, query: Query) -> Answer:
        if view == "Table":
            meta = {"resourceVersion": stored.object["metadata"].get("resourceVersion", "")}
            return _answer(self._table(info, [stored.object], meta, _included(query)))
        if view == "PartialObjectMetadataList":
            raise _not_one(info)
        return _answer(_bare(stored.object))

    def page(self, info: KindInfo, page: Page, view: str, query: Query) -> Answer:
        meta: Object = {"resourceVersion": str(page.version)}
        if page.token:
            meta["continue"] = page.token
            if page.remaining:
                meta["remainingItemCount"] = page.remaining
        objects = [stored.object for stored in page.items]
        if view == "Table":
            return _answer(self._table(info, objects, meta, _included(query)))
        if view == "PartialObjectMetadata":
            raise _not_many(info)
        items = [_bare(obj) for obj in objects]
        return _answer({"kind": "PartialObjectMetadataList", "apiVersion": _META,
                        "metadata": meta, "items": items})  # fmt: skip

    def watch(
        self, info: KindInfo, plain: Watcher, view: str, query: Query
    ) -> AsyncIterator[bytes]:
        include = _included(query) if view == "Table" else ""
        return self._lines(info, plain, view, include)

    async def _lines(
        self, info: KindInfo, plain: Watcher, view: str, include: str
    ) -> AsyncIterator[bytes]:
        headers = True
        # Whoever closes this one must close the other one too, or it would follow for ever.
        async with aclosing(plain) as lines:
            async for chunk in lines:
                made = []
                for line in chunk.splitlines():
                    event = _decode(line)
                    if event["type"] != "ERROR" and view == "Table":
                        obj = event["object"]
                        meta = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
                        event["object"] = self._table(info, [obj], meta, include, headers=headers)
                        headers = False
                    elif event["type"] != "ERROR":
                        event["object"] = _bare(event["object"])
                    made.append(_encode(event) + b"\n")
                yield b"".join(made)

    def _table(
        self, info: KindInfo, objects: list[Object], meta: Object, include: str,
        *, headers: bool = True,
    ) -> Object:  # fmt: skip
        shown = self._columns(info)
        now = self._wall.now()
        return {
            "kind": "Table",
            "apiVersion": _META,
            "metadata": meta,
            "columnDefinitions": [_definition(column) for column in shown] if headers else None,
            "rows": [self._row(info, shown, obj, now, include) for obj in objects],
        }

    def _columns(self, info: KindInfo) -> tuple[Column, ...]:
        if info.built_in:
            return columns.COLUMNS.get(info.storage, columns.DEFAULT)
        rules = self._rules(info)
        assert isinstance(rules, custom.CustomResources)
        if not rules.columns:
            return (columns.NAME, _CUSTOM_AGE)
        return (columns.NAME, *map(_custom, rules.columns))

    def _row(
        self, info: KindInfo, shown: tuple[Column, ...], obj: Object, now: datetime, include: str
    ) -> Object:
        row: Object = {"cells": [column.cell(obj, now) for column in shown]}
        phase = (obj.get("status") or {}).get("phase") if info.storage == "pods" else None
        if phase in _ENDED:
            row["conditions"] = [{"type": "Completed", "status": "True", "reason": phase,
                                  "message": _ENDED[phase]}]  # fmt: skip
        if include == "None":
            row["object"] = None
        elif include == "Object":
            row["object"] = {"kind": info.kind, "apiVersion": info.api_version, **obj}
        else:
            row["object"] = _bare(obj)
        return row


def _answer(body: Object) -> Answer:
    return Answer(headers=_JSON, body=_encode(body))


def _bare(obj: Json) -> Object:
    meta = {k: v for k, v in obj["metadata"].items() if v is not None}
    return {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": meta}


def _included(query: Query) -> str:
    include = query.text("includeObject")
    if include not in _INCLUDES:
        raise bad_request(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{include}": '
            "must be 'Metadata', 'Object', 'None', or empty"
        )
    return include


def _definition(column: Column) -> Object:
    return {"name": column.name, "type": column.type, "format": column.format, "description": "",
            "priority": column.priority}  # fmt: skip


def _custom(column: custom.Column) -> Column:
    def cell(obj: Json, now: datetime) -> Any:
        try:
            found = jsonpath.find(column.json_path, obj)
        except jsonpath.PathError:
            return None
        return _converted(column.type, found[0], now) if found else None

    return Column(column.name, cell, column.type, column.format, column.priority)


def _converted(kind: str, value: Any, now: datetime) -> Any:
    """A value as a column of this type shows it; None if it is not of that type."""
    match kind:
        case "integer":
            return int(value) if type(value) in (int, float) else None
        case "number":
            return value if type(value) in (int, float) else None
        case "boolean":
            return value if type(value) is bool else None
        case "date":
            return _date(value, now)
    return _text(value)


def _date(value: Any, now: datetime) -> str | None:
    if type(value) is not str:
        return None
    try:
        return columns.since(value, now)
    except ValueError:
        return "<invalid>"


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    return "<no value>" if value is None else _sorted(value).decode()


def _not_one(info: KindInfo) -> Refusal:
    return Refusal(
        406, "NotAcceptable",
        f"you requested PartialObjectMetadataList, but the requested object is not a list "
        f"({info.kind})",
    )  # fmt: skip


def _not_many(info: KindInfo) -> Refusal:
    return Refusal(
        406, "NotAcceptable",
        f"you requested PartialObjectMetadata, but the requested object is a list "
        f"({info.kind_of_lists})",
    )  # fmt: skip

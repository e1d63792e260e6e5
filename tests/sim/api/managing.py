"""Writes of one manager or another, and what each owns afterwards."""

from typing import Any

import pytest

from backstay.sim.api.fieldsets import EMPTY, FieldSet
from backstay.sim.api.kinds import ANY, Kinds, Object, Schema
from backstay.sim.api.managed import apply, track_update
from backstay.sim.api.shapes import shape_of
from backstay.sim.api.status import Refusal

KINDS = Kinds()


def schema_of(plural: str) -> Schema:
    return KINDS.schema(next(info for info in KINDS if info.plural == plural))


CONFIG_MAP = schema_of("configmaps")
POD = schema_of("pods")
NODE = schema_of("nodes")
CUSTOM = Schema(fields={"metadata": Schema(ref="apis.meta.v1.ObjectMeta"), "spec": ANY})


def at(second: int) -> str:
    return f"2024-01-01T00:00:{second:02d}Z"


def updated(
    before: Object | None,
    after: Object,
    manager: str = "ann",
    *,
    schema: Schema = CONFIG_MAP,
    now: int = 1,
    subresource: str = "",
    reset: FieldSet = EMPTY,
) -> Object:
    return track_update(
        before, after, manager=manager, operation="Update", api_version="v1", now=at(now),
        subresource=subresource, shape=shape_of(schema, KINDS.types), reset=reset,
    )  # fmt: skip


def applied(
    live: Object | None,
    config: Object,
    manager: str = "ann",
    *,
    schema: Schema = CONFIG_MAP,
    now: int = 1,
    force: bool = False,
    reset: FieldSet = EMPTY,
    kind: str = "ConfigMap",
) -> Object:
    return apply(
        live, config, manager=manager, force=force, subresource="", api_version="v1",
        now=at(now), shape=shape_of(schema, KINDS.types), kind=kind, reset=reset,
    )  # fmt: skip


def made(**fields: Any) -> Object:
    return {"metadata": {"name": "x", **fields.pop("metadata", {})}, **fields}


def owned(obj: Object) -> dict[str, FieldSet]:
    """What each owns, by name and, for those who apply, operation."""
    entries = obj["metadata"].get("managedFields", [])
    return {
        entry["manager"] + (" applied" if entry["operation"] == "Apply" else ""): entry["fieldsV1"]
        for entry in entries
    }


def times(obj: Object) -> dict[str, str | None]:
    return {e["manager"]: e.get("time") for e in obj["metadata"].get("managedFields", [])}


def refused(*args: Any, **more: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        applied(*args, **more)
    return caught.value

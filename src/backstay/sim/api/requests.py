"""Requests: what a path, a query and a body ask for."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec

from backstay.seam.serve import Inbound
from backstay.sim.api.kinds import KindInfo, Kinds
from backstay.sim.api.status import (
    Cause,
    Refusal,
    bad_request,
    invalid_options,
    no_such_resource,
    not_found,
    nothing_there,
    unsupported_media,
)

MAX_BODY = 3 * 1024 * 1024
_MOST_PATHS = 4096

JSON = "application/json"
YAML = "application/yaml"


class Target(msgspec.Struct, frozen=True):
    """What is addressed. ``name`` is empty for a collection, ``namespace`` for all of them."""

    info: KindInfo
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)


def route(kinds: Kinds, path: str) -> Target:
    """The target of a resource path. Raises a ``Refusal`` (404)."""
    known: Target | None = kinds.paths.get(path)
    if known is None:
        known = _routed(kinds, path)
        if len(kinds.paths) >= _MOST_PATHS:
            kinds.paths.clear()
        kinds.paths[path] = known
    return known


def _routed(kinds: Kinds, path: str) -> Target:
    parts = _parts(path)
    if parts[0] == "api" and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise nothing_there(None)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3:
        inside = kinds.find(group, version, rest[2])
        if inside is not None:
            namespace, rest = rest[1], rest[2:]
    info = kinds.find(group, version, rest[0])
    if info is None or len(rest) > 3 or (namespace and not info.namespaced):
        raise nothing_there(group)
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource and subresource not in info.subresources:
        raise no_such_resource() if info.built_in else not_found(info, name)
    if name and info.namespaced and not namespace:
        raise nothing_there(group)
    return Target(info, namespace, name, subresource)


def _parts(path: str) -> tuple[str, ...]:
    parts = path.strip("/").split("/")
    return tuple(map(unquote, parts) if "%" in path else parts)


class Query:
    """A query string; the first value of a name counts, as in the server."""

    def __init__(self, text: str) -> None:
        self._values: dict[str, str] = {}
        for name, value in parse_qsl(text, keep_blank_values=True):
            self._values.setdefault(name, value)
        self.is_watch = self.flag("watch")

    def text(self, name: str) -> str:
        return self._values.get(name, "")

    def flag(self, name: str) -> bool:
        return self._values.get(name, "").lower() in ("true", "1", "t")

    def number(self, name: str) -> int | None:
        value = self._values.get(name)
        if not value:
            return None
        if not value.lstrip("-").isdecimal():
            raise bad_request(f'strconv.ParseInt: parsing "{value}": invalid syntax')
        return int(value)

    def version(self, *, listing: bool = True) -> int | None:
        """None when not given; ``0`` is a value."""
        value = self._values.get("resourceVersion")
        if not value:
            return None
        if not value.isdecimal():
            why = (
                f'resourceVersion: Invalid value: "{value}": strconv.ParseUint: parsing "{value}": '
                "invalid syntax"
            )
            # Only a list looks at it before the storage does.
            if self.is_watch or not listing:
                raise Refusal(500, "", why)
            raise bad_request(f"invalid resource version: {why}")
        return int(value)

    def dry_run(self, options: str) -> bool:
        """``options`` is the kind of options that this is a part of, for the refusal."""
        value = self._values.get("dryRun")
        if value in (None, ""):
            return False
        if value != "All":
            why = f'Unsupported value: ["{value}"]: supported values: "All"'
            raise invalid_options(options, Cause("FieldValueNotSupported", why, "dryRun"))
        return True


@lru_cache(maxsize=1024)
def query_of(text: str) -> Query:
    """Read once, because whoever polls asks the same again and again."""
    return Query(text)


def media_type(inbound: Inbound) -> str:
    return _media_type(inbound.headers.get("content-type", JSON))


@lru_cache(maxsize=64)
def _media_type(said: str) -> str:
    return said.partition(";")[0].strip().lower()


def decode(inbound: Inbound) -> Any:
    """The body of a request as JSON values. Raises a ``Refusal``."""
    if len(inbound.body) > MAX_BODY:
        raise Refusal(
            413, "RequestEntityTooLarge",
            f"Request entity too large: limit is {MAX_BODY}",
        )  # fmt: skip
    kind = media_type(inbound)
    if kind not in (JSON, YAML, "application/apply-patch+yaml") and not kind.endswith("+json"):
        raise unsupported_media([JSON, YAML, "application/vnd.kubernetes.protobuf"])
    try:
        if kind in (YAML, "application/apply-patch+yaml") and inbound.body[:1] != b"{":
            return msgspec.yaml.decode(inbound.body)
        return msgspec.json.decode(inbound.body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NotDecodable(inbound.body, error) from None


class NotDecodable(Refusal):
    """A body that is no JSON. ``why`` is Go's word for it; whoever asked says what it was for."""

    def __init__(self, body: bytes, error: Exception) -> None:
        self.why = complaint(body, error)
        super().__init__(400, "BadRequest", f"error decoding YAML: {error}")


_COMPLAINTS = {
    "Expecting value": "looking for beginning of value",
    "Expecting property name enclosed in double quotes": "looking for beginning of object key "
    "string",
    "Expecting ':' delimiter": "after object key",
    "Expecting ',' delimiter": "after object key:value pair",
    "Extra data": "after top-level value",
}
_SHOWN = 30
_LITERALS = {"n": "null", "t": "true", "f": "false"}


def shown(body: bytes) -> str:
    """The beginning of a body, as the server quotes it: as text only where it may be JSON."""
    if not body:
        return "<empty>"
    text = body[:_SHOWN].decode(errors="replace") if body[:1] == b"{" else body[:_SHOWN].hex()
    return text if len(body) <= _SHOWN else f"{text} ..."


def complaint(body: bytes, otherwise: Exception) -> str:
    """What Go says of a body that is no JSON."""
    text = body.decode(errors="replace")
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated"):
            return "unexpected end of JSON input"
        return _at_character(text, error.pos, _COMPLAINTS.get(error.msg, "in string literal"))
    return str(otherwise)


def _at_character(text: str, position: int, complaint: str) -> str:
    literal = _LITERALS.get(text[position], "") if complaint.endswith("of value") else ""
    for offset, expected in enumerate(literal):
        found = text[position + offset : position + offset + 1]
        if not found:
            return "unexpected end of JSON input"
        if found != expected:
            return f"invalid character '{found}' in literal {literal} (expecting '{expected}')"
    return f"invalid character '{text[position]}' {complaint}"


def field_manager(query: Query, headers: Mapping[str, str], options: str) -> str:
    """The manager that a write is recorded under: as said, or else the user agent's program."""
    named = query.text("fieldManager")
    if named:
        if len(named) > 128:
            why = "Too long: may not be more than 128 bytes"
            raise invalid_options(options, Cause("FieldValueTooLong", why, "fieldManager"))
        return named
    agent = headers.get("user-agent", "")
    return agent.split("/")[0][:128] or "unknown"

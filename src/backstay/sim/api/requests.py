"""Requests: what a path, a query and a body ask for."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec

from backstay.seam.serve import Inbound
from backstay.sim.api.kinds import KindInfo, Kinds
from backstay.sim.api.status import Refusal, bad_request, no_such_resource, unsupported_media

MAX_BODY = 3 * 1024 * 1024

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
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise no_such_resource()
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3:
        inside = kinds.find(group, version, rest[2])
        if inside is not None:
            namespace, rest = rest[1], rest[2:]
    info = kinds.find(group, version, rest[0])
    if info is None or len(rest) > 3 or (namespace and not info.namespaced):
        raise no_such_resource()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource and subresource not in info.subresources:
        raise no_such_resource()
    if name and info.namespaced and not namespace:
        raise no_such_resource()
    return Target(info, namespace, name, subresource)


class Query:
    """A query string; the first value of a name counts, as in the server."""

    def __init__(self, text: str) -> None:
        self._values: dict[str, str] = {}
        for name, value in parse_qsl(text, keep_blank_values=True):
            self._values.setdefault(name, value)

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

    def version(self, name: str = "resourceVersion") -> int | None:
        """None when not given; ``0`` is a value."""
        value = self._values.get(name)
        if not value:
            return None
        if not value.isdecimal():
            raise bad_request(
                f'invalid resource version: resourceVersion: Invalid value: "{value}": '
                f'strconv.ParseUint: parsing "{value}": invalid syntax'
            )
        return int(value)

    @property
    def dry_run(self) -> bool:
        value = self._values.get("dryRun")
        if value in (None, ""):
            return False
        if value != "All":
            message = f'Invalid value: "{value}": must be specified as "All"'
            raise Refusal(422, "Invalid", f' "" is invalid: dryRun: {message}', details={})
        return True


def media_type(inbound: Inbound) -> str:
    return inbound.headers.get("content-type", JSON).partition(";")[0].strip().lower()


def decode(inbound: Inbound) -> Any:
    """The body of a request as JSON values. Raises a ``Refusal``."""
    if len(inbound.body) > MAX_BODY:
        raise Refusal(
            413, "RequestEntityTooLarge",
            f"Request entity too large: limit is {MAX_BODY}", details={},
        )  # fmt: skip
    kind = media_type(inbound)
    if kind not in (JSON, YAML, "application/apply-patch+yaml") and not kind.endswith("+json"):
        raise unsupported_media([JSON, YAML])
    try:
        if kind in (YAML, "application/apply-patch+yaml") and inbound.body[:1] != b"{":
            return msgspec.yaml.decode(inbound.body)
        return msgspec.json.decode(inbound.body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise bad_request(f"error decoding JSON: {error}") from None


def field_manager(query: Query, headers: Mapping[str, str]) -> str:
    """The manager that a write is recorded under: as said, or else the user agent's program."""
    named = query.text("fieldManager")
    if named:
        if len(named) > 128:
            raise bad_request("fieldManager must be no more than 128 characters")
        return named
    agent = headers.get("user-agent", "")
    return agent.split("/")[0][:128] or "unknown"

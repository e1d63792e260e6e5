"""Calls and replies: what is asked of the API and what comes back, as values.

A ``Call`` does not know yet which address and which identity will serve it; ``client.py``
decides that. A ``Reply`` is handed out undecoded, because most writes need only to know that
they worked, and decoding a 9 KB pod into Python objects costs more than sending the request.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypedDict, TypeVar, cast

import msgspec

from backstay.kube.errors import UNREADABLE, Json, Undecodable
from backstay.kube.resource import Resource

T = TypeVar("T")

TIMEOUT = 10.0

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class WriteOptions(TypedDict, total=False):
    """What every write takes.

    ``timeout`` is the deadline in seconds from the call; ``not_after`` is the ``loop.time()``
    after which not one byte of it may leave; ``manager`` is recorded as the field manager.
    """

    dry_run: bool
    manager: str
    timeout: float
    not_after: float | None


class Preconditions(TypedDict, total=False):
    """What must still hold for a deletion to happen, and how it happens."""

    uid: str | None
    resource_version: str | None
    grace: int | None
    propagation: str | None


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request to the API."""

    method: str
    path: str
    resource: Resource | None = None
    query: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    content_type: str = JSON
    accept: str = JSON
    timeout: float = TIMEOUT
    not_after: float | None = None

    @property
    def name(self) -> str:
        """For sentences. The query stays out: it may be long."""
        return f"{self.method} {self.path}"

    @property
    def repeatable(self) -> bool:
        return self.method == "GET"


class Reply(msgspec.Struct, frozen=True):
    """A successful answer, still as bytes."""

    body: bytes
    answered: Call

    @property
    def call(self) -> str:
        """The name of what was asked for, for sentences."""
        return self.answered.name

    def json(self) -> Json:
        return self.into(dict)

    def into(self, kind: type[T]) -> T:
        try:
            answer: T = decoder(cast(Any, kind)).decode(self.body)
        except UNREADABLE as error:
            raise Undecodable(
                f"{self.call}: the answer is not what was asked for ({error})"
            ) from None
        return answer


@lru_cache(maxsize=256)
def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


# Whoever polls asks for the same again and again.
@lru_cache(maxsize=1024)
def query(**parameters: str | int | None) -> tuple[tuple[str, str], ...]:
    """Query parameters without those that are None; ``_continue`` stands for ``continue``."""
    return tuple(
        (key.lstrip("_"), str(value)) for key, value in parameters.items() if value is not None
    )


def write(
    method: str,
    resource: Resource,
    path: str,
    body: object,
    *,
    content_type: str = JSON,
    extra: tuple[tuple[str, str], ...] = (),
    dry_run: bool = False,
    manager: str | None = None,
    timeout: float = TIMEOUT,
    not_after: float | None = None,
) -> Call:
    """A call that changes something. See ``WriteOptions``."""
    if manager is not None or dry_run:
        extra = query(fieldManager=manager, dryRun="All" if dry_run else None) + extra
    return Call(
        method=method,
        path=path,
        resource=resource,
        query=extra,
        body=msgspec.json.encode(body),
        content_type=content_type,
        timeout=timeout,
        not_after=not_after,
    )


def delete_options(
    conditions: Preconditions | None, *, dry_run: bool = False
) -> Mapping[str, object]:
    """The body of a deletion. A server that is given one looks nowhere else for options, so a
    dry run has to stand here: one that is asked for in the query deletes in earnest."""
    conditions = conditions or {}
    options: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    preconditions = {
        "uid": conditions.get("uid"),
        "resourceVersion": conditions.get("resource_version"),
    }
    given = {key: value for key, value in preconditions.items() if value is not None}
    if given:
        options["preconditions"] = given
    if (grace := conditions.get("grace")) is not None:
        options["gracePeriodSeconds"] = grace
    if (propagation := conditions.get("propagation")) is not None:
        options["propagationPolicy"] = propagation
    if dry_run:
        options["dryRun"] = ["All"]
    return options

"""A Kubernetes API in memory that knows leases and nothing else.

``LeaseStore`` is a seam ``Handler``, so it answers in a simulated network and over real sockets
alike. What it answers is what a kube-apiserver answers, refusals word for word:
``lease_contract.py`` holds both to it. Left out, because no elector uses them: PUT, patches other
than merge patches, paging, preconditions of a DELETE, ``managedFields``.

``lease``, ``create``, ``edit``, ``delete`` and ``roll_back`` are the hands of a person at the same
API.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

import msgspec

from backstay.kube.errors import Json
from backstay.seam.serve import Answer, Inbound

_PATH = re.compile(r"/apis/coordination\.k8s\.io/v1/namespaces/([^/]+)/leases(?:/([^/]+))?")
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_TYPE = {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1"}
_BOOKMARK_EVERY = 60.0
_FIRST_VERSION = 100

Key = tuple[str, str]
"""Namespace and name."""


class Refused(Exception):
    """An answer that is not success."""

    def __init__(self, code: int, reason: str, message: str, **details: object) -> None:
        super().__init__(message)
        self.code = code
        self.body = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            **({"details": details} if details else {}),
            "code": code,
        }


@dataclass(frozen=True)
class _Event:
    version: int
    kind: str
    key: Key
    lease: Json


class LeaseStore:
    """See the module. ``forbidden`` holds the verbs that the caller has no permission for."""

    def __init__(self, *namespaces: str) -> None:
        self.forbidden: set[str] = set()
        self.namespaces = {"default", *namespaces}
        self._leases: dict[Key, Json] = {}
        self._events: list[_Event] = []
        self._version = _FIRST_VERSION
        self._born = 0
        self.backups = 0
        """How often it was restored."""
        self._news = asyncio.Event()

    async def __call__(self, inbound: Inbound) -> Answer:
        try:
            return self._answer(inbound)
        except Refused as refusal:
            return _json(refusal.code, refusal.body)

    # By hand

    def lease(self, name: str, *, namespace: str = "default") -> Json:
        return self._get((namespace, name))

    def create(self, name: str, spec: Json, *, namespace: str = "default") -> Json:
        return self._create(namespace, {"metadata": {"name": name}, "spec": spec})

    def edit(self, name: str, patch: Json, *, namespace: str = "default") -> Json:
        return self._patch((namespace, name), patch)

    def delete(self, name: str, *, namespace: str = "default") -> None:
        self._delete((namespace, name))

    def roll_back(self, versions: int) -> None:
        """As when etcd is restored from a backup: the last changes never were."""
        self.backups += 1
        kept = self._events[: len(self._events) - versions]
        self._events, self._leases, self._version = [], {}, _FIRST_VERSION
        for event in kept:
            self._commit(event.kind, event.key, event.lease)
            if event.kind == "DELETED":
                del self._leases[event.key]

    # Over HTTP

    def _answer(self, inbound: Inbound) -> Answer:
        found = _PATH.fullmatch(inbound.path)
        if found is None:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        namespace, name = found.group(1), found.group(2) or ""
        query = {key: values[-1] for key, values in parse_qs(inbound.query).items()}
        verb = _verb(inbound.method, name, query)
        if verb in self.forbidden:
            # Who selects one name is taken to ask for that one.
            raise _forbidden(verb, namespace, name or _selected_name(query) or "")
        key = (namespace, name)
        match verb:
            case "get":
                return _json(200, self._get(key))
            case "create":
                return _json(201, self._create(namespace, msgspec.json.decode(inbound.body)))
            case "patch":
                return _json(200, self._patch(key, msgspec.json.decode(inbound.body)))
            case "delete":
                return _json(200, self._delete(key))
            case "list":
                return _json(200, self._list(namespace, _selected_name(query)))
            case _:
                return Answer(
                    headers={"Content-Type": "application/json"},
                    body=self._watch(namespace, _selected_name(query), query),
                )

    def _get(self, key: Key) -> Json:
        if key not in self._leases:
            raise _refused(404, "NotFound", key[1], f"{_named(key[1])} not found")
        return self._leases[key]

    def _create(self, namespace: str, lease: Json) -> Json:
        if namespace not in self.namespaces:
            raise Refused(
                404, "NotFound", f'namespaces "{namespace}" not found',
                name=namespace, kind="namespaces",
            )  # fmt: skip
        name = lease["metadata"]["name"]
        key = (namespace, name)
        if key in self._leases:
            raise _refused(409, "AlreadyExists", name, f"{_named(name)} already exists")
        _validate(name, lease)
        self._born += 1
        born = {
            "namespace": namespace,
            "uid": f"00000000-0000-4000-8000-{self._born:012d}",
            "creationTimestamp": "2030-01-01T00:00:00Z",
        }
        return self._commit("ADDED", key, {**lease, "metadata": lease["metadata"] | born})

    def _patch(self, key: Key, patch: Json) -> Json:
        old = self._get(key)
        new = _merge(old, patch)
        was, now = old["metadata"], new["metadata"]
        if now["resourceVersion"] != was["resourceVersion"]:
            raise _refused(
                409, "Conflict", key[1],
                f"Operation cannot be fulfilled on {_named(key[1])}: the object has been modified; "
                "please apply your changes to the latest version and try again",
            )  # fmt: skip
        if now["uid"] != was["uid"]:
            complaint = ("metadata.uid", f'Invalid value: "{now["uid"]}": field is immutable')
            raise _invalid(key[1], complaint, complaint)  # the real server says it twice
        _validate(key[1], new)
        # As on the real server, a write that changes nothing is no write.
        return old if new == old else self._commit("MODIFIED", key, new)

    def _delete(self, key: Key) -> Json:
        gone = self._get(key)
        self._commit("DELETED", key, gone)
        del self._leases[key]
        details = {"name": key[1], "group": "coordination.k8s.io", "kind": "leases"}
        return {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {**details, "uid": gone["metadata"]["uid"]},
        }  # fmt: skip

    def _commit(self, kind: str, key: Key, lease: Json) -> Json:
        self._version += 1
        meta = {**lease["metadata"], "resourceVersion": str(self._version)}
        self._leases[key] = {**_TYPE, **lease, "metadata": meta}
        self._events.append(_Event(self._version, kind, key, self._leases[key]))
        self._news.set()
        self._news = asyncio.Event()
        return self._leases[key]

    def _list(self, namespace: str, name: str | None) -> Json:
        return {
            "kind": "LeaseList",
            "apiVersion": "coordination.k8s.io/v1",
            "metadata": {"resourceVersion": str(self._version)},
            "items": self._select(namespace, name),
        }

    def _select(self, namespace: str, name: str | None) -> list[Json]:
        return [self._leases[key] for key in sorted(self._leases) if _matches(key, namespace, name)]

    def _watch(
        self, namespace: str, name: str | None, query: dict[str, str]
    ) -> AsyncIterator[bytes]:
        initial = query.get("sendInitialEvents") == "true"
        if initial and query.get("resourceVersionMatch") != "NotOlderThan":
            raise _unmatched()
        since = query.get("resourceVersion", "")
        first = [] if since else self._select(namespace, name)
        return self._stream(
            (namespace, name),
            [_line("ADDED", lease) for lease in first]
            + ([_bookmark(self._version, complete=True)] if initial else []),
            since=int(since) if since else self._version,
            seconds=float(query.get("timeoutSeconds", "1800")),
        )

    async def _stream(
        self, selector: tuple[str, str | None], first: list[bytes], *, since: int, seconds: float
    ) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + seconds
        for line in first:
            yield line
        while True:
            news = self._news
            # Every commit is one event and one version, so that a version is a place in the list.
            for event in self._events[max(0, since - _FIRST_VERSION) :]:
                since = event.version
                if _matches(event.key, *selector):
                    yield _line(event.kind, event.lease)
            if news is not self._news:
                continue
            try:
                async with asyncio.timeout_at(min(ends_at, loop.time() + _BOOKMARK_EVERY)):
                    await news.wait()
            except TimeoutError:
                if loop.time() >= ends_at:
                    return
                yield _bookmark(self._version)


def _verb(method: str, name: str, query: dict[str, str]) -> str:
    if method == "GET" and not name:
        return "watch" if query.get("watch") == "true" else "list"
    return {"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete"}[method]


def _selected_name(query: dict[str, str]) -> str | None:
    selector = query.get("fieldSelector")
    if selector is None:
        return None
    field, _, value = selector.partition("=")
    if field != "metadata.name":
        raise Refused(
            400, "BadRequest",
            f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"',
        )  # fmt: skip
    return value


def _matches(key: Key, namespace: str, name: str | None) -> bool:
    return key[0] == namespace and name in (None, key[1])


def _merge(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(old) if isinstance(old, dict) else {}
    for field, value in patch.items():
        if value is None:
            merged.pop(field, None)
        else:
            merged[field] = _merge(merged.get(field), value)
    return merged


def _validate(name: str, lease: Json) -> None:
    spec = lease.get("spec") or {}
    for field in ("acquireTime", "renewTime"):
        value = spec.get(field)
        if value is not None and not _MICRO_TIME.fullmatch(value):
            raise _unreadable(lease, value)
    if (seconds := spec.get("leaseDurationSeconds", 1)) <= 0:
        why = f"Invalid value: {seconds}: must be greater than 0"
        raise _invalid(name, ("spec.leaseDurationSeconds", why))
    if (transitions := spec.get("leaseTransitions", 0)) < 0:
        why = f"Invalid value: {transitions}: must be greater than or equal to 0"
        raise _invalid(name, ("spec.leaseTransitions", why))


def _named(name: str) -> str:
    return f'leases.coordination.k8s.io "{name}"'


def _refused(code: int, reason: str, name: str, message: str) -> Refused:
    return Refused(code, reason, message, name=name, group="coordination.k8s.io", kind="leases")


def _forbidden(verb: str, namespace: str, name: str) -> Refused:
    what = _named(name) if name else "leases.coordination.k8s.io"
    message = (
        f'{what} is forbidden: User "ordinary" cannot {verb} resource "leases" in API group '
        f'"coordination.k8s.io" in the namespace "{namespace}"'
    )
    details = {"name": name} if name else {}
    return Refused(403, "Forbidden", message, **details, group="coordination.k8s.io", kind="leases")


def _invalid(name: str, *complaints: tuple[str, str]) -> Refused:
    field, why = complaints[0]
    return Refused(
        422, "Invalid", f'Lease.coordination.k8s.io "{name}" is invalid: {field}: {why}',
        name=name, group="coordination.k8s.io", kind="Lease",
        causes=[
            {"reason": "FieldValueInvalid", "message": why, "field": field}
            for field, why in complaints
        ],
    )  # fmt: skip


def _unmatched() -> Refused:
    field = "resourceVersionMatch"
    why = f"Forbidden: sendInitialEvents requires setting {field} to NotOlderThan"
    return Refused(
        422, "Invalid", f'ListOptions.meta.k8s.io "" is invalid: {field}: {why}',
        group="meta.k8s.io", kind="ListOptions",
        causes=[{"reason": "FieldValueForbidden", "message": why, "field": field}],
    )  # fmt: skip


def _unreadable(lease: Json, moment: str) -> Refused:
    """A time without microseconds: the real server shows the whole object in its complaint."""
    why = (
        f"Invalid value: {msgspec.json.encode(msgspec.json.encode(lease).decode()).decode()}: "
        f'parsing time "{moment}" as "2006-01-02T15:04:05.000000Z07:00": '
        'cannot parse "Z" as ".000000"'
    )
    causes = [{"reason": "FieldValueInvalid", "message": why, "field": "patch"}]
    return Refused(422, "Invalid", f' "" is invalid: patch: {why}', causes=causes)


def _json(status: int, body: object) -> Answer:
    return Answer(
        status=status,
        headers={"Content-Type": "application/json"},
        body=msgspec.json.encode(body) + b"\n",
    )


def _line(kind: str, lease: Json) -> bytes:
    return msgspec.json.encode({"type": kind, "object": lease}) + b"\n"


def _bookmark(version: int, *, complete: bool = False) -> bytes:
    meta: Json = {"resourceVersion": str(version)}
    if complete:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    return _line("BOOKMARK", {**_TYPE, "metadata": meta, "spec": {}})

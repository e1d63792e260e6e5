"""Leases that answer properly until they are told to go silent.

``POST /silence/NAME`` is the one addition to the API: from its answer on, whatever concerns that
lease is accepted and never answered. The answer says when the last renewal that *was* answered had
arrived, on the machine's monotonic clock, which all processes share.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

_Watcher = Callable[[bytes], None]


class LeaseStore:
    """Each lease has one candidate, so there are no versions to compare."""

    def __init__(self) -> None:
        self._leases: dict[str, dict[str, Any]] = {}
        self._renewed_at: dict[str, float] = {}
        self._watchers: dict[str, list[_Watcher]] = {}
        self._silent: set[str] = set()
        self._version = 1

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: bytes
    ) -> tuple[int, bytes] | None:
        """Status and body, or None for silence."""
        sent = msgspec.json.decode(body) if body else {}
        name = _selected(query) or sent.get("metadata", {}).get("name") or path.rpartition("/")[2]
        if path.startswith("/silence/"):
            self._silent.add(name)
            return 200, msgspec.json.encode(self._renewed_at[name])
        if name in self._silent:
            return None
        if method == "GET":
            return self._list(name) if _selected(query) else self._get(name)
        self._renewed_at[name] = time.monotonic()
        return (201 if method == "POST" else 200), self._write(name, sent)

    def watch(self, query: Mapping[str, str], watcher: _Watcher) -> None:
        """``watcher`` gets a line for each change of the lease that the query selects."""
        self._watchers.setdefault(_selected(query), []).append(watcher)

    def _list(self, name: str) -> tuple[int, bytes]:
        items = [self._leases[name]] if name in self._leases else []
        meta = {"resourceVersion": str(self._version)}
        return 200, msgspec.json.encode({"kind": "LeaseList", "metadata": meta, "items": items})

    def _get(self, name: str) -> tuple[int, bytes]:
        if name in self._leases:
            return 200, msgspec.json.encode(self._leases[name])
        return 404, failure(404, "NotFound")

    def _write(self, name: str, sent: dict[str, Any]) -> bytes:
        """A create, a replacement or a merge patch: for the few fields of a lease, all the same."""
        kind = "MODIFIED" if name in self._leases else "ADDED"
        lease = self._leases.setdefault(name, {"metadata": {"uid": name}, "spec": {}})
        self._version += 1
        lease["spec"] |= sent["spec"]
        lease["metadata"] |= {**sent["metadata"], "resourceVersion": str(self._version)}
        line = msgspec.json.encode({"type": kind, "object": lease}) + b"\n"
        for watcher in self._watchers.get(name, ()):
            watcher(line)
        return msgspec.json.encode(lease)


def failure(code: int, reason: str) -> bytes:
    """An API server's refusal."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return msgspec.json.encode({**status, "reason": reason, "message": reason, "code": code})


def _selected(query: Mapping[str, str]) -> str:
    return query.get("fieldSelector", "").removeprefix("metadata.name=")

"""Timelines: what happened to a VM, its VMIs and their pods, one row for each change.

``recorded/`` has those of a real virt-controller 1.9.0 on a real control plane, taken once with
hollow nodes. A ``Recorder`` takes the same of whatever cluster it watches.

Two runs of the real one differ in who was faster by a millisecond, so rows are not compared one by
one. What is the same in all runs, and compared:

* for each object and each field of it, the values that it went through, in order;
* the order between objects where one thing follows from another (``milestones``).

Of a VMI's two finalizers the number is compared: two controllers take them off, and which of them
is first is nobody's promise.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from backstay.kube.client import KubeClient
from backstay.kube.resource import PODS, Resource
from backstay.seam.tasks import Tasks
from backstay.sim.kubevirt.names import VMIS, VMS
from backstay.sim.kubevirt.objects import condition_of

Json = dict[str, Any]
Histories = dict[str, dict[str, list[Any]]]

_FOLDER = Path(__file__).parent / "recorded"
_KINDS = {"VM": VMS, "VMI": VMIS, "Pod": PODS}
_IDLE = 60.0

_BEFORE: dict[str, Json] = {
    "VM": {"printableStatus": "Running", "created": True, "Ready": "True"},
    "VMI": {
        "phase": "Running",
        "finalizers": 2,
        "Ready": "True",
    },
    "Pod": {"phase": "Running"},
}
"""What the first object of each kind said before the first row: a VM that runs."""

_FIELDS: dict[str, Json] = {
    "VM": {"printableStatus": "", "created": False, "Ready": "", "asked": []},
    "VMI": {"phase": "", "finalizers": 0, "deleting": False, "Ready": ""},
    "Pod": {"phase": "", "going": ""},
}
"""The fields that are compared, and what it means that one is not there."""


@dataclass(frozen=True)
class Row:
    """One change; ``what`` is None when the object is gone."""

    kind: str
    uid: str
    what: Json | None


def recorded(name: str) -> list[Row]:
    """One of the timelines of the real KubeVirt."""
    return [row for row in map(_parsed, (_FOLDER / f"{name}.txt").read_text().splitlines()) if row]


def _parsed(line: str) -> Row | None:
    _, kind, uid, rest = line.split(maxsplit=3)
    if kind not in _KINDS:
        return None
    if rest == "GONE":
        return Row(kind, uid, None)
    what: Json = msgspec.json.decode(rest)
    ready = what.pop("conditions", {}).get("Ready", what.get("Ready", ""))
    asked = [each["action"] for each in what.pop("stateChangeRequests", ())]
    going = f"in {what['grace']} s" if "grace" in what else ""
    return Row(kind, uid, {**what, "Ready": ready.rstrip("/"), "asked": asked, "going": going})


@dataclass
class Recorder:
    """The changes of one namespace, in the order in which the API committed them."""

    client: KubeClient
    namespace: str
    _rows: dict[int, Row] = field(default_factory=dict)
    _first: int = 0

    @property
    def rows(self) -> list[Row]:
        return [row for version, row in sorted(self._rows.items()) if version > self._first]

    def begin(self) -> None:
        """Forgets what was, except for who there is."""
        self._first = max(self._rows, default=0)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with Tasks("recorder") as tasks:
            for kind, resource in _KINDS.items():
                listed = (await self.client.list(resource, namespace=self.namespace)).json()
                version = listed["metadata"]["resourceVersion"]
                tasks.spawn(self._record(kind, resource, version), name=kind)
            yield

    async def _record(self, kind: str, resource: Resource, version: str) -> None:
        watched = self.client.watch(resource, namespace=self.namespace, resource_version=version)
        async with watched as lines:
            while (got := await lines.read(_IDLE)) is not None:
                for line in got:
                    self._note(kind, msgspec.json.decode(line))

    def _note(self, kind: str, event: Json) -> None:
        if event["type"] == "BOOKMARK":
            return
        obj = event["object"]
        meta = obj["metadata"]
        what = None if event["type"] == "DELETED" else _SEEN[kind](obj)
        self._rows[int(meta["resourceVersion"])] = Row(kind, meta["uid"], what)


def _vm(obj: Json) -> Json:
    status = obj.get("status") or {}
    asked = [each["action"] for each in status.get("stateChangeRequests") or ()]
    return {**status, "Ready": _ready(obj), "asked": asked}


def _vmi(obj: Json) -> Json:
    meta, status = obj["metadata"], obj.get("status") or {}
    return {
        "deleting": "deletionTimestamp" in meta,
        "phase": status.get("phase", ""),
        "finalizers": [each.removeprefix("kubevirt.io/") for each in meta.get("finalizers") or ()],
        "node": status.get("nodeName", ""),
        "Ready": _ready(obj),
    }


def _pod(obj: Json) -> Json:
    grace = obj["metadata"].get("deletionGracePeriodSeconds")
    return {
        "going": "" if grace is None else f"in {grace} s",
        "phase": obj["status"]["phase"],
        "node": obj["spec"].get("nodeName", ""),
    }


def _ready(obj: Json) -> str:
    found = condition_of(obj, "Ready")
    if found is None:
        return ""
    reason = found.get("reason") or ""
    return f"{found['status']}/{reason}" if reason else str(found["status"])


_SEEN = {"VM": _vm, "VMI": _vmi, "Pod": _pod}


def histories(rows: Iterable[Row], *, passing: Iterable[tuple[str, str]] = ()) -> Histories:
    """For each object (``VMI 1`` is the first) and field, its values in order.

    ``passing`` are values of a kind that are there in some runs and not in others.
    """
    skipped = tuple(passing)
    found: Histories = {}
    for name, row in _named(rows):
        fields = found.setdefault(name, _beginning(name, row.kind))
        if row.what is None:
            fields["gone"] = [True]
            continue
        for key, values in fields.items():
            value = row.what.get(key) or _FIELDS[row.kind][key]
            value = len(value) if key == "finalizers" and value else value
            if values[-1:] != [value] and (row.kind, value) not in skipped:
                values.append(value)
    return found


def _beginning(name: str, kind: str) -> dict[str, list[Any]]:
    """Nothing is known of an object that is not there yet."""
    if not name.endswith(" 1"):
        return {key: [] for key in _FIELDS[kind]}
    return {key: [_BEFORE[kind].get(key, missing)] for key, missing in _FIELDS[kind].items()}


_TURNS = frozenset({"Scheduled", "Running", "Succeeded", "Failed"})


def milestones(rows: Iterable[Row]) -> list[str]:
    """What follows from what: beginnings and ends, and the phases that the rest hangs on."""
    found: list[str] = []
    for name, row in _named(rows):
        if row.what is None:
            found.append(f"{name} gone")
            continue
        said = [f"{name} there"] if not name.endswith(" 1") else []
        if row.kind == "Pod" and row.what["phase"] == "Running" and not row.what["going"]:
            said.append(f"{name} runs")
        if row.kind == "VMI" and row.what.get("phase") in _TURNS:
            said.append(f"{name} {row.what['phase']}")
        found += [each for each in said if each not in found]
    return [each for each in found if each not in ("Pod 1 runs", "VMI 1 Running")]


def _named(rows: Iterable[Row]) -> Iterator[tuple[str, Row]]:
    names: dict[str, str] = {}
    counts: dict[str, int] = {}
    for row in rows:
        if row.uid not in names:
            counts[row.kind] = counts.get(row.kind, 0) + 1
            names[row.uid] = f"{row.kind} {counts[row.kind]}"
        yield names[row.uid], row

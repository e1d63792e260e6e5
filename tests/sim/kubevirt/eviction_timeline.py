"""Timelines of evictions: those of a real virt-api and virt-controller, and those of the stand-in.

``recorded/evictions.txt`` is of six VMs on one node, of a strategy each: every launcher was evicted
as a dry run, then in earnest, and some again while they moved. It has what was answered, and what
became of each VM's VMIs, migrations and pods. As in ``timeline.py`` two runs differ in who was
faster by a millisecond, so what is compared is, for each object and each field of it, the values
that it went through, in order.

Nodes have other names in every run: a VMI is ``here`` until it is where its migration leads to.
That a guest which is told to go has *ended* is compared, and not how: whether its pod is gone
first, or the word of how it ended is there, is luck on a node that lives.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from backstay.kube.resource import PODS
from backstay.sim.api.store import Commit
from backstay.sim.kubevirt.names import MIGRATIONS, VMIS
from backstay.sim.kubevirt.objects import condition_of

Json = dict[str, Any]
Histories = dict[str, dict[str, list[Any]]]

_FILE = Path(__file__).parent / "recorded" / "evictions.txt"
_KINDS = {VMIS.label: "VMI", MIGRATIONS.label: "VMIM", PODS.label: "Pod"}
_FIELDS: dict[str, tuple[str, ...]] = {
    "VMI": ("phase", "where", "asked", "told", "moved", "deleting"),
    "VMIM": ("phase", "priority", "of"),
    "Pod": ("phase", "target", "deleting"),
}


_BEFORE: dict[str, Json] = {
    "VMI 1": {
        "phase": "Running", "where": "here", "asked": False, "told": False, "moved": False,
        "deleting": False,
    },
    "Pod 1": {"phase": "Running", "target": False, "deleting": False},
}  # fmt: skip
"""What the first of each kind was like before the first row."""


@dataclass(frozen=True)
class Row:
    """One change; ``what`` is None when the object is gone."""

    kind: str
    name: str
    what: Json | None


@dataclass(frozen=True)
class Recorded:
    """Of one VM: what was answered in its turn, and what became of it."""

    answers: list[str]
    rows: list[Row]


def recorded(vm: str) -> Recorded:
    answers: list[str] = []
    rows: list[Row] = []
    vmis = 1
    for line in _FILE.read_text().splitlines():
        _, kind, whose, rest = (*line.split(maxsplit=3), "")[:4]
        if whose != vm:
            continue
        if kind == "EVICT":
            answers.append(rest)
            continue
        gone = rest == "GONE"
        what: Json = {} if gone else msgspec.json.decode(rest)
        name = str(what.get("uid") or what.get("name") or "")
        if kind == "VMI":
            name = f"{vmis}"
            vmis += gone
        elif kind == "Pod" and gone:
            name = _last_going(rows)
        rows.append(Row(kind, name, None if gone else _as_recorded(kind, what)))
    return Recorded(answers, rows)


def _last_going(rows: Iterable[Row]) -> str:
    going = [row.name for row in rows if row.kind == "Pod" and row.what and row.what["deleting"]]
    return going[-1]


def _as_recorded(kind: str, what: Json) -> Json:
    move = what.get("mig") or {}
    conditions = what.get("conds") or {}
    return {
        "phase": _phase(kind, what.get("phase", "")),
        "priority": what.get("priority", ""),
        "of": bool(what.get("annotations")),
        "where": _where(what.get("node", ""), move.get("targetNode", "")),
        "asked": "evacuationNodeName" in what,
        "told": "EvictionRequested" in conditions,
        "moved": bool(move.get("completed")),
        "target": bool(what.get("target")),
        "deleting": bool(what.get("deleting")),
    }


def seen(commit: Commit) -> Row | None:
    """The same of a change of the stand-in's API; None for what is not looked at."""
    kind = _KINDS.get(commit.storage)
    if kind is None:
        return None
    obj = commit.after.object
    meta, status = obj["metadata"], obj.get("status") or {}
    if commit.deleted:
        return Row(kind, meta["uid"], None)
    move = status.get("migrationState") or {}
    told = condition_of(obj, "EvictionRequested")
    what = {
        "phase": _phase(kind, status.get("phase", "")),
        "priority": obj["spec"].get("priority", ""),
        "of": bool(meta.get("annotations")),
        "where": _where(status.get("nodeName", ""), move.get("targetNode", "")),
        "asked": "evacuationNodeName" in status,
        "told": told is not None and told["status"] == "True",
        "moved": bool(move.get("completed")),
        "target": "kubevirt.io/migrationJobUID" in (meta.get("labels") or {}),
        "deleting": "deletionTimestamp" in meta,
    }
    return Row(kind, meta["uid"], what)


def _phase(kind: str, phase: str) -> str:
    return "ended" if kind == "VMI" and phase in ("Succeeded", "Failed") else phase


def _where(node: str, target: str) -> str:
    if not node:
        return ""
    return "there" if node == target else "here"


def histories(rows: Iterable[Row]) -> Histories:
    """For each object (``VMI 1`` is the first, and ``target`` the other end of a migration) and
    field, its values in order."""
    names: dict[tuple[str, str], str] = {}
    counts: dict[str, int] = {}
    found: Histories = {
        name: {field: [value] for field, value in before.items()}
        for name, before in _BEFORE.items()
    }
    for row in rows:
        key = (row.kind, row.name)
        if key not in names:
            kind = "target" if row.what is not None and row.what["target"] else row.kind
            counts[kind] = counts.get(kind, 0) + 1
            names[key] = f"{kind} {counts[kind]}"
        fields = found.setdefault(names[key], {field: [] for field in _FIELDS[row.kind]})
        if row.what is None:
            fields["gone"] = [True]
            continue
        for field in _FIELDS[row.kind]:
            value = row.what[field]
            is_luck = row.kind == "Pod" and row.what["deleting"] and field == "phase"
            if fields[field][-1:] != [value] and not is_luck:
                fields[field].append(value)
    return found

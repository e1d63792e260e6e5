"""Timeline: what happened when, as a person would tell it.

The scribe hears everything that the witness hears and writes down what matters: what really
starts and stops, what Kubernetes says of nodes, what our controllers write and tell, who leads,
and every invariant that breaks. Times are seconds since ``begin``.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from backstay.apis.backstay import INCIDENTS
from backstay.apis.calico import V1, V3
from backstay.apis.kubevirt import INSTANCES
from backstay.apis.maintenance import NODE_MAINTENANCES
from backstay.kube.resource import CONFIG_MAPS, LEASES, NODES, PODS
from backstay.lab.addresses import released
from backstay.lab.cluster import LabCluster
from backstay.lab.power_rules import asks_for
from backstay.lab.powers import POWER
from backstay.lab.scenario import After
from backstay.lab.witness import OUR_LEASE, Asked, Committed, Happening, workload_in, workload_of
from backstay.model.labels import MAINTENANCE, TAINT
from backstay.sim.api.store import Commit
from backstay.sim.bmc import Reset
from backstay.sim.nodes.truth import Entry, What

Json = Mapping[str, Any]
Deed: TypeAlias = Committed | Asked
"""What a step can wait for: a write of ours, or a request to a BMC."""

_UNCOUNTED = frozenset({LEASES.label, CONFIG_MAPS.label, "events", "events.events.k8s.io"})
_NOTHING: Json = {}
_SWITCHED = (What.SWITCHED_OFF, What.SWITCHED_ON)


class Line(msgspec.Struct, frozen=True):
    """``at`` in seconds; ``who`` is a node, a controller, ``kubernetes``, a person, or an
    invariant that broke."""

    at: float
    who: str
    what: str


class Scribe:
    """See the module. ``named`` gives a workload the name that the scenario has for it."""

    def __init__(self, cluster: LabCluster, *, named: Callable[[str], str]) -> None:
        self.lines: list[Line] = []
        self.touched: set[str] = set()
        """Workloads of which we marked, evicted or removed a pod."""
        self.codes: set[str] = set()
        """What incidents and maintenances told of."""
        self.powered_on: dict[str, None] = {}
        """The nodes that we have switched on."""
        self._cluster = cluster
        self._named = named
        self._zero = 0.0
        self._breaches = 0
        self._risks = 0
        self._witnessed: list[Callable[[Deed], None]] = []

    def begin(self, now: float) -> None:
        self._zero = now
        self._cluster.witness.watch(self._hear)

    def tell(self, now: float, who: str, what: str, *, place: int | None = None) -> None:
        """At the end, or at an earlier place."""
        line = Line(round(now - self._zero, 3), who, what)
        self.lines.insert(len(self.lines) if place is None else place, line)

    def await_write(self, told: Callable[[Deed], None]) -> Callable[[], None]:
        """Calls it with every write of ours that counts; returns how to end that."""
        self._witnessed.append(told)
        return lambda: self._witnessed.remove(told)

    # Hearing

    def _hear(self, happening: Happening) -> None:
        if isinstance(happening, Committed):
            self._committed(happening)
        elif isinstance(happening, Entry):
            self._truth(happening)
        elif happening.storage == POWER:
            self._asked_to_switch(happening)
        inspector = self._cluster.inspector
        # It was told before us.
        if inspector.broken or inspector.accepted:
            self._broken()

    def _broken(self) -> None:
        broken = self._cluster.inspector.broken
        for breach in broken[self._breaches :]:
            self.tell(breach.at, breach.invariant, f"BROKEN: {breach.sentence}")
        self._breaches = len(broken)
        accepted = self._cluster.inspector.accepted
        for risk in accepted[self._risks :]:
            self.tell(risk.at, risk.invariant, risk.sentence)
        self._risks = len(accepted)

    def _asked_to_switch(self, asked: Asked) -> None:
        node, on = asked.key[1], asks_for(asked, Reset.ON)
        if on and asked.body["accepted"]:
            self.powered_on[node] = None
        refused = "" if asked.body["accepted"] else ", which refuses"
        verb = f"asks the BMC of {node} to switch it {'on' if on else 'off'}{refused}"
        self.tell(asked.at, asked.user, verb)
        for told in tuple(self._witnessed):
            told(asked)

    def _truth(self, entry: Entry) -> None:
        if entry.what in _SWITCHED:
            self.tell(entry.at, entry.node, f"is {entry.what.value} by {entry.why}")
        name = self._named(workload_of(entry))
        if entry.what is What.STARTED:
            self.tell(entry.at, entry.node, f"{name} starts")
        elif entry.what is What.STOPPED:
            self.tell(entry.at, entry.node, f"{name} stops ({entry.why})")

    def _committed(self, happening: Committed) -> None:
        commit = happening.commit
        match commit.storage:
            case NODES.label:
                self._node(happening, commit)
            case PODS.label:
                self._pod(happening, commit)
            case INCIDENTS.label:
                self._incident(happening, commit)
            case NODE_MAINTENANCES.label:
                self._maintenance(happening, commit)
            case INSTANCES.label:
                self._guest(happening, commit)
            case LEASES.label if commit.after.key == OUR_LEASE:
                self._leader(happening, commit)
            case V1.blocks.label | V3.blocks.label:
                self._block(happening, commit)
        if happening.by is not None and commit.storage not in _UNCOUNTED:
            for told in tuple(self._witnessed):
                told(happening)

    def _node(self, happening: Committed, commit: Commit) -> None:
        if commit.deleted or commit.before is None:
            return
        before, after = commit.before.object, commit.after.object
        name = after["metadata"]["name"]
        ready = _ready(after)
        if ready != _ready(before):
            words = {"True": "is Ready", "False": "is NotReady"}
            self.tell(happening.at, "kubernetes", f"{name} {words.get(ready, 'is NotReady')}")
        if happening.by is not None and is_tainted(after) != is_tainted(before):
            verb = f"taints {name}" if is_tainted(after) else f"takes its taint off {name}"
            self.tell(happening.at, happening.by.user, verb)
        if happening.by is not None and (kind := drain_kind(before, after)) is not None:
            verb = "cordons" if kind is After.CORDON else "gives back"
            self.tell(happening.at, happening.by.user, f"{verb} {name}")

    def _pod(self, happening: Committed, commit: Commit) -> None:
        if happening.by is None or commit.before is None:
            return
        pod = commit.before.object
        name = self._named(workload_in(pod))
        if happening.by.evicts and (not _goes(commit) or _is_over(pod)):
            # First it is noted on the pod why it goes; and what a guest has left behind is no loss.
            return
        self.touched.add(name)
        where = pod["spec"].get("nodeName", "no node")
        verb = "evicts" if happening.by.evicts else "removes" if commit.deleted else "marks"
        self.tell(happening.at, happening.by.user, f"{verb} the pod of {name} on {where}")

    def _block(self, happening: Committed, commit: Commit) -> None:
        freed = [held.address for held in released(commit)]
        if happening.by is not None and freed:
            self.tell(happening.at, happening.by.user, f"releases {' and '.join(freed)}")

    def _incident(self, happening: Committed, commit: Commit) -> None:
        before = {} if commit.before is None else commit.before.object
        known = (before.get("status") or {}).get("timeline") or []
        told = (commit.after.object.get("status") or {}).get("timeline") or []
        who = "somebody" if happening.by is None else happening.by.user
        # By their text, because an incident that goes on for long tells much.
        before_this = {msgspec.json.encode(moment) for moment in known}
        for moment in told:
            if msgspec.json.encode(moment) not in before_this:
                self.codes.add(moment["code"])
                self.tell(happening.at, who, f"{moment['code']}: {moment['sentence']}")

    def _maintenance(self, happening: Committed, commit: Commit) -> None:
        if commit.deleted:
            node = commit.after.object["spec"]["nodeName"]
            self.tell(happening.at, "kubernetes", f"the maintenance of {node} is over")
            return
        before = {} if commit.before is None else commit.before.object
        known, who = set(_said(before)), happening.by.user if happening.by else "somebody"
        for code, sentence in _said(commit.after.object):
            self.codes.add(code)
            if (code, sentence) not in known:
                self.tell(happening.at, who, f"{code}: {sentence}")

    def _guest(self, happening: Committed, commit: Commit) -> None:
        node = _leaves(commit.after.object)
        if node and (commit.before is None or not _leaves(commit.before.object)):
            name = self._named("/".join(commit.after.key))
            self.tell(happening.at, "kubevirt", f"{name} was asked to leave {node}")

    def _leader(self, happening: Committed, commit: Commit) -> None:
        if commit.deleted:
            return
        before = _NOTHING if commit.before is None else commit.before.object["spec"]
        holder = commit.after.object["spec"].get("holderIdentity") or ""
        if holder and holder != before.get("holderIdentity"):
            self.tell(happening.at, holder, "leads")


def user_of(deed: Deed) -> str:
    """Whose it was, of ours."""
    by = deed if isinstance(deed, Asked) else deed.by
    assert by is not None
    return by.user


def kind_of(happening: Deed) -> After | None:
    """What a deed of ours was, if it is one of those that a step can wait for."""
    if isinstance(happening, Asked):
        return After.ON if asks_for(happening, Reset.ON) else After.OFF
    commit = happening.commit
    before: Json = _NOTHING if commit.before is None else commit.before.object
    after: Json = commit.after.object
    match commit.storage:
        case PODS.label if happening.by is not None and happening.by.evicts:
            return After.EVICTION
        case PODS.label:
            return After.REMOVAL if commit.deleted else After.MARK
        case NODES.label:
            if is_tainted(before) == is_tainted(after):
                return drain_kind(before, after)
            return After.TAINT if is_tainted(after) else After.UNTAINT
        case NODE_MAINTENANCES.label:
            return After.DRAINED if _has_succeeded(after) > _has_succeeded(before) else None
        case INCIDENTS.label:
            return _kind_of_telling(before, after)
        case V1.blocks.label | V3.blocks.label:
            return After.ADDRESS if released(commit) else None
    return None


def _kind_of_telling(before: Json, after: Json) -> After | None:
    if not before:
        return After.INCIDENT
    was, now = before.get("status") or _NOTHING, after.get("status") or _NOTHING
    if now.get("closedAt") and not was.get("closedAt"):
        return After.CLOSED
    intent = now.get("intent") or _NOTHING
    is_new = intent != (was.get("intent") or _NOTHING) and not intent.get("outcome")
    return After.INTENT if is_new else None


def drain_kind(before: Json, after: Json) -> After | None:
    """Whether a node was taken into maintenance with it, or given back."""
    was, now = _drained(before), _drained(after)
    return None if was == now else After.CORDON if now else After.UNCORDON


def _drained(node: Json) -> bool:
    return MAINTENANCE in ((node.get("metadata") or {}).get("annotations") or {})


def _has_succeeded(maintenance: Json) -> bool:
    return (maintenance.get("status") or {}).get("phase") == "Succeeded"


def _said(maintenance: Json) -> Iterator[tuple[str, str]]:
    """Of the whole, and of each that stays."""
    status = maintenance.get("status") or {}
    for each in (status, *(status.get("blockers") or ())):
        if each.get("code"):
            yield each["code"], each.get("sentence", "")


def _goes(commit: Commit) -> bool:
    return commit.deleted or "deletionTimestamp" in commit.after.object["metadata"]


def _is_over(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _leaves(vmi: Json) -> str:
    return str((vmi.get("status") or {}).get("evacuationNodeName") or "")


def is_tainted(node: Json) -> bool:
    taints = (node.get("spec") or {}).get("taints") or ()
    return any(taint["key"] == TAINT for taint in taints)


def _ready(node: Json) -> str:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((str(each["status"]) for each in conditions if each["type"] == "Ready"), "")

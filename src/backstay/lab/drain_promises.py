"""Promises about drains: each ends, or says what it waits for, and none leaves data without a copy.

* **DrainEnds** (L3). While a controller leads without a break, armed, and maintenance is ours to
  do: within a minute after a NodeMaintenance was made its node is cordoned; each pod that stays is
  named within 100 s, with what is in its way; what nothing is in the way of is asked to leave
  within a minute; when nothing is left, that is said within a minute; and one that somebody has
  ended is over within a minute. The time begins anew with each interruption, as for all promises
  (``liveness.py``).
  A node that bears the control plane waits for as long as another of those is missing.
* **GivesBack** (I10). A minute after the last maintenance of a node nothing is on it that one of
  ours has put there, whether or not we are armed.
* **LastCopy** (I8). No maintenance is said to have succeeded while its node has the last copy of a
  volume that is up to date, and none goes on saying so for a minute after it was left with it.
  LINSTOR hears of what becomes of a copy a moment later.

What may leave is told by what budgets say of themselves, and by what KubeVirt says of its guests.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from backstay.apis.backstay import CONFIG_NAME, CONFIGS
from backstay.apis.kubevirt import INSTANCES
from backstay.apis.maintenance import NODE_MAINTENANCES
from backstay.kube.resource import LEASES, NODES, PODS
from backstay.lab.drain_rules import is_of_the_control_plane, is_ready
from backstay.lab.happenings import About, node_of
from backstay.lab.liveness import DRAIN_ENDS, LAST_COPY
from backstay.lab.maintenances import Part, parts_on
from backstay.lab.policy_rules import OURS, owner_of
from backstay.lab.terms import NOBODYS, term_of
from backstay.lab.witness import OUR_LEASE, Committed, Happening, Witness
from backstay.sim.api.label_selectors import selects
from backstay.sim.api.store import Commit
from backstay.sim.linstor.replicas import Kind, Replica, Resource
from backstay.sim.linstor.storage import Linstor

Json = Mapping[str, Any]
_Waits: TypeAlias = tuple[str, str]
"""What is waited for, and the uid of what it is about."""

_NAMES = {"stayed": "GivesBack", "copy": LAST_COPY}
"""Of the promises that are not kept, by what is waited for; all others are of one."""

_BUDGETS = "poddisruptionbudgets.policy"
_BOUND = 60.0
"""Seconds in which it must have happened."""
_NAMED = 100.0
"""Seconds after which it must be told what is in the way of a pod. Most that takes long is on its
way: a guest is moved, and what ends may take its time."""
_LATE = 10.0
"""Seconds in which LINSTOR, and whoever asks it, has heard of what became of a copy."""
_LOOK = 1.0
_LEADS = 5.0
"""A leader that has not renewed for so long does not count as one."""
_ENDED = ("Succeeded", "Failed")
_SUCCEEDED = "Succeeded"


class DrainsEnd:
    """See the module."""

    def __init__(
        self, witness: Witness, *, linstor: Linstor | None = None, factor: float = 1.0
    ) -> None:
        self.about = About(commits=frozenset({LEASES.label}))
        self.due = 0.0
        self._witness = witness
        self._linstor = linstor
        self._factor = factor
        self._now = float("-inf")
        self._renewed_at = float("-inf")
        self._term = NOBODYS
        self._restored_at: float | None = None
        self._since: dict[_Waits, float] = {}
        self._told: set[_Waits] = set()
        """Of each object nothing is told twice."""

    def look(self, happening: Happening) -> Iterator[tuple[str, str]]:
        if isinstance(happening, Committed) and _is_our_lease(happening.commit):
            lease = happening.commit
            term = NOBODYS if lease.deleted else term_of(lease.after.object)
            if term != self._term or happening.at - self._renewed_at > _LEADS * self._factor:
                self._since.clear()
            self._term, self._renewed_at = term, happening.at
        yield from ()

    def look_around(self, now: float) -> Iterator[tuple[str, str]]:
        self._now = now
        self.due = now + _LOOK * self._factor
        if self._nobody_leads(now):
            self._since.clear()
            return
        waits = dict(self._waits())
        self._since = {each: self._since.get(each, now) for each in waits}
        for each, sentence in waits.items():
            bound = _NAMED if each[0] == "named" else _BOUND
            if now - self._since[each] > bound * self._factor and each not in self._told:
                self._told.add(each)
                yield _NAMES.get(each[0], DRAIN_ENDS), sentence

    def _nobody_leads(self, now: float) -> bool:
        """Or what was known is gone: the API was restored."""
        if self._restored_at != self._witness.restores.last_at:
            self._restored_at = self._witness.restores.last_at
            return True
        return now - self._renewed_at > _LEADS * self._factor or not self._term[0]

    def _may_act(self) -> bool:
        config = self._witness.stored(CONFIGS.label, CONFIG_NAME)
        return (
            config is not None
            and self._witness.is_armed(config)
            and not self._witness.restores.is_open
            and owner_of("maintenance", config["spec"]) == OURS
        )

    def _waits(self) -> Iterator[tuple[_Waits, str]]:
        """What has not been done, and should be soon."""
        if not self._witness.maintenances.any_asked:
            # That is so in most labs.
            return
        yield from self._stayed()
        if self._may_act():
            yield from self._undone()

    def _stayed(self) -> Iterator[tuple[_Waits, str]]:
        asked = self._witness.store.all(NODE_MAINTENANCES.label)
        maintained = {each.object["spec"]["nodeName"] for each in asked}
        known = self._witness.maintenances
        for stored in self._witness.store.all(NODES.label):
            name = stored.key[1]
            if name in maintained:
                continue
            left = [part for part in parts_on(stored.object) if known.was_put_by_us(name, part)]
            if left:
                parts = " and the ".join(sorted(left))
                yield (
                    ("stayed", stored.object["metadata"]["uid"]),
                    f"the maintenance of {name} is over, and the {parts} stayed",
                )

    def _undone(self) -> Iterator[tuple[_Waits, str]]:
        for maintenance in self._that_count():
            meta, name = maintenance["metadata"], maintenance["spec"]["nodeName"]
            node = self._witness.stored(NODES.label, name)
            if meta.get("deletionTimestamp"):
                yield ("ends", meta["uid"]), f"the maintenance of {name} was ended, and is not over"
            elif node is not None:
                yield from self._left(maintenance, node)
                yield from self._said_too_much(maintenance)

    def _that_count(self) -> Iterator[Json]:
        """Of several for one node the oldest does; what was ended is to be over in any case."""
        seen: set[str] = set()
        stored = self._witness.store.all(NODE_MAINTENANCES.label)
        for each in sorted((each.object for each in stored), key=_age):
            node = each["spec"]["nodeName"]
            if node not in seen or each["metadata"].get("deletionTimestamp"):
                yield each
            seen.add(node)

    def _left(self, maintenance: Json, node: Json) -> Iterator[tuple[_Waits, str]]:
        uid, name = maintenance["metadata"]["uid"], node["metadata"]["name"]
        if Part.TAINT not in parts_on(node) and self._is_needed(node):
            return
        if Part.CORDON not in parts_on(node):
            yield ("cordon", uid), f"{name} is to be drained, and is not cordoned"
        status = maintenance.get("status") or {}
        named = {each.get("uid") for each in status.get("blockers") or ()}
        left = [pod for pod in self._pods(name) if _is_to_leave(pod)]
        for pod in left:
            about, pod_name = pod["metadata"]["uid"], pod["metadata"]["name"]
            # What holds plugged disks goes with its launcher.
            owners = {each["uid"] for each in pod["metadata"].get("ownerReferences") or ()}
            if not named & {about, *owners}:
                yield (
                    ("named", about),
                    f"{pod_name} is left on {name}, and nothing is said of what is in its way",
                )
            if self._may_leave(pod):
                yield ("asked", about), f"{pod_name} could leave {name}, and nobody asks it to"
        if not left and not status.get("blockers") and status.get("phase") != _SUCCEEDED:
            yield ("said", uid), f"nothing is left on {name}, and its drain is not said to be over"

    def _said_too_much(self, maintenance: Json) -> Iterator[tuple[_Waits, str]]:
        """That the node may go down, which was so when it was said."""
        resources = {} if self._linstor is None else self._linstor.drbd.resources
        node, uid = maintenance["spec"]["nodeName"], maintenance["metadata"]["uid"]
        for name, resource in resources.items():
            if (
                _phase(maintenance) == _SUCCEEDED
                and node in resource.replicas
                and _is_last(resource, node)
            ):
                yield (
                    ("copy", f"{uid} {name}"),
                    f"{node} is said to be drained, and was left with the last copy of {name}",
                )

    def _is_needed(self, node: Json) -> bool:
        """Whether it bears the control plane, of which another node is missing."""
        if not is_of_the_control_plane(node):
            return False
        now, name = self._now, node["metadata"]["name"]
        for stored in self._witness.store.all(NODES.label):
            other = stored.key[1]
            silent = now - self._witness.signs.renewed_at(other) > self._witness.times.suspect
            away = silent or Part.TAINT in parts_on(stored.object) or not is_ready(stored.object)
            if other != name and is_of_the_control_plane(stored.object) and away:
                return True
        return False

    def _pods(self, node: str) -> Iterator[Json]:
        for stored in self._witness.store.all(PODS.label):
            if node_of(stored.object) == node:
                yield stored.object

    def _may_leave(self, pod: Json) -> bool:
        """Whether the API would let it go, or have its guest moved, if somebody asked."""
        meta = pod["metadata"]
        if meta.get("deletionTimestamp"):
            return False
        owners = [each for each in meta.get("ownerReferences") or () if each.get("controller")]
        kinds = {each["kind"] for each in owners}
        if kinds & {"Pod"}:
            # It goes with its launcher.
            return False
        if INSTANCES.kind in kinds:
            vmi = self._witness.stored(INSTANCES.label, owners[0]["name"], meta["namespace"])
            if vmi is not None and not _guest_may_leave(vmi, node_of(pod)):
                return False
        budgets = [
            each.object
            for each in self._witness.store.all(_BUDGETS)
            if each.key[0] == meta["namespace"]
            and selects(each.object["spec"].get("selector"), meta.get("labels") or {})
        ]
        allowed = [(each.get("status") or {}).get("disruptionsAllowed", 0) > 0 for each in budgets]
        return len(budgets) <= 1 and all(allowed)


def _is_our_lease(commit: Commit) -> bool:
    return commit.storage == LEASES.label and commit.after.key == OUR_LEASE


def _age(maintenance: Json) -> tuple[str, str]:
    meta = maintenance["metadata"]
    return str(meta["creationTimestamp"]), str(meta["uid"])


def _is_to_leave(pod: Json) -> bool:
    owners = {each["kind"] for each in pod["metadata"].get("ownerReferences") or ()}
    over = (pod.get("status") or {}).get("phase") in _ENDED
    return not owners & {"DaemonSet", "Node"} and not over


def _guest_may_leave(vmi: Json, node: str) -> bool:
    """Whether an eviction would do anything that has not been done."""
    status, strategy = vmi.get("status") or {}, vmi["spec"].get("evictionStrategy")
    if status.get("evacuationNodeName") or status.get("nodeName") != node:
        return False
    movable = any(
        each["type"] == "LiveMigratable" and each["status"] == "True"
        for each in status.get("conditions") or ()
    )
    return strategy != "LiveMigrate" or movable


class LastCopies:
    """See the module."""

    def __init__(self, witness: Witness, linstor: Linstor, *, factor: float) -> None:
        self.about = About(deeds=frozenset({NODE_MAINTENANCES.label}))
        self.due = 0.0
        self._witness = witness
        self._linstor = linstor
        self._factor = factor
        self._since: dict[tuple[str, str], float] = {}
        """By node and resource: since when its copy is the last."""

    def look(self, happening: Happening) -> Iterator[tuple[str, str]]:
        if not isinstance(happening, Committed) or happening.by is None:
            return
        commit = happening.commit
        if commit.storage != NODE_MAINTENANCES.label or commit.deleted:
            return
        before = {} if commit.before is None else commit.before.object
        if _phase(commit.after.object) != _SUCCEEDED or _phase(before) == _SUCCEEDED:
            return
        self.look_around(happening.at)
        node, sent = commit.after.object["spec"]["nodeName"], happening.by.sent
        for (holder, resource), since in self._since.items():
            if holder == node and sent - since > _LATE * self._factor:
                yield (
                    LAST_COPY,
                    f"{node} was said to be drained, and has the last copy of {resource}",
                )

    def look_around(self, now: float) -> tuple[tuple[str, str], ...]:
        self.due = now + _LOOK * self._factor
        self._since = {
            (node, name): self._since.get((node, name), now)
            for name, resource in self._linstor.drbd.resources.items()
            for node in resource.replicas
            if _is_last(resource, node)
        }
        return ()


def _is_last(resource: Resource, node: str) -> bool:
    mine = resource[node]
    if mine.kind is not Kind.DISKFUL or not (mine.has_data and mine.up):
        return False
    others = (each for each in resource.replicas.values() if each.node != node)
    return not any(
        each.kind is Kind.DISKFUL and each.up and each.has_data and not _is_behind(each, mine)
        for each in others
    )


def _is_behind(each: Replica, mine: Replica) -> bool:
    """Whether it lacks what was written since the two have lost each other, known or not."""
    return len(each.history) < len(mine.history)


def _phase(maintenance: Json) -> str:
    return str((maintenance.get("status") or {}).get("phase", ""))

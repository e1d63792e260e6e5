"""Pace: promises about how much is done in how little time.

* In a storm no more workloads are released in a minute than the configuration lets (**Storm**, of
  which the other half is in ``silence_rules.py``). What its owner has deleted burdens nobody.
* No workload is moved more often within the time to cool down than the configuration lets: one
  that kills its nodes must not get at all of them (**NoActionLoops**).

Both count what was really taken out of the API. A leader can keep a pace that it knows of: what
another has released it does not know, and who has just begun to look has seen nobody silent yet.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from backstay.apis.backstay import INCIDENTS
from backstay.apis.kubevirt import VIRTUAL_MACHINES
from backstay.kube.resource import NODES, PODS
from backstay.lab.happenings import About
from backstay.lab.liveness import LOOPS
from backstay.lab.policy_rules import configured, hangs_on_another, kept_from_us
from backstay.lab.silence_rules import is_lifted, most_silent
from backstay.lab.taints import has_our_taint
from backstay.lab.terms import NOBODYS, term_of
from backstay.lab.witness import OUR_LEASE, Asked, Committed, Happening, Witness, workload_in
from backstay.model.labels import VM_NAME

Json = Mapping[str, Any]

STORM = "Storm"

_MINUTE = 60.0
_SILENT = 60.0
"""Seconds after which a node is certainly taken for silent."""
_PACE = 60
_ATTEMPTS = 3
_COOL_DOWN = 60
_KINDS = frozenset({"VirtualMachineInstance", "StatefulSet"})


class Pace:
    """See the module."""

    def __init__(self, witness: Witness) -> None:
        self.about = About(
            deeds=frozenset({PODS.label}), commits=frozenset({INCIDENTS.label}), lease=True
        )
        self._witness = witness
        self._restored_at: float | None = None
        self._term = NOBODYS
        self._began = 0.0
        self._released: dict[str, float] = {}
        """When each workload was, in this term."""
        self._moves: dict[str, dict[tuple[str, str], float]] = {}
        """By workload: from which boots it was moved, and when these fell silent."""

    def look(self, happening: Happening) -> Iterator[tuple[str, str]]:
        if not isinstance(happening, Committed):
            return
        commit = happening.commit
        if commit.after.key == OUR_LEASE:
            self._notice_term(commit.after.object, happening.at)
        elif commit.storage == INCIDENTS.label and commit.deleted and happening.by is None:
            # Who wants nothing known of what was done has nothing held against it.
            self._moves.clear()
        elif commit.storage == PODS.label and commit.deleted and happening.by is not None:
            pod = commit.before.object if commit.before else commit.after.object
            if not hangs_on_another(pod) and not happening.by.evicts:
                yield from self._removed(pod, happening.by, happening.at)

    def _notice_term(self, lease: Json, now: float) -> None:
        term = term_of(lease)
        if term != self._term:
            self._term, self._began = term, now
            self._released.clear()

    def _removed(self, pod: Json, by: Asked, now: float) -> Iterator[tuple[str, str]]:
        node, workload = str(pod["spec"].get("nodeName", "")), workload_in(pod)
        limits = configured(self._witness).get("limits") or {}
        if self._is_given_up(pod):
            return
        self._released[workload] = now
        lately = sum(now - at < _MINUTE for at in self._released.values())
        pace = limits.get("releasesPerMinute", _PACE)
        if lately > pace and self._is_storm(node, by):
            yield STORM, f"{lately} workloads were released in a minute of a storm, and not {pace}"
        yield from self._moved(workload, node, limits, now)

    def _moved(
        self, workload: str, node: str, limits: Json, now: float
    ) -> Iterator[tuple[str, str]]:
        restores = self._witness.restores
        if restores.is_open:
            # Nobody knows what was done before, nor counts what is done until somebody arms anew.
            return
        if restores.last_at != self._restored_at:
            self._restored_at = restores.last_at
            self._moves.clear()
        boot = _boot(self._witness.stored(NODES.label, node) or {})
        moves = self._moves.setdefault(workload, {})
        known = (node, boot) in moves
        moves[node, boot] = self._witness.signs.renewed_at(node)
        window = 60.0 * limits.get("coolDownMinutes", _COOL_DOWN)
        lately = sum(now - at < window for at in moves.values())
        most = limits.get("attempts", _ATTEMPTS)
        if lately > most and not known:
            yield LOOPS, f"{workload} was moved {lately} times of late, and not {most} times"

    def _is_storm(self, node: str, by: Asked) -> bool:
        """Whether there certainly is one."""
        nodes = [stored.object for stored in self._witness.store.all(NODES.label)]
        down = [each for each in nodes if _name(each) == node or self._is_down(each, by.sent)]
        spec = configured(self._witness)
        return len(down) > most_silent(spec, len(nodes)) and not is_lifted(spec, self._witness)

    def _is_down(self, node: Json, now: float) -> bool:
        """Silent, and not all done for it. What was done stays done if somebody takes our taint off
        afterwards."""
        since = max(self._began, self._witness.signs.renewed_at(_name(node)))
        if now - since < _SILENT * self._witness.factor:
            return False
        tainted = has_our_taint(node)
        ours = tainted or any((_name(node), _boot(node)) in each for each in self._moves.values())
        return not ours or self._has_work(_name(node))

    def _has_work(self, node: str) -> bool:
        """Whether something is there that is for us to move, beyond any doubt."""
        pods = [stored.object for stored in self._witness.store.all(PODS.label)]
        elsewhere = {workload_in(pod) for pod in pods if pod["spec"].get("nodeName") != node}
        spec = configured(self._witness)
        return any(
            pod["spec"].get("nodeName") == node
            and workload_in(pod) not in elsewhere
            and _is_of_a_kind_that_moves(pod)
            and not self._is_given_up(pod)
            and not kept_from_us(pod, spec, self._witness)
            for pod in pods
        )

    def _is_given_up(self, pod: Json) -> bool:
        """Whether its owner deletes the VM: nobody waits for that one."""
        meta = pod["metadata"]
        name = (meta.get("labels") or {}).get(VM_NAME, "")
        machine = self._witness.stored(VIRTUAL_MACHINES.label, name, meta["namespace"])
        return machine is not None and "deletionTimestamp" in machine["metadata"]


def _is_of_a_kind_that_moves(pod: Json) -> bool:
    meta = pod["metadata"]
    owners = {each["kind"] for each in meta.get("ownerReferences") or ()}
    over = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return bool(owners & _KINDS) and not over


def _boot(node: Json) -> str:
    return str(((node.get("status") or {}).get("nodeInfo") or {}).get("bootID", ""))


def _name(node: Json) -> str:
    return str(node["metadata"]["name"])

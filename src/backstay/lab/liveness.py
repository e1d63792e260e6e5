"""Liveness: what must happen sooner or later, and the bound within which it must.

A promise is kept while nothing stands in its way: a controller has led without a break, and for a
recovery somebody has rightly confirmed the death of a node that is really off, be it its BMC, we
are armed and most other nodes are well. All of that is read off the ground truth and off what was
committed. The time counts from when it became true, and begins anew with each interruption: that
is also how a crash at any moment is judged (L5), because its successor has the same bound.

==================  =============================================================================
Recovered           within 60 s everything protected is released from a node that is proven dead,
                    or an incident says what else stands in its way; and nothing is left there that
                    KubeVirt would take for it
NothingTerminating  within 60 s nothing is left of what we marked, or of what belonged to it
HoldsAreTold        70 s after a node fell silent, or was given something while it was, or somebody
                    deleted what was told of it, an open incident speaks of everything that it ran
NoActionLoops       the same deed is not done more than ten times a minute
==================  =============================================================================

What is promised of nodes in maintenance (DrainEnds, LastCopy) is kept in ``drain_promises.py``.
``Flight`` is E1, SameDecision: every decision that was recorded is made again, and comes out alike.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from backstay.apis.apps import STATEFUL_SETS
from backstay.apis.backstay import (
    AVAILABILITY_POLICIES,
    CONFIG_NAME,
    CONFIGS,
    CONFIRMATIONS,
    INCIDENTS,
)
from backstay.apis.kubevirt import INSTANCES, VIRTUAL_MACHINES
from backstay.decide.failover import Check
from backstay.kube.resource import LEASES, NODES, PODS
from backstay.lab.happenings import About
from backstay.lab.linstor_rules import is_replaceable
from backstay.lab.maintenances import parts_on
from backstay.lab.policy_rules import (
    OURS,
    configured,
    kept_from_us,
    owner_of,
    wants_more_than_a_word,
)
from backstay.lab.powers import POWER
from backstay.lab.terms import NOBODYS, Term, term_of
from backstay.lab.witness import Asked, Committed, Happening, Witness
from backstay.model import labels
from backstay.model.incident import Progress
from backstay.model.reasons import Reason
from backstay.record.replay import NotARecording, read_recording, replay
from backstay.seam.files import Files
from backstay.settings import Settings
from backstay.sim.api.store import Commit

Json = Mapping[str, Any]
_Unkept: TypeAlias = tuple[str, str, str]
"""The name of a promise, the uid of what it was not kept to, and a sentence."""

RECOVERED = "Recovered"
TERMINATING = "NothingTerminating"
HOLDS = "HoldsAreTold"
LOOPS = "NoActionLoops"
DRAIN_ENDS = "DrainEnds"
LAST_COPY = "LastCopy"
SAME_DECISION = "SameDecision"

PROMISES = {
    "I8": LAST_COPY,
    "L1": RECOVERED,
    "L2": TERMINATING,
    "L3": DRAIN_ENDS,
    "L4": HOLDS,
    "L6": LOOPS,
    "E1": SAME_DECISION,
}
"""By their numbers in the design."""

_RECOVERY = 60.0
_TOLD = 70.0
_NOTICED = 30.0
"""Seconds in which all of us know that the API was restored."""
_LOOK = 1.0
"""Seconds between two looks at all promises."""
_LEADS = 5.0
"""A leader that has not renewed for so long does not count as one."""
_MINUTE = 60.0
_MOST = 10

_OURS = Settings(identity="")
_TELLING = frozenset(
    each.label for each in (PODS, INCIDENTS, CONFIGS, AVAILABILITY_POLICIES, VIRTUAL_MACHINES)
)
"""What runs where according to the API, what incidents tell of it, and what its owners ask for."""

# What can hold a workload although its node is proven dead and we are armed.
_PASSES = frozenset(
    reason.name
    for reason in (
        Reason.ProofMissing, Reason.ConfirmationRefused, Reason.EvidenceContradicted,
        Reason.Observing, Reason.Disarmed, Reason.StaleView,
    )
)  # fmt: skip
_ON_THE_WAY = (Progress.DUE, Progress.MARKED, Progress.RELEASED)


class Promise(Protocol):
    """Told of everything that it is ``about``; says each time what has not been kept, by name."""

    about: About

    def look(self, happening: Happening) -> Iterable[tuple[str, str]]: ...


class Watchful(Promise, Protocol):
    """One that looks around as well, at the first happening that is not before ``due``."""

    due: float

    def look_around(self, now: float) -> Iterable[tuple[str, str]]: ...


class Patience:
    """The promises that need time. Nothing is told twice of the same object."""

    def __init__(self, witness: Witness, *, factor: float = 1.0) -> None:
        self.about = About(
            commits=frozenset({LEASES.label, NODES.label, CONFIRMATIONS.label}) | _TELLING
        )
        self.due = 0.0
        self._witness = witness
        self._factor = factor
        self._renewed_at = float("-inf")
        self._term = NOBODYS
        self._signs: dict[str, float] = {}
        self._left: dict[tuple[str, str], float] = {}
        """Since when it is for us alone to release or to remove it, by promise and uid."""
        self._came: dict[str, float] = {}
        """When each pod was given to its node, by uid."""
        self._in_vain: set[str] = set()
        self._lapsed: set[str] = set()
        """The words that came back with a backup of the API, or were given before anybody of ours
        had to know that it was restored: they need not count."""
        self._restored_at: float | None = None
        self._set_back: set[str] = set()
        """Nodes of which nothing was written since the last restore. Whoever has gone on watching
        across it sees with the next write what it has set back, and rightly takes that for a
        change."""
        self._told: set[tuple[str, str]] = set()
        self._changes = 0
        """Of what runs where, of what is told of it, and of what is asked for."""
        self._searched: dict[str, int] = {}
        """By node: as of which of these changes it is known what is untold."""
        self._behind: dict[str, tuple[int, tuple[_Unkept, ...]]] = {}
        """By node: what is left behind there, and as of which of these changes."""

    def look(self, happening: Happening) -> Iterable[tuple[str, str]]:
        if isinstance(happening, Committed):
            self._notice(happening, happening.commit)
        return ()

    def look_around(self, now: float) -> Iterator[tuple[str, str]]:
        self.due = now + _LOOK * self._factor
        for name, subject, sentence in self._unkept(now):
            if (name, subject) not in self._told:
                self._told.add((name, subject))
                yield name, sentence

    # Since when nothing stands in the way

    def _notice(self, happening: Committed, commit: Commit) -> None:
        self._changes += commit.storage in _TELLING
        after, before = commit.after.object, commit.before.object if commit.before else None
        match commit.storage, commit.after.key:
            case LEASES.label, (labels.LEASE_NAMESPACE, node):
                self._signs[node] = happening.at
            case INCIDENTS.label, _ if commit.deleted and _is_open(after):
                self._begin_anew(happening.at)
            case NODES.label, (_, node) if _boot(before) != _boot(after):
                self._signs[node] = happening.at
            case NODES.label, (_, node) if node in self._set_back:
                self._set_back.discard(node)
                self._signs[node] = happening.at
            case LEASES.label, (_OURS.namespace, _OURS.lease) if commit.deleted:
                self._term = NOBODYS
            case LEASES.label, (_OURS.namespace, _OURS.lease):
                self._notice_leader(term_of(after), happening.at)
            case PODS.label, _ if _node_of(after) and not _node_of(before):
                self._came[after["metadata"]["uid"]] = happening.at
            case CONFIRMATIONS.label, _ if before is None:
                self._notice_word(after, happening.at)

    def _notice_word(self, word: Json, now: float) -> None:
        uid, restored_at = word["metadata"]["uid"], self._witness.restores.last_at
        if self._is_on(word["spec"]["node"]):
            self._in_vain.add(uid)
        if restored_at is not None and now - restored_at < _NOTICED * self._factor:
            self._lapsed.add(uid)

    def _notice_leader(self, term: Term, now: float) -> None:
        gap = now - self._renewed_at > _LEADS * self._factor
        self._renewed_at = now
        if term != self._term or gap:
            self._begin_anew(now)
        self._term = term

    def _begin_anew(self, now: float) -> None:
        """Whoever leads now has looked since this moment, and not before; or what was told is gone,
        and has to be told again."""
        self._left.clear()
        self._signs = dict.fromkeys(self._signs, now)

    def _unkept(self, now: float) -> Iterator[_Unkept]:
        if self._restored_at != self._witness.restores.last_at:
            # What was told is gone with what the backup did not have: it has to be told anew.
            self._restored_at = self._witness.restores.last_at
            self._changes += 1
            self._set_back = {stored.key[1] for stored in self._witness.store.all(NODES.label)}
            words = self._witness.store.all(CONFIRMATIONS.label)
            self._lapsed |= {stored.object["metadata"]["uid"] for stored in words}
            self._begin_anew(now)
        if now - self._renewed_at > _LEADS * self._factor or not self._term[0]:
            self._begin_anew(now)
            return
        left: list[_Unkept] = []
        machines = self._witness.machines
        for stored in self._witness.store.all(NODES.label):
            name = stored.key[1]
            # Most are on, and nothing else needs to be known of those.
            if name in machines and machines[name].boot_id is None:
                behind = self._left_behind(name)
                if behind and self._is_settled(name, stored.object):
                    left += behind
            if name in self._signs and now - self._signs[name] > _TOLD * self._factor:
                yield from self._untold(name, now)
        # What has waited for its turn, or for something else that was told, has its time after it.
        self._left = {each[:2]: self._left.get(each[:2], now) for each in left}
        for each in left:
            if now - self._left[each[:2]] > _RECOVERY * self._factor:
                yield each

    def _is_settled(self, name: str, node: Json) -> bool:
        """Whether nothing but we could be the reason that the workloads of a node that is off are
        not released."""
        known = self._is_confirmed(name, node) or self._witness.powers.is_readable(name)
        return known and self._is_armed() and self._most_are_well(but=name)

    def _is_armed(self) -> bool:
        config = self._witness.stored(CONFIGS.label, CONFIG_NAME)
        armed = config is not None and self._witness.is_armed(config)
        return armed and not self._witness.restores.is_open

    def _is_confirmed(self, name: str, node: Json) -> bool:
        """Somebody vouches for it, and nobody has ever done so in vain: a word about this boot that
        life has contradicted, be it by an answer at a port, is not outweighed by another one."""
        lease = self._witness.stored(LEASES.label, name, labels.LEASE_NAMESPACE)
        if lease is None:
            return False
        heartbeat = (node["metadata"].get("annotations") or {}).get(labels.HEARTBEAT, "")
        shown = (lease["spec"].get("renewTime"), heartbeat, _posted(node))
        boot = (name, node["metadata"]["uid"], _boot(node))
        words = [stored.object for stored in self._witness.store.all(CONFIRMATIONS.label)]
        words = [word for word in words if _about(word["spec"]) == boot]
        if any(word["metadata"]["uid"] in self._in_vain for word in words):
            # Also one that came back with a backup.
            return False
        known = [word for word in words if word["metadata"]["uid"] not in self._lapsed]
        return bool(known) and all(_last_signs(word["spec"]) == shown for word in known)

    def _is_on(self, name: str) -> bool:
        machine = self._witness.machines.get(name)
        return machine is not None and machine.boot_id is not None

    def _most_are_well(self, *, but: str) -> bool:
        names = [stored.key[1] for stored in self._witness.store.all(NODES.label)]
        others = [self._witness.machines.get(name) for name in names if name != but]
        well = [each for each in others if each is not None and each.condition == "fine"]
        return bool(well) and 2 * len(well) >= len(others)

    # What has not been done

    def _left_behind(self, node: str) -> tuple[_Unkept, ...]:
        """The same until something changes: a node can be off for long."""
        known = self._behind.get(node)
        if known is None or known[0] != self._changes:
            known = self._behind[node] = (self._changes, tuple(self._search(node)))
        return known[1]

    def _search(self, node: str) -> Iterator[_Unkept]:
        records = self._records(node)
        for pod in self._pods(node):
            meta = pod["metadata"]
            if meta.get("finalizers"):
                continue
            uid, name = meta["uid"], meta["name"]
            if self._hides_its_guest(pod, records.values()):
                yield (
                    RECOVERED,
                    uid,
                    f"{name} has ended, and is taken for what was released",
                )
            if wants_more_than_a_word(pod, self._witness):
                # Be it that somebody has asked for it after it was marked.
                continue
            wanted = _is_protected_kind(pod) and not _is_over(pod)
            if wanted and self._should_be_gone(records.get(uid)):
                yield RECOVERED, uid, f"{name} is still on {node}, whose death is proven"
            # LINSTOR's controller is only marked, as Kubernetes does it a few minutes later.
            marked = meta.get("deletionTimestamp") and not is_replaceable(pod)
            # What was taken out of our hands by then is for somebody else to remove.
            waits = _has_its_turn(records.get(uid)) or self._is_kept_from_us(pod)
            if marked and self._was_touched(pod) and not waits:
                yield TERMINATING, uid, f"{name} is Terminating on {node}, and nobody removes it"

    def _hides_its_guest(self, pod: Json, records: Iterable[Json]) -> bool:
        """KubeVirt takes the newest launcher on the node of a guest for its own, whatever became of
        it, and does nothing while there is one."""
        owners = pod["metadata"].get("ownerReferences") or ()
        owner = next((each for each in owners if each["kind"] == INSTANCES.kind), None)
        if owner is None or not _is_over(pod):
            return False
        namespace, name = pod["metadata"]["namespace"], owner["name"]
        released = any(
            record["progress"] == Progress.RELEASED
            and record["workload"].endswith(f"/{namespace}/{name}")
            for record in records
        )
        guest = self._witness.stored(INSTANCES.label, name, namespace) if released else None
        if guest is None or guest["metadata"]["uid"] != owner["uid"]:
            return False
        status = guest.get("status") or {}
        return status.get("phase") == "Running" and status.get("nodeName") == _node_of(pod)

    def _should_be_gone(self, record: Json | None) -> bool:
        if record is None:
            return True
        progress, code = record["progress"], record["code"]
        return progress in _ON_THE_WAY or (progress == Progress.HELD and code in _PASSES)

    def _was_touched(self, pod: Json) -> bool:
        """Whether we marked it, or removed what it belongs to."""
        meta = pod["metadata"]
        owners = [each["uid"] for each in meta.get("ownerReferences") or ()]
        gone = (self._witness.removed(uid) for uid in owners)
        marked_by_us = self._witness.marked_by_us(meta["uid"])
        return marked_by_us or any(each is not None and each.by_us for each in gone)

    def _is_kept_from_us(self, pod: Json) -> bool:
        """By its owner, or because the configuration leaves it out, or gives the job to somebody
        else. A pod that holds a plugged disk is in the hands of its launcher's owner."""
        spec = configured(self._witness)
        about = {each["uid"] for each in pod["metadata"].get("ownerReferences") or ()}
        about.add(pod["metadata"]["uid"])
        kept = any(
            kept_from_us(each, spec, self._witness)
            for each in self._pods(_node_of(pod))
            if each["metadata"]["uid"] in about
        )
        return kept or owner_of("failover", spec) != OURS

    def _untold(self, node: str, now: float) -> Iterator[_Unkept]:
        if self._searched.get(node) == self._changes:
            # A node can be silent for long, and whoever looks again finds what was told already.
            return
        self._searched[node] = self._changes
        records = self._records(node)
        for pod in self._pods(node):
            uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
            if not _is_protected_kind(pod) or _is_over(pod):
                continue
            record = records.get(uid)
            if record is not None and record["sentence"]:
                continue
            if now - self._came.get(uid, 0.0) > _TOLD * self._factor:
                yield HOLDS, uid, f"{node} is silent, and no incident speaks of {name}"
            else:
                # It has its own time, and is to be looked at again when that is over.
                self._searched.pop(node, None)

    def _pods(self, node: str) -> list[Json]:
        return [
            stored.object
            for stored in self._witness.store.all(PODS.label)
            if _node_of(stored.object) == node
        ]

    def _records(self, node: str) -> dict[str, Json]:
        """What open incidents say of each pod of the node, by uid."""
        found: dict[str, Json] = {}
        for stored in self._witness.store.all(INCIDENTS.label):
            incident = stored.object
            if incident["spec"]["node"] != node or not _is_open(incident):
                continue
            for record in (incident.get("status") or {}).get("workloads") or ():
                found |= dict.fromkeys(record.get("uids") or (), record)
        return found


class Repetition:
    """The promise not to do the same over and over."""

    def __init__(self, *, factor: float = 1.0) -> None:
        self.about = About(requests=frozenset({PODS.label, NODES.label, INCIDENTS.label, POWER}))
        self._window = _MINUTE * factor
        self._deeds: dict[tuple[str, ...], deque[float]] = {}

    def look(self, happening: Happening) -> Iterator[tuple[str, str]]:
        if not isinstance(happening, Asked):
            return
        for deed in _deeds(happening):
            times = self._deeds.setdefault(deed, deque())
            times.append(happening.at)
            while times[0] < happening.at - self._window:
                times.popleft()
            if len(times) == _MOST + 1:
                yield LOOPS, f"{' '.join(deed)} was asked for {len(times)} times in a minute"


def _deeds(asked: Asked) -> Iterator[tuple[str, ...]]:
    body, name = asked.body, asked.key[1]
    if asked.storage == PODS.label:
        if not asked.dry_run:
            yield "evict" if asked.evicts else "delete", *asked.key
    elif asked.storage == POWER:
        yield "switch", name, asked.subresource
    elif asked.storage == NODES.label:
        taints = (body.get("spec") or {}).get("taints") or ()
        on = any(each.get("key") == labels.TAINT for each in taints)
        yield "cordon" if parts_on(body) else "taint" if on else "untaint", name
    elif asked.storage == INCIDENTS.label:
        intent = (body.get("status") or {}).get("intent") or {}
        if intent and not intent.get("outcome"):
            for pod in intent["pods"]:
                yield "announce", pod


@dataclass(frozen=True)
class Flight:
    """What one controller has recorded on its disk, and the checks that it decided by."""

    files: Files
    directory: str
    chain: Sequence[Check]

    async def differences(self) -> list[str]:
        """Every decision that comes out differently when it is made again."""
        found = []
        for name in await self._recordings():
            data = await self.files.read(f"{self.directory}/{name}")
            try:
                recording = read_recording(name, data)
            except NotARecording:
                # A crash can cut off the very first line.
                continue
            found += [
                f"{each.subject} was decided {each.recorded!r}, and again {each.today!r}"
                for each in replay(recording, self.chain).differences
            ]
        return found

    async def _recordings(self) -> list[str]:
        try:
            return await self.files.names(self.directory)
        except FileNotFoundError:
            return []


def _has_its_turn(record: Json | None) -> bool:
    """Whether it waits in a storm for others that are released before it, as an incident tells."""
    return record is not None and record["code"] == Reason.StormPaced.name


def _about(word: Json) -> tuple[str, str, str]:
    return word["node"], word["nodeUID"], word["bootID"]


def _last_signs(word: Json) -> tuple[str | None, str, str]:
    return word.get("lastRenewal"), word.get("lastHeartbeat", ""), word.get("lastStatus", "")


def _is_open(incident: Json) -> bool:
    return not (incident.get("status") or {}).get("closedAt")


def _node_of(pod: Json | None) -> str:
    return str(pod["spec"].get("nodeName", "")) if pod else ""


def _boot(node: Json | None) -> str:
    info = ((node or {}).get("status") or {}).get("nodeInfo") or {}
    return str(info.get("bootID", ""))


def _posted(node: Json) -> str:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((str(c.get("lastHeartbeatTime")) for c in conditions if c["type"] == "Ready"), "")


def _is_protected_kind(pod: Json) -> bool:
    kinds = {INSTANCES.kind, STATEFUL_SETS.kind}
    return any(
        each.get("controller") and each["kind"] in kinds
        for each in pod["metadata"].get("ownerReferences") or ()
    )


def _is_over(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")

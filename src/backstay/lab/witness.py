"""Witness: sees everything that happens in an embedded cluster, and who did it.

It stands in front of the API server (``EmbeddedCluster(front=witness.front)``), so that every
request passes it; it follows the store, so that it hears every commit; and it follows the ground
truth. The API server carries a request out in one step, so what is committed to the object of
the request meanwhile is the doing of whoever asked.

``watch`` takes whoever wants to be told. What happens comes in three kinds:

* ``Asked``: one of ours is about to change something, whether or not that will be allowed, be it
  the power of a node, of which its BMC tells when the request lands (``powers.py``),
* ``Committed``: something was changed, with the request that did it if it was one of ours,
* ``Entry``: the truth changed (``sim/nodes/truth.py``).

It also remembers what our controllers have looked at with their own eyes (``looks.py``) and what
nodes have shown of their life (``signs.py``): a write is judged by what whoever wrote could know
when it *left*, not by what came a millisecond too late for that, and not by what has changed while
it was on the wire (``terms.py``).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from backstay.apis.backstay import CONFIG_NAME, CONFIGS, CONFIRMATIONS, INCIDENTS
from backstay.apis.maintenance import NODE_MAINTENANCES
from backstay.apis.storage import CLAIMS
from backstay.kube.resource import LEASES, NODES, PODS
from backstay.lab.inbound import asked_of_kubevirt, body_of, is_dry
from backstay.lab.knocks import Knocks
from backstay.lab.looks import Look, Looks
from backstay.lab.maintenances import Maintenances
from backstay.lab.powers import POWER, Powers, Reading, Switched
from backstay.lab.restores import Backup, Restores
from backstay.lab.signs import Signs
from backstay.lab.terms import Terms
from backstay.model.labels import (
    ARMED,
    LEASE_NAMESPACE,
    OUT_OF_SERVICE,
    OUT_OF_SERVICE_OURS,
)
from backstay.model.policy import Times
from backstay.seam.serve import Answer, Handler, Inbound
from backstay.settings import Settings
from backstay.sim.api.requests import Target, query_of, route
from backstay.sim.api.server import ApiServer
from backstay.sim.api.status import Refusal
from backstay.sim.api.store import Commit, Key, Store
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.doorkeeper import prompt
from backstay.sim.fate import left_at
from backstay.sim.linstor.storage import Linstor
from backstay.sim.nodes.node import Node
from backstay.sim.nodes.truth import Entry, Running, Truth, What

Json = Mapping[str, Any]

_OURS = Settings(identity="")
OUR_LEASE: Key = (_OURS.namespace, _OURS.lease)

_LAUNCHER = "virt-launcher-"
_CHANGES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Asked(msgspec.Struct, frozen=True):
    """A request of one of ours, which left at ``sent`` and arrived at ``at``. ``body`` is empty
    where it is not a JSON object. A ``dry_run`` changes nothing, and asks what would be."""

    at: float
    sent: float
    user: str
    method: str
    storage: str
    key: Key
    subresource: str
    body: Json
    dry_run: bool = False

    @property
    def evicts(self) -> bool:
        return self.subresource == "eviction" and self.storage == PODS.label


class Committed(msgspec.Struct, frozen=True):
    """``by`` is None for a change by anybody else."""

    at: float
    commit: Commit
    by: Asked | None


@dataclass(frozen=True)
class Removed:
    """A pod that is gone from the API: whether it still ran in that moment, and whether it was
    one of ours who took it away, with or without somebody's word for it."""

    by_us: bool
    vouched: bool
    still_ran: bool


@dataclass(frozen=True)
class _PutOut:
    """Somebody else has put a node out of service."""

    version: int
    by_a_person: bool


Happening: TypeAlias = Asked | Committed | Entry


class Witness:
    """One for each cluster. ``ours`` are our controllers, by the users that they are;
    ``renewal`` is how often a kubelet renews its lease, in seconds, and ``hold`` for how long one
    of ours may act after a renewal; ``knocks`` knows what they met at the ports of nodes."""

    store: Store
    """From ``front`` on."""
    truth: Truth
    linstor: Linstor | None = None
    """What replicates volumes here, if anything does."""
    machines: Mapping[str, Node]
    """The nodes themselves, by name; like the truth, from ``attend`` on."""
    now: Callable[[], float]

    def __init__(
        self, *, ours: Collection[str], renewal: float, hold: float, knocks: Knocks
    ) -> None:
        self.calls = 0
        """Requests of ours, also those that only look."""
        self.terms = Terms(hold)
        self._ours = ours
        self._knocks = knocks
        self.times = Times().scaled(knocks.factor)
        self._looks = Looks()
        self.signs = Signs(self._looks, self.terms, knocks, self.times)
        self._asking: Asked | None = None
        self._told: tuple[Callable[[Happening], None], ...] = ()
        self._cluster: EmbeddedCluster | None = None
        self._api: ApiServer | None = None
        self._renewal = renewal
        self._confirmed: dict[str, int] = {}
        self._withdrawn: dict[str, int] = {}
        self._given_at: dict[str, float] = {}
        self._put_out: dict[str, _PutOut] = {}
        self._said_off: dict[str, tuple[int]] = {}
        self._marked: dict[str, int] = {}
        self._marked_by_us: set[str] = set()
        self._removed: dict[str, Removed] = {}
        self._shift = 0
        self.restores = Restores(knocks.factor)
        self.maintenances = Maintenances()
        self.powers = Powers()
        self._remember: dict[str, Callable[[Commit, Asked | None, float], None]] = {
            CONFIGS.label: self._remember_config,
            LEASES.label: self._remember_lease,
            NODES.label: self._remember_node,
            INCIDENTS.label: self._remember_incident,
            CONFIRMATIONS.label: self._remember_word,
            NODE_MAINTENANCES.label: self._remember_maintenance,
            PODS.label: self._remember_pod,
        }
        """By kind, for those of which something is kept in mind."""

    # Being there

    def front(self, api: ApiServer) -> Handler:
        """What ``EmbeddedCluster`` takes as its front."""
        self._api = api
        self.store = api.store
        self.now = asyncio.get_running_loop().time
        api.store.follow(None, self._hear)
        return self.handle

    def attend(self, cluster: EmbeddedCluster) -> None:
        """Called with the cluster as soon as there is one."""
        self._cluster = cluster
        self.truth = cluster.truth
        self.machines = cluster.nodes
        cluster.truth.follow(self._see)

    def watch(self, told: Callable[[Happening], None]) -> Callable[[], None]:
        """It is called when what happened is already true, except for what is only asked; returns
        how to end that."""
        self._told = (*self._told, told)

        def release() -> None:
            # By what it equals: a method is another object each time that somebody asks for it.
            self._told = tuple(each for each in self._told if each != told)

        return release

    @prompt
    def handle(self, inbound: Inbound) -> Awaitable[Answer]:
        assert self._api is not None, "nobody asks before there is an API"
        user = inbound.headers.get("authorization", "").removeprefix("Bearer ")
        if user not in self._ours:
            return self._api.handle(inbound)
        self.calls += 1
        target = self._target(inbound)
        if target is None:
            if (of_kubevirt := asked_of_kubevirt(inbound)) is not None:
                self._tell(self._asked(inbound, user, *of_kubevirt))
        elif inbound.method in _CHANGES:
            return self._carry_out(inbound, user, target, self._api)
        else:
            self._note_look(user, target, inbound)
        return self._api.handle(inbound)

    async def _carry_out(
        self, inbound: Inbound, user: str, target: Target, api: ApiServer
    ) -> Answer:
        asked = self._asked(inbound, user, target.info.storage, target.key, target.subresource)
        self._tell(asked)
        self._asking = asked
        try:
            # One step without an await inside: nobody else can commit meanwhile.
            return await api.handle(inbound)
        finally:
            self._asking = None

    def _asked(
        self, inbound: Inbound, user: str, storage: str, key: Key, subresource: str
    ) -> Asked:
        now, sent, body = self.now(), left_at(), body_of(inbound)
        return Asked(
            now, now if sent is None else sent, user, inbound.method, storage, key, subresource,
            body, is_dry(inbound, body),
        )  # fmt: skip

    # What BMCs tell

    def user_of(self, process: str) -> str:
        """Which of ours that process is; empty for anybody else."""
        ours = self._knocks.ours.items()
        return next((user for user, name in ours if name == process), "")

    def power_was_read(self, peer: str, node: str, *, off: bool) -> None:
        """Somebody was told whether a node is off, which it is not unless the BMC is its own."""
        if user := self.user_of(peer):
            self.powers.note_reading(user, node, Reading(self.now(), self._version, off))

    def power_was_asked(self, peer: str, node: str, body: Json) -> None:
        """A request to switch a node has landed."""
        user, now, sent = self.user_of(peer), self.now(), left_at()
        if not user:
            return
        left = now if sent is None else sent
        kind = str(body["ResetType"])
        self._tell(Asked(now, left, user, "POST", POWER, ("", node), kind, body))
        if body["accepted"]:
            boot = self.terms.boot_announced(user, node, left)
            switched = Switched(user, node, kind == "On", left, now, boot)
            self.powers.switched.append(switched)

    # What is true

    def wall_now(self) -> datetime:
        assert self._cluster is not None
        return self._cluster.ground.wall.now()

    def stored(self, storage: str, name: str, namespace: str = "") -> Json | None:
        found = self.store.get(storage, (namespace, name))
        return None if found is None else found.object

    def is_armed(self, config: Json) -> bool:
        """What this configuration means at this moment."""
        spec = config["spec"]
        until = str((spec.get("disarmed") or {}).get("until") or "")
        disarmed = bool(until) and datetime.fromisoformat(until) > self.wall_now()
        return spec.get("mode") == "Armed" and not disarmed

    def rolled_back(self, backup: Backup, before: int) -> None:
        """The API was restored from a backup; its version was ``before``. Versions count on here:
        what is seen now is later than what was seen then."""
        if not self.restores.shows(backup, raised=self.store.version - backup.version):
            self.signs.forget(since=backup.at)
        self._shift += before - self.store.version
        self.restores.happened(self.now(), stamp=self._armed_stamp())
        self.terms.forget(self.now())
        self._given_at = dict.fromkeys(self._given_at, self.now())
        for pod in self.store.all(PODS.label):
            meta = pod.object["metadata"]
            self._removed.pop(meta["uid"], None)
            if not meta.get("deletionTimestamp"):
                self._marked.pop(meta["uid"], None)
                self._marked_by_us.discard(meta["uid"])
        self._note_lost_words()
        kept = [each.object for each in self.store.all(NODE_MAINTENANCES.label)]
        self.maintenances.restored(kept, self.now())
        for running in self.truth.running():
            self._note_forgotten(running)
        self._note_revived()

    def _note_lost_words(self) -> None:
        """What nobody has ever said, as the restored API has it, and what was never taken back."""
        kept = {each.object["metadata"]["uid"] for each in self.store.all(CONFIRMATIONS.label)}
        for uid in self._confirmed:
            if uid in kept:
                self._withdrawn.pop(uid, None)
            else:
                self._withdrawn.setdefault(uid, self._version)

    def _note_forgotten(self, running: Running | Entry) -> None:
        """Whoever restored the API has taken out of it what runs and is not in the backup; also
        what a kubelet had heard of before, and starts a moment later."""
        pod = self.stored(PODS.label, running.name, running.namespace)
        if pod is None or pod["metadata"]["uid"] != running.uid:
            self._removed.setdefault(running.uid, Removed(False, False, True))

    def _note_revived(self) -> None:
        """Whoever restored the API has kubelets start anew what had ended since the backup, be it
        that its guest had moved elsewhere."""
        runs = {each.uid for each in self.truth.running()}
        on = {name for name, node in self.machines.items() if node.boot_id is not None}
        for pod in (stored.object for stored in self.store.all(PODS.label)):
            uid, phase = pod["metadata"]["uid"], (pod.get("status") or {}).get("phase")
            if uid not in runs and phase == "Running" and pod["spec"].get("nodeName") in on:
                self._removed.setdefault(uid, Removed(False, False, True))

    # What ours could know when something left

    def look(self, by: Asked, storage: str, name: str, namespace: str = "") -> Look | None:
        """The last read of this object, and of nothing else, by whoever asks."""
        return self._looks.last(by.user, storage, (namespace, name), sent=by.sent)

    def words_seen(self, by: Asked, node: str, *, since: int = 0) -> list[Look]:
        """The confirmations of this node's death that were there when whoever asks last looked at
        them. One that was gone by ``since`` is left out, or long before anything was sent: whoever
        looks later does not find it, be it because it was taken back or because the API was
        restored to a time before it."""
        return [
            look
            for look in self._looks.last_of_kind(by.user, CONFIRMATIONS.label, sent=by.sent)
            if look.stored is not None
            and look.stored.object["spec"]["node"] == node
            and self._was_there(look, by, since)
        ]

    def _was_there(self, look: Look, by: Asked, since: int) -> bool:
        assert look.stored is not None
        withdrawn = self._withdrawn.get(look.stored.object["metadata"]["uid"])
        if withdrawn is None:
            return True
        return withdrawn >= since and by.sent - look.at <= self.times.fresh

    def lease_look(self, by: Asked, node: str) -> Look | None:
        """The last read of the node's lease by whoever asks."""
        return self._looks.at_lease(by.user, node, sent=by.sent)

    def doubt(self, by: Asked, node: str, *, strong: bool = False, since: int = 0) -> str:
        """Why whoever asks could not take it that the node is dead; empty if somebody vouched for
        it and no life could be seen since, or if it could be presumed. ``strong`` leaves out both
        silence and who is no person: what it takes to act on that is more than somebody's word.
        ``since`` leaves out what had been taken back by then."""
        doubt = self._doubted(by, node, strong=strong, since=since)
        if not doubt or strong:
            return doubt
        heard_at = self.signs.heard_at(by.user, node, sent=by.sent)
        against = self._knocks.against(node, at=by.sent, heard_at=heard_at)
        return f"{doubt}, and {against}" if against else ""

    @property
    def factor(self) -> float:
        """By which all times here are shorter than usual."""
        return self._knocks.factor

    def _doubted(self, by: Asked, node: str, *, strong: bool, since: int) -> str:
        seen = self._looks.at_node(by.user, node, sent=by.sent)
        lease = self.lease_look(by, node)
        if seen is None or seen.stored is None or lease is None:
            return f"nobody had looked at {node}"
        body = seen.stored.object
        boot = (body["metadata"]["uid"], body["status"]["nodeInfo"]["bootID"])
        words = [
            look.stored.object
            for look in self.words_seen(by, node, since=since)
            if look.stored
            and (look.stored.object["spec"]["nodeUID"], look.stored.object["spec"]["bootID"])
            == boot
        ]
        vouched = [*self._said_off.get(node, ())]
        vouched += self.powers.read_off(by.user, node, sent=by.sent, since=since)
        if not any(self._is_refuted(word, node) for word in words):
            vouched += [self.confirmed(word["metadata"]["uid"]) for word in words]
            vouched += self._tainted_at(node, seen, strong=strong)
        if not vouched:
            return f"nothing vouches for the death of {node}"
        if max(vouched) < self.signs.shown(node, until=lease.version):
            return f"{node} had shown life since its death was confirmed"
        if by.sent - self.signs.renewed_at(node, until=lease.version) < self._renewal:
            return f"{node} had not missed a single renewal of its lease"
        return self.signs.late_answer(by.user, node, sent=by.sent)

    def _is_refuted(self, word: Json, node: str) -> bool:
        """Whether it stands at the word that life has refuted it, or had to stand there: whoever
        led was answered by the node, and had the time to write it down."""
        if (word.get("status") or {}).get("refuted"):
            return True
        return self.signs.had_to_be_told(node, since=self._given_at[word["metadata"]["uid"]])

    def answered(self, node: str, off: bool) -> None:
        """The provider was asked about a machine, and has answered."""
        self._said_off.pop(node, None)
        if off:
            self._said_off[node] = (self._version,)

    def _tainted_at(self, node: str, seen: Look, *, strong: bool) -> list[int]:
        """The version at which somebody else put it out of service, if it was seen to be."""
        put = self._put_out.get(node)
        if put is None or put.version > seen.version or (strong and not put.by_a_person):
            return []
        return [put.version]

    def is_shut_out(self, pod: Json) -> bool:
        """Whether the storage refuses all that this pod, and what runs in it, could write to."""
        node, uid = str(pod["spec"].get("nodeName", "")), pod["metadata"]["uid"]
        inside = [each.volumes for each in self.truth.running(node) if each.uid == uid]
        volumes = self.volumes_of(pod).union(*inside)
        return (
            bool(volumes)
            and not _writes_to_host(pod)
            and all(self.truth.is_barred(node, volume) for volume in volumes)
        )

    def volumes_of(self, pod: Json) -> set[str]:
        """The persistent volumes behind its claims."""
        claims = (
            (volume.get("persistentVolumeClaim") or {}).get("claimName")
            for volume in pod["spec"].get("volumes") or ()
        )
        namespace = pod["metadata"]["namespace"]
        found = (self.stored(CLAIMS.label, name, namespace) for name in claims if name)
        return {str(claim["spec"].get("volumeName", "")) for claim in found if claim is not None}

    def confirmed(self, uid: str) -> int:
        """The version at which this confirmation was given."""
        return self._confirmed.get(uid, 0)

    def marked(self, uid: str) -> int | None:
        """The version at which one of ours marked this pod as deleted, or somebody else had."""
        return self._marked.get(uid)

    def marked_by_us(self, uid: str) -> bool:
        return uid in self._marked_by_us

    def removed(self, uid: str) -> Removed | None:
        """How the pod of that uid went, if it is gone."""
        return self._removed.get(uid)

    # Taking note

    def _target(self, inbound: Inbound) -> Target | None:
        assert self._api is not None
        try:
            return route(self._api.kinds, inbound.path)
        except Refusal:
            return None

    def _note_look(self, user: str, target: Target, inbound: Inbound) -> None:
        storage = target.info.storage
        if target.name:
            look = Look(self.now(), self._version, self.store.get(storage, target.key))
            self._looks.note(user, storage, target.key, look)
        elif storage == CONFIGS.label:
            query = query_of(inbound.query)
            if not query.is_watch and query.version() is None:
                self.restores.looked(user, self.now(), self.store.version)

    @property
    def _version(self) -> int:
        return self.store.version + self._shift

    def _armed_stamp(self) -> str:
        config = self.stored(CONFIGS.label, CONFIG_NAME) or {"metadata": {}}
        return str((config["metadata"].get("annotations") or {}).get(ARMED, ""))

    def _see(self, entry: Entry) -> None:
        if entry.what is What.STARTED:
            self.powers.started(workload_of(entry))
            if self._shift:
                self._note_forgotten(entry)
        self._tell(entry)

    def _hear(self, commit: Commit) -> None:
        asked, now = self._asking, self.now()
        if asked is not None and (
            asked.storage != commit.storage
            # Something new has no name yet when it is asked for.
            or (asked.key[1] and asked.key != commit.after.key)
        ):
            asked = None
        remember = self._remember.get(commit.storage)
        if remember is not None:
            remember(commit, asked, now)
        self._tell(Committed(now, commit, asked))

    def _remember_config(self, _: Commit, __: Asked | None, ___: float) -> None:
        self.restores.armed(self._armed_stamp())

    def _remember_lease(self, commit: Commit, by: Asked | None, now: float) -> None:
        if commit.after.key[0] == LEASE_NAMESPACE:
            self.signs.note_lease(commit, version=commit.version + self._shift, at=now)
        elif commit.after.key == OUR_LEASE and by is not None and not commit.deleted:
            self.terms.led(by.user, commit.after.object, sent=by.sent, now=now)
            if commit.before is not None:
                version = int(commit.before.object["metadata"]["resourceVersion"])
                self.restores.renewed(by.user, now, version)

    def _remember_node(self, commit: Commit, by: Asked | None, now: float) -> None:
        name, version = commit.after.key[1], commit.version + self._shift
        self.signs.note_node(commit, version=version, at=now)
        self.maintenances.note_node(commit, by_us=by is not None, now=now)
        if commit.deleted or not _is_out_of_service(commit.after.object):
            self._put_out.pop(name, None)
        elif by is None and name not in self._put_out:
            fields = commit.after.object["metadata"].get("managedFields") or ()
            owners = [each["manager"] for each in fields if _owns_taints(each)]
            person = bool(owners) and all(each.startswith("kubectl") for each in owners)
            self._put_out[name] = _PutOut(version, person)

    def _remember_incident(self, commit: Commit, by: Asked | None, now: float) -> None:
        if by is not None:
            self.terms.told(by.user, commit.after.key[1], commit.after.object, now=now)

    def _remember_maintenance(self, commit: Commit, _: Asked | None, now: float) -> None:
        self.maintenances.note(commit, now)

    def _remember_word(self, commit: Commit, _: Asked | None, now: float) -> None:
        uid = commit.after.object["metadata"]["uid"]
        known = self._withdrawn if commit.deleted else self._confirmed
        known.setdefault(uid, commit.version + self._shift)
        self._given_at.setdefault(uid, now)

    def _remember_pod(self, commit: Commit, by: Asked | None, now: float) -> None:
        meta = commit.after.object["metadata"]
        if commit.deleted:
            self._remember_removal(commit, by)
        elif meta.get("deletionTimestamp"):
            self._marked.setdefault(meta["uid"], commit.version + self._shift)
            if by is not None and not by.evicts:
                self._marked_by_us.add(meta["uid"])

    def _remember_removal(self, commit: Commit, by: Asked | None) -> None:
        pod = commit.after.object
        uid, node = pod["metadata"]["uid"], str(pod["spec"].get("nodeName", ""))
        runs = any(each.uid == uid for each in self.truth.running(node))
        vouched = by is not None and (self.is_shut_out(pod) or not self.doubt(by, node))
        self._removed[uid] = Removed(by is not None, vouched, runs)
        if by is not None:
            self.powers.taken(workload_in(pod), node, at=self.now())

    def _tell(self, happening: Happening) -> None:
        for told in self._told:
            told(happening)


def _is_out_of_service(node: Json) -> bool:
    """By somebody else: beside ours there is a note."""
    ours = OUT_OF_SERVICE_OURS in (node["metadata"].get("annotations") or {})
    taints = node["spec"].get("taints") or ()
    return not ours and any(each["key"] == OUT_OF_SERVICE for each in taints)


def _owns_taints(entry: Json) -> bool:
    return "f:taints" in (entry.get("fieldsV1") or {}).get("f:spec", {})


def workload_of(pod: Running | Entry) -> str:
    """What runs in it: ``shop/till`` for a pod of that name, and for the launcher of such a VM."""
    return _workload(pod.namespace, pod.name)


def workload_in(pod: Json) -> str:
    """The same for a pod as the API has it."""
    return _workload(pod["metadata"]["namespace"], pod["metadata"]["name"])


def _workload(namespace: str, pod: str) -> str:
    """A launcher's name is its VM's between a prefix and a suffix."""
    if pod.startswith(_LAUNCHER):
        pod = pod.removeprefix(_LAUNCHER).rpartition("-")[0]
    return f"{namespace}/{pod}"


def _writes_to_host(pod: Json) -> bool:
    spec = pod["spec"]
    written = {
        mount["name"]
        for container in (*spec["containers"], *(spec.get("initContainers") or ()))
        for mount in container.get("volumeMounts") or ()
        if not mount.get("readOnly")
    }
    volumes = spec.get("volumes") or ()
    return any("hostPath" in volume and volume["name"] in written for volume in volumes)

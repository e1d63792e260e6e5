"""The picture: the whole cluster at one moment, for people.

A controller watches, and counts silence on its own clock. A person who types a command wants an
answer now, so this takes one look, and believes for it what the API says: a lease's ``renewTime``
was written by the node, a confirmation's creation by the API server, and their ages here are
counted with the clock of this machine. That is good enough to be shown, labelled as what it is,
and never good enough to act on. Nothing that changes anything uses this module.

It needs neither our kinds nor a controller nor KubeVirt. What cannot be read is in ``problems``;
only without nodes is there no picture.
"""

import re
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from backstay.apis.backstay import (
    AVAILABILITY_POLICIES,
    AVAILABILITY_PROJECTION,
    CONFIG_NAME,
    CONFIGS,
    CONFIRMATIONS,
    INCIDENT_PROJECTION,
    INCIDENTS,
    Config,
    ConfigRow,
    ConfirmationSpec,
    ConfirmationStatus,
    IncidentRow,
    config_row,
)
from backstay.apis.calico import Malformed
from backstay.apis.core import NODE_PROJECTION, NodeRow
from backstay.apis.kubevirt import INSTANCES
from backstay.apis.maintenance import MAINTENANCE_PROJECTION, NODE_MAINTENANCES, MaintenanceRow
from backstay.apis.pods import HELD_POD_PROJECTION, HeldPod
from backstay.decide import life as lives
from backstay.decide.failover import Snapshot
from backstay.decide.proof import counts
from backstay.decide.storm import Fleet
from backstay.kube import errors
from backstay.kube.client import KubeClient
from backstay.kube.discovery import serves
from backstay.kube.projection import Meta, Projection, Unreadable
from backstay.kube.resource import LEASES, NODES, PODS
from backstay.model.drbd import ResourceSight
from backstay.model.evidence import Confirmation, Testimony
from backstay.model.labels import (
    DRAIN_TAINT,
    LEASE_NAMESPACE,
    NOTES,
    OPT_IN,
    ROLLED_BACK,
    TAINT,
)
from backstay.model.moments import Now, moment_of
from backstay.model.node import Life, NodeFacts, NodeLife
from backstay.model.policy import PIRAEUS, OptIn, Policy, Times
from backstay.model.reasons import Why
from backstay.model.workload import Workload
from backstay.seam.clock import WallClock
from backstay.seam.tasks import side_by_side
from backstay.sources.addresses import network_forecast
from backstay.sources.lookups import Details, describe_all, list_all
from backstay.sources.operator import NO_WISHES, Wishes, never_read, policy_of, rules_of
from backstay.sources.past import rolled_back
from backstay.sources.workloads import NodePods, assemble, describe, read_pods

T = TypeVar("T")

_TIMEOUT = 10.0
_NODES_AT_ONCE = 4
DROP_IN = ("ha-controller", "piraeus-ha-controller")
"""The namespace, and the name of the Deployment and of its lease, where Backstay runs in the place
of the Piraeus HA controller. That one may hold the lease itself: then its holder is not signed as
ours are."""
_SIGNED = re.compile(r"_[a-z0-9]{6}\.[0-9a-f]{8}")

_DOWN = frozenset({Life.LOST.value, Life.PROVEN.value, Life.RECOVERED.value})


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """One node, and what the API says of it. ``lease_age`` is None where it has no lease."""

    row: NodeRow
    facts: NodeFacts
    life: NodeLife
    lease_age: float | None
    incident: IncidentRow | None = None
    confirmations: tuple[Confirmation, ...] = ()

    @property
    def name(self) -> str:
        return self.row.key

    @property
    def well(self) -> bool:
        return self.life.state is Life.HEALTHY and self.row.ready == "True" and not self.incident


class Leader(msgspec.Struct, frozen=True):
    """Who leads, as the lease says; ``age`` is that of the last renewal. ``rolled_back`` is how it
    showed that the API went back in time, if whoever led saw that; ``opt_in`` is what it protects
    by labels that are not ours, and ``notes`` what it wants people to know."""

    holder: str
    age: float
    alive: bool
    rolled_back: str = ""
    opt_in: OptIn = PIRAEUS
    notes: tuple[str, ...] = ()


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """``at`` is this machine's time; all moments in facts and lives are seconds of the same clock.

    ``installed`` says whether the API knows our kinds, ``kubevirt`` whether it knows KubeVirt's
    (None: it could not be told).
    """

    at: datetime
    nodes: tuple[Sight, ...]
    policy: Policy
    configured: bool
    installed: bool
    kubevirt: bool | None
    leader: Leader | None
    maintenances: tuple[MaintenanceRow, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def now(self) -> float:
        return self.at.timestamp()

    @property
    def opt_in(self) -> OptIn:
        return PIRAEUS if self.leader is None else self.leader.opt_in

    @property
    def silent(self) -> tuple[Sight, ...]:
        return tuple(n for n in self.nodes if n.life.state in (Life.SUSPECT, Life.LOST))

    @property
    def trustworthy(self) -> bool:
        """Where most nodes seem silent, it is more likely that we see badly."""
        return 2 * len(self.silent) <= len(self.nodes) or len(self.nodes) == 1

    @property
    def _fleet(self) -> Fleet:
        """As far as it matters to what is asked in advance."""
        bearing = [node for node in self.nodes if node.facts.control_plane]
        return Fleet(
            nodes=len(self.nodes),
            control_plane=tuple(node.name for node in bearing),
            control_plane_alive=tuple(n.name for n in bearing if n.life.state is Life.HEALTHY),
        )

    def node(self, name: str) -> Sight | None:
        return next((node for node in self.nodes if node.name == name), None)

    def snapshot(
        self,
        node: Sight,
        workloads: Sequence[Workload],
        *,
        quorums: tuple[ResourceSight, ...] = (),
    ) -> Snapshot:
        """For the same rules that a controller decides by; ``quorums`` is what DRBD says."""
        return Snapshot(
            facts=node.facts,
            life=node.life,
            policy=self.policy.within({workload.namespace for workload in workloads}),
            workloads=tuple(workloads),
            confirmations=node.confirmations,
            testimony=Testimony(quorums=quorums),
            fleet=self._fleet,
            view_age=0.0 if self.trustworthy else float("inf"),
        )


async def take(
    client: KubeClient, wall: WallClock, *, namespace: str, lease: str, times: Times
) -> Picture:
    """One look. ``namespace`` and ``lease`` name the controllers' own lease. Raises ``KubeError``
    if not even the nodes can be read."""
    rows = (await list_all(client, NODES, NODE_PROJECTION, timeout=_TIMEOUT)).rows
    look = _Look(client, wall)
    config, wishes, confirmations, incidents = await look.ours()
    leases = await look.leases()
    leader = await look.leader(namespace, lease)
    if leader is None:
        other = await look.leader(*DROP_IN)
        leader = other if other is not None and _SIGNED.search(other.holder) else None
    kubevirt = await look.has_kubevirt()
    maintenances = await look.maintenances()
    at = wall.now()
    return Picture(
        at=at,
        nodes=tuple(
            _sight(row, leases.get(row.key), confirmations, incidents, at, times)
            for row in sorted(rows, key=lambda row: row.key)
        ),
        policy=msgspec.structs.replace(
            policy_of(config, Now.by(at, client.api_now()), wishes),
            rolled_back="" if leader is None else leader.rolled_back,
        ),
        configured=config is not None,
        installed=look.installed,
        kubevirt=kubevirt,
        leader=leader,
        maintenances=maintenances,
        problems=tuple(look.problems),
    )


class Inventory(msgspec.Struct, frozen=True):
    """What runs, by node. ``problems`` are what could not be read of it."""

    workloads: Mapping[str, tuple[Workload, ...]]
    problems: tuple[str, ...] = ()

    def on(self, node: str) -> tuple[Workload, ...]:
        return self.workloads.get(node, ())


async def workloads_on(
    client: KubeClient, nodes: Sequence[str], *, opt_in: OptIn = PIRAEUS
) -> Inventory:
    """What runs on a few nodes, each looked at by itself. Raises ``KubeError``."""

    async def one(node: str) -> tuple[NodePods, Details]:
        pods = await read_pods(client, node)
        return pods, await describe(client, pods, opt_in=opt_in)

    found = await side_by_side(nodes, one, at_once=_NODES_AT_ONCE)
    return await _with_network(
        client,
        {pods.node: assemble(pods.node, pods, details, opt_in=opt_in) for pods, details in found},
        _problems(
            [bad for pods, _ in found for bad in pods.unreadable],
            [why for _, details in found for why in details.unread.values()],
        ),
    )


async def workloads_everywhere(client: KubeClient, *, opt_in: OptIn = PIRAEUS) -> Inventory:
    """What runs on every node, from one list of each kind. Raises ``KubeError``."""
    listed = await list_all(client, PODS, HELD_POD_PROJECTION)
    details = await describe_all(client)
    by_node: dict[str, list[HeldPod]] = {}
    for pod in listed.rows:
        if pod.node:
            by_node.setdefault(pod.node, []).append(pod)
    found = {
        node: assemble(node, NodePods(node=node, pods=tuple(pods)), details, opt_in=opt_in)
        for node, pods in by_node.items()
    }
    problems = _problems(listed.unreadable, details.unread.values())
    return await _with_network(client, found, problems)


async def _with_network(
    client: KubeClient, found: Mapping[str, tuple[Workload, ...]], problems: tuple[str, ...]
) -> Inventory:
    """The same with what the network would make of it."""
    everywhere = [workload for each in found.values() for workload in each]
    try:
        forecast = await network_forecast(client, everywhere)
    except (errors.KubeError, Malformed) as error:
        return Inventory(found, (*problems, str(error)))
    noted = {
        node: tuple(forecast.get(workload.key, workload) for workload in workloads)
        for node, workloads in found.items()
    }
    return Inventory(noted, problems)


def _problems(pods: Iterable[Unreadable], others: Iterable[str]) -> tuple[str, ...]:
    said = [f"pod {bad.key}: {bad.why}" for bad in pods]
    return tuple(dict.fromkeys([*said, *others]))


# What is read


class _LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    renew_time: str | None = None
    lease_duration_seconds: int | None = None


class _LeaseMeta(Meta, frozen=True, rename="camel"):
    annotations: dict[str, str] | None = None


class _Lease(msgspec.Struct, frozen=True):
    metadata: _LeaseMeta
    spec: _LeaseSpec = _LeaseSpec()


class _LeaseRow(msgspec.Struct, frozen=True):
    key: str
    uid: str
    version: str
    holder: str
    renewed: float | None
    renewal: str
    duration: float
    rolled_back: str
    opt_in: OptIn
    notes: tuple[str, ...]


def _lease_row(lease: _Lease) -> _LeaseRow:
    spec, meta = lease.spec, lease.metadata
    told = rolled_back((meta.annotations or {}).get(ROLLED_BACK, ""))
    return _LeaseRow(
        key=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        holder=spec.holder_identity or "",
        renewed=moment(spec.renew_time),
        renewal=spec.renew_time or "",
        duration=float(spec.lease_duration_seconds or 15),
        rolled_back="" if told is None else told.words,
        opt_in=_noted((meta.annotations or {}).get(OPT_IN), OptIn) or PIRAEUS,
        notes=_noted((meta.annotations or {}).get(NOTES), tuple[str, ...]) or (),
    )


def _noted(text: str | None, kind: type[T]) -> T | None:
    """None where nothing is said, or nothing that can be read."""
    try:
        return msgspec.json.decode(text, type=kind) if text else None
    except msgspec.MsgspecError:
        return None


class _DatedMeta(Meta, frozen=True, rename="camel"):
    creation_timestamp: str | None = None


class _DatedWord(msgspec.Struct, frozen=True):
    metadata: _DatedMeta
    spec: ConfirmationSpec
    status: ConfirmationStatus = ConfirmationStatus()


class _WordRow(msgspec.Struct, frozen=True):
    key: str
    uid: str
    version: str
    confirmation: Confirmation


def _word_row(word: _DatedWord) -> _WordRow:
    meta, spec = word.metadata, word.spec
    confirmation = Confirmation(
        name=meta.name,
        uid=meta.uid,
        node=spec.node,
        node_uid=spec.node_uid,
        boot_id=spec.boot_id,
        by=spec.by or "somebody",
        reason=spec.reason or "no reason given",
        seen_at=moment(meta.creation_timestamp) or 0.0,
        last_renewal=spec.last_renewal,
        last_heartbeat=spec.last_heartbeat,
        last_status=spec.last_status,
        refuted=word.status.refuted,
        lapsed=bool(word.status.lapsed_at),
    )
    return _WordRow(meta.name, meta.uid, meta.resource_version, confirmation)


_LEASE_PROJECTION: Projection[_Lease, _LeaseRow] = Projection(_Lease, _lease_row)
_WORD_PROJECTION: Projection[_DatedWord, _WordRow] = Projection(_DatedWord, _word_row)


class _Look:
    """Reads what there may be, and keeps account of what could not be read."""

    def __init__(self, client: KubeClient, wall: WallClock) -> None:
        self.problems: list[str] = []
        self.installed = True
        self._client = client
        self._wall = wall

    async def ours(
        self,
    ) -> tuple[ConfigRow | None, Wishes, Sequence[Confirmation], Sequence[IncidentRow]]:
        """Configuration, what owners ask for, confirmations and incidents; nothing of it where
        our kinds are not installed."""
        config = await self._try(self._config(), None)
        try:
            wishes = await self._try(self._wishes(), NO_WISHES)
            words = await self._try(self._words(), ())
            incidents = await self._try(self._incidents(), ())
        except errors.NotFound:
            self.installed = False
            return None, NO_WISHES, (), ()
        return config, wishes, words, incidents

    async def leases(self) -> Mapping[str, _LeaseRow]:
        listing = list_all(
            self._client, LEASES, _LEASE_PROJECTION, namespace=LEASE_NAMESPACE, timeout=_TIMEOUT
        )
        page = await self._try(listing, None)
        return {row.key: row for row in page.rows} if page else {}

    async def leader(self, namespace: str, name: str) -> Leader | None:
        try:
            reply = await self._client.get(LEASES, name, namespace=namespace, timeout=_TIMEOUT)
            row = _lease_row(reply.into(_Lease))
        except errors.NotFound:
            return None
        except errors.KubeError as error:
            self.problems.append(str(error))
            return None
        if not row.holder or row.renewed is None:
            return None
        age = max(0.0, self._wall.now().timestamp() - row.renewed)
        return Leader(row.holder, age, age <= row.duration, row.rolled_back, row.opt_in, row.notes)

    async def has_kubevirt(self) -> bool | None:
        try:
            await self._client.list(INSTANCES, limit=1, timeout=_TIMEOUT)
        except errors.NotFound:
            return False
        except errors.Forbidden:
            # It is the kind that we may not list, so there is such a kind, or may be one.
            return None
        except errors.KubeError as error:
            self.problems.append(str(error))
            return None
        return True

    async def maintenances(self) -> tuple[MaintenanceRow, ...]:
        """Whoever serves them; none where there is no such kind, which who may not list them
        would not be told."""
        try:
            if not await serves(self._client, NODE_MAINTENANCES, timeout=_TIMEOUT):
                return ()
            page = await list_all(
                self._client, NODE_MAINTENANCES, MAINTENANCE_PROJECTION, timeout=_TIMEOUT
            )
        except errors.KubeError as error:
            self.problems.append(str(error))
            return ()
        self.problems += [f"NodeMaintenance {bad.key}: {bad.why}" for bad in page.unreadable]
        return tuple(sorted(page.rows, key=lambda row: (row.node, row.age)))

    async def _config(self) -> ConfigRow | None:
        try:
            reply = await self._client.get(CONFIGS, CONFIG_NAME, timeout=_TIMEOUT)
        except errors.NotFound:
            return None
        return config_row(reply.into(Config))

    async def _wishes(self) -> Wishes:
        page = await list_all(
            self._client, AVAILABILITY_POLICIES, AVAILABILITY_PROJECTION, timeout=_TIMEOUT
        )
        return Wishes(rules_of(page.rows), never_read(page.unreadable))

    async def _words(self) -> Sequence[Confirmation]:
        page = await list_all(self._client, CONFIRMATIONS, _WORD_PROJECTION, timeout=_TIMEOUT)
        return [row.confirmation for row in page.rows]

    async def _incidents(self) -> Sequence[IncidentRow]:
        page = await list_all(self._client, INCIDENTS, INCIDENT_PROJECTION, timeout=_TIMEOUT)
        return page.rows

    async def _try(self, reading: Awaitable[T], otherwise: T) -> T:
        try:
            return await reading
        except errors.NotFound:
            raise
        except errors.KubeError as error:
            self.problems.append(str(error))
            return otherwise


def moment(text: str | None) -> float | None:
    """What a timestamp says, in seconds; None where it says nothing that can be read."""
    said = moment_of(text or "")
    return None if said is None else said.timestamp()


# What is made of it


def _sight(
    row: NodeRow,
    lease: _LeaseRow | None,
    confirmations: Sequence[Confirmation],
    incidents: Sequence[IncidentRow],
    at: datetime,
    times: Times,
) -> Sight:
    now = at.timestamp()
    renewed = lease.renewed if lease else None
    facts = NodeFacts(
        name=row.key,
        uid=row.uid,
        boot_id=row.boot_id,
        ready=row.ready,
        looked_at=now,
        renewal="" if lease is None else lease.renewal,
        heartbeat=row.heartbeat,
        status=row.posted,
        lease_seen_at=renewed,
        lease_changed_at=renewed,
        heartbeat_changed_at=moment(row.heartbeat),
        exempt=row.exempt,
        runtime=row.runtime,
        tainted=any(taint.startswith(f"{TAINT}:") for taint in row.taints),
        system_uuid=row.system_uuid,
        in_maintenance=any(taint.startswith(f"{DRAIN_TAINT}:") for taint in row.taints),
        control_plane=row.control_plane,
    )
    words = tuple(word for word in confirmations if word.node == row.key)
    incident = _open_incident(row, incidents)
    return Sight(
        row=row,
        facts=facts,
        life=_as_told(_life(facts, words, times), facts, incident),
        lease_age=None if renewed is None else max(0.0, now - renewed),
        incident=incident,
        confirmations=words,
    )


def _life(facts: NodeFacts, words: Sequence[Confirmation], times: Times) -> NodeLife:
    """Where a controller that had watched all along would see the node stand."""
    confirmed = any(counts(word, facts) for word in words)
    began = facts.lease_changed_at or facts.looked_at
    life = lives.born(facts, began)
    for patience in (times.suspect, times.confirmed if confirmed else times.lost):
        then = min(facts.looked_at, began + patience)
        life = lives.step(life, facts, then, times=times, confirmed=confirmed)
    return life


def _as_told(life: NodeLife, facts: NodeFacts, incident: IncidentRow | None) -> NodeLife:
    """As the incident has it, where one look shows less: whoever wrote it has watched, and may
    have been told to be less patient than we are. Kubernetes must miss the node as well: an
    incident can be older than its return."""
    if incident is None or facts.ready == "True" or life.state is not Life.HEALTHY:
        return life
    status, spec = incident.status, incident.spec
    if (spec.node_uid, spec.boot_id) != (facts.uid, facts.boot_id) or status.state not in _DOWN:
        return life
    opened = moment(status.opened_at) or facts.looked_at
    return NodeLife(
        node_uid=facts.uid,
        boot_id=facts.boot_id,
        state=Life(status.state),
        since=opened,
        suspected_at=opened,
        why=Why(status.code, status.sentence, status.next),
    )


def _open_incident(row: NodeRow, incidents: Sequence[IncidentRow]) -> IncidentRow | None:
    """The one about this boot, or another that is still open: a node that came back."""
    ours = [each for each in incidents if each.open and each.spec.node == row.key]
    about = (row.uid, row.boot_id)
    this_boot = [each for each in ours if (each.spec.node_uid, each.spec.boot_id) == about]
    return next(iter(this_boot or ours), None)

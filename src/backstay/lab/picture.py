"""Picture: what is shown of a cluster at one moment, the truth beside what the API says.

Values only. ``Outage`` counts how long workloads were down, from the truth itself.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from backstay.kube.resource import NODES, PODS
from backstay.lab.cluster import Json, LabCluster
from backstay.model.workload import WorkloadKind
from backstay.sim.nodes.truth import Entry

_GUESTS = (WorkloadKind.VIRTUAL_MACHINE, WorkloadKind.INSTANCE)


@dataclass(frozen=True)
class NodePicture:
    """``condition`` and ``runs`` are true; ``ready`` and ``pods`` are what the API says, in
    kubectl's words; ``life`` and ``held`` are the leader's."""

    name: str
    condition: str
    runs: int
    ready: str
    pods: Counter[str]
    life: str
    held: int


@dataclass(frozen=True)
class Held:
    """What waits, in the words of the first: ``count`` are like it."""

    count: int
    sentence: str
    next: str


@dataclass(frozen=True)
class Side:
    """One of the two clusters that are compared."""

    up: int
    total: int
    down_for: float


@dataclass(frozen=True)
class Picture:
    nodes: tuple[NodePicture, ...]
    plain_nodes: tuple[NodePicture, ...]
    ours: Side
    plain: Side
    held: Held | None


class Outage:
    """How long anything was down, in all, since this was made. One for each cluster."""

    def __init__(self, cluster: LabCluster) -> None:
        self._cluster = cluster
        self._since: float | None = None
        self._before = 0.0
        cluster.truth.follow(self._hear)

    @property
    def seconds(self) -> float:
        lasting = 0.0 if self._since is None else asyncio.get_running_loop().time() - self._since
        return self._before + lasting

    def _hear(self, entry: Entry) -> None:
        if self._cluster.down:
            if self._since is None:
                self._since = entry.at
        elif self._since is not None:
            self._before += entry.at - self._since
            self._since = None


def picture(ours: LabCluster, plain: LabCluster, outages: Sequence[Outage]) -> Picture:
    """``outages`` are those of both, in this order, or none while nothing counts yet."""
    down = [outage.seconds for outage in outages] or [0.0, 0.0]
    return Picture(
        nodes=nodes_of(ours),
        plain_nodes=nodes_of(plain),
        ours=_side(ours, down[0]),
        plain=_side(plain, down[1]),
        held=_held(ours),
    )


def nodes_of(cluster: LabCluster) -> tuple[NodePicture, ...]:
    pods: dict[str, Counter[str]] = {name: Counter() for name in cluster.nodes}
    for stored in cluster.store.all(PODS.label):
        place = stored.object["spec"].get("nodeName")
        if place in pods:
            pods[place][_status(dict(stored.object))] += 1
    held = _held_by_node(cluster)
    return tuple(
        NodePicture(
            name=name,
            condition={"fine": "on", "off": "OFF", "cut off": "CUT OFF"}.get(
                node.condition, node.condition
            ),
            runs=len(node.truth),
            ready=ready(cluster, name),
            pods=pods[name],
            life=cluster.life(name) or "",
            held=held.get(name, 0),
        )
        for name, node in cluster.nodes.items()
    )


def _status(pod: Json) -> str:
    """As kubectl shows it."""
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return str((pod.get("status") or {}).get("phase") or "Pending")


def ready(cluster: LabCluster, name: str) -> str:
    """What kubectl shows as the status of a node."""
    node = cluster.witness.stored(NODES.label, name)
    conditions = ((node or {}).get("status") or {}).get("conditions") or ()
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return "Ready" if ready else "NotReady"


def _side(cluster: LabCluster, down_for: float) -> Side:
    total = len(cluster.protected)
    return Side(total - len(cluster.down), total, down_for)


def _held_by_node(cluster: LabCluster) -> dict[str, int]:
    leader = cluster.leader
    if leader is None:
        return {}
    return {name: len(decision.held) for name, decision in leader.loop.decisions.items()}


def _held(cluster: LabCluster) -> Held | None:
    leader = cluster.leader
    decisions = leader.loop.decisions.values() if leader is not None else ()
    found = [verdict for decision in decisions for verdict in decision.held]
    if not found:
        return None
    # A person who sees one of them thinks of a machine first.
    why = next((v for v in found if v.workload.kind in _GUESTS), found[0]).why
    return Held(len(found), why.sentence, why.next)

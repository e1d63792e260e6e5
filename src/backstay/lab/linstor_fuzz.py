"""Chance for volumes that DRBD replicates: where they are, and what becomes of them and of LINSTOR.

A node always falls silent, and nobody vouches for its death: what is done about it then rests on
DRBD's word. Meanwhile links between nodes are cut for DRBD alone, LINSTOR is deaf, garbled or gone,
and people change the settings on which its word rests.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from backstay.lab.linstor_spec import (
    USUAL_CLASS,
    Level,
    LinstorClass,
    LinstorSpec,
    What,
)
from backstay.lab.scenario import Claim, StatefulSet, Step, Vm, Workloads
from backstay.lab.verbs import After, Do
from backstay.sim.chance import Chance

T = TypeVar("T")
W = TypeVar("W", Vm, StatefulSet)

_QUORUMS = ("majority", "majority", "majority", "majority", "majority", "all", "off", "1")
_LEVELS: tuple[Level, ...] = ("resource", "resource", "resource", "group", "controller", "nowhere")
_LOSSES = (Do.KILL, Do.KILL, Do.CUT, Do.CUT, Do.FREEZE, Do.CUT_API, Do.KILL_KUBELET)
_BACK = {
    Do.KILL: Do.BOOT,
    Do.CUT: Do.HEAL,
    Do.CUT_API: Do.HEAL,
    Do.FREEZE: Do.THAW,
    Do.KILL_KUBELET: Do.START_KUBELET,
}
_MOMENTS = (After.INTENT, After.TAINT, After.MARK, After.REMOVAL)
_PASSING = (What.KILL, What.CUT_STREAMS, What.END_STREAMS, What.SILENCE_STREAMS)
_OTHER_CLASS = "gold"
_SETTINGS = (What.ALLOW_TWO_PRIMARIES, What.QUORUM_OFF, What.QUORUM_ON)


def replicated(
    dice: Chance, nodes: Sequence[str], workloads: Workloads
) -> tuple[LinstorSpec, Workloads]:
    """Most disks are LINSTOR's, in one class or two."""
    spec = LinstorSpec(
        controller=dice.pick(nodes),
        classes={name: _drawn_class(dice, nodes) for name in (USUAL_CLASS, _OTHER_CLASS)},
        upper_case=dice.happens(0.2),
    )
    moved = msgspec.structs.replace(
        workloads,
        vms=tuple(_on_linstor(dice, each) for each in workloads.vms),
        stateful_sets=tuple(_on_linstor(dice, each) for each in workloads.stateful_sets),
    )
    return spec, moved


def _drawn_class(dice: Chance, nodes: Sequence[str]) -> LinstorClass:
    return LinstorClass(
        quorum=dice.pick(_QUORUMS),
        level=dice.pick(_LEVELS),
        two_primaries=dice.happens(0.08),
        on_no_quorum="io-error" if dice.happens(0.2) else "suspend-io",
        outdated_primary="disconnect" if dice.happens(0.2) else "force-secondary",
        renamed=dice.happens(0.2),
        **_placement(dice, nodes),
    )


def _placement(dice: Chance, nodes: Sequence[str]) -> dict[str, Any]:
    if dice.happens(0.6):
        return {}
    first = dice.below(len(nodes) - 1)
    pair = (nodes[first], nodes[first + 1])
    others = [node for node in nodes if node not in pair]
    return {"replicas": pair, "tie_breaker": dice.pick(others) if dice.happens(0.8) else ""}


def _on_linstor(dice: Chance, workload: W) -> W:
    moved = {Claim.SHARED: Claim.LINSTOR_SHARED, Claim.SINGLE: Claim.LINSTOR}
    claims = tuple(moved.get(each, each) if dice.happens(0.8) else each for each in workload.claims)
    own = _OTHER_CLASS if dice.happens(0.3) else USUAL_CLASS
    return msgspec.structs.replace(workload, claims=claims, storage_class=own)


def disturbed(
    dice: Chance, nodes: Sequence[str], *, controllers: int, until: float
) -> Iterator[Step]:
    node, at = nodes[0] if dice.happens(0.7) else dice.pick(nodes), dice.between(2, 25)
    loss = dice.pick(_LOSSES)
    yield _step(at, loss, node=node)
    if dice.happens(0.5):
        yield _perhaps_amid(dice, _step(dice.between(at + 5, until - 1), _BACK[loss], node=node))
    if dice.happens(0.4):
        yield from _links_fail(dice, nodes, until)
    if dice.happens(0.4):
        yield from _loses_its_peers(dice, node, [each for each in nodes if each != node], at)
    if dice.happens(0.5):
        yield from _linstor_fails(dice, until)
    if dice.happens(0.1):
        yield _step(dice.between(0, at), Do.STAY_ONLINE, node=node)
    if dice.happens(0.1):
        yield _step(dice.between(0, until / 2), Do.FREE_REPLICA, node=dice.pick(nodes))
    if dice.happens(0.4):
        # Where nothing answers at its ports, DRBD is all that speaks for a node.
        for number in range(controllers):
            yield _step(0, Do.FIREWALL, controller=f"backstay-{number + 1}")


def _links_fail(dice: Chance, nodes: Sequence[str], until: float) -> Iterator[Step]:
    for _ in range(1 + dice.below(3)):
        first = dice.below(len(nodes))
        ends = {"node": nodes[first], "peer": nodes[(first + 1) % len(nodes)]}
        at = dice.between(0, until / 2)
        yield _step(at, Do.CUT_REPLICATION, **ends)
        if dice.happens(0.6):
            mended = _step(dice.between(at, until - 1), Do.MEND_REPLICATION, **ends)
            yield _perhaps_amid(dice, mended)


def _loses_its_peers(dice: Chance, node: str, peers: Sequence[str], at: float) -> Iterator[Step]:
    """For DRBD, as it falls silent otherwise: all of them or some, for once or again and again."""
    lost = [each for each in peers if dice.happens(0.8)]
    do = Do.MUTE_REPLICATION if dice.happens(0.2) else Do.CUT_REPLICATION
    for _ in range(1 + dice.below(3)):
        for peer in lost:
            yield _step(at, do, node=node, peer=peer)
        at += dice.between(5, 70)
        for peer in lost:
            if dice.happens(0.8):
                yield _step(at, Do.MEND_REPLICATION, node=node, peer=peer)
        at += dice.between(1, 15)


def _linstor_fails(dice: Chance, until: float) -> Iterator[Step]:
    at = dice.between(0, until / 2)
    if dice.happens(0.4):
        yield _perhaps_amid(dice, _step(at, Do.LINSTOR, what=dice.pick(_PASSING)))
    elif dice.happens(0.2):
        yield _perhaps_amid(dice, _step(at, Do.LINSTOR, what=dice.pick(_SETTINGS)))
    else:
        lasting = [each for each in What if each not in (*_PASSING, *_SETTINGS, What.WELL)]
        trouble = dice.pick(lasting)
        yield _perhaps_amid(
            dice, _step(at, Do.LINSTOR, what=trouble, seconds=round(dice.between(1, 60), 1))
        )
        if dice.happens(0.7):
            yield _step(dice.between(at + 1, until - 1), Do.LINSTOR, what=What.WELL)


def _perhaps_amid(dice: Chance, step: Step) -> Step:
    """Some wait for a write of ours."""
    if not dice.happens(0.3):
        return step
    return msgspec.structs.replace(step, after=dice.pick(_MOMENTS))


def _step(at: float, do: Do, **about: Any) -> Step:
    return Step(at=round(at, 1), do=do, **about)

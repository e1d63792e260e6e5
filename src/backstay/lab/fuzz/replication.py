"""Volumes that DRBD replicates: where they are, and what becomes of them and of LINSTOR.

The first node has the most to lose, and nobody vouches for its death: what is done about it rests
on DRBD's word alone. Each story has a *beginning*, which is how the node is missed, and many have
something that comes *amid* that: somebody changes a setting on which DRBD's word rests, LINSTOR is
deaf, garbled or gone, a satellite restarts, the node is back. Each by itself is what storage
engineers see.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from backstay.lab.fuzz.scene import LONGEST, Scene, Story, Weighted, step, weighted
from backstay.lab.linstor_spec import USUAL_CLASS, Level, LinstorClass, LinstorSpec, What
from backstay.lab.scenario import Claim, Deployment, Scenario, StatefulSet, Step, Vm, Workloads
from backstay.lab.verbs import After, Do
from backstay.sim.chance import Chance

LOSS = 64.0
"""Seconds in which DRBD notices that a node is gone, the grace passes, and something is done."""

_OTHER_CLASS = "gold"
_EXPORTED = "exported"
_LEVELS: tuple[Level, ...] = ("resource", "resource", "group", "controller")


# What there is


def world(dice: Chance) -> Scenario:
    """A database and mostly a VM on the first node, whose disks are LINSTOR's, all or some; or
    something that has its files over NFS. Beside LINSTOR's controller runs what is nobody's."""
    nodes = tuple(f"n{number + 1}" for number in range(4 if dice.happens(0.75) else 3))
    first, linstor = nodes[0], _linstor(dice, nodes)
    sets = [StatefulSet(name="db", node=first, claims=(Claim.LINSTOR,))]
    if dice.happens(0.9):
        files = (Claim.LINSTOR_SHARED,)
        sets.append(StatefulSet(name="cms", node=first, claims=files, storage_class=_EXPORTED))
    return Scenario(
        name="",
        question="",
        nodes=nodes,
        workloads=Workloads(
            vms=_vms(dice, first),
            stateful_sets=tuple(sets),
            deployments=(Deployment(name="web", node=linstor.controller),),
        ),
        linstor=linstor,
        controllers=2 if dice.happens(0.1) else 1,
        until=LONGEST,
    )


def _vms(dice: Chance, node: str) -> tuple[Vm, ...]:
    if dice.happens(0.2):
        return ()
    own = _OTHER_CLASS if dice.happens(0.3) else USUAL_CLASS
    return (Vm(name="till", node=node, claims=weighted(dice, _CLAIMS), storage_class=own),)


_CLAIMS: Weighted[tuple[Claim, ...]] = [
    (6, (Claim.LINSTOR, Claim.SINGLE)),
    (1, (Claim.LINSTOR,)),
    (1, (Claim.LINSTOR_SHARED,)),
]


def _linstor(dice: Chance, nodes: Sequence[str]) -> LinstorSpec:
    return LinstorSpec(
        controller=nodes[0] if dice.happens(0.1) else dice.pick(nodes[1:]),
        classes={
            USUAL_CLASS: _bound(dice, nodes),
            _OTHER_CLASS: _unbound(dice, nodes) if dice.happens(0.3) else _bound(dice, nodes),
            _EXPORTED: LinstorClass(
                exported_by=nodes[0] if dice.happens(0.9) else dice.pick(nodes[1:3])
            ),
        },
        upper_case=dice.happens(0.2),
    )


def _bound(dice: Chance, nodes: Sequence[str]) -> LinstorClass:
    """A class whose volumes are taken care of as they should be."""
    return LinstorClass(
        level=dice.pick(_LEVELS),
        on_no_quorum="io-error" if dice.happens(0.2) else "suspend-io",
        outdated_primary="disconnect" if dice.happens(0.2) else "force-secondary",
        renamed=dice.happens(0.2),
        **_placement(dice, nodes),
    )


def _unbound(dice: Chance, nodes: Sequence[str]) -> LinstorClass:
    """One that somebody has set up in haste."""
    wrong: dict[str, Any] = dice.pick(_WRONGS)
    return msgspec.structs.replace(_bound(dice, nodes), **wrong)


_WRONGS: tuple[dict[str, Any], ...] = (
    {"quorum": "off"},
    {"quorum": "1"},
    {"quorum": "all"},
    {"level": "nowhere"},
    {"two_primaries": True},
)


def _placement(dice: Chance, nodes: Sequence[str]) -> dict[str, Any]:
    """Three disks; or two and a tie-breaker; or two elsewhere, and the first node has none."""
    first, second, third = nodes[:3]
    placements: Weighted[dict[str, Any]] = [
        (6, {}),
        (3, {"replicas": (first, second), "tie_breaker": third}),
        (1, {"replicas": (second, third)}),
    ]
    return weighted(dice, placements)


# How the first node is missed, or that of LINSTOR's controller

Part = Callable[[Scene, float], Iterator[Step]]
"""What happens from a moment on."""


def _dies(scene: Scene, at: float) -> Iterator[Step]:
    yield step(at, Do.KILL, node=scene.nodes[0])
    if scene.dice.happens(0.2):
        yield step(at + scene.dice.between(5, 90), Do.BOOT, node=scene.nodes[0])


def _is_cut_off(scene: Scene, at: float) -> Iterator[Step]:
    """It hears nobody, and lives."""
    yield step(at, Do.CUT, node=scene.nodes[0])
    if scene.dice.happens(0.3):
        yield _later(scene.dice, step(at, Do.HEAL, node=scene.nodes[0]))


def _is_back_without_storage(scene: Scene, at: float) -> Iterator[Step]:
    """The same, and when all else is mended, DRBD's network is not, for most of a minute."""
    dice, first = scene.dice, scene.nodes[0]
    yield step(at, Do.CUT, node=first)
    yield from _from_all(scene, at, Do.CUT_REPLICATION)
    at += dice.between(65, 75)
    yield step(at, Do.HEAL, node=first)
    yield from _from_all(scene, at + dice.between(45, 50), Do.MEND_REPLICATION)


def _stalls(scene: Scene, at: float) -> Iterator[Step]:
    """Its programs are not heard, while its kernel goes on; and DRBD loses the others."""
    yield step(at, scene.dice.pick(_SILENCES), node=scene.nodes[0])
    yield from _from_all(scene, at, Do.CUT_REPLICATION)


_SILENCES = (Do.FREEZE, Do.FREEZE, Do.CUT_API, Do.KILL_KUBELET)


def _hangs(scene: Scene, at: float) -> Iterator[Step]:
    """The same, and its satellite is not heard either."""
    yield step(at, Do.FREEZE, node=scene.nodes[0])
    yield from _from_all(scene, at, Do.CUT_REPLICATION)


def _comes_and_goes(scene: Scene, at: float) -> Iterator[Step]:
    """It hangs, and its links to the others do not stay as they are."""
    yield from _hangs(scene, at)
    for _ in range(1 + scene.dice.below(2)):
        at += scene.dice.between(16, 24)
        yield from _from_all(scene, at, Do.MEND_REPLICATION)
        at += scene.dice.between(11, 15)
        yield from _from_all(scene, at, Do.CUT_REPLICATION)


def _keeps_a_friend(scene: Scene, at: float) -> Iterator[Step]:
    """It hangs, and one of its links is gone: another replica still lends it its vote."""
    dice, (first, second, third, *_) = scene.dice, scene.nodes
    yield step(at, Do.FREEZE, node=first)
    do = Do.MUTE_REPLICATION if dice.happens(0.2) else Do.CUT_REPLICATION
    yield step(at, do, node=first, peer=dice.pick((second, third)))


def _keeps_a_friend_nobody_hears(scene: Scene, at: float) -> Iterator[Step]:
    """The same, and the satellite of the friend is away: LINSTOR hears only the one that both have
    lost."""
    dice, first, peers = scene.dice, scene.nodes[0], scene.nodes[1:3]
    friend, left = peers if dice.happens(0.5) else peers[::-1]
    yield step(at, Do.FREEZE, node=first)
    for lost in (first, friend):
        yield step(at, Do.CUT_REPLICATION, node=lost, peer=left)
    yield step(at + dice.between(0, 5), Do.STOP_SATELLITE, node=friend)
    if dice.happens(0.1):
        yield step(at + dice.between(10, 60), Do.START_SATELLITE, node=friend)


def _friend_hangs(scene: Scene, _: float) -> Iterator[Step]:
    """Two nodes lose each other, and one of them hangs, which LINSTOR does not notice. They find
    each other again for DRBD, and lose the third, which is all that is heard."""
    first, second, third = scene.nodes[:3]
    yield step(0, Do.CUT_REPLICATION, node=first, peer=second)
    at = scene.dice.between(14, 18)
    yield step(at, Do.STAY_ONLINE, node=second)
    yield step(at, Do.FREEZE, node=second)
    yield step(at + 0.5, Do.MEND_REPLICATION, node=first, peer=second)
    at += scene.dice.between(6, 9)
    yield step(at, Do.FREEZE, node=first)
    for peer in (first, second):
        yield step(at, Do.CUT_REPLICATION, node=third, peer=peer)


def _loses_its_storage(scene: Scene, at: float) -> Iterator[Step]:
    """And nothing else: Kubernetes hears of it as ever."""
    yield from _from_all(scene, at, Do.CUT_REPLICATION)


def _linstors_node_is_lost(scene: Scene, at: float) -> Iterator[Step]:
    yield step(at, scene.dice.pick((Do.CUT, Do.KILL)), node=_linstors_node(scene))


def _linstors_node_loses_the_api(scene: Scene, at: float) -> Iterator[Step]:
    """And nothing else: DRBD and LINSTOR there go on, and the machine answers."""
    yield step(at, scene.dice.pick((Do.CUT_API, Do.KILL_KUBELET)), node=_linstors_node(scene))


def _most_are_silent(scene: Scene, at: float) -> Iterator[Step]:
    """LINSTOR's node is cut off, and the API hears nothing of the others either."""
    host = _linstors_node(scene)
    yield step(at, Do.CUT, node=host)
    for node in scene.nodes:
        if node != host:
            yield step(at + scene.dice.between(0, 5), Do.CUT_API, node=node)


def _linstors_node(scene: Scene) -> str:
    """The node that LINSTOR's controller is on."""
    spec = scene.opening.linstor
    return scene.nodes[0] if spec is None else spec.controller


# What comes amid that


# Settings are changed before it happens, or while DRBD's word has to last.


def _a_setting_changes(scene: Scene, at: float) -> Iterator[Step]:
    yield from scene.dice.pick(_SETTINGS)(scene, at)


def _quorum_is_switched_off(scene: Scene, at: float) -> Iterator[Step]:
    yield step(_when_it_is_set(scene, at), Do.LINSTOR, what=What.QUORUM_OFF)


def _quorum_is_switched_on(scene: Scene, at: float) -> Iterator[Step]:
    yield step(_when_it_is_set(scene, at), Do.LINSTOR, what=What.QUORUM_ON)


def _replica_is_freed(scene: Scene, at: float) -> Iterator[Step]:
    """That of the first node, from any quorum."""
    yield step(_when_it_is_set(scene, at), Do.FREE_REPLICA, node=scene.nodes[0])


def _two_primaries_are_allowed(scene: Scene, at: float) -> Iterator[Step]:
    """As somebody does who wants to move a VM live."""
    at = _when_it_is_set(scene, at)
    if scene.dice.happens(0.7):
        yield step(at, Do.LINSTOR, what=What.ALLOW_TWO_PRIMARIES)
    else:
        first, *others = scene.nodes
        yield step(at, Do.ALLOW_TWO_BETWEEN, node=first, peer=scene.dice.pick(others))


_SETTINGS: tuple[Part, ...] = (
    _quorum_is_switched_off,
    _quorum_is_switched_on,
    _replica_is_freed,
    _two_primaries_are_allowed,
)


def _when_it_is_set(scene: Scene, at: float) -> float:
    dice = scene.dice
    return dice.between(0, at) if dice.happens(0.4) else at + dice.between(20, 45)


def _linstor_is_lost(scene: Scene, at: float) -> Iterator[Step]:
    """For long, and the node is back with the others for DRBD, which nobody can ask."""
    dice = scene.dice
    at += dice.between(25, 40)
    yield step(at, Do.LINSTOR, what=dice.pick(_TROUBLES))
    if dice.happens(0.8):
        yield from _from_all(scene, at + dice.between(0.5, 3), Do.MEND_REPLICATION)
    if dice.happens(0.2):
        yield step(at + dice.between(10, 60), Do.LINSTOR, what=What.WELL)


_TROUBLES = (
    What.REFUSE, What.HTML, What.REDIRECT, What.UNAUTHORIZED, What.FORBIDDEN, What.BROKEN,
    What.UNAVAILABLE, What.SILENT, What.BREAKS_OFF, What.GARBLED,
)  # fmt: skip


def _linstor_stumbles(scene: Scene, at: float) -> Iterator[Step]:
    """It restarts, or streams are cut, or it answers oddly."""
    dice = scene.dice
    for _ in range(1 + dice.below(3)):
        seconds = round(dice.between(1, 30), 1)
        odd = step(at + dice.between(0, 70), Do.LINSTOR, what=dice.pick(_STUMBLES), seconds=seconds)
        yield _amid(dice, odd)


_STUMBLES = (
    What.KILL, What.CUT_STREAMS, What.END_STREAMS, What.SILENCE_STREAMS, What.SLOW, What.EMPTY,
    What.HUGE_NUMBERS, What.ERROR_EVENT, What.LATE_HEAD, What.WELL,
)  # fmt: skip


def _satellite_restarts(scene: Scene, at: float) -> Iterator[Step]:
    """Or it stays away for so long that LINSTOR gives it up."""
    dice, node = scene.dice, scene.dice.pick(scene.nodes)
    at += dice.between(0, 60)
    yield step(at, Do.STOP_SATELLITE, node=node)
    if dice.happens(0.2):
        yield step(at + dice.between(5, 20), Do.EVICT_SATELLITE, node=node)
    if dice.happens(0.7):
        yield step(at + dice.between(1, 20), Do.START_SATELLITE, node=node)


def _others_lose_each_other(scene: Scene, at: float) -> Iterator[Step]:
    dice, ends = scene.dice, {"node": scene.nodes[1], "peer": scene.nodes[2]}
    at += dice.between(0, 50)
    yield step(at, Do.CUT_REPLICATION, **ends)
    if dice.happens(0.7):
        yield _amid(dice, step(at + dice.between(5, 30), Do.MEND_REPLICATION, **ends))


def _export_moves(scene: Scene, at: float) -> Iterator[Step]:
    """The NFS server starts elsewhere, and whoever is connected goes on there."""
    dice = scene.dice
    yield step(at + dice.between(10, 90), Do.SERVE_EXPORTS, node=dice.pick(scene.nodes[1:]))


def _drbd_is_back(scene: Scene, at: float) -> Iterator[Step]:
    for mended in _from_all(scene, at, Do.MEND_REPLICATION):
        yield _later(scene.dice, mended)


def _node_is_back(scene: Scene, at: float) -> Iterator[Step]:
    for do in (Do.THAW, Do.HEAL, Do.START_KUBELET):
        yield _later(scene.dice, step(at, do, node=scene.nodes[0]))


_MISHAPS: Weighted[Part] = [
    (1, _linstor_stumbles),
    (1, _satellite_restarts),
    (1, _others_lose_each_other),
    (1, _export_moves),
    (1, _drbd_is_back),
    (1, _node_is_back),
]


def _a_mishap(scene: Scene, at: float) -> Iterator[Step]:
    yield from weighted(scene.dice, _MISHAPS)(scene, at)


# Stories


def _story(beginning: Part, *amid: Part, heard: bool = False) -> Story:
    """Now and then there is a mishap besides. Unless the machine is to be ``heard``, it mostly is
    not: then DRBD is all that speaks for a node."""

    def story(scene: Scene) -> Iterator[Step]:
        dice, at = scene.dice, scene.dice.between(2, 8)
        for part in (beginning, *amid):
            yield from part(scene, at)
        if dice.happens(0.15):
            yield from _a_mishap(scene, at)
        if not heard and dice.happens(0.9):
            yield from scene.all_of_us(0, Do.FIREWALL)

    return story


STORIES: Weighted[Story] = [
    (1, _story(_dies, _a_mishap)),
    (2, _story(_dies, _two_primaries_are_allowed)),
    (2, _story(_is_cut_off, _a_mishap)),
    (1, _story(_is_cut_off, _a_setting_changes)),
    (2, _story(_is_cut_off, _quorum_is_switched_off)),
    (3, _story(_is_back_without_storage)),
    (1, _story(_stalls)),
    (1, _story(_hangs, _quorum_is_switched_off)),
    (3, _story(_hangs, _replica_is_freed)),
    (2, _story(_hangs, _two_primaries_are_allowed)),
    (5, _story(_hangs, _linstor_is_lost)),
    (4, _story(_comes_and_goes)),
    (2, _story(_keeps_a_friend)),
    (4, _story(_keeps_a_friend_nobody_hears)),
    (4, _story(_friend_hangs)),
    (2, _story(_loses_its_storage)),
    (2, _story(_linstors_node_is_lost)),
    (2, _story(_linstors_node_loses_the_api, heard=True)),
    (2, _story(_most_are_silent, heard=True)),
]


def _later(dice: Chance, back: Step) -> Step:
    """Within the grace, or between two writes of ours, or afterwards."""
    return _amid(dice, msgspec.structs.replace(back, at=round(back.at + dice.between(10, 75), 1)))


def _amid(dice: Chance, planned: Step) -> Step:
    """Some wait for a write of ours."""
    if not dice.happens(0.4):
        return planned
    return msgspec.structs.replace(planned, after=dice.pick(_MOMENTS))


_MOMENTS = (After.INTENT, After.TAINT, After.MARK, After.REMOVAL)


def _from_all(scene: Scene, at: float, do: Do) -> Iterator[Step]:
    """Between the first node and every other."""
    for peer in scene.nodes[1:]:
        yield step(at, do, node=scene.nodes[0], peer=peer)

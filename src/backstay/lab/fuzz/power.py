"""Nodes whose power can be switched: BMCs that do as they are told, and such that do not.

Each node of the world has something else about it, so that whoever switches it wrongly is noticed.
The first has a BMC that is well; the credentials of the second lead to that of the third; the third
has one of two copies of a volume that DRBD replicates; and what the fourth runs is started again by
nobody, so that all is done as soon as it is released. All but the second bear the control plane.
"""

from collections.abc import Iterator

from backstay.lab.fuzz.scene import LONGEST, Scene, Weighted, rounded, step, weighted
from backstay.lab.linstor_spec import USUAL_CLASS, LinstorClass, LinstorSpec, What
from backstay.lab.power_spec import TIMED, BmcSpec, BmcsSpec, How
from backstay.lab.scenario import (
    Claim,
    Do,
    PolicySpec,
    Scenario,
    StatefulSet,
    Step,
    Vm,
    Workloads,
)
from backstay.lab.verbs import After
from backstay.sim.chance import Chance

LOSS = 75.0
"""Seconds in which a node is missed, switched off, seen to be off, and switched on again."""

CONFIG = {"fencing": {"power": {"enabled": True}}}
_CLAIMS = (Claim.SHARED, Claim.SINGLE)
_TROUBLES: Weighted[How] = [
    (2, How.LOSES_ANSWERS), (1, How.SILENT), (1, How.SLOW), (1, How.REFUSES), (1, How.FAILS),
    (1, How.LIES), (1, How.HOLDS_UP),
]  # fmt: skip


def world(dice: Chance) -> Scenario:
    """See the module."""
    vms = (
        # What has to be detached first keeps what comes after it out of a short case.
        Vm(name="vm-1", node="n1", claims=(Claim.SHARED,)),
        Vm(name="vm-2", node="n2", claims=(dice.pick(_CLAIMS),)),
        Vm(name="vm-4", node="n4", run_strategy="Manual"),
    )
    db = StatefulSet(name="db", node="n3", claims=(Claim.LINSTOR,))
    copies = LinstorClass(replicas=("n3", "n4"), tie_breaker="n1")
    return Scenario(
        name="",
        question="",
        nodes=("n1", "n2", "n3", "n4"),
        control_plane=("n1", "n3", "n4"),
        workloads=Workloads(vms=vms, stateful_sets=(db,)),
        linstor=LinstorSpec(controller="n1", classes={USUAL_CLASS: copies}),
        bmcs=BmcsSpec(of={"n2": BmcSpec(wired_to="n3"), "n1": _build(dice)}),
        policy=PolicySpec(config=CONFIG),
        controllers=1 + dice.below(2),
        until=LONGEST,
    )


def _build(dice: Chance) -> BmcSpec:
    """Of one that is as it should be."""
    return BmcSpec(
        uuid=dice.pick(("own", "swapped")),
        repeats_are_errors=dice.happens(0.5),
        takes=rounded(dice.between(0.1, 8)),
    )


def _lost(scene: Scene, node: str) -> Iterator[Step]:
    """Cut off, and perhaps it hangs as well."""
    at = scene.dice.between(0, 3)
    yield step(at, Do.CUT, node=node)
    if scene.dice.happens(0.3):
        yield step(at, Do.FREEZE, node=node)


# Stories


def is_cut_off(scene: Scene) -> Iterator[Step]:
    """And something comes between: its BMC has trouble, one of us dies, somebody else is at the
    switch, or it is back."""
    dice, node = scene.dice, scene.nodes[0]
    yield from _lost(scene, node)
    at = dice.between(5, 60)
    match dice.below(5):
        case 0:
            yield _trouble(scene, node, at=dice.between(0, 45))
            yield step(at + dice.between(10, 40), Do.BMC, node=node, how=How.WELL)
        case 1:
            name = scene.controller()
            yield scene.in_our_midst(step(at, Do.KILL_CONTROLLER, controller=name))
            yield step(at + dice.between(2, 20), Do.START_CONTROLLER, controller=name)
        case 2:
            deed = dice.pick((Do.SWITCH_ON, Do.SWITCH_OFF, Do.SWITCH_ON))
            yield scene.in_our_midst(step(at, deed, node=node))
            yield step(at + dice.between(1, 40), Do.HEAL, node=node)
        case 3:
            yield scene.in_our_midst(step(at, Do.HEAL, node=node))
    yield step(5, Do.HEAL, node=node, after=After.ON)


def _trouble(scene: Scene, node: str, *, at: float) -> Step:
    how = weighted(scene.dice, _TROUBLES)
    # No longer than a request may be under way: what lands later nobody can have waited for.
    seconds = rounded(scene.dice.between(0.5, 9)) if how in TIMED else 0.0
    return step(at, Do.BMC, node=node, how=how, seconds=seconds)


def is_not_switched(scene: Scene) -> Iterator[Step]:
    """Its BMC accepts that it is to go off, and does nothing; perhaps it does later."""
    dice, node = scene.dice, scene.nodes[0]
    yield step(0, Do.BMC, node=node, how=How.STUCK)
    yield from _lost(scene, node)
    if dice.happens(0.5):
        yield step(5, Do.BMC, node=node, how=How.WELL, after=After.OFF)


def is_mistaken_for_another(scene: Scene) -> Iterator[Step]:
    yield from _lost(scene, scene.nodes[1])


def answers_and_then_dies(scene: Scene) -> Iterator[Step]:
    """It loses touch with the API alone, and when that is over it loses its power. When all is done
    another is cut off, without which the control plane has no majority."""
    dice, node = scene.dice, scene.nodes[0]
    at = dice.between(0, 3)
    yield step(at, Do.CUT_API, node=node)
    at += dice.between(48, 55)
    yield step(at, Do.HEAL, node=node)
    at += dice.between(12, 15)
    yield step(at, dice.pick((Do.KILL, Do.SWITCH_OFF)), node=node)
    yield step(at + dice.between(44, 48), Do.CUT, node=scene.nodes[2])


def several_are_cut_off(scene: Scene) -> Iterator[Step]:
    """One after the other, by so much that the first is certainly silent when the other could be
    switched off."""
    at = scene.dice.between(0, 2)
    yield step(at, Do.CUT, node=scene.nodes[1])
    yield step(at + scene.dice.between(32, 38), Do.CUT, node=scene.nodes[0])


def is_cut_off_while_we_may_not(scene: Scene) -> Iterator[Step]:
    """We only observe, or are disarmed, from the beginning or from a moment before the switch."""
    dice = scene.dice
    if dice.happens(0.7):
        yield step(0, Do.OBSERVE)
    else:
        yield step(0, Do.DISARM, seconds=10_000.0)
    yield from _lost(scene, scene.nodes[0])


def is_another_programs_job(scene: Scene) -> Iterator[Step]:
    yield step(0, Do.CONFIGURE, config={"owners": {"fencing": scene.dice.pick(("Foreign", "Off"))}})
    yield from _lost(scene, scene.nodes[0])


def is_worked_at(scene: Scene) -> Iterator[Step]:
    """Somebody is at it when it falls silent, and perhaps says later that the work is done."""
    dice, node = scene.dice, scene.nodes[0]
    yield step(0, Do.PUT_IN_MAINTENANCE, node=node)
    yield from _lost(scene, node)
    if dice.happens(0.5):
        yield step(dice.between(50, 70), Do.TAKE_OUT_OF_MAINTENANCE, node=node)


def has_the_last_copy(scene: Scene) -> Iterator[Step]:
    """LINSTOR's controller restarts again and again when that is missed, and then tells of it."""
    dice, node, peer = scene.dice, scene.nodes[2], scene.nodes[3]
    yield step(dice.between(0, 2), Do.CUT_REPLICATION, node=node, peer=peer)
    at = dice.between(15, 20)
    yield step(at, Do.CUT, node=node)
    for later in (14, 22, 30, 38):
        yield step(at + later, Do.LINSTOR, what=What.KILL)


def a_request_is_held_up(scene: Scene) -> Iterator[Step]:
    """Somebody else switches it off meanwhile."""
    dice, node = scene.dice, scene.nodes[3]
    yield step(0, Do.BMC, node=node, how=How.HOLDS_UP, seconds=rounded(dice.between(14, 16.5)))
    yield step(dice.between(0, 3), Do.CUT, node=node)
    yield step(1, Do.SWITCH_OFF, node=node, after=After.INTENT)
    yield step(5, Do.HEAL, node=node, after=After.ON)


STORIES = [
    (1, is_cut_off),
    (1, is_not_switched),
    (1, is_mistaken_for_another),
    (1, answers_and_then_dies),
    (1, several_are_cut_off),
    (1, is_cut_off_while_we_may_not),
    (1, is_another_programs_job),
    (1, is_worked_at),
    (1, has_the_last_copy),
    (1, a_request_is_held_up),
]
"""As many as a game has cases of this theme."""

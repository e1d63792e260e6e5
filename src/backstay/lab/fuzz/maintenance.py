"""Stories of nodes in maintenance: they are drained, something comes in between, and it ends.

Of what is on the first node one thing may go at any time, one has a budget that allows one at a
time, and one has a budget that allows nothing until somebody deletes it: a drain takes as long as a
story wants it to. The first node and the third bear the control plane.
"""

from collections.abc import Iterator

import msgspec

from backstay.lab.fuzz.scene import LONGEST, Scene, Story, Weighted, rounded, step, weighted
from backstay.lab.linstor_spec import USUAL_CLASS, LinstorClass, LinstorSpec
from backstay.lab.scenario import (
    USUAL_GRACE,
    Budget,
    Claim,
    Deployment,
    Do,
    Scenario,
    StatefulSet,
    Step,
    Vm,
    Workloads,
)
from backstay.lab.verbs import OF_DRAINS
from backstay.sim.chance import Chance

_FIRST, _OTHER, _THIRD = "n1", "n2", "n3"
_STUCK = "ledger"
"""The set whose budget allows nothing."""

_GUESTS: Weighted[dict[str, object]] = [
    (3, {"eviction_strategy": "LiveMigrateIfPossible"}),
    (2, {"eviction_strategy": "LiveMigrate", "claims": (Claim.SINGLE,)}),
    (2, {"eviction_strategy": "LiveMigrateIfPossible", "claims": (Claim.SINGLE,)}),
    (2, {"eviction_strategy": ""}),
    (1, {"eviction_strategy": "External"}),
    (1, {"eviction_strategy": "LiveMigrate", "hotplug": (Claim.SHARED,)}),
]


def world(dice: Chance) -> Scenario:
    """A guest that can be moved and one that perhaps cannot, sets with budgets, one of them perhaps
    without a grace period and one with a volume of which there are two copies, and what a DaemonSet
    has everywhere."""
    other = Vm(name="vm-2", node=_FIRST)
    limit = dice.pick((Budget(min_available=1), Budget(max_unavailable=1)))
    grace = 0 if dice.happens(0.3) else USUAL_GRACE
    return Scenario(
        name="",
        question="",
        nodes=(_FIRST, _OTHER, _THIRD),
        control_plane=(_FIRST, _THIRD),
        maintenance=True,
        linstor=LinstorSpec(
            controller=_THIRD,
            classes={USUAL_CLASS: LinstorClass(replicas=(_FIRST, _OTHER), tie_breaker=_THIRD)},
        ),
        workloads=Workloads(
            vms=(
                Vm(name="vm-1", node=_FIRST, eviction_strategy="LiveMigrate"),
                msgspec.structs.replace(other, **weighted(dice, _GUESTS)),
            ),
            stateful_sets=(
                StatefulSet(name="db", node=_FIRST, replicas=2, budget=limit, grace=grace),
                StatefulSet(
                    name=_STUCK,
                    node=_FIRST,
                    claims=(Claim.LINSTOR,),
                    budget=Budget(min_available=1),
                ),
            ),
            deployments=(
                Deployment(name="site", node=_FIRST),
                Deployment(name="blog", node=_OTHER),
            ),
            daemon_sets=("agent",),
        ),
        controllers=2 if dice.happens(0.4) else 1,
        until=LONGEST,
    )


def _first(at: float, do: Do) -> Step:
    return step(at, do, node=_FIRST)


def _unstuck(at: float) -> Step:
    return step(at, Do.DELETE_BUDGET, workload=f"{_STUCK}-0")


def _amid(scene: Scene, planned: Step) -> Step:
    """Half of the time it waits for a write of ours."""
    dice = scene.dice
    if dice.happens(0.5):
        return planned
    if dice.happens(0.5):
        return msgspec.structs.replace(planned, after=dice.pick(OF_DRAINS))
    return msgspec.structs.replace(planned, after_writes=1 + dice.below(12))


def drained_and_given_back(scene: Scene) -> Iterator[Step]:
    dice, at = scene.dice, scene.dice.between(1, 5)
    yield _unstuck(0)
    yield _first(at, Do.MAINTAIN)
    yield _first(at + dice.between(45, 70), Do.END_MAINTENANCE)


def blocked_for_long(scene: Scene) -> Iterator[Step]:
    """Until it must have been told by what. Perhaps somebody uncordons it meanwhile, in vain."""
    dice, at = scene.dice, scene.dice.between(0, 3)
    yield _first(at, Do.MAINTAIN)
    if dice.happens(0.3):
        yield _first(at + dice.between(5, 60), Do.UNCORDON)
    yield _unstuck(at + dice.between(106, 112))


def ended_early(scene: Scene) -> Iterator[Step]:
    """What stood in the way is gone when it is over."""
    dice, at = scene.dice, scene.beginning()
    yield _first(at, Do.MAINTAIN)
    at += dice.between(3, 30)
    yield _first(at, Do.END_MAINTENANCE)
    yield _unstuck(at + dice.between(6, 15))
    if dice.happens(0.3):
        yield _first(at + dice.between(0, 20), Do.MAINTAIN)


def people_want_something_else(scene: Scene) -> Iterator[Step]:
    """They disarm us, or give the job away."""
    dice, at = scene.dice, scene.beginning()
    yield _first(at, Do.MAINTAIN)
    at += dice.between(3, 15)
    if dice.happens(0.7):
        yield step(at, Do.DISARM, seconds=rounded(dice.between(30, 90)))
    else:
        yield step(at, Do.CONFIGURE, config={"owners": {"maintenance": "Off"}})
    yield _unstuck(at + dice.between(3, 15))
    if dice.happens(0.5):
        yield step(at + dice.between(20, 40), Do.ARM)


def cordoned_by_somebody(scene: Scene) -> Iterator[Step]:
    """Or labelled, or both, before or in the midst."""
    dice, at = scene.dice, scene.dice.between(1, 5)
    yield _first(0, Do.CORDON)
    if dice.happens(0.5):
        yield _first(dice.between(0, 10), Do.EXCLUDE)
    yield _first(at, Do.MAINTAIN)
    yield _first(at + dice.between(5, 30), Do.END_MAINTENANCE)


def of_another_program(scene: Scene) -> Iterator[Step]:
    job = {"maintenance": scene.dice.pick(("Foreign", "Foreign", "Off"))}
    yield step(0, Do.CONFIGURE, config={"owners": job})
    yield _first(scene.dice.between(2, 6), Do.MAINTAIN)


def copies_are_lost(scene: Scene) -> Iterator[Step]:
    """The other copy of a volume is cut off before, and nothing else is in the way; it may come
    back."""
    dice, at = scene.dice, scene.dice.between(0, 3)
    others = (_FIRST, _THIRD)
    yield _unstuck(0)
    yield step(0, Do.STOP_VM, workload=scene.vms[1])
    for peer in others:
        yield step(at, Do.CUT_REPLICATION, node=_OTHER, peer=peer)
    yield _first(at + dice.between(14, 20), Do.MAINTAIN)
    if dice.happens(0.3):
        back = at + dice.between(60, 90)
        for peer in others:
            yield step(back, Do.MEND_REPLICATION, node=_OTHER, peer=peer)


def dies_while_it_is_drained(scene: Scene) -> Iterator[Step]:
    """The node, or who drains it."""
    dice, at = scene.dice, scene.beginning()
    yield _first(at, Do.MAINTAIN)
    if dice.happens(0.5):
        yield _amid(scene, _first(at + dice.between(0, 4), Do.KILL))
        yield step(at + dice.between(45, 60), Do.CONFIRM_OFF)
    else:
        for name in scene.ours:
            killed = step(at + dice.between(0, 10), Do.KILL_CONTROLLER, controller=name)
            yield _amid(scene, killed)
            for later in (20, 40, 60):
                yield step(at + later, Do.START_CONTROLLER, controller=name)
    if dice.happens(0.5):
        yield _first(at + dice.between(20, 90), Do.END_MAINTENANCE)


def others_are_drained_too(scene: Scene) -> Iterator[Step]:
    """Two nodes, or one that is asked for twice; perhaps the API is restored meanwhile, or we are
    to observe and no more."""
    dice, at = scene.dice, scene.beginning()
    yield step(at, Do.BACK_UP)
    yield _first(at + 1, Do.MAINTAIN)
    yield step(at + dice.between(0, 20), Do.MAINTAIN, node=dice.pick((_FIRST, _OTHER)))
    if dice.happens(0.4):
        yield _amid(scene, step(at + dice.between(3, 30), Do.ROLL_BACK))
        yield step(at + dice.between(35, 50), Do.ARM)
    elif dice.happens(0.3):
        yield _amid(scene, step(at + dice.between(3, 30), Do.OBSERVE))
    yield _unstuck(at + dice.between(20, 60))
    if dice.happens(0.5):
        yield _first(at + dice.between(20, 90), Do.END_MAINTENANCE)


def of_the_control_plane(scene: Scene) -> Iterator[Step]:
    """Its other node has to wait, until the first is back or, perhaps, for ever."""
    dice, at = scene.dice, scene.dice.between(1, 5)
    yield _unstuck(0)
    yield _first(at, Do.MAINTAIN)
    yield step(at + dice.between(0, 20), Do.MAINTAIN, node=_THIRD)
    if dice.happens(0.7):
        yield _amid(scene, _first(at + dice.between(20, 50), Do.END_MAINTENANCE))


def amid(others: Weighted[Story]) -> Story:
    """A drain in the midst of two stories that can happen to anybody."""

    def story(scene: Scene) -> Iterator[Step]:
        dice, at = scene.dice, scene.beginning()
        yield _first(at, Do.MAINTAIN)
        yield _unstuck(at + dice.between(0, 40))
        if dice.happens(0.5):
            yield _first(at + dice.between(20, 60), Do.END_MAINTENANCE)
        for _ in range(2):
            yield from weighted(dice, others)(scene)

    return story


STORIES: Weighted[Story] = [
    (1, drained_and_given_back),
    (1, blocked_for_long),
    (1, ended_early),
    (1, people_want_something_else),
    (1, cordoned_by_somebody),
    (1, of_another_program),
    (1, copies_are_lost),
    (1, dies_while_it_is_drained),
    (1, others_are_drained_too),
    (1, of_the_control_plane),
]

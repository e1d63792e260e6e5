"""Stories of people: they change their minds, meddle with what is ours, or own a workload."""

from collections.abc import Iterator

import msgspec

from backstay.lab.fuzz.deaths import dies_for_good, first_dies
from backstay.lab.fuzz.policies import another_rule
from backstay.lab.fuzz.scene import Scene, rounded, step
from backstay.lab.scenario import Do, Step
from backstay.lab.verbs import OF_FAILOVERS


def minds_change(scene: Scene) -> Iterator[Step]:
    dice, at = scene.dice, scene.beginning()
    match dice.pick((Do.DISARM, Do.OBSERVE, Do.DELETE_CONFIG)):
        case Do.DISARM:
            seconds = rounded(dice.between(5, 60))
            yield scene.in_our_midst(step(at, Do.DISARM, seconds=seconds))
        case change:
            yield scene.in_our_midst(step(at, change))
    if dice.happens(0.5):
        yield step(at + dice.between(5, 40), Do.ARM)


def rules_change(scene: Scene) -> Iterator[Step]:
    """At any moment, and perhaps once more."""
    dice, at = scene.dice, scene.beginning()
    for _ in range(1 + dice.below(2)):
        at += dice.between(0, 50)
        yield scene.in_our_midst(step(at, Do.CONFIGURE, config=another_rule(dice)))


def rules_change_as_it_is_dealt_with(scene: Scene) -> Iterator[Step]:
    """A node dies, and somebody changes them while we write."""
    yield from dies_for_good(scene)
    dice = scene.dice
    changed = step(dice.between(5, 45), Do.CONFIGURE, config=another_rule(dice))
    yield msgspec.structs.replace(changed, after=dice.pick(OF_FAILOVERS))


def dies_while_we_are_disarmed(scene: Scene) -> Iterator[Step]:
    """For the time of some work."""
    yield step(0, Do.DISARM, seconds=rounded(scene.dice.between(50, 120)))
    yield from _dies_and_perhaps_we_are_armed(scene)


def dies_while_we_are_disarmed_and_clocks_are_set(scene: Scene) -> Iterator[Step]:
    """By more than the time for which we are."""
    yield step(0, Do.DISARM, seconds=rounded(scene.dice.between(70, 120)))
    ahead = rounded(scene.dice.between(600, 7200))
    yield from scene.all_of_us(scene.beginning(), Do.SKEW_CONTROLLER, seconds=ahead)
    yield from dies_for_good(scene)


def dies_while_we_only_observe(scene: Scene) -> Iterator[Step]:
    yield step(0, Do.OBSERVE)
    yield from _dies_and_perhaps_we_are_armed(scene)


def dies_without_configuration(scene: Scene) -> Iterator[Step]:
    yield step(0, Do.DELETE_CONFIG)
    yield from _dies_and_perhaps_we_are_armed(scene)


def dies_and_its_kind_is_left_out(scene: Scene) -> Iterator[Step]:
    """By the configuration: VMs, StatefulSets, or both."""
    vms, sets = "virtualMachines", "statefulSets"
    kinds = scene.dice.pick(((vms,), (sets,), (vms, sets)))
    yield step(0, Do.CONFIGURE, config={"protect": dict.fromkeys(kinds, False)})
    yield from dies_for_good(scene)


def _dies_and_perhaps_we_are_armed(scene: Scene) -> Iterator[Step]:
    yield from first_dies(scene)
    if scene.dice.happens(0.3):
        yield step(scene.dice.between(40, 60), Do.ARM)


def somebody_meddles(scene: Scene) -> Iterator[Step]:
    """With what is ours, or with what we look at."""
    dice, at = scene.dice, scene.beginning()
    deed = dice.pick(
        (Do.WITHDRAW, Do.REMOVE_TAINT, Do.CORDON, Do.DELETE_LEASE, Do.DELETE_INCIDENTS)
    )
    of_nodes = deed not in (Do.DELETE_LEASE, Do.DELETE_INCIDENTS)
    about = {"node": scene.node()} if of_nodes else {}
    yield scene.in_our_midst(step(at + dice.between(0, 50), deed, **about))


def incident_is_deleted(scene: Scene) -> Iterator[Step]:
    """Of a node about which nothing can be done, or not yet: what is held must be told again."""
    dice, node, at = scene.dice, scene.nodes[0], scene.dice.between(0, 5)
    yield step(at, dice.pick((Do.CUT, Do.KILL, Do.FREEZE)), node=node)
    at += dice.between(42, 50)
    yield step(at, Do.DELETE_INCIDENTS)
    if dice.happens(0.2):
        yield step(at + dice.between(1, 20), Do.CONFIRM_OFF)


def owner_changes_something(scene: Scene) -> Iterator[Step]:
    dice, at = scene.dice, scene.beginning()
    vms = scene.vms
    deeds = (Do.UNPROTECT, Do.PROTECT, *((Do.STOP_VM, Do.DELETE_VM) if vms else ()))
    deed = dice.pick(deeds)
    names = vms if deed in (Do.STOP_VM, Do.DELETE_VM) else scene.opening.workloads.names()
    changed = step(at + dice.between(0, 50), deed, workload=dice.pick(names))
    yield scene.in_our_midst(changed)


def says_what_we_do_not_know(scene: Scene) -> Iterator[Step]:
    """Somebody has installed definitions that are newer than we are, and a node dies."""
    yield step(0, Do.SAY_WHAT_WE_DO_NOT_KNOW)
    yield from dies_for_good(scene)

"""Stories of our own controllers, and of the control plane that they work with."""

from collections.abc import Iterator

import msgspec

from backstay.lab.fuzz.scene import Scene, step
from backstay.lab.scenario import LEADER, PROGRAMS, After, Do, Step

_MIDST = (After.INTENT, After.TAINT, After.MARK, After.REMOVAL)
_STALLS = (
    (Do.PAUSE_CONTROLLER, Do.RESUME_CONTROLLER),
    (Do.CUT_CONTROLLER, Do.HEAL_CONTROLLER),
)


def helper_dies_too(scene: Scene) -> Iterator[Step]:
    """A node dies, and whoever is about to help dies too, in the midst of it."""
    dice, node, at = scene.dice, scene.nodes[0], scene.dice.between(0, 5)
    yield step(at, Do.KILL, node=node)
    at += dice.between(12, 25)
    yield step(at, Do.CONFIRM, node=node)
    yield step(at, Do.KILL_CONTROLLER, controller=LEADER, after=dice.pick(_MIDST))
    if dice.happens(0.8):
        yield step(at + dice.between(5, 20), Do.START_CONTROLLER, controller=LEADER)


def helper_stands_still(scene: Scene) -> Iterator[Step]:
    """The same, but it wakes up again, perhaps when somebody else leads."""
    dice, node, at = scene.dice, scene.nodes[0], scene.dice.between(0, 5)
    yield step(at, Do.KILL if dice.happens(0.7) else Do.CUT, node=node)
    at += dice.between(12, 25)
    yield step(at, Do.CONFIRM, node=node)
    yield step(at, Do.PAUSE_CONTROLLER, controller=LEADER, after=dice.pick(_MIDST))
    yield step(at + dice.between(15, 50), Do.RESUME_CONTROLLER, controller=LEADER)


def helper_wakes_up_deposed(scene: Scene) -> Iterator[Step]:
    """The same, when the next write is about to leave, and for so long that somebody else leads."""
    dice, node, at = scene.dice, scene.nodes[0], scene.dice.between(0, 5)
    yield step(at, Do.KILL, node=node)
    at += dice.between(12, 25)
    yield step(at, Do.CONFIRM, node=node)
    yield step(at, Do.PAUSE_CONTROLLER, controller=LEADER, after=After.TAINT)
    yield step(at + dice.between(30, 50), Do.RESUME_CONTROLLER, controller=LEADER)


def controller_dies(scene: Scene) -> Iterator[Step]:
    name, at = scene.controller(), scene.beginning()
    yield scene.in_our_midst(step(at, Do.KILL_CONTROLLER, controller=name))
    if scene.dice.happens(0.8):
        back = at + scene.dice.between(0.1, 40)
        yield scene.in_our_midst(step(back, Do.START_CONTROLLER, controller=name))


def controller_stalls(scene: Scene) -> Iterator[Step]:
    dice = scene.dice
    name, at = LEADER if dice.happens(0.5) else scene.controller(), scene.beginning()
    trouble, end = dice.pick(_STALLS)
    began = step(at, trouble, controller=name)
    if dice.happens(0.5):
        # Where it matters most: it has begun to act, and has not ended.
        yield msgspec.structs.replace(began, after=dice.pick(_MIDST))
    else:
        yield scene.in_our_midst(began)
    if dice.happens(0.8):
        yield step(at + dice.between(1, 60), end, controller=name)


def lease_is_lost(scene: Scene) -> Iterator[Step]:
    """Somebody cleans up while none of us is there, and perhaps a node is down."""
    dice, at = scene.dice, scene.dice.between(0, 5)
    if dice.happens(0.8):
        yield step(at, Do.KILL, node=scene.nodes[0])
        at += dice.between(42, 50)
    yield from scene.all_of_us(at, Do.KILL_CONTROLLER)
    yield step(at + 1, Do.DELETE_LEASE)
    yield from scene.all_of_us(at + dice.between(2, 5), Do.START_CONTROLLER)
    if dice.happens(0.5):
        yield step(at + dice.between(5, 20), Do.CONFIRM_OFF)


def api_fails(scene: Scene) -> Iterator[Step]:
    at = scene.beginning()
    yield scene.in_our_midst(step(at, Do.KILL_API))
    yield step(at + scene.dice.between(0.5, 40), Do.START_API)


def api_is_restored(scene: Scene) -> Iterator[Step]:
    """And perhaps a node dies that day, whose death somebody confirms afterwards."""
    dice, at = scene.dice, scene.dice.between(0, 5)
    yield step(at, Do.BACK_UP)
    restored = at + dice.between(5, 40)
    if dice.happens(0.7):
        node = scene.node()
        yield step(restored - dice.between(-5, 30), Do.KILL, node=node)
        yield step(restored, _restore(scene))
        yield step(restored + dice.between(15, 45), Do.CONFIRM, node=node)
    else:
        yield scene.in_our_midst(step(restored, _restore(scene)))
    if dice.happens(0.3):
        yield step(restored + dice.between(20, 60), Do.ARM)


def restored_while_one_is_away(scene: Scene) -> Iterator[Step]:
    """One of us is cut off from before the backup until the restore, and knows of no other API. A
    node dies that day, and is confirmed once that one may lead."""
    dice, away, node = scene.dice, scene.controller(), scene.nodes[0]
    yield step(0, Do.CUT_CONTROLLER, controller=away)
    backed_up = dice.between(5, 10)
    yield step(backed_up, Do.BACK_UP)
    restored = backed_up + dice.between(20, 30)
    yield step(restored - dice.between(5, 15), Do.KILL, node=node)
    yield step(restored, Do.ROLL_BACK)
    yield step(restored + dice.between(0.2, 2), Do.HEAL_CONTROLLER, controller=away)
    yield step(restored + dice.between(55, 70), Do.CONFIRM, node=node)


def restored_by_the_book(scene: Scene) -> Iterator[Step]:
    """No version is lower than one that was seen. A node has died by then, which is confirmed
    later; or it was confirmed, and the restored API has never heard that it booted since. How much
    is raised is up to whoever restores."""
    dice, node = scene.dice, scene.nodes[0]
    yield step(0, Do.KILL, node=node)
    backed_up = dice.between(2, 10)
    has_booted = dice.happens(0.3)
    if has_booted:
        backed_up += 20
        yield step(backed_up - dice.between(2, 6), Do.CONFIRM, node=node)
    yield step(backed_up, Do.BACK_UP)
    restored = backed_up + dice.between(10, 20)
    if has_booted:
        yield step(backed_up + 0.1, Do.BOOT, node=node)
        yield step(restored - dice.between(-5, 5), dice.pick((Do.CUT, Do.KILL)), node=node)
    raised = Do.ROLL_BACK_RAISED if has_booted else Do.ROLL_BACK_RAISED_A_LITTLE
    yield step(restored, raised)
    yield step(restored + dice.between(30, 45), Do.CONFIRM_OFF)


def restored_to_before_it_booted(scene: Scene) -> Iterator[Step]:
    """A node was rightly said to be dead, and boots after the backup, of which the restored API
    knows nothing. It is cut off as that is restored, and once more, before it has said a word."""
    dice, node = scene.dice, scene.nodes[0]
    yield step(0, Do.KILL, node=node)
    yield step(0, Do.CONFIRM, node=node)
    booted = dice.between(5, 7)
    yield step(booted, Do.BACK_UP)
    yield step(booted, Do.BOOT, node=node)
    restored = booted + dice.between(9, 12)
    yield step(restored, _restore(scene))
    yield step(restored + 0.1, dice.pick((Do.CUT, Do.KILL)), node=node)
    restored += dice.between(11, 15)
    yield step(restored, _restore(scene))
    yield step(restored + dice.between(20, 25), Do.ARM)


def restored_again_while_the_leader_was_away(scene: Scene) -> Iterator[Step]:
    """Whoever leads has seen the API go back, and is cut off as it goes back once more. Another has
    seen that, and dies before somebody arms."""
    dice, other = scene.dice, scene.controller()
    yield step(0, Do.KILL_CONTROLLER, controller=other)
    yield step(1, Do.BACK_UP)
    yield step(dice.between(8, 12), _restore(scene))
    yield step(14, Do.START_CONTROLLER, controller=other)
    *away, armed = _restored_while_the_leader_is_away(scene, Do.ROLL_BACK)
    yield from away
    yield step(armed.at - dice.between(6, 8), Do.KILL_CONTROLLER, controller=other)
    yield armed


def restored_by_the_book_while_the_leader_was_away(scene: Scene) -> Iterator[Step]:
    """The lease is as old as whoever leads has written it, and no version is lower."""
    yield from _restored_while_the_leader_is_away(scene, Do.ROLL_BACK_RAISED)


def _restored_while_the_leader_is_away(scene: Scene, restore: Do) -> Iterator[Step]:
    """To a word about a node that had no power then, and has booted since."""
    dice, node = scene.dice, scene.nodes[0]
    yield step(0, Do.KILL, node=node)
    away = dice.between(28, 34)
    yield step(away, Do.CUT_CONTROLLER, controller=LEADER)
    yield step(away + 0.5, Do.CONFIRM, node=node)
    yield step(away + 1, Do.BACK_UP)
    yield step(away + 1, Do.BOOT, node=node)
    # It takes some seconds until the node is heard of, and then some until somebody looks.
    restored = away + dice.between(8.5, 9.5)
    yield step(restored, restore)
    yield step(restored + 0.1, Do.CUT, node=node)
    yield step(restored + dice.between(0.5, 1.5), Do.HEAL_CONTROLLER, controller=LEADER)
    yield step(restored + dice.between(20, 25), Do.ARM)


def _restore(scene: Scene) -> Do:
    """Most do not heed the manual."""
    return Do.ROLL_BACK_RAISED if scene.dice.happens(0.3) else Do.ROLL_BACK


def program_fails(scene: Scene) -> Iterator[Step]:
    # The last one may be on nodes, and share their fate; the first is not in every cluster.
    program, at = scene.dice.pick(PROGRAMS[1:-1]), scene.beginning()
    yield step(at, Do.KILL_PROGRAM, program=program)
    yield step(at + scene.dice.between(1, 60), Do.START_PROGRAM, program=program)

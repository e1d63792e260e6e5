"""Stories of nodes that die, come back, or are only odd."""

from collections.abc import Generator, Iterator

from backstay.lab.fuzz.scene import Scene, Weighted, rounded, step, weighted
from backstay.lab.scenario import Do, Step

WORDS: Weighted[Do | None] = [(3, Do.CONFIRM), (2, Do.PUT_OUT), (2, Do.REMEDIATE), (1, None)]
"""By which somebody, or some program, says that a node is dead."""

APPEARANCES = (
    (Do.CUT, Do.HEAL),
    (Do.CUT_OUT, Do.HEAL),
    (Do.CUT_IN, Do.HEAL),
    (Do.CUT_API, Do.HEAL),
    (Do.FREEZE, Do.THAW),
    (Do.KILL_KUBELET, Do.START_KUBELET),
)
"""What makes a node seem dead that lives, and what ends it."""


def noticed(scene: Scene) -> float:
    """Seconds until somebody looks: mostly soon, or when Kubernetes has said that it is NotReady
    and has put its taints on."""
    dice = scene.dice
    return dice.between(10, 25) if dice.happens(0.6) else dice.between(45, 60)


def node_dies(scene: Scene) -> Iterator[Step]:
    yield from _dies(scene, scene.node())


def first_dies(scene: Scene) -> Iterator[Step]:
    """The node that has the most to lose."""
    yield from _dies(scene, scene.nodes[0])


def second_dies(scene: Scene) -> Iterator[Step]:
    yield from _dies(scene, scene.nodes[1])


def _dies(scene: Scene, node: str) -> Iterator[Step]:
    dice, at = scene.dice, scene.beginning()
    yield step(at, Do.KILL, node=node)
    said = at + noticed(scene)
    if dice.happens(0.2):
        yield step(said, Do.CONFIRM_OFF)
    elif dice.happens(0.85):
        yield step(said, Do.CONFIRM, node=node)
    if dice.happens(0.4):
        back = step(dice.between(at + 1, said + 25), Do.BOOT, node=node)
        yield scene.in_our_midst(back)


def dies_for_good(scene: Scene) -> Iterator[Step]:
    """And somebody confirms it."""
    yield from _dies_for_good(scene, scene.nodes[0])


def second_dies_for_good(scene: Scene) -> Iterator[Step]:
    yield from _dies_for_good(scene, scene.nodes[1])


def _dies_for_good(scene: Scene, node: str) -> Iterator[Step]:
    at = scene.beginning()
    yield step(at, Do.KILL, node=node)
    yield step(at + noticed(scene), Do.CONFIRM, node=node)


def node_seems_dead(scene: Scene) -> Iterator[Step]:
    """It lives all the while, and perhaps somebody vouches that it does not."""
    dice, node, at = scene.dice, scene.node(), scene.beginning()
    trouble, end = dice.pick(APPEARANCES)
    yield step(at, trouble, node=node)
    if dice.happens(0.5):
        yield step(at + dice.between(0, 45), Do.CONFIRM, node=node)
    if dice.happens(0.5):
        yield scene.in_our_midst(step(at + dice.between(1, 70), end, node=node))


def node_is_gone(scene: Scene) -> Iterator[Step]:
    """Nobody hears of it any more, nor says anything of it."""
    dice, at = scene.dice, scene.dice.between(0, 5)
    yield step(at, dice.pick((Do.CUT, Do.CUT, Do.KILL)), node=scene.nodes[0])


def node_reboots(scene: Scene) -> Iterator[Step]:
    """So fast that it may not be missed at all; or somebody vouches for the boot before."""
    dice, node, at = scene.dice, scene.node(), scene.beginning()
    if dice.happens(0.5):
        yield step(at + dice.between(-10, 15), Do.CONFIRM, node=node)
    yield step(at, Do.BOOT, node=node)
    if dice.happens(0.5):
        yield step(at + dice.between(10, 30), dice.pick((Do.CUT, Do.KILL)), node=node)


def node_flaps(scene: Scene) -> Iterator[Step]:
    dice, node, at = scene.dice, scene.node(), scene.beginning()
    seconds = rounded(dice.between(3, 25))
    yield step(at, Do.FLAP, node=node, seconds=seconds, times=1 + dice.below(3))
    if dice.happens(0.5):
        yield step(at + dice.between(0, 50), Do.CONFIRM, node=node)


def node_is_odd(scene: Scene) -> Iterator[Step]:
    """It works, but slowly, or by another clock."""
    dice, node, at = scene.dice, scene.node(), scene.beginning()
    if dice.happens(0.4):
        yield step(at, Do.SET_CLOCK, node=node, seconds=rounded(dice.between(-7200, 7200)))
        return
    yield step(at, Do.SLOW_DOWN, node=node, seconds=rounded(dice.between(0.1, 8)))
    if dice.happens(0.7):
        yield step(at + dice.between(5, 60), Do.SLOW_DOWN, node=node)


def several_die(scene: Scene) -> Iterator[Step]:
    """At once, and somebody looks at them when it is certain that they are silent."""
    at = yield from _die_at_once(scene)
    yield step(at + scene.dice.between(66, 75), Do.CONFIRM_OFF)


def several_die_and_people_hurry(scene: Scene) -> Iterator[Step]:
    """They lift the brake, or say of some nodes what they believe to know."""
    dice = scene.dice
    at = yield from _die_at_once(scene)
    if dice.happens(0.3):
        # For longer than any case: a clock that is wrong does not make it end.
        lifted = step(at + dice.between(10, 60), Do.RELEASE_STORM, seconds=10_000.0)
        yield scene.in_our_midst(lifted)
    said = at + noticed(scene)
    for node in scene.nodes[:2]:
        word = weighted(dice, WORDS)
        if word is not None:
            yield step(said, word, node=node)
        if word in (Do.PUT_OUT, Do.REMEDIATE) and dice.happens(0.5):
            back = step(said + dice.between(20, 40), Do.PUT_BACK, node=node)
            yield scene.in_our_midst(back)


def _die_at_once(scene: Scene) -> Generator[Step, None, float]:
    """Returns when."""
    dice, at = scene.dice, scene.dice.between(0, 3)
    for node in scene.nodes[: 2 + (dice.below(2) if len(scene.nodes) > 3 else 0)]:
        yield step(at, Do.KILL, node=node)
    return at


def die_in_turn(scene: Scene) -> Iterator[Step]:
    """The next one dies with what has just been moved to it: the others take nothing new."""
    dice, at = scene.dice, scene.dice.between(0, 5)
    for node in scene.nodes[2:]:
        yield step(0, Do.CORDON, node=node)
    for node in scene.nodes[:2]:
        yield step(at, Do.KILL, node=node)
        yield step(at + dice.between(10, 20), Do.CONFIRM, node=node)
        at += dice.between(40, 50)


def put_out_by_hand(scene: Scene) -> Iterator[Step]:
    """Somebody has Kubernetes itself move what a dead node ran, and it comes back."""
    dice, node, at = scene.dice, scene.nodes[0], scene.dice.between(0, 5)
    yield step(at, Do.KILL, node=node)
    at += dice.between(25, 45)
    yield step(at, Do.PUT_OUT, node=node)
    if dice.happens(0.3):
        yield step(at + dice.between(0, 10), Do.CONFIRM, node=node)
    yield step(at + dice.between(10, 30), Do.BOOT, node=node)


OF_NODES = [
    (6, node_dies),
    (4, node_seems_dead),
    (2, node_reboots),
    (1, node_flaps),
]
"""While all nodes are well, there is nothing to do for us."""

"""Stories of words about nodes that are wrong, come too early, are taken back or are refuted."""

from collections.abc import Generator, Iterator

from backstay.lab.fuzz.deaths import APPEARANCES
from backstay.lab.fuzz.scene import Scene, step
from backstay.lab.scenario import Do, Step

# Somebody vouches for a death while we only observe. When we are armed at last, that is no longer
# so.


def taken_back_before_we_are_armed(scene: Scene) -> Iterator[Step]:
    dice, node = scene.dice, scene.nodes[0]
    at, _, _ = yield from _said_too_early(scene)
    at = max(at, 30.0) + dice.between(3, 10)
    yield step(at, Do.WITHDRAW, node=node)
    yield _armed(scene, at)


def heard_before_we_are_armed(scene: Scene) -> Iterator[Step]:
    dice, node = scene.dice, scene.nodes[0]
    at, trouble, end = yield from _said_too_early(scene)
    yield step(at + dice.between(2, 5), end, node=node)
    at += dice.between(20, 30)
    yield step(at, trouble, node=node)
    yield _armed(scene, at)


def booted_before_we_are_armed(scene: Scene) -> Iterator[Step]:
    """The word is about another boot then."""
    dice, node = scene.dice, scene.nodes[0]
    at, _, end = yield from _said_too_early(scene)
    yield step(at + 2, end, node=node)
    yield step(at + dice.between(2, 5), Do.BOOT, node=node)
    at += dice.between(25, 35)
    yield step(at, Do.CUT, node=node)
    yield _armed(scene, at)


def heard_while_none_of_us_is_there(scene: Scene) -> Iterator[Step]:
    dice, node = scene.dice, scene.nodes[0]
    at, trouble, end = yield from _said_too_early(scene)
    yield from scene.all_of_us(at + 1, Do.KILL_CONTROLLER)
    yield step(at + 3, end, node=node)
    at += dice.between(20, 30)
    yield step(at, trouble, node=node)
    yield from scene.all_of_us(at + dice.between(1, 5), Do.START_CONTROLLER)
    yield _armed(scene, at)


def _said_too_early(scene: Scene) -> Generator[Step, None, tuple[float, Do, Do]]:
    """When it is said, what makes the node seem dead, and what ends that."""
    dice, node, at = scene.dice, scene.nodes[0], scene.dice.between(0, 5)
    trouble, end = (Do.CUT, Do.HEAL) if dice.happens(0.7) else dice.pick(APPEARANCES)
    yield step(0, Do.OBSERVE)
    yield step(at, trouble, node=node)
    at += dice.between(10, 25)
    yield step(at, Do.CONFIRM, node=node)
    return at, trouble, end


def _armed(scene: Scene, at: float) -> Step:
    return step(at + scene.dice.between(5, 25), Do.ARM)


# It is wrong, or life refutes it


def wrongly_declared_dead(scene: Scene) -> Iterator[Step]:
    """It is only cut off. It is heard again later, and perhaps does not hear what was decided."""
    dice, node, at = scene.dice, scene.nodes[0], scene.dice.between(0, 5)
    yield step(at, Do.CUT, node=node)
    at += dice.between(10, 25)
    yield step(at, Do.CONFIRM, node=node)
    back = Do.CUT_IN if dice.happens(0.6) else Do.HEAL
    yield step(at + dice.between(5, 40), back, node=node)


def said_before_it_booted(scene: Scene) -> Iterator[Step]:
    """A word about a boot that is over, when the next one is not heard of any more."""
    dice, node, at = scene.dice, scene.nodes[0], scene.dice.between(0, 5)
    yield step(at, Do.KILL, node=node)
    yield step(at + dice.between(1, 8), Do.CONFIRM, node=node)
    yield step(at + 9, Do.BOOT, node=node)
    yield step(at + dice.between(30, 40), dice.pick((Do.CUT, Do.CUT, Do.CUT_API)), node=node)


def refuted_by_life(scene: Scene) -> Iterator[Step]:
    """The node is heard again before anybody acts on the word, and then no more. Perhaps somebody
    else of us leads by then."""
    dice, node, at = scene.dice, scene.nodes[0], scene.dice.between(0, 3)
    yield step(at, Do.CUT, node=node)
    yield step(at + dice.between(2, 8), Do.CONFIRM, node=node)
    at += dice.between(9, 11)
    yield step(at, Do.HEAL, node=node)
    at += dice.between(12, 20)
    yield step(at, Do.CUT, node=node)
    if dice.happens(0.5):
        yield from _others_lead(scene, at + 1)


def refuted_by_an_answer(scene: Scene) -> Iterator[Step]:
    """Its kubelet alone has died, and the machine refuses connections: it lives. Then it is cut
    off, and somebody else of us leads."""
    at = yield from _answers(scene, scene.dice.between(30, 50))
    yield from _others_lead(scene, at + scene.dice.between(1, 5))


def refuted_early_by_an_answer(scene: Scene) -> Iterator[Step]:
    """The same, before anybody took it for lost."""
    at = yield from _answers(scene, scene.dice.between(17, 21))
    yield from _others_lead(scene, at + scene.dice.between(12, 18))


def _answers(scene: Scene, seconds: float) -> Generator[Step, None, float]:
    """For so long, and no more from the moment that is returned on."""
    dice, node, at = scene.dice, scene.nodes[0], scene.dice.between(0, 3)
    yield step(at, Do.KILL_KUBELET, node=node)
    yield step(at + dice.between(2, 6), Do.CONFIRM, node=node)
    yield step(at + seconds, Do.CUT, node=node)
    return at + seconds


def _others_lead(scene: Scene, at: float) -> Iterator[Step]:
    yield from scene.all_of_us(at, Do.KILL_CONTROLLER)
    yield from scene.all_of_us(at + scene.dice.between(1, 4), Do.START_CONTROLLER)


def deaf_to_the_api(scene: Scene) -> Iterator[Step]:
    """The node and the control plane hear nothing of each other; it answers whoever asks."""
    yield step(scene.dice.between(0, 5), Do.CUT_API, node=scene.nodes[0])


def deaf_and_declared_dead(scene: Scene) -> Iterator[Step]:
    """The same, and somebody says that it is dead."""
    dice, node, at = scene.dice, scene.nodes[0], scene.dice.between(0, 5)
    yield step(at, Do.CUT_API, node=node)
    yield step(at + dice.between(40, 50), Do.CONFIRM, node=node)


def a_wrong_clock_misleads(scene: Scene) -> Iterator[Step]:
    """Our clocks are set, and somebody takes a node for dead that is well. Where nothing answers
    at its ports, the clock is all that speaks about it."""
    dice, at = scene.dice, scene.dice.between(0, 5)
    yield from clocks_are_set(scene)
    yield from scene.all_of_us(at, Do.FIREWALL)
    yield step(at + dice.between(5, 25), Do.CONFIRM, node=scene.nodes[0])


def clocks_are_set(scene: Scene) -> Iterator[Step]:
    seconds = round(scene.dice.between(-7200, 7200), 1)
    yield from scene.all_of_us(scene.beginning(), Do.SKEW_CONTROLLER, seconds=seconds)

"""Stories of nodes that fall silent, and of which nobody says anything.

After two and a half minutes of silence a death may be presumed, for those who have consented: these
stories begin at once, or their end would come too late.
"""

from collections.abc import Iterator

from backstay.lab.fuzz.scene import Scene, Weighted, step, weighted
from backstay.lab.scenario import Do, Step

_SILENCES: Weighted[tuple[Do, Do]] = [
    (4, (Do.KILL, Do.BOOT)),
    (3, (Do.CUT, Do.HEAL)),
    (1, (Do.CUT_API, Do.HEAL)),
    (1, (Do.FREEZE, Do.THAW)),
    (1, (Do.KILL_KUBELET, Do.START_KUBELET)),
]


def falls_silent(scene: Scene) -> Iterator[Step]:
    """For good: it has died, or is cut off from everybody."""
    at = scene.dice.between(0, 1.5)
    yield step(at, scene.dice.pick((Do.KILL, Do.CUT)), node=scene.nodes[0])


def is_heard_again(scene: Scene) -> Iterator[Step]:
    """Before anything may be presumed, or just then."""
    dice, node, at = scene.dice, scene.nodes[0], scene.dice.between(0, 1.5)
    how, back = weighted(dice, _SILENCES)
    yield step(at, how, node=node)
    yield step(at + dice.between(60, 170), back, node=node)


def stands_still(scene: Scene) -> Iterator[Step]:
    """All of its programs do, and its guests run on: connections are refused, or taken and not
    answered."""
    dice, node, at = scene.dice, scene.nodes[0], scene.dice.between(0, 1.5)
    yield step(at, Do.FREEZE, node=node)
    if dice.happens(0.2):
        yield step(at + dice.between(60, 170), Do.THAW, node=node)


def nobody_reaches_it(scene: Scene) -> Iterator[Step]:
    """It lives, and loses touch with the API. Those of us who could ask it reach no node at all."""
    dice, at = scene.dice, scene.dice.between(0, 1.5)
    yield from scene.all_of_us(0, Do.FIREWALL)
    yield step(at, dice.pick((Do.CUT_API, Do.CUT_API, Do.CUT)), node=scene.nodes[0])


def one_of_us_reaches_it_not(scene: Scene) -> Iterator[Step]:
    """It is cut off, and lives. The other one of us is not there, or reaches no node."""
    dice, at = scene.dice, scene.dice.between(0, 1.5)
    gone = dice.pick((Do.KILL_CONTROLLER, Do.FIREWALL))
    yield step(at, gone, controller=scene.controller())
    yield step(at, Do.CUT, node=scene.nodes[0])


def several_fall_silent(scene: Scene) -> Iterator[Step]:
    """Not those that we are on."""
    at = scene.dice.between(0, 1.5)
    hosts = scene.opening.hosts
    lost = [node for node in scene.nodes if node not in hosts]
    for node in lost[:2]:
        yield step(at, scene.dice.pick((Do.KILL, Do.CUT)), node=node)

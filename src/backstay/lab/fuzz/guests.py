"""Stories of guests that live: their kubelet dies, they are moved, or somebody disturbs them."""

from collections.abc import Iterator

from backstay.lab.fuzz.scene import Scene, step
from backstay.lab.scenario import Do, Step

_HEARTBEAT = (67.0, 85.0)
"""Seconds by which a heartbeat of virt-handler, which comes once a minute, has come."""


def kubelet_dies(scene: Scene) -> Iterator[Step]:
    """For good; its guests run on. Perhaps there is no room for them elsewhere, or somebody
    meddles with what is done about it."""
    dice, node, at = scene.dice, scene.nodes[0], scene.dice.between(0, 3)
    yield step(at, Do.KILL_KUBELET, node=node)
    if dice.happens(0.4):
        yield from _no_room_elsewhere(scene, at)
        if dice.happens(0.3):
            yield step(at + dice.between(80, 130), Do.UNCORDON, node=scene.nodes[1])
    for vm in scene.vms:
        if dice.happens(0.3):
            meddling = dice.pick((Do.CANCEL_MIGRATION, Do.DELETE_GUEST, Do.SAY_FAILED))
            yield scene.in_our_midst(step(at + dice.between(40, 130), meddling, workload=vm))


def said_to_have_failed(scene: Scene) -> Iterator[Step]:
    yield from _virt_handler_falls_silent_too(scene, Do.SAY_FAILED)


def deleted_and_nobody_hears(scene: Scene) -> Iterator[Step]:
    yield from _virt_handler_falls_silent_too(scene, Do.DELETE_GUEST)


def _virt_handler_falls_silent_too(scene: Scene, said: Do) -> Iterator[Step]:
    """After a kubelet has died whose guests have nowhere to go, the whole node is cut off. What is
    said of a guest then, nobody has seen who could know whether it has stopped."""
    dice, node, at = scene.dice, scene.nodes[0], scene.dice.between(0, 3)
    yield step(at, Do.KILL_KUBELET, node=node)
    yield from _no_room_elsewhere(scene, at)
    at += dice.between(*_HEARTBEAT)
    yield step(at, Do.CUT, node=node)
    for vm in scene.vms:
        yield step(at + dice.between(1, 10), said, workload=vm)


def _no_room_elsewhere(scene: Scene, at: float) -> Iterator[Step]:
    for other in scene.nodes[1:]:
        yield step(at, Do.CORDON, node=other)


def guests_outlive_it(scene: Scene) -> Iterator[Step]:
    """A kubelet dies while we only observe, and somebody takes that for the death of its node. By
    the time that we are armed, nothing but a heartbeat of virt-handler says that guests run: no
    port of the node answers us."""
    dice, node, at = scene.dice, scene.nodes[0], scene.dice.between(1, 4)
    yield step(0, Do.OBSERVE)
    yield from scene.all_of_us(0, Do.FIREWALL)
    yield step(at, Do.KILL_KUBELET, node=node)
    at += dice.between(1, 5)
    yield step(at, Do.CONFIRM, node=node)
    yield step(at + dice.between(*_HEARTBEAT), Do.ARM)


def guest_loses_its_source(scene: Scene) -> Iterator[Step]:
    """The node dies that it is being moved away from."""
    dice, at = scene.dice, scene.beginning()
    vm = scene.vms[0]
    yield step(at, Do.MIGRATE, workload=vm)
    yield step(at, Do.KILL_SOURCE, workload=vm)
    yield step(at + dice.between(15, 30), Do.CONFIRM_OFF)


def guest_is_moved(scene: Scene) -> Iterator[Step]:
    """And perhaps one of the two nodes dies in the middle of it."""
    dice, at = scene.dice, scene.beginning()
    if not scene.vms:
        return
    vm = dice.pick(scene.vms)
    yield step(at, Do.MIGRATE, workload=vm)
    if dice.happens(0.8):
        yield step(at, dice.pick((Do.KILL_SOURCE, Do.KILL_SOURCE, Do.KILL_TARGET)), workload=vm)
        yield step(at + dice.between(15, 30), Do.CONFIRM_OFF)


def guest_is_disturbed(scene: Scene) -> Iterator[Step]:
    """Somebody drains, or plugs a disk in."""
    dice, at = scene.dice, scene.beginning()
    if scene.vms and dice.happens(0.4):
        yield step(at, Do.PLUG_DISK, workload=dice.pick(scene.vms))
        return
    for name in scene.opening.workloads.names()[: 1 + dice.below(3)]:
        yield scene.in_our_midst(step(at, Do.EVICT, workload=name))

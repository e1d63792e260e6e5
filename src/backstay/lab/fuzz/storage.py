"""Stories of what hangs on a node besides its pods: addresses, and volumes."""

from collections.abc import Iterator

from backstay.lab.fuzz.scene import Scene, rounded, step
from backstay.lab.scenario import Do, Step


def blocks_are_written(scene: Scene) -> Iterator[Step]:
    """Others write to the blocks of addresses while we give some back."""
    dice = scene.dice
    if scene.opening.calico is None:
        return
    yield step(dice.between(10, 25), Do.WRITE_BLOCKS, seconds=rounded(dice.between(1, 10)))


def addresses_are_garbled(scene: Scene) -> Iterator[Step]:
    if scene.vms:
        vm = scene.dice.pick(scene.vms)
        yield step(scene.beginning(), Do.GARBLE_ADDRESSES, workload=vm)


def address_is_taken(scene: Scene) -> Iterator[Step]:
    """A node dies for good, and somebody gives the address of one of its VMs to another pod."""
    dice, at = scene.dice, scene.dice.between(0, 5)
    named = [vm for vm in scene.opening.workloads.vms if vm.addresses]
    if scene.opening.calico is None or not named:
        return
    vm = dice.pick(named)
    yield step(at, Do.KILL, node=vm.node)
    at += dice.between(5, 15)
    yield step(at, Do.TAKE_ADDRESS, workload=vm.name)
    yield step(at + dice.between(8, 20), Do.CONFIRM, node=vm.node)


def cut_off_from_the_api(scene: Scene) -> Iterator[Step]:
    """It works, and somebody says that it does not."""
    dice, node, at = scene.dice, scene.nodes[0], scene.dice.between(0, 5)
    yield step(at, Do.CUT_API, node=node)
    if dice.happens(0.7):
        yield step(at + dice.between(20, 50), Do.CONFIRM, node=node)


def fenced_by_others(scene: Scene) -> Iterator[Step]:
    """Somebody else has the storage refuse a dead node, and it comes back."""
    dice, node, at = scene.dice, scene.nodes[0], scene.dice.between(0, 5)
    if not scene.opening.csi_addons:
        return
    yield step(at, Do.KILL, node=node)
    at += dice.between(25, 45)
    yield step(at, Do.FENCE, node=node)
    yield step(at + dice.between(10, 25), Do.BOOT, node=node)

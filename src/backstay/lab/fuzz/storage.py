"""Stories of what hangs on a node besides its pods: addresses, and volumes."""

from collections.abc import Iterator

from backstay.lab.fuzz.deaths import first_dies
from backstay.lab.fuzz.scene import Scene, rounded, step
from backstay.lab.scenario import Do, Step


def addresses_are_disturbed(scene: Scene) -> Iterator[Step]:
    """A node dies. Others write to the blocks of addresses just then, or somebody has written into
    the template of a VM what it is to have, and not as it is read."""
    dice = scene.dice
    yield from first_dies(scene)
    if dice.happens(0.5):
        seconds = rounded(dice.between(1, 10))
        yield step(dice.between(10, 25), Do.WRITE_BLOCKS, seconds=seconds)
    else:
        yield step(0, Do.GARBLE_ADDRESSES, workload=dice.pick(scene.vms))


def address_is_taken(scene: Scene) -> Iterator[Step]:
    """A node dies for good, and somebody gives the address of one of its VMs to another pod."""
    dice, at = scene.dice, scene.dice.between(0, 5)
    named = [vm for vm in scene.opening.workloads.vms if vm.addresses]
    vm = dice.pick(named)
    yield step(at, Do.KILL, node=vm.node)
    # Before, the other pod might be put on the node that is dead.
    at += dice.between(50, 60)
    yield step(at, Do.TAKE_ADDRESS, workload=vm.name)
    yield step(at + dice.between(8, 20), Do.CONFIRM, node=vm.node)


def fenced_by_others(scene: Scene) -> Iterator[Step]:
    """Somebody else has the storage refuse a dead node, and it comes back."""
    dice, node, at = scene.dice, scene.nodes[0], scene.dice.between(0, 5)
    if not scene.opening.csi_addons:
        return
    yield step(at, Do.KILL, node=node)
    # Sooner than we would.
    at += dice.between(25, 35)
    yield step(at, Do.FENCE, node=node)
    yield step(at + dice.between(10, 20), Do.BOOT, node=node)

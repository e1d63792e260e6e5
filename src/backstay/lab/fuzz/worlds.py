"""Worlds: the small clusters that themes begin with.

Small is cheap, and cases are cheap so that there can be many. Nearly all that can be lost is on the
first node, ``n1``, and of its workloads each is unlike the others in what matters for the theme:
one death then asks all their questions.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from backstay.lab.fuzz.policies import with_policies
from backstay.lab.fuzz.scene import LONGEST, Weighted, weighted
from backstay.lab.power_spec import BmcsSpec
from backstay.lab.scenario import (
    VIRT_CONTROLLER,
    CalicoSpec,
    Claim,
    PolicySpec,
    Scenario,
    StatefulSet,
    Vm,
    Workloads,
)
from backstay.model.labels import MINIMUM_PROOF, PROTECT, TMAX_PROTECT, VM_NAME
from backstay.model.policy import Mode
from backstay.sim.chance import Chance

_CLAIMS: Weighted[Claim] = [(6, Claim.SHARED), (3, Claim.SINGLE), (1, Claim.LOCAL)]
_MOBILE: Weighted[Claim] = _CLAIMS[:-1]
_FIRST = "n1"
_KEPT = {PROTECT: "false"}


def _cluster(nodes: int, workloads: Workloads, *, controllers: int = 1) -> Scenario:
    return Scenario(
        name="",
        question="",
        nodes=tuple(f"n{number + 1}" for number in range(nodes)),
        workloads=workloads,
        controllers=controllers,
        until=LONGEST,
    )


def _vm(dice: Chance, number: int, **said: object) -> Vm:
    usual = Vm(name=f"vm-{number}", node=_FIRST, claims=(weighted(dice, _CLAIMS),))
    return msgspec.structs.replace(usual, **said)


def small(dice: Chance) -> Scenario:
    """Three nodes and one or two workloads, which can run anywhere."""
    vm = _vm(dice, 1, claims=(weighted(dice, _MOBILE),))
    db = StatefulSet(name="db", node=_FIRST, claims=(weighted(dice, _MOBILE),))
    sets = (db,) if dice.happens(0.3) else ()
    return _cluster(3, Workloads(vms=(vm,), stateful_sets=sets))


def mixed(dice: Chance) -> Scenario:
    """With disks that were plugged in, an owner who wants no help, a VM that nobody starts again by
    itself, and a node that is exempt."""
    vms = (
        _vm(dice, 1, hotplug=(Claim.SHARED,), claims=(Claim.SHARED,)),
        _vm(dice, 2, labels=_KEPT, claims=(weighted(dice, _MOBILE),)),
        _vm(dice, 3, run_strategy="Manual", claims=(weighted(dice, _MOBILE),)),
    )
    db = StatefulSet(name="db", node="n2", claims=(weighted(dice, _MOBILE),))
    world = _cluster(3, Workloads(vms=vms, stateful_sets=(db,)))
    return msgspec.structs.replace(world, exempt=("n2",))


def watched(dice: Chance) -> Scenario:
    """A small one in which we only observe at first."""
    world = small(dice)
    policy = PolicySpec(mode=Mode.OBSERVE)
    return msgspec.structs.replace(world, policy=policy)


def of_two(dice: Chance) -> Scenario:
    """A small one with two controllers."""
    return msgspec.structs.replace(small(dice), controllers=2)


def of_two_on_nodes(dice: Chance) -> Scenario:
    """They are on nodes, sometimes on one that is likely to die."""
    first = dice.pick(("n1", "n2"))
    hosts = {first: ("backstay-1",), "n3": ("backstay-2",)}
    return msgspec.structs.replace(of_two(dice), hosts=hosts)


def stormy(dice: Chance) -> Scenario:
    """Enough nodes that several can fail, and limits of what is done about it."""
    vms = (
        _vm(dice, 1, claims=(Claim.SHARED,)),
        _vm(dice, 2, claims=(Claim.SHARED,)),
        _vm(dice, 3, node="n2"),
    )
    limits = {"releasesPerMinute": 1, "attempts": 1}
    policy = PolicySpec(config={"limits": limits})
    return msgspec.structs.replace(_cluster(5, Workloads(vms=vms)), policy=policy)


def owned(dice: Chance) -> Scenario:
    """Owners have said in policies what they want, and the cluster that it is not our job to
    give back addresses, or to detach volumes."""
    asked: dict[str, dict[str, object]] = {
        "vm-1": {"protect": False},
        "vm-2": {"minimumProof": "Observed"},
        "vm-3": {"singleton": dice.happens(0.5), "priority": dice.below(150)},
    }
    policies = {
        f"policy-{number + 1}": {"selector": {"matchLabels": {VM_NAME: name}}, **spec}
        for number, (name, spec) in enumerate(asked.items())
    }
    owners = {"addresses": dice.pick(("Foreign", "Off"))}
    if dice.happens(0.5):
        owners["detach"] = "Foreign"
    calico = _calico(dice)
    vms = tuple(
        _vm(dice, number, claims=(Claim.SINGLE,), addresses=_addresses(dice, number, calico))
        for number in (1, 2, 3)
    )
    return msgspec.structs.replace(
        _cluster(3, Workloads(vms=vms)),
        calico=calico,
        policy=PolicySpec(policies=policies, config={"owners": owners}),
    )


def of_others(dice: Chance) -> Scenario:
    """Another program moves what was on dead nodes, or nobody does."""
    owners = {"failover": dice.pick(("Foreign", "Off"))}
    return msgspec.structs.replace(small(dice), policy=PolicySpec(config={"owners": owners}))


def silent(dice: Chance) -> Scenario:
    """Two controllers in two places, and VMs of which some may be restarted on silence, wisely or
    not."""
    vms = (
        _vm(dice, 1, claims=(Claim.FILES,), labels={TMAX_PROTECT: "true"}),
        _vm(dice, 2, claims=(Claim.FILES,)),
        _vm(dice, 3, claims=(Claim.SINGLE,), labels={MINIMUM_PROOF: "Presumed"}),
    )
    world = _cluster(4, Workloads(vms=vms), controllers=2)
    return msgspec.structs.replace(
        world,
        hosts={"n2": ("backstay-1",), "n3": ("backstay-2",)},
        policy=PolicySpec(config={"proof": {"presumeBlock": dice.happens(0.3)}}),
    )


def silent_and_bounded(dice: Chance) -> Scenario:
    """The same, and the cluster does not let them."""
    policy = PolicySpec(config={"proof": {"weakest": "Confirmed"}})
    return msgspec.structs.replace(silent(dice), policy=policy)


def inhabited(dice: Chance) -> Scenario:
    """VMs that can be moved live, and nobody has said what is done when a kubelet dies: nothing."""
    vms = (
        _vm(dice, 1, claims=(Claim.SHARED,)),
        _vm(dice, 2, claims=(Claim.SHARED,), node=dice.pick((_FIRST, "n2"))),
    )
    return _cluster(3, Workloads(vms=vms))


def inhabited_by_movers(dice: Chance) -> Scenario:
    """The same, and the owner of one has it migrated then, of another stopped if need be."""
    world = inhabited(dice)
    policies = {
        f"policy-{number + 1}": {
            "selector": {"matchLabels": {VM_NAME: world.workloads.vms[number].name}},
            "onKubeletLoss": choice,
        }
        for number, choice in enumerate(("Migrate", "StopAndMove"))
    }
    return msgspec.structs.replace(world, policy=PolicySpec(policies=policies))


def addressed(dice: Chance) -> Scenario:
    """Pods get their addresses from Calico, and VMs ask for some by name."""
    calico = _calico(dice)
    vms = (
        _vm(dice, 1, addresses=_addresses(dice, 1, calico)),
        _vm(dice, 2, addresses=_addresses(dice, 2, calico) if dice.happens(0.3) else ()),
    )
    return msgspec.structs.replace(_cluster(3, Workloads(vms=vms)), calico=calico)


def _calico(dice: Chance) -> CalicoSpec:
    return CalicoSpec(families=weighted(dice, [(2, "v4"), (1, "both")]), **weighted(dice, _CALICO))


_CALICO: Weighted[dict[str, Any]] = [
    (16, {}),
    (2, {"group": "v3"}),
    (1, {"persistence": True}),
    (1, {"strict": True, "cooldown": 20}),
]
"""Mostly as it comes: what is set otherwise keeps some of what could go wrong from happening."""


def _addresses(dice: Chance, number: int, calico: CalicoSpec) -> tuple[str, ...]:
    # Not among the first of the block, which are given to those who ask for none.
    asked = (f"10.244.101.{32 + number}", f"fd00:10:244::1{32 + number:02x}")
    both = calico.families == "both" and dice.happens(0.5)
    return asked if both else asked[:1]


_FENCES = {
    "fencing": {
        "networkFence": {
            "enabled": True,
            "secrets": {"csi.example": {"name": "admin", "namespace": "storage"}},
        }
    }
}


def fenced(dice: Chance) -> Scenario:
    """The storage can be told to refuse a node, and not all that is written to is in it."""
    vms = (
        _vm(dice, 1, claims=(Claim.SINGLE,), hotplug=(Claim.VAULT,)),
        _vm(dice, 2, claims=()),
        _vm(dice, 3, claims=(Claim.SINGLE,)),
    )
    log = StatefulSet(name="log", node=_FIRST, claims=(Claim.SINGLE,), host_path="/var/log/till")
    world = _cluster(3, Workloads(vms=vms, stateful_sets=(log,)))
    return msgspec.structs.replace(world, csi_addons=True, policy=PolicySpec(config=_FENCES))


def attached(dice: Chance) -> Scenario:
    """Volumes that have to be detached, by taking the node out of service if that can be; and
    something that cannot go anywhere else."""
    vms = (
        _vm(dice, 1, claims=(Claim.SINGLE,)),
        _vm(dice, 2, pinned=True),
    )
    policy = PolicySpec(config={"defaults": {"detach": "OutOfServiceTaint"}})
    return msgspec.structs.replace(_cluster(3, Workloads(vms=vms)), policy=policy)


# Rich ones

_STRATEGIES: Weighted[object] = [(5, ""), (3, "LiveMigrate"), (1, "LiveMigrateIfPossible")]
_LABELS: Weighted[dict[str, str]] = [(8, {}), (2, _KEPT)]


def rich(dice: Chance) -> Scenario:
    """A bit of everything: more nodes, more workloads, and anything that people may have said."""
    nodes = tuple(f"n{number + 1}" for number in range(3 + dice.below(3)))
    vms = _rich_vms(dice, nodes)
    sets = tuple(
        StatefulSet(name="db", replicas=1 + dice.below(3), claims=(weighted(dice, _CLAIMS),))
        for _ in range(1 if not vms or dice.happens(0.4) else 0)
    )
    world = _cluster(
        len(nodes), Workloads(vms=vms, stateful_sets=sets), controllers=1 + dice.below(2)
    )
    if dice.happens(0.1):
        policy = PolicySpec(disarmed_for=round(dice.between(60, LONGEST), 1))
    else:
        policy = PolicySpec(mode=Mode.ARMED if dice.happens(0.9) else Mode.OBSERVE)
    if dice.happens(0.5):
        policy = with_policies(dice, policy, [vm.name for vm in vms])
    world = msgspec.structs.replace(
        world,
        exempt=tuple(node for node in nodes if dice.happens(0.1)),
        hosts=_hosts(dice, world),
        policy=policy,
    )
    return _with_power(world) if dice.happens(0.25) else world


def _with_power(world: Scenario) -> Scenario:
    """The same, and every node can be switched off and on."""
    fencing = {**world.policy.config.get("fencing", {}), "power": {"enabled": True}}
    config = {**world.policy.config, "fencing": fencing}
    policy = msgspec.structs.replace(world.policy, config=config)
    return msgspec.structs.replace(world, bmcs=BmcsSpec(), policy=policy)


def _rich_vms(dice: Chance, nodes: Sequence[str]) -> tuple[Vm, ...]:
    return tuple(
        _vm(
            dice,
            number + 1,
            node=weighted(dice, [(2, _FIRST), (1, dice.pick(nodes))]),
            run_strategy=weighted(dice, [(8, "Always"), (2, "RerunOnFailure")]),
            hotplug=(Claim.SHARED,) if dice.happens(0.15) else (),
            labels=weighted(dice, _LABELS),
            eviction_strategy=weighted(dice, _STRATEGIES),
        )
        for number in range(dice.below(7))
    )


def _hosts(dice: Chance, world: Scenario) -> dict[str, tuple[str, ...]]:
    """Sometimes what keeps the cluster going shares the fate of the nodes."""
    found: dict[str, tuple[str, ...]] = {}
    if dice.happens(0.25):
        for node in world.nodes[:2]:
            found[node] = (VIRT_CONTROLLER,)
    if dice.happens(0.25):
        for node, name in zip(world.nodes, world.controller_names, strict=False):
            found[node] = (*found.get(node, ()), name)
    return found

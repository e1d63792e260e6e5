"""Fuzz: disasters that nobody has thought of, each drawn from a seed.

``draw(seed)`` is a pure function: a seed is the same scenario everywhere and always, as long as
this file stays as it is, and a scenario that went wrong is kept as YAML, which outlives it.

A case is a small cluster and a few *stories*: a node that loses its power and comes back, somebody
who vouches too early, a controller that stands still in the middle of a recovery. Each story by
itself makes sense; they are laid over each other in time without regard for that. Half of the
steps wait for a write of ours instead of for a moment, because what goes wrong between two writes
is what nobody tries by hand.

Not drawn is what starts a second copy whatever we do: somebody who deletes pods by force, or a
node that lives out of the API. The truth would show it, and it would say nothing about us.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec

from backstay.lab.fuzz_policy import with_policies
from backstay.lab.guest_fuzz import about_guests, guests_outlive_it, kubelet_dies
from backstay.lab.linstor_fuzz import disturbed, replicated
from backstay.lab.scenario import (
    LEADER,
    PROGRAMS,
    VIRT_CONTROLLER,
    After,
    CalicoSpec,
    Claim,
    Do,
    PolicySpec,
    Scenario,
    StatefulSet,
    Step,
    Vm,
    Workloads,
)
from backstay.model.policy import Mode
from backstay.sim.chance import Chance

T = TypeVar("T")

LONGEST = 180.0
"""Seconds of virtual time."""

LONGEST_SILENCE = 260.0
"""The same where it is about a node that falls silent for so long that its death is presumed."""

SIBLINGS = 5
"""So many seeds in a row begin with the same world, and differ in what happens to it."""

_LAST_BEGINNING = 50.0
_MOST_STORIES = 4
_MOST_WRITES = 20
_QUIET_END = (10.0, 40.0)
_PATIENCE = 60.0

Weighted = Sequence[tuple[int, T]]


def draw(seed: int, *, bug: str = "") -> Scenario:
    """The case that ``seed`` stands for, for a controller with that deliberate bug or none."""
    opening = _opening(seed // SIBLINGS)
    stage = Stage(Chance(seed, "fuzz"), opening.nodes, opening.workloads, opening.controllers)
    drawn = (step for step in _steps(seed, stage, opening) if step.at < LONGEST)
    steps = sorted(drawn, key=lambda step: step.at)
    if opening.policy.disarmed_for or any(step.do is Do.DISARM for step in steps):
        # It ends at a time of day: whoever sets our clock decides when, not we.
        steps = [step for step in steps if step.do is not Do.SKEW_CONTROLLER]
    full = opening.linstor is not None
    return msgspec.structs.replace(
        opening,
        name=f"fuzz-{seed}",
        question="Does anything break that must not?",
        seed=seed,
        bug=bug,
        steps=tuple(steps),
        until=LONGEST_SILENCE if _is_long(opening) else _end(stage.dice, steps, full=full),
    )


def as_sibling(scenario: Scenario) -> Scenario:
    """The scenario without all in which siblings differ: two are siblings if these are equal."""
    return msgspec.structs.replace(
        scenario, name="", question="", seed=0, bug="", steps=(), until=LONGEST
    )


def _opening(group: int) -> Scenario:
    """What the cases of one group begin with."""
    dice = Chance(group, "fuzz")
    nodes = tuple(f"n{number + 1}" for number in range(3 + dice.below(3)))
    # Dice of their own, so that what else a seed stands for stays as it is.
    network = Chance(group, "addresses")
    calico = _calico(network)
    workloads = _workloads(dice, nodes)
    if calico is not None:
        workloads = _with_addresses(network, workloads, calico)
    stage = Stage(dice, nodes, workloads, controllers=1 + dice.below(2))
    policy = about_guests(Chance(group, "guests"), _policy(dice))
    silence = Chance(group, "silence")
    if silence.happens(0.1):
        stage = _consenting(silence, stage)
        policy = _vouched_for(silence, policy)
    people = Chance(group, "people")
    if people.happens(0.25):
        policy = with_policies(people, policy, [vm.name for vm in stage.workloads.vms])
    storage, linstor = Chance(group, "linstor"), None
    workloads = stage.workloads
    if storage.happens(0.2):
        linstor, workloads = replicated(storage, nodes, workloads)
    return Scenario(
        name="",
        question="",
        nodes=nodes,
        exempt=tuple(node for node in nodes if dice.happens(0.1)),
        hosts=_hosts(stage),
        workloads=workloads,
        calico=calico,
        linstor=linstor,
        policy=policy,
        controllers=stage.controllers,
        until=LONGEST,
    )


def _is_long(opening: Scenario) -> bool:
    return "presumeBlock" in opening.policy.config.get("proof", {})


def _steps(seed: int, stage: "Stage", opening: Scenario) -> Iterator[Step]:
    dice, nodes = stage.dice, stage.nodes
    stories = [_weighted(dice, _OF_NODES)]
    stories += [_weighted(dice, _ALL) for _ in range(dice.below(_MOST_STORIES))]
    for story in stories:
        yield from story(stage)
    if opening.calico is not None:
        yield from _network_is_disturbed(replace(stage, dice=Chance(seed, "addresses")))
    guests = Chance(seed, "guests")
    if opening.policy.config:
        machines = [vm.name for vm in stage.workloads.vms]
        yield from kubelet_dies(guests, nodes, machines, until=LONGEST)
    yield from guests_outlive_it(Chance(seed, "heartbeats"), stage.workloads.vms, stage.ours)
    if _is_long(opening):
        yield from _falls_silent(replace(stage, dice=Chance(seed, "silence")))
    if opening.policy.policies:
        yield from _storm(replace(stage, dice=Chance(seed, "people")))
    if opening.linstor is not None:
        storage = Chance(seed, "linstor")
        yield from disturbed(storage, nodes, controllers=stage.controllers, until=LONGEST)


def _end(dice: Chance, steps: Sequence[Step], *, full: bool) -> float:
    """Sometimes long enough to see whether all that was promised has been kept."""
    last = max((step.at for step in steps), default=0.0)
    quiet = dice.between(*_QUIET_END) + (_PATIENCE if dice.happens(0.3) else 0.0)
    return LONGEST if full else min(LONGEST, _rounded(last + quiet))


@dataclass(frozen=True)
class Stage:
    """What the stories are about, and the dice."""

    dice: Chance
    nodes: tuple[str, ...]
    workloads: Workloads
    controllers: int

    def node(self) -> str:
        """Often the same one, which has the most to lose: stories are to meet."""
        return self.nodes[0] if self.dice.happens(0.5) else self.dice.pick(self.nodes)

    def controller(self) -> str:
        return self.dice.pick(self.ours)

    @property
    def ours(self) -> tuple[str, ...]:
        return tuple(f"backstay-{number + 1}" for number in range(self.controllers))

    def beginning(self) -> float:
        return self.dice.between(0.0, _LAST_BEGINNING)


Story = Callable[[Stage], Iterator[Step]]


# The cluster


def _workloads(dice: Chance, nodes: Sequence[str]) -> Workloads:
    """At least one, and mostly on few nodes, so that a death has something to take with it."""
    vms = tuple(
        Vm(
            name=f"vm-{number + 1}",
            node=_weighted(dice, [(2, nodes[0]), (1, dice.pick(nodes))]),
            run_strategy=_weighted(dice, [(8, "Always"), (2, "RerunOnFailure")]),
            claims=(_weighted(dice, _CLAIMS),),
            hotplug=(Claim.SHARED,) if dice.happens(0.15) else (),
            labels=_weighted(dice, _LABELS),
            eviction_strategy=_weighted(dice, _STRATEGIES),
        )
        for number in range(dice.below(7))
    )
    sets = tuple(
        StatefulSet(name="db", replicas=1 + dice.below(3), claims=(_weighted(dice, _CLAIMS),))
        for _ in range(1 if not vms or dice.happens(0.4) else 0)
    )
    return Workloads(vms=vms, stateful_sets=sets)


def _policy(dice: Chance) -> PolicySpec:
    """Mostly we are armed."""
    if dice.happens(0.1):
        return PolicySpec(disarmed_for=_rounded(dice.between(60, LONGEST)))
    return PolicySpec(mode=Mode.ARMED if dice.happens(0.9) else Mode.OBSERVE)


def _calico(dice: Chance) -> CalicoSpec | None:
    """In one of four."""
    if not dice.happens(0.25):
        return None
    return CalicoSpec(
        families=_weighted(dice, [(2, "v4"), (1, "both")]),
        persistence=dice.happens(0.2),
        strict=dice.happens(0.1),
        cooldown=20 if dice.happens(0.1) else 0,
        group=_weighted(dice, [(2, "v1"), (1, "v3")]),
    )


def _with_addresses(dice: Chance, workloads: Workloads, calico: CalicoSpec) -> Workloads:
    """Some VMs ask for addresses by name, each for its own, in a block of the node it is on."""
    vms = []
    for number, each in enumerate(workloads.vms):
        # The pods of plugged disks would be given the very addresses that others ask for.
        vm = msgspec.structs.replace(each, hotplug=())
        block = int(vm.node[1:])
        # Not among the first of the block, which are given to those who ask for none.
        place = 32 + number
        asked = (f"10.244.{100 + block}.{place}", f"fd00:10:244::{block:x}{place:02x}")
        both = calico.families == "both" and dice.happens(0.5)
        wants = asked if both else asked[:1]
        vms.append(msgspec.structs.replace(vm, addresses=wants) if dice.happens(0.7) else vm)
    return msgspec.structs.replace(workloads, vms=tuple(vms))


def _network_is_disturbed(stage: Stage) -> Iterator[Step]:
    dice = stage.dice
    if dice.happens(0.3):
        yield _step(stage.beginning(), Do.WRITE_BLOCKS, seconds=_rounded(dice.between(1, 30)))
    if stage.workloads.vms and dice.happens(0.1):
        vm = dice.pick(stage.workloads.vms)
        yield _step(stage.beginning(), Do.GARBLE_ADDRESSES, workload=vm.name)


def _consenting(dice: Chance, stage: Stage) -> Stage:
    """Two controllers, and VMs of which most may be restarted on silence, wisely or not."""
    vms = tuple(
        msgspec.structs.replace(
            vm,
            claims=(Claim.FILES,) if dice.happens(0.5) else vm.claims,
            labels={**vm.labels, **_weighted(dice, _CONSENTS)},
        )
        for vm in stage.workloads.vms
    )
    workloads = msgspec.structs.replace(stage.workloads, vms=vms)
    return replace(stage, workloads=workloads, controllers=2)


def _vouched_for(dice: Chance, policy: PolicySpec) -> PolicySpec:
    """Those who run the cluster may say that its block devices are safe."""
    config = {**policy.config, "proof": {"presumeBlock": dice.happens(0.3)}}
    return msgspec.structs.replace(policy, config=config)


def _falls_silent(stage: Stage) -> Iterator[Step]:
    dice, node, at = stage.dice, stage.node(), stage.beginning()
    if dice.happens(0.2):
        yield _step(at, Do.FIREWALL, controller=stage.controller())
    how, back = _weighted(dice, _SILENCES)
    yield _step(at, how, node=node)
    if dice.happens(0.4):
        yield _step(at + dice.between(100, 200), back, node=node)


_CONSENTS: Weighted[dict[str, str]] = [
    (3, {"tmax/virt-auto-failover": "true"}),
    (2, {"backstay.dev/minimum-proof": "Presumed"}),
    (1, {}),
]
_SILENCES: Weighted[tuple[Do, Do]] = [
    (3, (Do.KILL, Do.BOOT)),
    (3, (Do.CUT, Do.HEAL)),
    (2, (Do.CUT_API, Do.HEAL)),
    (1, (Do.FREEZE, Do.THAW)),
    (1, (Do.KILL_KUBELET, Do.START_KUBELET)),
]

_CLAIMS: Weighted[Claim] = [(6, Claim.SHARED), (3, Claim.SINGLE), (1, Claim.LOCAL)]
_STRATEGIES: Weighted[Any] = [(5, ""), (3, "LiveMigrate"), (1, "LiveMigrateIfPossible")]
_LABELS: Weighted[dict[str, str]] = [(8, {}), (2, {"backstay.dev/protect": "false"})]


def _hosts(stage: Stage) -> dict[str, tuple[str, ...]]:
    """Sometimes what keeps the cluster going shares the fate of the nodes."""
    dice = stage.dice
    found: dict[str, tuple[str, ...]] = {}
    if dice.happens(0.15):
        for node in stage.nodes[:2]:
            found[node] = (VIRT_CONTROLLER,)
    if dice.happens(0.15):
        for number in range(stage.controllers):
            node = stage.nodes[number]
            found[node] = (*found.get(node, ()), f"backstay-{number + 1}")
    return found


# Nodes


def _node_dies(stage: Stage) -> Iterator[Step]:
    dice, node, at = stage.dice, stage.node(), stage.beginning()
    yield _step(at, Do.KILL, node=node)
    if dice.happens(0.2):
        yield _step(at + dice.between(20, 70), Do.CONFIRM_OFF)
    elif dice.happens(0.8):
        yield _step(at + dice.between(20, 70), Do.CONFIRM, node=node)
    if dice.happens(0.5):
        yield _in_our_midst(stage, _step(at + dice.between(0.2, 90), Do.BOOT, node=node))


def _node_seems_dead(stage: Stage) -> Iterator[Step]:
    """It lives all the while, and perhaps somebody vouches that it does not."""
    dice, node, at = stage.dice, stage.node(), stage.beginning()
    trouble, end = dice.pick(_APPEARANCES)
    if trouble is Do.CUT and dice.happens(0.3):
        # It is heard again, and does not hear what was decided about it.
        end = Do.CUT_IN
    yield _step(at, trouble, node=node)
    if dice.happens(0.4):
        yield _step(at + dice.between(0, 60), Do.CONFIRM, node=node)
    if dice.happens(0.6):
        yield _in_our_midst(stage, _step(at + dice.between(1, 90), end, node=node))


_APPEARANCES = (
    (Do.CUT, Do.HEAL),
    (Do.CUT_OUT, Do.HEAL),
    (Do.CUT_IN, Do.HEAL),
    (Do.FREEZE, Do.THAW),
    (Do.KILL_KUBELET, Do.START_KUBELET),
)


def _node_reboots(stage: Stage) -> Iterator[Step]:
    """So fast that it may not be missed at all; or somebody vouches for the boot before."""
    dice, node, at = stage.dice, stage.node(), stage.beginning()
    if dice.happens(0.5):
        yield _step(at + dice.between(-20, 20), Do.CONFIRM, node=node)
    yield _step(at, Do.BOOT, node=node)


def _armed_too_late(stage: Stage) -> Iterator[Step]:
    """Somebody vouches for a death while we only observe. When we are armed at last, that is no
    longer true, or was taken back, or is about another boot."""
    dice, node, at = stage.dice, stage.nodes[0], stage.dice.between(2, 15)
    trouble, end = dice.pick(_APPEARANCES)
    yield _step(0, Do.OBSERVE)
    if dice.happens(0.3):
        # Then nothing answers at its ports, and virt-handler's heartbeat alone speaks for it.
        trouble, end = Do.KILL_KUBELET, Do.START_KUBELET
        yield from _all_of_us(stage, 0, Do.FIREWALL)
    yield _step(at, trouble, node=node)
    at += dice.between(20, 45)
    yield _step(at, Do.CONFIRM, node=node)
    match dice.below(5):
        case 0:
            yield _step(at + dice.between(3, 15), Do.WITHDRAW, node=node)
        case 1:
            yield _step(at + dice.between(3, 10), end, node=node)
            if dice.happens(0.7):
                yield _step(at + dice.between(20, 40), trouble, node=node)
        case 2:
            yield _step(at + dice.between(3, 10), Do.BOOT, node=node)
            yield _step(at + dice.between(30, 45), Do.CUT, node=node)
        case 3:
            yield from _all_of_us(stage, at + 1, Do.KILL_CONTROLLER)
            yield _step(at + 3, end, node=node)
            yield _step(at + dice.between(25, 40), trouble, node=node)
            yield from _all_of_us(stage, at + 42, Do.START_CONTROLLER)
    yield _step(at + dice.between(45, 100), Do.ARM)


def _wrongly_declared_dead(stage: Stage) -> Iterator[Step]:
    """It is only cut off. It is heard again later, and perhaps does not hear what was decided."""
    dice, node, at = stage.dice, stage.nodes[0], stage.dice.between(0, 20)
    yield _step(at, Do.CUT, node=node)
    at += dice.between(20, 45)
    yield _step(at, Do.CONFIRM, node=node)
    back = Do.CUT_IN if dice.happens(0.6) else Do.HEAL
    yield _step(at + dice.between(5, 60), back, node=node)


def _helper_dies_too(stage: Stage) -> Iterator[Step]:
    """A node dies, and whoever is about to help dies too, or stands still, in the midst of it."""
    dice, node, at = stage.dice, stage.nodes[0], stage.dice.between(0, 20)
    yield _step(at, Do.KILL, node=node)
    at += dice.between(25, 50)
    yield _step(at, Do.CONFIRM, node=node)
    midst = dice.pick((After.INTENT, After.TAINT, After.MARK, After.REMOVAL))
    if dice.happens(0.4):
        yield _step(at, Do.PAUSE_CONTROLLER, controller=LEADER, after=midst)
        yield _step(at + dice.between(10, 40), Do.RESUME_CONTROLLER, controller=LEADER)
        return
    yield _step(at, Do.KILL_CONTROLLER, controller=LEADER, after=midst)
    if dice.happens(0.8):
        yield _step(at + dice.between(1, 20), Do.START_CONTROLLER, controller=LEADER)


def _all_of_us(stage: Stage, at: float, do: Do) -> Iterator[Step]:
    for name in stage.ours:
        yield _step(at, do, controller=name)


def _node_flaps(stage: Stage) -> Iterator[Step]:
    dice, node, at = stage.dice, stage.node(), stage.beginning()
    seconds = _rounded(dice.between(3, 30))
    yield _step(at, Do.FLAP, node=node, seconds=seconds, times=1 + dice.below(4))
    if dice.happens(0.4):
        yield _step(at + dice.between(0, 60), Do.CONFIRM, node=node)


def _node_is_odd(stage: Stage) -> Iterator[Step]:
    """It works, but slowly, or by another clock."""
    dice, node, at = stage.dice, stage.node(), stage.beginning()
    if dice.happens(0.4):
        yield _step(at, Do.SET_CLOCK, node=node, seconds=_rounded(dice.between(-7200, 7200)))
        return
    yield _step(at, Do.SLOW_DOWN, node=node, seconds=_rounded(dice.between(0.1, 8)))
    if dice.happens(0.7):
        yield _step(at + dice.between(5, 90), Do.SLOW_DOWN, node=node)


def _storm(stage: Stage) -> Iterator[Step]:
    """Several nodes die at once, and perhaps somebody has looked at them."""
    dice, at = stage.dice, stage.beginning()
    if not dice.happens(0.5):
        return
    dead = stage.nodes[: 2 + dice.below(2)]
    for node in dead[:-1]:
        yield _step(at, Do.KILL, node=node)
    yield _in_our_midst(stage, _step(at, Do.KILL, node=dead[-1]))
    if dice.happens(0.3):
        # For longer than any case: a clock that is wrong does not make it end.
        lifted = _step(at + dice.between(10, 60), Do.RELEASE_STORM, seconds=7200.0 + LONGEST)
        yield _in_our_midst(stage, lifted)
    said = at + dice.between(20, 70)
    for node in dead:
        word = _weighted(dice, _WORDS)
        if word is not None:
            yield _step(said, word, node=node)
        if word in (Do.PUT_OUT, Do.REMEDIATE) and dice.happens(0.5):
            back = _step(said + dice.between(20, 60), Do.PUT_BACK, node=node)
            yield _in_our_midst(stage, back)


_WORDS: Weighted[Do | None] = [(7, Do.CONFIRM), (1, Do.PUT_OUT), (1, Do.REMEDIATE), (2, None)]
"""By which somebody, or some program, says that a node is dead."""


# Guests


def _guest_is_moved(stage: Stage) -> Iterator[Step]:
    """And perhaps one of the two nodes dies in the middle of it."""
    dice, at = stage.dice, stage.beginning()
    vms = [vm.name for vm in stage.workloads.vms]
    if not vms:
        return
    vm = dice.pick(vms)
    yield _in_our_midst(stage, _step(at, Do.MIGRATE, workload=vm))
    if dice.happens(0.6):
        yield _step(at, dice.pick((Do.KILL_SOURCE, Do.KILL_TARGET)), workload=vm)
        yield _step(at + dice.between(20, 70), Do.CONFIRM_OFF)


def _guest_is_disturbed(stage: Stage) -> Iterator[Step]:
    """Somebody drains, or plugs a disk in."""
    dice, at = stage.dice, stage.beginning()
    vms = [vm.name for vm in stage.workloads.vms]
    if vms and dice.happens(0.4):
        yield _step(at, Do.PLUG_DISK, workload=dice.pick(vms))
        return
    for name in stage.workloads.names()[: 1 + dice.below(3)]:
        yield _in_our_midst(stage, _step(at, Do.EVICT, workload=name))


# Us


def _controller_dies(stage: Stage) -> Iterator[Step]:
    name, at = stage.controller(), stage.beginning()
    yield _in_our_midst(stage, _step(at, Do.KILL_CONTROLLER, controller=name))
    if stage.dice.happens(0.8):
        back = at + stage.dice.between(0.1, 60)
        yield _in_our_midst(stage, _step(back, Do.START_CONTROLLER, controller=name))


def _controller_stalls(stage: Stage) -> Iterator[Step]:
    dice = stage.dice
    name, at = LEADER if dice.happens(0.5) else stage.controller(), stage.beginning()
    trouble, end = dice.pick(_STALLS)
    began = _step(at, trouble, controller=name)
    if dice.happens(0.5):
        # Where it matters most: it has begun to act, and has not ended.
        midst = dice.pick((After.INTENT, After.TAINT, After.MARK))
        yield msgspec.structs.replace(began, after=midst)
    else:
        yield _in_our_midst(stage, began)
    if dice.happens(0.8):
        yield _step(at + dice.between(1, 90), end, controller=name)


_STALLS = (
    (Do.PAUSE_CONTROLLER, Do.RESUME_CONTROLLER),
    (Do.CUT_CONTROLLER, Do.HEAL_CONTROLLER),
)


def _clock_is_set(stage: Stage) -> Iterator[Step]:
    """And perhaps somebody is misled by it, too."""
    dice = stage.dice
    seconds = _rounded(dice.between(-7200, 7200))
    at = stage.beginning()
    for name in stage.ours:
        yield _step(at, Do.SKEW_CONTROLLER, controller=name, seconds=seconds)
    if dice.happens(0.7):
        # Where nothing answers at its ports, the clock is all that speaks about a node.
        yield from _all_of_us(stage, at, Do.FIREWALL)
        yield _step(at + dice.between(5, 40), Do.CONFIRM, node=stage.nodes[0])


def _lease_is_lost(stage: Stage) -> Iterator[Step]:
    """Somebody cleans up while none of us is there."""
    at = stage.dice.between(40, 90)
    yield from _all_of_us(stage, at, Do.KILL_CONTROLLER)
    yield _step(at + 1, Do.DELETE_LEASE)
    yield from _all_of_us(stage, at + stage.dice.between(2, 10), Do.START_CONTROLLER)


# The control plane


def _api_fails(stage: Stage) -> Iterator[Step]:
    at = stage.beginning()
    yield _in_our_midst(stage, _step(at, Do.KILL_API))
    yield _step(at + stage.dice.between(0.5, 60), Do.START_API)


def _api_is_restored(stage: Stage) -> Iterator[Step]:
    """And perhaps a node dies that day, whose death somebody confirms afterwards."""
    dice, at = stage.dice, stage.dice.between(0, 20)
    yield _step(at, Do.BACK_UP)
    restored = at + dice.between(5, 60)
    if dice.happens(0.6):
        node = stage.node()
        yield _step(restored - dice.between(-10, 30), Do.KILL, node=node)
        yield _step(restored, Do.ROLL_BACK)
        yield _step(restored + dice.between(40, 70), Do.CONFIRM, node=node)
    else:
        yield _in_our_midst(stage, _step(restored, Do.ROLL_BACK))
    if dice.happens(0.3):
        yield _step(restored + dice.between(20, 80), Do.ARM)


def _program_fails(stage: Stage) -> Iterator[Step]:
    # The last one may be on nodes, and share their fate; the first is not in every cluster.
    program, at = stage.dice.pick(PROGRAMS[1:-1]), stage.beginning()
    yield _step(at, Do.KILL_PROGRAM, program=program)
    yield _step(at + stage.dice.between(1, 90), Do.START_PROGRAM, program=program)


# People


def _minds_change(stage: Stage) -> Iterator[Step]:
    dice, at = stage.dice, stage.beginning()
    match dice.pick((Do.DISARM, Do.OBSERVE, Do.DELETE_CONFIG)):
        case Do.DISARM:
            seconds = _rounded(dice.between(5, 60))
            yield _in_our_midst(stage, _step(at, Do.DISARM, seconds=seconds))
        case change:
            yield _in_our_midst(stage, _step(at, change))
    if dice.happens(0.6):
        yield _step(at + dice.between(5, 60), Do.ARM)


def _somebody_meddles(stage: Stage) -> Iterator[Step]:
    """With what is ours, or with what we look at."""
    dice, at = stage.dice, stage.beginning()
    deed = dice.pick(
        (Do.WITHDRAW, Do.REMOVE_TAINT, Do.CORDON, Do.DELETE_LEASE, Do.DELETE_INCIDENTS)
    )
    of_nodes = deed not in (Do.DELETE_LEASE, Do.DELETE_INCIDENTS)
    about = {"node": stage.node()} if of_nodes else {}
    yield _in_our_midst(stage, _step(at + dice.between(0, 60), deed, **about))


def _owner_changes_something(stage: Stage) -> Iterator[Step]:
    dice, at = stage.dice, stage.beginning()
    vms = [vm.name for vm in stage.workloads.vms]
    deeds = (Do.UNPROTECT, Do.PROTECT, *((Do.STOP_VM, Do.DELETE_VM) if vms else ()))
    deed = dice.pick(deeds)
    names = vms if deed in (Do.STOP_VM, Do.DELETE_VM) else stage.workloads.names()
    step = _step(at + dice.between(0, 60), deed, workload=dice.pick(names))
    yield _in_our_midst(stage, step)


_OF_NODES: Weighted[Story] = [
    (12, _node_dies),
    (5, _node_seems_dead),
    (3, _armed_too_late),
    (2, _helper_dies_too),
    (1, _wrongly_declared_dead),
    (2, _node_reboots),
    (2, _node_flaps),
    (2, _guest_is_moved),
]
"""Each case has one of these: while all nodes are well, there is nothing to do for us."""

_ALL: Weighted[Story] = [
    *_OF_NODES,
    (3, _controller_dies),
    (3, _controller_stalls),
    (2, _clock_is_set),
    (1, _lease_is_lost),
    (1, _node_is_odd),
    (2, _guest_is_disturbed),
    (2, _api_fails),
    (2, _api_is_restored),
    (1, _program_fails),
    (2, _minds_change),
    (2, _somebody_meddles),
    (1, _owner_changes_something),
]


# Drawing


def _in_our_midst(stage: Stage, step: Step) -> Step:
    """Half of the time it waits for a write of ours, of some kind or of some number."""
    dice = stage.dice
    if dice.happens(0.5):
        return step
    if dice.happens(0.5):
        return msgspec.structs.replace(step, after=dice.pick(tuple(After)))
    return msgspec.structs.replace(step, after_writes=1 + dice.below(_MOST_WRITES))


def _step(at: float, do: Do, **about: Any) -> Step:
    return Step(at=_rounded(max(0.0, at)), do=do, **about)


def _weighted(dice: Chance, choices: Weighted[T]) -> T:
    left = dice.below(sum(weight for weight, _ in choices))
    for weight, choice in choices:
        left -= weight
        if left < 0:
            return choice
    raise AssertionError("a weighted choice has weights")


def _rounded(seconds: float) -> float:
    """People read them, too."""
    return round(seconds, 1)

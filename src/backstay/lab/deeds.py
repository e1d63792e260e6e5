"""Deeds: carries out the steps of a scenario.

Each verb is a method that says in a few words what happened, for the timeline, or nothing where
it made no sense at that moment. What people want of an API that is away fails, as it would.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, TypeAlias

import msgspec

from backstay.apis.backstay import CONFIG_NAME, CONFIGS, INCIDENTS
from backstay.apis.calico import ASKED, CONTAINER, DEFAULT_NETWORK
from backstay.apis.kubevirt import INSTANCES, VIRTUAL_MACHINES
from backstay.kube.client import KubeClient
from backstay.kube.errors import KubeError, TooManyRequests
from backstay.kube.resource import LEASES, NODES, PODS
from backstay.lab import drain_deeds, guest_deeds, policy_deeds, storage_deeds
from backstay.lab.cluster import NAMESPACE
from backstay.lab.linstor_stage import LinstorStage
from backstay.lab.power_stage import PowerStage, put_in_maintenance, take_out_of_maintenance
from backstay.lab.restores import Backup
from backstay.lab.scenario import LEADER, Do, Step
from backstay.lab.stage import Stage
from backstay.lab.witness import workload_of
from backstay.model.labels import PROTECT, TAINT
from backstay.settings import Settings
from backstay.sim.bmc import Reset
from backstay.sim.cluster.embedded import API
from backstay.sim.kubevirt.hotplug import plugged_in
from backstay.sim.kubevirt.names import MIGRATIONS
from backstay.sim.kubevirt.objects import migration_of
from backstay.sim.nodes.flapping import flap
from backstay.sim.nodes.machine import Cut, Machine
from backstay.sim.nodes.node import KUBELET, Node
from backstay.sim.process import Process, State
from backstay.sim.world import World

ALICE = "alice"
"""Whatever people do, she does it."""

BORROWER = "borrower"
"""The pod that is given an address of somebody else."""

_RAISED = {Do.ROLL_BACK_RAISED: 1_000_000_000, Do.ROLL_BACK_RAISED_A_LITTLE: 1_000_000}
"""By so many versions are raised."""

_WRITES = 100
"""How often in a second others write to the blocks of addresses."""

Deed: TypeAlias = Callable[[Step], Awaitable[str]]


class Deeds:
    """See the module."""

    def __init__(self, world: World, stage: Stage) -> None:
        self.leader = ""
        """Who led at zero."""
        self._world = world
        self._stage = stage
        self._cluster = stage.cluster
        self._client = stage.cluster.client
        self._backup: Backup | None = None
        self._deeds: Mapping[Do, Deed] = self._table()

    async def do(self, step: Step) -> tuple[str, str]:
        """Who, and what; the latter is empty where nothing happened."""
        if step.controller == LEADER:
            step = msgspec.structs.replace(step, controller=self.leader)
        linstor = "linstor" if step.do is Do.LINSTOR else ""
        who = step.node or step.controller or step.program or step.workload or linstor or ALICE
        try:
            what = await self._deeds[step.do](step)
        except KubeError as error:
            return ALICE, f"wanted to {step.do} {step.about}".rstrip() + f", but: {error}"
        if self._stage.power is not None:
            self._stage.power.follow_mains()
        return (ALICE if step.do in _OF_PEOPLE else "api" if step.do in _OF_API else who), what

    async def due(self, step: Step) -> None:
        """Returns when what the step is about is there."""
        if step.do in (Do.KILL_SOURCE, Do.KILL_TARGET):
            await self._cluster.embedded.until(
                lambda: self._is_copied(step.workload), timeout=math.inf
            )

    def _table(self) -> dict[Do, Deed]:
        return {
            Do.KILL: self._to_node(_kill),
            Do.BOOT: self._to_node(_boot),
            Do.FREEZE: self._to_node(_freeze),
            Do.THAW: self._to_node(_thaw),
            Do.CUT: self._to_node(lambda node: _cut(node, Cut.BOTH)),
            Do.CUT_OUT: self._to_node(lambda node: _cut(node, Cut.OUT)),
            Do.CUT_IN: self._to_node(lambda node: _cut(node, Cut.IN)),
            Do.CUT_API: self._to_node(lambda node: _cut(node, Cut.API)),
            Do.HEAL: self._to_node(_heal),
            Do.FLAP: self._flap,
            Do.SLOW_DOWN: self._slow_down,
            Do.SET_CLOCK: self._set_clock,
            Do.KILL_KUBELET: self._to_node(_kill_kubelet),
            Do.START_KUBELET: self._to_node(_start_kubelet),
            Do.CONFIRM: self._confirm,
            Do.CONFIRM_OFF: self._confirm_off,
            Do.WITHDRAW: self._withdraw,
            Do.DELETE_NODE: self._delete_node,
            Do.REMOVE_TAINT: self._remove_taint,
            Do.PUT_OUT: lambda step: storage_deeds.put_out_of_service(self._client, step.node),
            Do.REMEDIATE: lambda step: storage_deeds.remediate(self._client, step.node),
            Do.PUT_BACK: lambda step: storage_deeds.put_back(self._client, step.node),
            Do.FENCE: lambda step: storage_deeds.fence(self._client, step.node),
            Do.BMC: self._to_power(_befall),
            Do.SWITCH_OFF: self._to_power(
                lambda on, step: on.switch(step.node, Reset.OFF, by=ALICE)
            ),
            Do.SWITCH_ON: self._to_power(lambda on, step: on.switch(step.node, Reset.ON, by=ALICE)),
            Do.PUT_IN_MAINTENANCE: lambda step: put_in_maintenance(self._client, step.node),
            Do.TAKE_OUT_OF_MAINTENANCE: lambda step: take_out_of_maintenance(
                self._client, step.node
            ),
            Do.CORDON: self._cordon,
            Do.UNCORDON: self._uncordon,
            Do.EXCLUDE: lambda step: drain_deeds.exclude(self._client, step.node),
            Do.MAINTAIN: lambda step: drain_deeds.maintain(self._client, step.node),
            Do.END_MAINTENANCE: lambda step: drain_deeds.end(
                self._client, self._cluster.store, step.node, apart=step.seconds
            ),
            Do.DELETE_BUDGET: self._to_guest(drain_deeds.delete_budget),
            Do.ARM: self._arm,
            Do.DISARM: self._disarm,
            Do.OBSERVE: self._observe,
            Do.DELETE_CONFIG: self._delete_config,
            Do.CONFIGURE: self._configure,
            Do.RELEASE_STORM: self._release_storm,
            Do.SAY_WHAT_WE_DO_NOT_KNOW: lambda _: policy_deeds.say_more(self._client, NAMESPACE),
            Do.KILL_CONTROLLER: self._kill_controller,
            Do.START_CONTROLLER: self._start_controller,
            Do.PAUSE_CONTROLLER: self._pause_controller,
            Do.RESUME_CONTROLLER: self._resume_controller,
            Do.CUT_CONTROLLER: self._cut_controller,
            Do.HEAL_CONTROLLER: self._heal_controller,
            Do.SKEW_CONTROLLER: self._skew_controller,
            Do.FIREWALL: self._firewall,
            Do.DELETE_INCIDENTS: self._delete_incidents,
            Do.DELETE_LEASE: self._delete_lease,
            Do.KILL_API: lambda _: self._kill_program(API),
            Do.START_API: lambda _: self._start_program(API),
            Do.BACK_UP: self._back_up,
            Do.ROLL_BACK: self._roll_back,
            Do.ROLL_BACK_RAISED: self._roll_back,
            Do.ROLL_BACK_RAISED_A_LITTLE: self._roll_back,
            Do.KILL_PROGRAM: lambda step: self._kill_program(step.program),
            Do.START_PROGRAM: lambda step: self._start_program(step.program),
            Do.DELETE_VM: self._delete_vm,
            Do.STOP_VM: self._stop_vm,
            Do.MIGRATE: self._migrate,
            Do.CANCEL_MIGRATION: self._to_guest(guest_deeds.cancel_migrations),
            Do.DELETE_GUEST: self._to_guest(guest_deeds.delete),
            Do.SAY_FAILED: self._to_guest(guest_deeds.say_failed),
            Do.KILL_SOURCE: lambda step: self._kill_end(step, "source"),
            Do.KILL_TARGET: lambda step: self._kill_end(step, "target"),
            Do.PLUG_DISK: self._plug_disk,
            Do.EVICT: self._evict,
            Do.FORCE_DELETE: self._force_delete,
            Do.TAKE_ADDRESS: self._take_address,
            Do.GARBLE_ADDRESSES: self._garble_addresses,
            Do.WRITE_BLOCKS: self._write_blocks,
            Do.CUT_REPLICATION: self._to_linstor(lambda on, step: on.cut(step.node, step.peer)),
            Do.MUTE_REPLICATION: self._to_linstor(lambda on, step: on.mute(step.node, step.peer)),
            Do.MEND_REPLICATION: self._to_linstor(lambda on, step: on.mend(step.node, step.peer)),
            Do.ALLOW_TWO_BETWEEN: self._to_linstor(
                lambda on, step: on.allow_two_between(step.node, step.peer)
            ),
            Do.STOP_SATELLITE: self._to_linstor(lambda on, step: on.stop_satellite(step.node)),
            Do.START_SATELLITE: self._to_linstor(lambda on, step: on.start_satellite(step.node)),
            Do.EVICT_SATELLITE: self._to_linstor(lambda on, step: on.evict(step.node)),
            Do.STAY_ONLINE: self._to_linstor(lambda on, step: on.stay_online(step.node)),
            Do.FREE_REPLICA: self._to_linstor(lambda on, step: on.free(step.node)),
            Do.SERVE_EXPORTS: self._to_linstor(lambda on, step: on.serve_exports(step.node)),
            Do.LINSTOR: self._to_linstor(_happen),
            Do.PROTECT: lambda step: self._label(step.workload, "true"),
            Do.UNPROTECT: lambda step: self._label(step.workload, "false"),
        }

    def _to_linstor(self, deed: Callable[[LinstorStage, Step], str]) -> Deed:
        async def to_linstor(step: Step) -> str:
            assert self._stage.linstor is not None
            return deed(self._stage.linstor, step)

        return to_linstor

    def _to_power(self, deed: Callable[[PowerStage, Step], str]) -> Deed:
        async def to_power(step: Step) -> str:
            assert self._stage.power is not None
            return deed(self._stage.power, step)

        return to_power

    # Nodes

    def _to_node(self, fault: Callable[[Node], str]) -> Deed:
        async def deed(step: Step) -> str:
            return fault(self._cluster.nodes[step.node])

        return deed

    async def _flap(self, step: Step) -> str:
        await flap(self._cluster.nodes[step.node], every=step.seconds, times=step.times)
        return f"loses its network and has it again, every {step.seconds:g} s, {step.times} times"

    async def _slow_down(self, step: Step) -> str:
        self._cluster.nodes[step.node].slow_down(step.seconds)
        return f"is {step.seconds:g} s slower" if step.seconds else "is as fast as before"

    async def _set_clock(self, step: Step) -> str:
        self._cluster.nodes[step.node].step_clock(step.seconds)
        return f"has its time of day set by {step.seconds:+g} s"

    async def _delete_node(self, step: Step) -> str:
        await self._client.delete(NODES, step.node)
        return f"deletes the node {step.node} from the API"

    async def _remove_taint(self, step: Step) -> str:
        live = (await self._client.get(NODES, step.node)).json()
        taints = live["spec"].get("taints") or []
        left = [taint for taint in taints if taint["key"] != TAINT]
        if left == taints:
            return ""
        await self._client.merge_patch(NODES, step.node, {"spec": {"taints": left or None}})
        return f"takes our taint off {step.node}"

    async def _cordon(self, step: Step) -> str:
        await self._client.merge_patch(NODES, step.node, {"spec": {"unschedulable": True}})
        return f"cordons {step.node}"

    async def _uncordon(self, step: Step) -> str:
        await self._client.merge_patch(NODES, step.node, {"spec": {"unschedulable": None}})
        return f"uncordons {step.node}"

    # What people say

    async def _confirm(self, step: Step) -> str:
        await self._cluster.confirm_dead(step.node, by=ALICE, reason="its power is off")
        return f"confirms that {step.node} is dead"

    async def _confirm_off(self, _step: Step) -> str:
        off = [name for name, node in self._cluster.nodes.items() if node.boot_id is None]
        for node in off:
            await self._cluster.confirm_dead(node, by=ALICE, reason="its power is off")
        return f"confirms that {' and '.join(off)} are dead" if off else ""

    async def _withdraw(self, step: Step) -> str:
        await self._cluster.withdraw(step.node)
        return f"withdraws what was confirmed of {step.node}"

    async def _arm(self, _step: Step) -> str:
        await self._stage.configure(mode="Armed", disarmed=None)
        return "arms Backstay"

    async def _disarm(self, step: Step) -> str:
        await self._stage.configure(disarmed_for=step.seconds)
        return f"disarms Backstay for {step.seconds:g} s"

    async def _observe(self, _step: Step) -> str:
        await self._stage.configure(mode="Observe")
        return "lets Backstay only observe"

    async def _delete_config(self, _step: Step) -> str:
        await self._client.delete(CONFIGS, CONFIG_NAME)
        return "deletes the configuration of Backstay"

    async def _configure(self, step: Step) -> str:
        await self._stage.configure(**step.config)
        return f"changes the configuration of Backstay: {msgspec.json.encode(step.config).decode()}"

    async def _release_storm(self, step: Step) -> str:
        until = self._cluster.witness.wall_now() + timedelta(seconds=step.seconds)
        released = {"until": until.isoformat(), "reason": "the rack has no power", "by": ALICE}
        await self._stage.configure(stormRelease=released)
        return f"lifts the brake on storms for {step.seconds:g} s"

    # Our controllers

    def _process(self, step: Step) -> Process:
        return self._world.processes[self._cluster.process_of(step.controller)]

    def _machine(self, step: Step) -> Machine | None:
        """None for one that is on a node: it has no network of its own."""
        return self._cluster.machines.get(step.controller)

    async def _kill_controller(self, step: Step) -> str:
        process = self._process(step)
        if process.state is State.ENDED:
            return ""
        process.kill()
        return "is killed"

    async def _start_controller(self, step: Step) -> str:
        if self._process(step).state is not State.ENDED:
            return ""
        host = self._stage.host_of(step.controller)
        if host and self._cluster.nodes[host].boot_id is None:
            return ""
        self._stage.start_controller(step.controller)
        return "is started again"

    async def _pause_controller(self, step: Step) -> str:
        process = self._process(step)
        if process.state is not State.RUNNING:
            return ""
        process.pause()
        return "stands still, as a process that gets no CPU"

    async def _resume_controller(self, step: Step) -> str:
        process = self._process(step)
        if process.state is not State.PAUSED:
            return ""
        process.resume()
        return "goes on"

    async def _cut_controller(self, step: Step) -> str:
        machine = self._machine(step)
        if machine is None:
            return ""
        machine.cut_off(Cut.BOTH)
        return "is cut off"

    async def _heal_controller(self, step: Step) -> str:
        machine = self._machine(step)
        if machine is None:
            return ""
        machine.heal()
        return "is no longer cut off"

    async def _firewall(self, step: Step) -> str:
        process = self._cluster.process_of(step.controller)
        kubelets = [f"{name}/{KUBELET}" for name in self._cluster.nodes]
        self._world.wires.part([process], kubelets)
        return "can connect to the API, and to no node"

    async def _skew_controller(self, step: Step) -> str:
        self._process(step).wall.step(step.seconds)
        return f"has its time of day set by {step.seconds:+g} s"

    async def _delete_incidents(self, _step: Step) -> str:
        names = [stored.key[1] for stored in self._cluster.store.all(INCIDENTS.label)]
        for name in names:
            await self._client.delete(INCIDENTS, name)
        return f"deletes {len(names)} incidents" if names else ""

    async def _delete_lease(self, _step: Step) -> str:
        ours = Settings(identity="")
        await self._client.delete(LEASES, ours.lease, namespace=ours.namespace)
        return "deletes the lease of our controllers"

    # The control plane

    def _program(self, name: str) -> Process | None:
        """None for one that this cluster does not have."""
        return self._world.processes.get(f"control-plane/{name}")

    async def _kill_program(self, name: str) -> str:
        program = self._program(name)
        if program is None or program.state is State.ENDED:
            return ""
        self._cluster.embedded.control_plane.kill(name)
        return "is killed"

    async def _start_program(self, name: str) -> str:
        program = self._program(name)
        if program is None or program.state is not State.ENDED:
            return ""
        self._cluster.embedded.control_plane.start(name)
        return "is started again"

    async def _back_up(self, _step: Step) -> str:
        self._backup = self._cluster.back_up()
        return "backs up the API"

    async def _roll_back(self, step: Step) -> str:
        if self._backup is None:
            return ""
        raised = _RAISED.get(step.do, 0)
        self._cluster.roll_back(self._backup, raised=raised)
        return "restores the API from its backup" + (", and raises its versions" if raised else "")

    # Workloads

    async def _delete_vm(self, step: Step) -> str:
        await self._client.delete(VIRTUAL_MACHINES, step.workload, namespace=NAMESPACE)
        return f"deletes the VM {step.workload}"

    async def _stop_vm(self, step: Step) -> str:
        halted = {"spec": {"runStrategy": "Halted"}}
        await self._client.merge_patch(VIRTUAL_MACHINES, step.workload, halted, namespace=NAMESPACE)
        return f"stops the VM {step.workload}"

    def _to_guest(self, deed: Callable[[KubeClient, str, str], Awaitable[str]]) -> Deed:
        return lambda step: deed(self._client, NAMESPACE, step.workload)

    async def _migrate(self, step: Step) -> str:
        body = {"metadata": {"generateName": "by-hand-"}, "spec": {"vmiName": step.workload}}
        await self._client.create(MIGRATIONS, body, namespace=NAMESPACE)
        return f"has {step.workload} moved to another node"

    async def _kill_end(self, step: Step, end: str) -> str:
        node = self._migration(step.workload)[f"{end}Node"]
        _kill(self._cluster.nodes[node])
        return f"loses its power: {node} is the {end} of the migration of {step.workload}"

    def _is_copied(self, vm: str) -> bool:
        state = self._migration(vm)
        return bool(state.get("startTimestamp")) and not state.get("endTimestamp")

    def _migration(self, vm: str) -> dict[str, Any]:
        vmi = self._cluster.witness.stored(INSTANCES.label, vm, NAMESPACE)
        return {} if vmi is None else migration_of(dict(vmi))

    async def _plug_disk(self, step: Step) -> str:
        live = self._cluster.witness.stored(VIRTUAL_MACHINES.label, step.workload, NAMESPACE)
        if live is None:
            return ""
        claim = await self._stage.create_claim(step.workload)
        patch = plugged_in(dict(live), claim)
        await self._client.merge_patch(VIRTUAL_MACHINES, step.workload, patch, namespace=NAMESPACE)
        vmi = self._cluster.witness.stored(INSTANCES.label, step.workload, NAMESPACE)
        if vmi is not None:
            body = {"spec": patch["spec"]["template"]["spec"]}
            await self._client.merge_patch(INSTANCES, step.workload, body, namespace=NAMESPACE)
        return f"plugs one more disk into {step.workload}"

    async def _evict(self, step: Step) -> str:
        answers = []
        for pod in self._pods(step.workload):
            try:
                await self._client.evict(pod, namespace=NAMESPACE)
            except TooManyRequests as error:
                answers.append(str(error))
        return f"evicts {step.workload}" + (f", but: {answers[0]}" if answers else "")

    async def _force_delete(self, step: Step) -> str:
        for pod in self._pods(step.workload):
            await self._client.delete(PODS, pod, namespace=NAMESPACE, conditions={"grace": 0})
        return f"deletes the pod of {step.workload} by force"

    async def _take_address(self, step: Step) -> str:
        calico = self._cluster.calico
        assert calico is not None, "a scenario without Calico has no such step"
        if any(self._runs(step.workload)):
            return ""
        for pod in self._pods(step.workload):
            body = (await self._client.get(PODS, pod, namespace=NAMESPACE)).json()
            said = body["metadata"].get("annotations") or {}
            if ASKED in said and CONTAINER in said:
                await calico.release(self._client, f"{DEFAULT_NETWORK}.{said[CONTAINER]}")
                return await self._start_borrower(said[ASKED])
        return ""

    async def _start_borrower(self, asked: str) -> str:
        body = {
            "metadata": {"name": BORROWER, "annotations": {ASKED: asked}},
            "spec": {"containers": [{"name": "main", "image": "example/borrower"}]},
        }
        await self._client.create(PODS, body, namespace=NAMESPACE)
        return f"takes {asked} back with calicoctl, and starts the pod {BORROWER} with it"

    async def _garble_addresses(self, step: Step) -> str:
        said = {"metadata": {"annotations": {ASKED: "10.244.200.5"}}}
        patch = {"spec": {"template": said}}
        await self._client.merge_patch(VIRTUAL_MACHINES, step.workload, patch, namespace=NAMESPACE)
        return f"writes an address into the template of {step.workload}, and not as JSON"

    async def _write_blocks(self, step: Step) -> str:
        """It is told when it is over."""
        calico = self._cluster.calico
        assert calico is not None, "a scenario without Calico has no such step"
        for _ in range(round(step.seconds * _WRITES)):
            for block in (await self._client.list(calico.group.blocks)).json()["items"]:
                number = block["spec"]["sequenceNumber"] + 1
                patch = {"spec": {"sequenceNumber": number}}
                await self._client.merge_patch(
                    calico.group.blocks, block["metadata"]["name"], patch
                )
            await asyncio.sleep(1 / _WRITES)
        return "has written to all blocks of addresses, again and again"

    async def _label(self, workload: str, value: str) -> str:
        body = {"metadata": {"labels": {PROTECT: value}}}
        for pod in self._pods(workload):
            await self._client.merge_patch(PODS, pod, body, namespace=NAMESPACE)
        return f"labels the pod of {workload} with {PROTECT}={value}"

    def _runs(self, workload: str) -> Iterator[bool]:
        """Of each container that runs anywhere, whether it is of this one."""
        for each in self._cluster.truth.running():
            yield self._stage.named(workload_of(each)) == workload

    def _pods(self, workload: str) -> list[str]:
        pods = [stored.object for stored in self._cluster.store.all(PODS.label)]
        return [p["metadata"]["name"] for p in pods if self._stage.workload(p) == workload]


def _kill(node: Node) -> str:
    if node.boot_id is None:
        return ""
    node.kill()
    return "loses its power"


def _boot(node: Node) -> str:
    was_on = node.boot_id is not None
    node.reboot()
    return "is rebooted" if was_on else "has power again, and boots"


def _freeze(node: Node) -> str:
    if node.frozen or node.boot_id is None:
        return ""
    node.freeze()
    return "is frozen: what it runs, runs on"


def _thaw(node: Node) -> str:
    if not node.frozen:
        return ""
    node.thaw()
    return "thaws"


def _cut(node: Node, what: Cut) -> str:
    node.cut_off(what)
    ways = {
        Cut.OUT: "is no longer heard",
        Cut.IN: "no longer hears anybody",
        Cut.API: "is cut off from the control plane: what it runs, runs on",
    }
    return ways.get(what, "is cut off: what it runs, runs on")


def _heal(node: Node) -> str:
    if node.cut is None:
        return ""
    node.heal()
    return "is no longer cut off"


def _kill_kubelet(node: Node) -> str:
    if not node.has_kubelet:
        return ""
    node.kill_kubelet()
    return "loses its kubelet: what it runs, runs on"


def _start_kubelet(node: Node) -> str:
    if node.has_kubelet or node.boot_id is None:
        return ""
    node.start_kubelet()
    return "has a kubelet again"


def _happen(stage: LinstorStage, step: Step) -> str:
    assert step.what is not None
    return stage.happen(step.what, step.seconds)


def _befall(stage: PowerStage, step: Step) -> str:
    assert step.how is not None
    return stage.befall(step.node, step.how, step.seconds)


_OF_API = frozenset({Do.KILL_API, Do.START_API})

_OF_PEOPLE = frozenset({
    Do.CONFIRM, Do.WITHDRAW, Do.DELETE_NODE, Do.REMOVE_TAINT, Do.PUT_OUT, Do.PUT_BACK, Do.CORDON,
    Do.UNCORDON, Do.EXCLUDE, Do.MAINTAIN, Do.END_MAINTENANCE, Do.DELETE_BUDGET,
    Do.ARM, Do.RELEASE_STORM, Do.SAY_WHAT_WE_DO_NOT_KNOW, Do.CONFIGURE,
    Do.DISARM, Do.OBSERVE, Do.DELETE_CONFIG, Do.DELETE_LEASE, Do.DELETE_VM, Do.STOP_VM,
    Do.FORCE_DELETE, Do.TAKE_ADDRESS, Do.GARBLE_ADDRESSES, Do.WRITE_BLOCKS, Do.PROTECT,
    Do.UNPROTECT, Do.CONFIRM_OFF, Do.BACK_UP, Do.ROLL_BACK, Do.ROLL_BACK_RAISED,
    Do.ROLL_BACK_RAISED_A_LITTLE,
    Do.MIGRATE, Do.CANCEL_MIGRATION, Do.DELETE_GUEST, Do.SAY_FAILED, Do.PLUG_DISK, Do.EVICT,
    Do.DELETE_INCIDENTS, Do.SWITCH_OFF, Do.SWITCH_ON, Do.PUT_IN_MAINTENANCE,
    Do.TAKE_OUT_OF_MAINTENANCE,
})  # fmt: skip

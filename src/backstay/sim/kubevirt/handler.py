"""VirtHandler: KubeVirt's agent on a node, which starts guests, ends them, and says so.

``node.run("virt-handler", VirtHandler())``. It is a program of its own: when the kubelet alone
dies it goes on, and its heartbeat with it.

* It takes over a VMI that is Scheduled on its node: the guest starts, and the VMI is Running.
* A guest whose VMI is deleted, final or gone is shut down as soon as virt-handler hears of it. So
  it needs the API for that, and cannot keep a guest from running twice while it is cut off.
* How a guest ended is reported as the final phase of its VMI, unless somebody was faster:
  Succeeded after a shutdown, Failed after a crash or a loss of power.
* It passes volumes on that another pod has brought to the node for a guest (see ``hotplug``), and
  does its part in migrations (see ``transfer``).

A guest is not told from the launcher that it runs in: it runs while the container does. Which
launchers have had a guest started is remembered here, as their sockets on the node's disk do it
for the real one; it outlives the program.
"""

import asyncio
from functools import partial
from typing import NoReturn, TypeAlias

import msgspec

from backstay.kube.errors import KubeError, NotFound
from backstay.kube.projection import Projection
from backstay.kube.reflector import Reflector
from backstay.kube.resource import NODES
from backstay.seam.tasks import Tasks
from backstay.sim.api.operations import stamp
from backstay.sim.kubevirt import hotplug
from backstay.sim.kubevirt.names import (
    APP,
    FAILED,
    FINAL,
    HEARTBEAT,
    HOTPLUG,
    MIGRATION_JOB,
    NODE_NAME,
    RUNNING,
    SCHEDULABLE,
    SCHEDULED,
    SUCCEEDED,
    TARGET_NODE,
    VMIS,
    Json,
)
from backstay.sim.kubevirt.objects import (
    condition,
    condition_of,
    is_going,
    migration_of,
    phase_of,
)
from backstay.sim.kubevirt.transfer import Copying, Transfers, launcher_on
from backstay.sim.nodes.agents import AgentContext
from backstay.sim.nodes.telling_cache import TellingCache
from backstay.sim.nodes.wire import Pod

_BEAT = 60.0
_JITTER = 1.2
_RETRY = 1.0


class _Instance(msgspec.Struct, frozen=True):
    """A VMI of this node; ``launchers`` are the uids of those that it has here."""

    key: str
    uid: str
    version: str
    body: Json
    phase: str
    must_end: bool
    launchers: tuple[str, ...]


_Instances: TypeAlias = TellingCache[_Instance]


def _instance(node: str, body: Json) -> _Instance:
    meta, phase = body["metadata"], phase_of(body)
    pods = (body.get("status") or {}).get("activePods") or {}
    return _Instance(
        key=f"{meta['namespace']}/{meta['name']}",
        uid=meta["uid"],
        version=meta["resourceVersion"],
        body=body,
        phase=phase,
        must_end=is_going(body) or phase in FINAL,
        launchers=tuple(uid for uid, place in pods.items() if place == node),
    )


class VirtHandler:
    """An ``Agent``: one for each node."""

    def __init__(self, copying: Copying | None = None) -> None:
        self._guests: dict[str, str] = {}
        self._transfers = Transfers(copying or Copying())

    async def __call__(self, context: AgentContext) -> None:
        context.runtime.start_idle(_starts_idle)
        bell = asyncio.Event()
        here: _Instances = TellingCache(bell)
        coming: _Instances = TellingCache(bell)
        async with Tasks(f"{context.node}/virt-handler") as tasks:
            projection = Projection(dict, partial(_instance, context.node))
            for label, rows in ((NODE_NAME, here), (TARGET_NODE, coming)):
                reflector = Reflector(
                    context.client,
                    VMIS,
                    projection,
                    rows,
                    rng=context.seams.rng,
                    labels=f"{label}={context.node}",
                )
                tasks.spawn(reflector.run(), name=label)
            tasks.spawn(self._beat(context), name="heartbeat")
            tasks.spawn(_follow_containers(context, bell), name="containers")
            await self._work(context, here, coming, bell)

    # The heartbeat

    async def _beat(self, context: AgentContext) -> NoReturn:
        while True:
            try:
                await self._say_that_we_live(context)
            except NotFound:
                # The kubelet has not told anybody of the node yet.
                await asyncio.sleep(_RETRY)
                continue
            except KubeError:
                pass
            await asyncio.sleep(_BEAT * (1 + _JITTER * context.seams.rng.random()))

    async def _say_that_we_live(self, context: AgentContext) -> None:
        now = stamp(context.seams.wall.now())
        meta = {"labels": {SCHEDULABLE: "true"}, "annotations": {HEARTBEAT: now}}
        await context.client.strategic_patch(NODES, context.node, {"metadata": meta})

    # Guests

    async def _work(
        self, context: AgentContext, here: _Instances, coming: _Instances, bell: asyncio.Event
    ) -> NoReturn:
        while True:
            bell.clear()
            synced = here.synced and coming.synced
            wait = await self._look(context, list(here), list(coming)) if synced else None
            try:
                async with asyncio.timeout(wait):
                    await bell.wait()
            except TimeoutError:
                pass

    async def _look(
        self, context: AgentContext, here: list[_Instance], coming: list[_Instance]
    ) -> float | None:
        """Looks at every VMI and every guest; in how many seconds to look again, if so."""
        self._shut_down_unwanted(context, here, coming)
        waits: list[float] = []
        for row in here:
            try:
                await self._report(context, row)
                await _plug(context, row)
            except KubeError:
                waits.append(_RETRY)
        for row in {each.key: each for each in (*here, *coming)}.values():
            try:
                wait = await self._transfers.attend(context, row.body)
            except KubeError:
                wait = _RETRY
            if wait is not None:
                waits.append(wait)
        return min(waits, default=None)

    def _shut_down_unwanted(
        self, context: AgentContext, here: list[_Instance], coming: list[_Instance]
    ) -> None:
        for row in here:
            if row.phase == RUNNING:
                self._guests |= dict.fromkeys(row.launchers, row.uid)
        rows = [*here, *(row for row in coming if _is_target(row.body, context.node))]
        known = {row.uid for row in rows}
        wanted = {row.uid for row in rows if not row.must_end}
        for uid, instance in list(self._guests.items()):
            runs = context.runtime.runs(uid)
            if runs and instance not in wanted:
                why = "virt-handler shut its guest down"
                context.runtime.stop(uid, code=0, reason="Completed", why=why)
            elif not runs and instance not in known:
                del self._guests[uid]

    async def _report(self, context: AgentContext, row: _Instance) -> None:
        phase, wanted = row.phase, self._phase(context, row)
        if wanted == phase:
            return
        now = stamp(context.seams.wall.now())
        entered = {"phase": wanted, "phaseTransitionTimestamp": now}
        steps: list[Json] = [
            {"op": "test", "path": "/metadata/uid", "value": row.uid},
            {"op": "test", "path": "/status/phase", "value": phase},
            {"op": "replace", "path": "/status/phase", "value": wanted},
            {"op": "add", "path": "/status/phaseTransitionTimestamps/-", "value": entered},
        ]
        if wanted == RUNNING and condition_of(row.body, "LiveMigratable") is None:
            value = _live_migratable(row.body, now)
            steps.append({"op": "add", "path": "/status/conditions/-", "value": value})
            # Without a word on this, the real virt-controller makes no target for a migration.
            steps.append({"op": "add", "path": "/status/selinuxContext", "value": "none"})
            if row.body["spec"].get("startStrategy") == "Paused":
                value = condition("Paused", "True", "PausedByUser", "VMI was paused by user", now)
                steps.append({"op": "add", "path": "/status/conditions/-", "value": value})
        meta = row.body["metadata"]
        await context.client.json_patch(VMIS, meta["name"], steps, namespace=meta["namespace"])
        if wanted == RUNNING:
            self._guests |= dict.fromkeys(row.launchers, row.uid)

    def _phase(self, context: AgentContext, row: _Instance) -> str:
        """What the phase of a VMI should be, by what runs here."""
        phase = row.phase
        uids = row.launchers or [
            uid for uid, instance in self._guests.items() if instance == row.uid
        ]
        if phase not in (SCHEDULED, RUNNING) or not uids:
            return phase
        if any(map(context.runtime.runs, uids)):
            starts = phase == SCHEDULED and not row.must_end
            return RUNNING if starts else phase
        endings = [context.runtime.ended(uid) for uid in uids]
        ended_well = any(ended is not None and ended.code == 0 for ended in endings)
        return SUCCEEDED if phase == RUNNING and ended_well else FAILED


async def _follow_containers(context: AgentContext, bell: asyncio.Event) -> NoReturn:
    seen = context.runtime.changes
    while True:
        seen = await context.runtime.changed(seen)
        bell.set()


def _starts_idle(pod: Pod) -> bool:
    """The target of a migration has no guest yet; what only brings volumes never has one."""
    labels = pod.metadata.labels or {}
    return MIGRATION_JOB in labels or labels.get(APP) == HOTPLUG


def _is_target(vmi: Json, node: str) -> bool:
    state = migration_of(vmi)
    return state.get("targetNode") == node and not state.get("completed")


async def _plug(context: AgentContext, row: _Instance) -> None:
    """Gives the guest what other pods have brought for it, and says so."""
    vmi = row.body
    launcher = None
    if row.phase == RUNNING and not row.must_end:
        launcher = launcher_on(context, vmi, context.node)
    if launcher is None:
        return
    steps: list[Json] = []
    for number, volume in enumerate(vmi["status"].get("volumeStatus") or ()):
        uid = (volume.get("hotplugVolume") or {}).get("attachPodUID")
        run = context.runtime.running.get(uid or "")
        if run is not None and volume.get("phase") == hotplug.ATTACHED:
            context.runtime.plug(launcher, run.mounts, why="plugged into the guest")
            path = f"/status/volumeStatus/{number}"
            steps += [
                {"op": "test", "path": f"{path}/hotplugVolume/attachPodUID", "value": uid},
                {"op": "replace", "path": f"{path}/phase", "value": hotplug.READY},
            ]
    if steps:
        meta = vmi["metadata"]
        await context.client.json_patch(VMIS, meta["name"], steps, namespace=meta["namespace"])


def _live_migratable(vmi: Json, now: str) -> Json:
    """Where every disk can be used on two nodes at once."""
    for volume in (vmi.get("status") or {}).get("volumeStatus") or ():
        claim = volume.get("persistentVolumeClaimInfo")
        if claim is not None and "ReadWriteMany" not in claim["accessModes"]:
            why = (
                f"cannot migrate VMI: PVC {claim['claimName']} is not shared, live migration "
                "requires that all PVCs must be shared (using ReadWriteMany access mode)"
            )
            return condition("LiveMigratable", "False", "DisksNotLiveMigratable", why, now)
    return condition("LiveMigratable", "True", "", "", now)

"""Play: a scenario from its beginning to its end, under virtual time, and what came of it.

The same scenario gives the same ``Played`` every time, in a Python whose hashes are fixed (see
``sim/hash_seed.py``). ``unmet`` says in a sentence each what was expected and did not come true.

Until everything is set up, chance goes by a seed that follows from what is set up, and from then
on by the scenario's own. So scenarios with the same beginning have the same past, and one set-up
serves for all of them (see ``settled.py``).
"""

import asyncio
import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Unpack

import msgspec

from backstay.app import Parts
from backstay.kube.resource import NODES
from backstay.lab.bugs import bug_named
from backstay.lab.cluster import LabCluster
from backstay.lab.deeds import Deeds
from backstay.lab.drained import Home, blockers, homes, moved, phases
from backstay.lab.inspector import Breach
from backstay.lab.maintenances import Part, parts_on
from backstay.lab.scenario import LEADER, BadScenario, Scenario, Step
from backstay.lab.stage import Stage
from backstay.lab.timeline import Deed, Line, Scribe, is_tainted, kind_of, user_of
from backstay.lab.witness import workload_of
from backstay.model.incident import Progress
from backstay.sim.calico import DUAL, V1, V3, Calico
from backstay.sim.cluster.ground import WorldGround
from backstay.sim.linstor.storage import Linstor
from backstay.sim.world import World


class Played(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What came of it. ``running`` is where each workload really runs at the end, and is empty
    for one that is down; for the rest see ``Expect``. ``calls`` are requests of ours, ``checked``
    happenings that the invariants were asked about, ``accepted`` the risks that a person took who
    was wrong."""

    name: str
    question: str
    seed: int
    timeline: tuple[Line, ...]
    breaches: tuple[Breach, ...]
    accepted: tuple[Breach, ...]
    recovered: dict[str, str]
    held: dict[str, str]
    stays_down: dict[str, str]
    untouched: tuple[str, ...]
    running: dict[str, tuple[str, ...]]
    taints: tuple[str, ...]
    open: tuple[str, ...]
    says: tuple[str, ...]
    addresses: dict[str, tuple[str, ...]]
    maintained: dict[str, str]
    blocked: dict[str, tuple[str, ...]]
    cordoned: tuple[str, ...]
    migrated: tuple[str, ...]
    calls: int
    checked: int
    without_power: tuple[str, ...] = ()
    powered_on: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()
    astray: bool = False
    """Whether an invariant broke that was not expected to."""

    @property
    def down(self) -> tuple[str, ...]:
        return tuple(name for name, nodes in self.running.items() if not nodes)

    @property
    def broken(self) -> tuple[str, ...]:
        """The names of the invariants that broke."""
        return tuple(sorted({breach.invariant for breach in self.breaches}))


def play(
    scenario: Scenario, *, enough: Collection[str] | None = None, **instead: Unpack[Parts]
) -> Played:
    """Of shipped parts, or with the scenario's bug, or with what is named ``instead``. It ends
    early when all invariants are broken that are said to be ``enough``, or with the first breach
    if ``ANYTHING`` is.

    Raises ``BadScenario`` if there is no such bug.
    """
    with World(seed_of_beginning(scenario)) as world:
        return world.run(_play(world, scenario, enough, instead))


async def _play(
    world: World, scenario: Scenario, enough: Collection[str] | None, instead: Parts
) -> Played:
    performance = Performance(world, scenario, instead)
    await performance.set_up()
    return await performance.perform(scenario, enough)


def seed_of_beginning(scenario: Scenario) -> int:
    """The same for siblings, with any bug or none."""
    beginning = msgspec.structs.replace(scenario.beginning, bug="")
    digest = hashlib.sha256(msgspec.json.encode(beginning, order="deterministic")).digest()
    return int.from_bytes(digest[:8], "big")


class Performance:
    """One play of one scenario, in two parts; the second may be that of any sibling."""

    def __init__(self, world: World, scenario: Scenario, instead: Parts) -> None:
        self._world = world
        self._scenario = scenario
        ground = WorldGround(world)
        self.cluster = LabCluster(
            ground,
            calico=_calico(ground, scenario),
            csi_addons=scenario.csi_addons,
            linstor=_linstor(world, scenario),
            provider=scenario.provider,
            bmcs=scenario.bmcs is not None,
            kubevirt=scenario.kubevirt,
        )
        self._stage = Stage(self.cluster, scenario, **_parts(scenario, instead))
        self._deeds = Deeds(world, self._stage)
        self._scribe = Scribe(self.cluster, named=self._stage.named)
        self._zero = 0.0
        self._calls = 0
        self._guests: dict[str, Home] = {}

    async def set_up(self) -> None:
        await self._stage.set_up()
        self._zero = self._world.now

    async def perform(self, scenario: Scenario, enough: Collection[str] | None) -> Played:
        self._scenario = scenario
        self._world.turn_to(scenario.seed)
        self._calls = self.cluster.witness.calls
        self._scribe.begin(self._zero)
        self._deeds.leader = self._stage.leader()
        at_first = {each.uid for each in self.cluster.truth.running()}
        self._guests = homes(self.cluster.store)
        async with asyncio.TaskGroup() as group:
            # In the order in which they are to begin, so that of two at one time the first is
            # done first.
            steps = sorted(scenario.steps, key=lambda step: step.at)
            under_way = [group.create_task(self._step(step)) for step in steps]
            await self._until(scenario.until, enough)
            for task in under_way:
                task.cancel()
        await self.cluster.replay()
        return self._judged(self._result(at_first))

    async def _until(self, seconds: float, enough: Collection[str] | None) -> None:
        if enough is None:
            await asyncio.sleep(seconds)
            return
        try:
            async with asyncio.timeout(seconds):
                await self.cluster.inspector.breaks(enough)
        except TimeoutError:
            pass

    async def _step(self, step: Step) -> None:
        await asyncio.sleep(self._zero + step.at - self._world.now)
        if step.waits:
            await self._writes(step)
        await self._deeds.due(step)
        # Told before what comes of it.
        began, place = self._world.now, len(self._scribe.lines)
        who, what = await self._deeds.do(step)
        if what:
            self._scribe.tell(began, who, what, place=place)

    async def _writes(self, step: Step) -> None:
        """Until as many of the writes that the step waits for were carried out."""
        left, enough = max(1, step.after_writes), asyncio.Event()
        whose = self._deeds.leader if step.controller == LEADER else step.controller

        def told(write: Deed) -> None:
            nonlocal left
            if whose and user_of(write) != whose:
                return
            if step.after is None or kind_of(write) is step.after:
                left -= 1
                if left == 0:
                    enough.set()

        release = self._scribe.await_write(told)
        try:
            await enough.wait()
        finally:
            release()

    # What came of it

    def _result(self, at_first: set[str]) -> Played:
        scenario, cluster, scribe = self._scenario, self.cluster, self._scribe
        running, nodes = self._running(), self._nodes()
        recovered = {
            name: each.node
            for each in cluster.truth.running()
            if (name := self._stage.named(workload_of(each))) in scribe.touched
            and each.uid not in at_first
        }
        return Played(
            name=scenario.name,
            question=scenario.question,
            seed=scenario.seed,
            timeline=tuple(scribe.lines),
            breaches=tuple(cluster.inspector.broken),
            accepted=tuple(cluster.inspector.accepted),
            recovered=recovered,
            held=self._codes(Progress.HELD),
            stays_down=self._codes(Progress.STAYS_DOWN),
            untouched=tuple(name for name in running if name not in scribe.touched),
            running=running,
            taints=tuple(name for name, node in nodes.items() if is_tainted(node)),
            open=tuple(each["spec"]["node"] for each in cluster.open_incidents()),
            says=tuple(sorted(scribe.codes)),
            addresses={
                self._stage.named(workload_of(each)): each.addresses
                for each in cluster.truth.running()
                if each.addresses
            },
            maintained=phases(cluster.store),
            blocked=blockers(cluster.store),
            cordoned=tuple(name for name, node in nodes.items() if Part.CORDON in parts_on(node)),
            migrated=moved(self._guests, homes(cluster.store)),
            calls=cluster.witness.calls - self._calls,
            checked=cluster.inspector.checked,
            without_power=tuple(
                name for name, node in cluster.nodes.items() if node.boot_id is None
            ),
            powered_on=tuple(scribe.powered_on),
        )

    def _running(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = dict.fromkeys(self._scenario.workloads.names(), ())
        for each in self.cluster.truth.running():
            name = self._stage.named(workload_of(each))
            if name in found:
                found[name] = (*found[name], each.node)
        return found

    def _nodes(self) -> dict[str, Any]:
        stored = (each.object for each in self.cluster.store.all(NODES.label))
        return {node["metadata"]["name"]: node for node in stored}

    def _codes(self, progress: Progress) -> dict[str, str]:
        """What is told of workloads that have come so far, and no further."""
        records = (
            record
            for incident in self.cluster.open_incidents()
            for record in (incident.get("status") or {}).get("workloads") or ()
        )
        return {
            self._stage.named(record["workload"].partition("/")[2]): record["code"]
            for record in records
            if record["progress"] == progress
        }

    def _judged(self, played: Played) -> Played:
        unmet = tuple(_unmet(self._scenario, played))
        astray = not set(played.broken) <= set(self._scenario.expect.breaches)
        return msgspec.structs.replace(played, unmet=unmet, astray=astray)


def _parts(scenario: Scenario, instead: Parts) -> Parts:
    if not scenario.bug:
        return instead
    try:
        return {**bug_named(scenario.bug).instead, **instead}
    except KeyError:
        raise BadScenario(f"{scenario.name}: bug: there is no bug {scenario.bug}.") from None


def _linstor(world: World, scenario: Scenario) -> Linstor | None:
    if scenario.linstor is None:
        return None
    return Linstor(world.dice("linstor"), now=lambda: world.now)


def _calico(ground: WorldGround, scenario: Scenario) -> Calico | None:
    wanted = scenario.calico
    if wanted is None:
        return None
    return Calico(
        ground.wall,
        group=V1 if wanted.group == "v1" else V3,
        pools=DUAL if wanted.families == "both" else None,
        persistence=wanted.persistence,
    )


def _unmet(scenario: Scenario, played: Played) -> Iterable[str]:
    expect = scenario.expect
    asked: Mapping[str, tuple[Iterable[str] | None, Iterable[str]]] = {
        "recovered": (expect.recovered, played.recovered),
        "untouched": (expect.untouched, played.untouched),
        "down": (expect.down, played.down),
        "taints": (expect.taints, played.taints),
        "open": (expect.open, played.open),
        "cordoned": (expect.cordoned, played.cordoned),
        "migrated": (expect.migrated, played.migrated),
        "breaches": (expect.breaches, played.broken),
        "withoutPower": (expect.without_power, played.without_power),
        "poweredOn": (expect.powered_on, played.powered_on),
    }
    for field, (wanted, found) in asked.items():
        if wanted is not None and set(wanted) != set(found):
            yield f"{field} was to be {_listed(wanted)}, and is {_listed(found)}"
    told: Mapping[str, tuple[Mapping[str, str] | None, Mapping[str, str]]] = {
        "held": (expect.held, played.held),
        "maintained": (expect.maintained, played.maintained),
        "blocked": (_codes_told(expect.blocked), _codes_told(played.blocked) or {}),
    }
    for field, (codes, said) in told.items():
        if codes is not None and codes != said:
            yield f"{field} was to be {_pairs(codes)}, and is {_pairs(said)}"
    for name, wanted in (expect.addresses or {}).items():
        if set(has := played.addresses.get(name, ())) != set(wanted):
            yield f"{name} was to have {_listed(wanted)}, and has {_listed(has)}"
    if expect.risk is not bool(played.accepted):
        yield f"two copies were {'' if expect.risk else 'not '}to run on the word of a person"
    missing = set(expect.says or ()) - set(played.says)
    if missing:
        yield f"nothing told of {_listed(missing)}"


def _codes_told(blocked: Mapping[str, Iterable[str]] | None) -> dict[str, str] | None:
    if blocked is None:
        return None
    return {node: _listed(set(codes)) for node, codes in blocked.items() if codes}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _pairs(found: Mapping[str, str]) -> str:
    return _listed(f"{name} ({code})" for name, code in found.items())

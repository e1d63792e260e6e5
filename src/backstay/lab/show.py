"""The show: one cluster with Backstay, the same one without it, and what befalls both.

The script is six scenes. What is said in them is Backstay's own words, from its incidents, and
what is shown is the ground truth beside the API. The show plays the operator as well, and says
what a person would type.

It knows no terminal (``audience.py``) and no clock but the loop's: under virtual time it is over
at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import msgspec

from backstay.apis.backstay import CONFIRMATIONS, INCIDENTS
from backstay.decide.failover import CHAIN
from backstay.decide.readiness import Ending, readiness
from backstay.lab.audience import Audience
from backstay.lab.cluster import LabCluster, settings
from backstay.lab.picture import Outage, Picture, picture, ready
from backstay.lab.recovery import Recovery, StageTime
from backstay.lab.view import Frame, News
from backstay.lab.witness import Committed, Happening
from backstay.model.node import Life
from backstay.model.policy import Times
from backstay.model.reasons import Reason
from backstay.seam.tasks import Tasks
from backstay.sim.cluster.ground import Ground
from backstay.sim.cluster.timers import Timers
from backstay.sources.picture import take, workloads_on

NODES = ("n1", "n2", "n3", "n4", "n5")
VMS = tuple(f"vm-{number:02}" for number in range(1, 13))
STATEFUL_SETS: Mapping[str, int] = {"db": 3, "queue": 2}
CONTROLLERS = ("backstay-1", "backstay-2")

DIES, IS_CUT_OFF = "n2", "n4"

_FRAMES_A_SECOND = 8
_SCENES = 6


class ShowFailed(Exception):
    """Something that belongs to the show did not happen."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended. ``protected`` are the workloads of the node that died, ``recovered`` those of
    them that run elsewhere; ``workloads`` and ``running`` are all that there are."""

    protected: int
    recovered: int
    held: int
    workloads: int
    running: int
    undisturbed: int
    cut_off: int
    wrong_confirmation_refused: bool
    down_seconds: float
    plain_down_seconds: float
    invariants_checked: int
    invariants_broken: int
    breaches: tuple[str, ...]
    stages: tuple[StageTime, ...]
    speed: float
    failure: str = ""

    @property
    def ok(self) -> bool:
        return (
            not self.failure
            and self.invariants_broken == 0
            and self.held == 0
            and 0 < self.protected == self.recovered
            and self.running == self.workloads
            and self.undisturbed == self.cut_off
        )


@dataclass(frozen=True)
class Pace:
    """``factor`` is of the clusters' timers; ``reading`` of the time that people are given."""

    factor: float = 0.1
    reading: float = 1.0

    @property
    def speed(self) -> float:
        return round(1 / self.factor, 1)


class Show:
    """See the module. ``ours`` and ``plain`` are the two clusters, which outlive it."""

    def __init__(self, grounds: tuple[Ground, Ground], audience: Audience, pace: Pace) -> None:
        self.ours = LabCluster(grounds[0], factor=pace.factor)
        self.plain = LabCluster(grounds[1], factor=pace.factor)
        self._both = (self.ours, self.plain)
        self._wall = grounds[0].wall
        self.audience = audience
        self._pace = pace
        self._outages: list[Outage] = []
        self._began = asyncio.get_running_loop().time()
        self._scene = 0
        self._caption = "Two clusters are starting, in the memory of this process."
        self._news: list[News] = []
        self._told: dict[str, int] = {}
        self._codes: set[str] = set()
        self._lives: dict[str, Life] = {}
        self._recovery: Recovery | None = None
        self._shows_stages = False
        self._cut: frozenset[str] = frozenset()
        self._undisturbed: frozenset[str] = frozenset()
        self.ours.witness.watch(self._hear)

    async def play(self) -> Report:
        """To the end, or until something does not happen that should."""
        failure = ""
        async with Tasks("show") as tasks:
            ticker = tasks.spawn(self._tick(), name="ticker")
            try:
                for scene in (
                    self._set_up, self._all_is_well, self._power_fails, self._death_is_confirmed,
                    self._node_returns, self._node_is_cut_off,
                ):  # fmt: skip
                    await scene()
            except ShowFailed as failed:
                failure = str(failed)
            ticker.cancel()
        return self._report(failure)

    async def go_on(self) -> NoReturn:
        """Tells what happens, for as long as anybody wants to know."""
        await self._tick()

    # The scenes

    async def _set_up(self) -> None:
        """Both at once; they are placed alike."""

        async def one(cluster: LabCluster) -> None:
            await cluster.boot(*NODES)
            await cluster.start_workloads(vms=VMS, stateful_sets=STATEFUL_SETS)

        async with asyncio.TaskGroup() as group:
            for cluster in self._both:
                group.create_task(one(cluster))
        self._outages = [Outage(cluster) for cluster in self._both]
        for name in CONTROLLERS:
            self.ours.start_backstay(name)
        await self.ours.arm()
        await self._wait(self.ours.eventually, self._is_led, "no controller took the lead")
        # So long a node's lease must have been watched before its silence means anything.
        await asyncio.sleep(15 * self._pace.factor)

    def _is_led(self) -> bool:
        return self.ours.leader is not None and all(
            self.ours.life(name) is Life.HEALTHY for name in NODES
        )

    async def _all_is_well(self) -> None:
        leader = self.ours.leader
        leads = leader.settings.identity if leader is not None else ""
        others = ", ".join(name for name in CONTROLLERS if name != leads)
        self._begin(
            "5 nodes run 12 virtual machines and 2 StatefulSets, each with disks of its own. "
            f"Backstay is armed: {leads} leads, {others} stands by. A second, equal cluster has "
            "plain Kubernetes only."
        )
        self._say(self._timers)
        self._say(f"$ backstay readiness node/{DIES}", "next")
        self._say(await self._readiness(DIES))
        await self._give_time(8)

    @property
    def _timers(self) -> str:
        """What is shorter here than in life."""
        factor, ours, kubernetes = self._pace.factor, Times(), Timers()
        return (
            f"All timers are {self._pace.speed:g} times shorter than in life. A silent node is "
            f"lost after {ours.lost * factor:.3g} s here ({ours.lost:g} s in life), and NotReady "
            f"for Kubernetes after {kubernetes.monitor_grace * factor:.3g} s "
            f"({kubernetes.monitor_grace:g} s)."
        )

    async def _power_fails(self) -> None:
        self._begin(
            f"{DIES} loses its power. Seen from outside it has only fallen silent: a pulled cable "
            "looks just the same."
        )
        self._recovery = Recovery(self.ours, DIES)
        self._say(f"{DIES} loses its power")
        for cluster in self._both:
            cluster.nodes[DIES].kill()
        await self._wait(self.ours.eventually, lambda: self._is_lost(DIES), f"{DIES} was not lost")
        self._begin(
            f"What ran on {DIES} is down, and Kubernetes leaves it there for ever. To force-delete "
            "it is to bet that no second copy will write to its disk. Backstay holds it, and says "
            "what would help.",
            same=True,
        )
        await self._kubernetes_notices(DIES)
        self._look()
        await self._give_time(8)

    async def _death_is_confirmed(self) -> None:
        recovery = self._recovery
        assert recovery is not None
        self._begin(
            f"Somebody goes and looks: {DIES} is off. That is proof. Backstay closes the node to "
            "new pods, marks the old ones, looks whether the proof still holds, and only then "
            "removes them."
        )
        self._say(f"$ backstay confirm-dead {DIES} --reason 'its power supply burnt out'", "next")
        await self.ours.confirm_dead(DIES, by="alice", reason="its power supply burnt out")
        await self._wait(self.ours.until, lambda: recovery.over, "not everything recovered")
        await self._wait(
            self.ours.eventually,
            lambda: self.ours.life(DIES) is Life.RECOVERED,
            f"{DIES} was not seen to be recovered",
        )
        recovery.stop()
        self._shows_stages = True
        self._begin(
            f"All {len(recovery.hit)} run on other nodes, and at no moment did anything run twice. "
            "Plain Kubernetes still waits, and shows the dead pods as Running.",
            same=True,
        )
        self._look()
        await self._give_time(10)
        self._shows_stages = False

    async def _node_returns(self) -> None:
        self._begin(
            f"{DIES} is repaired and gets its power back. Nothing of its former boot runs, so "
            "Backstay gives the node back. Only now plain Kubernetes has everything up again."
        )
        self._say(f"{DIES} gets its power back")
        for cluster in self._both:
            cluster.nodes[DIES].reboot()
        await self._wait(self.ours.eventually, lambda: self._is_back(DIES), f"{DIES} is not back")
        await self._wait(self.plain.until, lambda: not self.plain.down, "no restart on the node")
        self._look()
        await self._give_time(5)

    async def _node_is_cut_off(self) -> None:
        self._cut = frozenset(self.ours.running(IS_CUT_OFF))
        disturbed: set[str] = set()
        release = self.ours.truth.follow(lambda _: disturbed.update(self._cut & self.ours.down))
        self._begin(
            f"The network cable of {IS_CUT_OFF} is pulled. It lives on: its {len(self._cut)} "
            "workloads run and write to their disks. To everybody else it looks just as dead as "
            f"{DIES} did."
        )
        self._say(f"the cable of {IS_CUT_OFF} is pulled")
        for cluster in self._both:
            cluster.nodes[IS_CUT_OFF].cut_off()
        await self._wait(
            self.ours.eventually, lambda: self._is_lost(IS_CUT_OFF), f"{IS_CUT_OFF} was not lost"
        )
        self._begin(
            "Backstay cannot know, so it takes nothing away: to start these elsewhere now would "
            "put two writers on each disk. It says so, and waits for proof.",
            same=True,
        )
        await self._kubernetes_notices(IS_CUT_OFF)
        self._look()
        await self._give_time(8)
        await self._heal_while_somebody_is_wrong()
        release()
        kept = self._cut & self.ours.running(IS_CUT_OFF)
        self._undisturbed = frozenset(kept - disturbed)

    async def _heal_while_somebody_is_wrong(self) -> None:
        """The confirmation comes in the very moment in which the node is heard of again, before
        anybody has looked."""
        ours, node = self.ours, IS_CUT_OFF
        word = await ours.death_of(node, by="bob", reason="it does not answer")
        seen = ours.witness.signs.shown(node)
        self._begin(
            f"The cable is back, and in that very moment somebody declares {node} dead, by "
            f"mistake. Backstay looks once more before it acts, sees that {node} lives, and "
            "touches nothing."
        )
        self._say("the cable is plugged in again")
        for cluster in self._both:
            cluster.nodes[node].heal()
        await self._wait(
            ours.until, lambda: ours.witness.signs.shown(node) > seen, f"{node} stayed silent"
        )
        self._say(f"$ backstay confirm-dead {node} --reason 'it does not answer'", "next")
        await ours.client.create(CONFIRMATIONS, word)
        await self._wait(ours.eventually, lambda: self._is_back(node), f"{node} is not back")
        await self._give_time(3)
        self._say(f"$ backstay confirm-dead {node} --withdraw", "next")
        await ours.withdraw(node)
        self._look()
        await self._give_time(5)

    # What the scenes ask

    def _is_lost(self, node: str) -> bool:
        leader = self.ours.leader
        decision = None if leader is None else leader.loop.decisions.get(node)
        return self.ours.life(node) is Life.LOST and decision is not None and bool(decision.held)

    async def _kubernetes_notices(self, node: str) -> None:
        def noticed() -> bool:
            return all(ready(cluster, node) != "Ready" for cluster in self._both)

        await self._wait(
            self.ours.eventually, noticed, f"Kubernetes did not notice that {node} is silent"
        )

    def _is_back(self, node: str) -> bool:
        return self.ours.life(node) is Life.HEALTHY and not self.ours.open_incidents()

    async def _readiness(self, node: str) -> str:
        own = settings("demo", self._pace.factor)
        seen = await take(
            self.ours.client, self._wall, namespace=own.namespace, lease=own.lease, times=own.times
        )
        found = await workloads_on(self.ours.client, [node])
        sight = seen.node(node)
        assert sight is not None
        outlook = readiness(seen.snapshot(sight, found.on(node)), times=own.times, chain=CHAIN)
        ours = len(outlook.outlooks) - outlook.count(Ending.LEFT)
        return (
            f"If {node} died now, its {ours} workloads would be held until its death is proven "
            f"({', '.join(outlook.proof)}). Then {outlook.recovering} of {ours} would recover."
        )

    async def _wait(
        self, wait: Callable[[Callable[[], bool]], Awaitable[None]], holds: Callable[[], bool],
        or_else: str,
    ) -> None:  # fmt: skip
        try:
            await wait(holds)
        except TimeoutError:
            raise ShowFailed(or_else) from None

    # Telling

    def _begin(self, caption: str, *, same: bool = False) -> None:
        """A new scene, or, if it is the same, another view of it."""
        if not same:
            self._scene += 1
            self._news.clear()
        self._caption = caption
        self.audience.scene(self._frame)

    def _say(self, text: str, style: str = "") -> None:
        item = News(self._clock, text, style)
        self._news.append(item)
        self.audience.hear(item)

    def _look(self) -> None:
        self.audience.look(self._frame)

    async def _give_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self._pace.reading)

    async def _tick(self) -> NoReturn:
        while True:
            self._note_lives()
            self.audience.draw(self._frame)
            await asyncio.sleep(1 / _FRAMES_A_SECOND)

    def _note_lives(self) -> None:
        for name in NODES:
            life, before = self.ours.life(name), self._lives.get(name)
            if life is None or life is before:
                continue
            self._lives[name] = life
            if life is Life.SUSPECT:
                self._say(f"NodeSuspect  {self._why(name)}", "wait")
            elif life is Life.HEALTHY and before is not None:
                self._say(f"NodeHealthy  {self._why(name)}", "good")

    def _why(self, node: str) -> str:
        leader = self.ours.leader
        watched = None if leader is None else leader.observer.watched.get(node)
        return "" if watched is None else watched.life.why.sentence

    def _hear(self, happening: Happening) -> None:
        """What Backstay has written into an incident since last time."""
        if not isinstance(happening, Committed) or happening.commit.storage != INCIDENTS.label:
            return
        incident: Mapping[str, Any] = happening.commit.after.object
        timeline = (incident.get("status") or {}).get("timeline") or ()
        key = incident["metadata"]["name"]
        for moment in timeline[self._told.get(key, 0) :]:
            self._codes.add(moment["code"])
            self._say(f"{moment['code']}  {moment['sentence']}", _style(moment["code"]))
        self._told[key] = len(timeline)

    @property
    def _clock(self) -> float:
        return asyncio.get_running_loop().time() - self._began

    @property
    def _picture(self) -> Picture:
        return picture(self.ours, self.plain, self._outages)

    @property
    def _frame(self) -> Frame:
        stages = self._recovery.stages if self._recovery and self._shows_stages else ()
        return Frame(
            speed=self._pace.speed,
            clock=self._clock,
            scene=f"{self._scene} of {_SCENES}" if self._scene else "",
            caption=self._caption,
            picture=self._picture,
            news=tuple(self._news),
            stages=stages,
        )

    def _report(self, failure: str) -> Report:
        recovery, inspector = self._recovery, self.ours.inspector
        seen = self._picture
        return Report(
            protected=len(recovery.hit) if recovery else 0,
            recovered=len(recovery.hit & recovery.back.keys()) if recovery else 0,
            held=seen.held.count if seen.held else 0,
            workloads=len(self.ours.protected),
            running=len(self.ours.protected & self.ours.running()),
            undisturbed=len(self._undisturbed),
            cut_off=len(self._cut),
            wrong_confirmation_refused=Reason.EvidenceContradicted.name in self._codes,
            down_seconds=round(seen.ours.down_for, 1),
            plain_down_seconds=round(seen.plain.down_for, 1),
            invariants_checked=inspector.checked,
            invariants_broken=len(inspector.broken),
            breaches=tuple(f"{each.invariant}: {each.sentence}" for each in inspector.broken),
            stages=recovery.stages if recovery else (),
            speed=self._pace.speed,
            failure=failure,
        )


_STYLES = {
    Reason.NodeLost.name: "bad",
    Reason.ProofMissing.name: "wait",
    Reason.EvidenceContradicted.name: "bad",
    Reason.Recovered.name: "good",
    Reason.ReadyAgain.name: "good",
    Reason.NodeRecovered.name: "good",
}


def _style(code: str) -> str:
    return _STYLES.get(code, "")

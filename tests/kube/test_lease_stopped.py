"""Leadership of simulated processes: stopped at any moment, killed, without power, cut off in one
direction or both, and with clocks that drift.

What ``test_lease_processes.py`` tries on a few real processes is done here in virtual time to
many. The rules are those of ``tests/support/candidates.py``, each on its own process's clock.
"""

import asyncio
from collections.abc import Iterator

import pytest

from backstay.kube.access import GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.kube.errors import KubeError
from backstay.kube.lease import Leadership, LeaseTimes, Term
from backstay.kube.resource import LEASES
from backstay.seam import Seams
from backstay.sim.clock import Oscillator
from backstay.sim.fate import Fate
from backstay.sim.lane import current_lane
from backstay.sim.process import Process, State
from backstay.sim.wire import Sent
from backstay.sim.world import World
from tests.support.candidates import LEASE, PAPER, URL, Watched, is_guarded, keep_writing
from tests.support.lease_store import LeaseStore

TIMES = LeaseTimes()
BACK_WITHIN = TIMES.duration * 1.2 + 2 * TIMES.attempt + 2 * TIMES.renew


class Member:
    """A candidate as a process; each of its lives has an identity of its own."""

    def __init__(self, election: "Election", name: str, *, careless: bool, rate: float) -> None:
        self.name = name
        self.leadership: Leadership | None = None
        self._careless = careless
        self._election = election
        self._lives = 0
        clock = Oscillator(ahead=1000.0 * len(election.members), rate=rate)
        self.process: Process = election.world.start(name, self._main, clock=clock)

    @property
    def term(self) -> Term | None:
        alive = self.process.state is not State.ENDED
        return self.leadership.term if alive and self.leadership else None

    @property
    def leads(self) -> bool:
        return self.term is not None and self.process.time() < self.term.not_after

    async def _main(self, seams: Seams) -> None:
        self._lives += 1
        self._client = KubeClient(seams.transport, GivenAccess(URL, Grant()))
        self.leadership = Leadership(
            self._client, namespace="default", name=LEASE, identity=f"{self.name}-{self._lives}",
            wall=seams.wall, rng=seams.rng, floor=self._floor, times=TIMES,
        )  # fmt: skip
        await self.leadership.run(self._work)

    async def _floor(self) -> int:
        return self._election.highest

    async def _work(self, term: Term) -> None:
        self._election.begins(self, term)
        await keep_writing(lambda _: self._write(term), every=0.25)

    async def _write(self, term: Term) -> None:
        patch = {"metadata": {"annotations": {"epoch": str(term.epoch)}}}
        try:
            not_after = term.require()
            await self._client.merge_patch(
                LEASES, PAPER, patch, namespace="default", timeout=60.0,
                not_after=None if self._careless else not_after,
            )  # fmt: skip
        except KubeError:
            return


class Election:
    """An API server and candidates, as processes, and somebody who looks on from outside."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store = LeaseStore()
        self.store.create(PAPER, {})
        self.members: list[Member] = []
        self.epochs: list[int] = []
        self.broken: list[str] = []
        self.sent = 0
        world.network.keeps_record = True
        world.network.link(URL).sent = Watched(self._sent)
        self.api = world.start("api", self._serve)

    def start(self, *names: str, careless: bool = False, rates: tuple[float, ...] = ()) -> None:
        for name, rate in zip(names, rates or (1.0,) * len(names), strict=True):
            self.members.append(Member(self, name, careless=careless, rate=rate))

    @property
    def highest(self) -> int:
        return max(self.epochs, default=0)

    @property
    def leader(self) -> Member:
        (leader,) = [member for member in self.members if member.leads]
        return leader

    def begins(self, member: Member, term: Term) -> None:
        if term.epoch <= self.highest:
            self._note(f"epoch {term.epoch} of {member.name} was there before")
        self.epochs.append(term.epoch)
        self._count_leaders()

    async def _serve(self, seams: Seams) -> None:
        await seams.serve.listen(self.store, host="api", port=6443)
        await asyncio.Event().wait()

    def _sent(self, sent: Sent) -> None:
        """As it happens, in the process that sends."""
        if not is_guarded(sent.request):
            return
        self.sent += 1
        lane = current_lane()
        member = next(each for each in self.members if lane and each.name == lane.name)
        if sent.request.not_after is not None:
            late = sent.at >= sent.request.not_after
        else:
            late = not member.leads
        if late:
            self._note(f"{member.name} wrote after its deadline")
        self._count_leaders()

    def _count_leaders(self) -> None:
        leaders = [member.name for member in self.members if member.leads]
        if len(leaders) > 1:
            self._note(f"{' and '.join(leaders)} lead at once")

    def _note(self, what: str) -> None:
        self.broken.append(f"{self.world.now:g} s: {what}")


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with World(seed=getattr(request, "param", 1)) as made:
        yield made


def connections_take(seconds: float, election: Election) -> None:
    """Those for guarded writes: these are under way whenever a process is stopped."""
    late, well = Fate(connect_delay=seconds), Fate()
    election.world.network.fate = lambda attempt: late if is_guarded(attempt.request) else well


async def stop_the_leader_for_30_s(election: Election, *, after: float) -> None:
    connections_take(0.7, election)
    await asyncio.sleep(10.0 + after)
    stopped = election.leader
    stopped.process.pause()
    await asyncio.sleep(30.0)
    assert election.leader is not stopped
    stopped.process.resume()
    await asyncio.sleep(5.0)


@pytest.mark.parametrize("after", [number * 0.33 for number in range(6)])
def test_who_is_stopped_for_30_s_at_any_moment_sends_nothing_that_is_overdue(
    world: World, after: float
) -> None:
    election = Election(world)
    election.start("a", "b")
    world.run(stop_the_leader_for_30_s(election, after=after))
    assert election.broken == []
    assert election.epochs == [1, 2]


def test_who_does_not_care_for_the_deadline_is_noticed(world: World) -> None:
    election = Election(world)
    election.start("a", "b", careless=True)
    world.run(stop_the_leader_for_30_s(election, after=0.0))
    assert election.broken != []


def test_a_leader_without_power_is_followed_by_somebody_else(world: World) -> None:
    async def scenario(election: Election) -> None:
        await asyncio.sleep(10.0)
        first = election.leader
        first.process.lose_power()
        await asyncio.sleep(TIMES.duration + 0.1)
        assert election.leader is not first
        first.process.restart()
        await asyncio.sleep(60.0)
        assert election.leader is not first

    election = Election(world)
    election.start("a", "b")
    world.run(scenario(election))
    assert election.broken == []


def test_clocks_that_run_at_different_rates_keep_their_distance(world: World) -> None:
    """A tenth is a thousand times what a clock of a real machine is off by."""

    async def scenario(election: Election) -> None:
        await asyncio.sleep(10.0)
        for _ in range(2):
            leader = election.leader
            world.wires.part([leader.name], ["api"])
            await asyncio.sleep(30.0)
            assert election.leader is not leader
            world.wires.heal()
            await asyncio.sleep(5.0)

    election = Election(world)
    election.start("a", "b", rates=(0.9, 1.1))
    world.run(scenario(election))
    assert election.broken == []
    assert election.epochs == [1, 2, 3]


async def torment(election: Election) -> None:
    """One thing after the other goes wrong, and most of it is put right a while later."""
    world, dice = election.world, election.world.faults
    names = [member.name for member in election.members]
    while True:
        await asyncio.sleep(dice.exponential(3.0))
        process = dice.pick([*(member.process for member in election.members), election.api])
        match dice.below(8):
            case 0 | 1:
                process.pause()
            case 2 | 3:
                process.resume()
            case 4:
                process.restart()
            case 5 if process is not election.api:
                process.lose_power()
                await asyncio.sleep(dice.exponential(5.0))
                process.restart()
            case 6:
                world.wires.heal()
                one = dice.pick(names)
                ways = dice.pick([[(one, "api")], [("api", one)], [(one, "api"), ("api", one)]])
                for source, target in ways:
                    world.wires.block(source, target)
            case _:
                world.wires.heal()
                connections_take(dice.pick([0.0, 0.3, 1.5]), election)


@pytest.mark.parametrize("world", range(3), indirect=True)
def test_no_fate_of_processes_breaks_a_rule(world: World) -> None:
    async def scenario(election: Election) -> None:
        await asyncio.sleep(5.0)
        try:
            async with asyncio.timeout(300.0):
                await torment(election)
        except TimeoutError:
            world.wires.heal()
        for process in world.processes.values():
            if process.state is State.PAUSED:
                process.resume()
            elif process.state is State.ENDED:
                process.restart()
        await asyncio.sleep(BACK_WITHIN)
        assert election.leader in election.members

    election = Election(world)
    election.start("a", "b", "c", rates=(0.95, 1.0, 1.05))
    world.run(scenario(election))
    assert election.broken == []
    assert len(election.epochs) > 2
    assert election.sent > 100

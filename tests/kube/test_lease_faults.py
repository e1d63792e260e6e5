"""What no fault may break: the rules of ``tests/support/candidates.py``, fault by fault, in random
schedules of them, and with deliberate bugs, each of which has to be noticed.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from backstay.kube.lease import Leadership, LeaseRow, Term
from backstay.kube.resource import LEASES
from backstay.seam.serve import Answer
from backstay.seam.system import SystemRng
from backstay.seam.tasks import Tasks
from backstay.sim.clock import LoopClock
from tests.support.candidates import LEASE, TIMES, Candidate, World, heal, now, world
from tests.support.lease_store import Refused
from tests.support.virtual import virtual_time

Fault = Callable[[Candidate], None]

JUST_IN_TIME = TIMES.attempt / 2 - 0.05
JUST_TOO_LATE = TIMES.attempt / 2 + 0.05
BACK_WITHIN = TIMES.duration + 2 * TIMES.attempt + 2 * TIMES.renew


def silent(candidate: Candidate) -> None:
    candidate.link.silent = True


def refusing(candidate: Candidate) -> None:
    candidate.link.refuse = True


def cut_off(candidate: Candidate) -> None:
    candidate.link.refuse = True
    candidate.link.cut()


def slow(candidate: Candidate) -> None:
    candidate.link.delay = JUST_IN_TIME


def too_slow(candidate: Candidate) -> None:
    candidate.link.delay = JUST_TOO_LATE


def far_too_slow(candidate: Candidate) -> None:
    candidate.link.delay = TIMES.hold / 2 + 0.5


def answers_reset(candidate: Candidate) -> None:
    candidate.link.lose_answer = "reset"


def answers_lost(candidate: Candidate) -> None:
    candidate.link.lose_answer = "silence"


def connections_late(candidate: Candidate) -> None:
    # Too late for a renewal, but a write with 5 s to spare has its connection in the end.
    candidate.link.connect_delay = 2.4


def failing(candidate: Candidate) -> None:
    candidate.refusal = Answer(status=500, body=b"etcdserver: request timed out")


def overloaded(candidate: Candidate) -> None:
    candidate.refusal = Answer(status=429, headers={"Retry-After": "1"})


def locked_out(candidate: Candidate) -> None:
    candidate.refusal = Answer(status=401)


FATAL: list[Fault] = [
    silent, refusing, cut_off, far_too_slow, connections_late, failing, overloaded, locked_out,
]  # fmt: skip
BEARABLE: list[Fault] = [slow, too_slow, answers_reset, answers_lost]
"""Renewals land, and the watch says so where their answers do not."""


@pytest.mark.parametrize("fault", [*FATAL, *BEARABLE])
@virtual_time
async def test_no_write_is_sent_after_the_deadline_when_the_api_is(fault: Fault) -> None:
    async with world() as w:
        a, b = await w.start("a"), await w.start("b")
        await asyncio.sleep(7.03)
        fault(a)
        await asyncio.sleep(25.0)
        assert w.leaders == (["b"] if fault in FATAL else ["a"])
        heal(a)
        await asyncio.sleep(10.0)
        assert len(w.leaders) == 1
        for sent in (*a.writes, *b.writes):
            assert sent.request.not_after is not None
            assert sent.at < sent.request.not_after


@pytest.mark.parametrize("fault", [slow, too_slow, answers_reset, answers_lost])
@virtual_time
async def test_no_write_is_sent_after_the_deadline_when_there_is_no_watch_and_the_api_is(
    fault: Fault,
) -> None:
    async with world() as w:
        w.store.forbidden = {"watch", "list"}
        a = await w.start("a")
        await asyncio.sleep(7.03)
        fault(a)
        await asyncio.sleep(TIMES.hold)
        # An answer that only just comes in time is as good as any.
        assert w.leaders == (["a"] if fault is slow else [])
        heal(a)
        await asyncio.sleep(TIMES.attempt + TIMES.renew)
        assert w.leaders == ["a"]
        assert all(sent.at < (sent.request.not_after or 0.0) for sent in a.writes)


@virtual_time
async def test_the_leader_stops_one_hold_after_its_last_renewal_began() -> None:
    async with world() as w:
        a = await w.start("a")
        await w.start("b")
        await asyncio.sleep(7.03)
        silent(a)  # It renewed at 6.
        await asyncio.sleep(20.0)
        last = a.writes[-1].at
        assert 6.0 + TIMES.hold - 0.2 < last < 6.0 + TIMES.hold


@pytest.mark.parametrize("fault", FATAL)
@virtual_time
async def test_when_the_api_is_back_for_all_somebody_leads(fault: Fault) -> None:
    async with world() as w:
        for name in "abc":
            await w.start(name)
        await asyncio.sleep(7.0)
        for each in w.candidates:
            fault(each)
        await asyncio.sleep(45.0)
        assert w.leaders == []
        for each in w.candidates:
            heal(each)
        await asyncio.sleep(BACK_WITHIN)
        assert len(w.leaders) == 1


@pytest.mark.parametrize("seed", range(4))
@virtual_time
async def test_no_schedule_of_faults_breaks_a_rule(seed: int) -> None:
    dice = random.Random(seed)

    async def torment(w: World, candidate: Candidate) -> None:
        while True:
            await asyncio.sleep(dice.expovariate(1 / 6))
            heal(candidate)
            if dice.random() < 0.7:
                dice.choice([*FATAL, *BEARABLE])(candidate)
            if dice.random() < 0.1:
                candidate.link.cut()
            if dice.random() < 0.1:
                with suppress(Refused):
                    w.store.edit(LEASE, {"metadata": {"labels": {"seen": str(now())}}})

    async with world() as w:
        for name in "abc":
            wall = LoopClock(LoopClock().start + timedelta(hours=dice.uniform(-24, 24)))
            candidate = await w.start(name, wall=wall, rng=SystemRng(dice.getrandbits(32)))
            candidate.write_every = 0.37
        await asyncio.sleep(1.0)
        async with Tasks("torment") as tasks:
            for each in w.candidates:
                tasks.spawn(torment(w, each), name=each.name)
            for _ in range(3):
                await asyncio.sleep(dice.uniform(70, 100))
                with suppress(Refused):
                    w.store.delete(LEASE)
            await asyncio.sleep(40.0)
        for candidate in w.candidates:
            heal(candidate)
        await asyncio.sleep(BACK_WITHIN)
        assert len(w.leaders) == 1
        assert len(w.terms) > 2


# Deliberate bugs. Each scenario is sound for what we ship, and each bug is noticed in its own.


class CountsFromTheAnswer(Leadership):
    def _confirm(self, row: LeaseRow, term: Term) -> None:
        if row.renewed in self._begun:
            self._begun[row.renewed] = now()
        super()._confirm(row, term)


class DropsTheDeadline(Candidate):
    def permission(self, term: Term) -> float | None:
        term.require()
        return None


class BelievesTheWallClock(Leadership):
    async def _until_free(self) -> LeaseRow | None:
        while (row := self._seen) and row.holder not in ("", self.identity):
            if self._wall.now() - datetime.fromisoformat(row.renewed) > timedelta(seconds=15):
                break
            await self._wait(until=now() + 1.0)
        return row


class ReleasesBeforeItJoined(Leadership):
    async def _join(self, worker: asyncio.Task[None]) -> None:
        if self.term:
            await self._release(self.term, self.term.not_after)
        await super()._join(worker)


class CountsOnlyTheLease(Leadership):
    async def _take(self, row: LeaseRow | None) -> Term:
        self._highest = row.transitions if row else 0
        return await super()._take(row)


class Polls(Leadership):
    async def _until_free(self) -> LeaseRow | None:
        while now() < self._free_at:
            await asyncio.sleep(self.times.renew)
            await self._look(deadline=now() + self.times.attempt)
        return self._seen


class DoesNotCompare(Leadership):
    async def _patch(self, row: LeaseRow, spec: dict[str, object], **_: Any) -> None:
        patch = {"spec": spec}
        await self._client.merge_patch(LEASES, self._name, patch, namespace=self._namespace)
        await self._look(deadline=now() + self.times.attempt)


class TakesADeletedLeaseAtOnce(Leadership):
    @property
    def _free_at(self) -> float:
        return super()._free_at if self._seen else 0.0


class StampsWithTheTimeOfDay(Leadership):
    def _stamp(self) -> str:
        return self._wall.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass(frozen=True)
class Parts:
    """What a scenario builds its candidates from."""

    kind: type[Leadership] = Leadership
    candidate: type[Candidate] = Candidate


async def answers_that_take_long_and_then_never_come(w: World, parts: Parts) -> None:
    a = await w.start("a", kind=parts.kind)
    await asyncio.sleep(5.0)
    slow(a)
    await asyncio.sleep(17.0)
    silent(a)
    await asyncio.sleep(20.0)


async def connections_that_come_late(w: World, parts: Parts) -> None:
    a = await w.start("a", candidate=parts.candidate)
    await asyncio.sleep(5.0)
    connections_late(a)
    await asyncio.sleep(20.0)


async def a_clock_that_is_an_hour_ahead(w: World, parts: Parts) -> None:
    a = await w.start("a")
    a.link.delay = 0.5
    await asyncio.sleep(5.0)
    ahead = LoopClock(LoopClock().start + timedelta(hours=1))
    await w.start("b", kind=parts.kind, wall=ahead)
    await asyncio.sleep(20.0)


async def a_clock_that_stands_still(w: World, parts: Parts) -> None:
    class Stopped:
        def now(self) -> datetime:
            return LoopClock().start

    a = await w.start("a", kind=parts.kind, wall=Stopped())
    a.link.delay = 0.5
    await asyncio.sleep(5.0)
    await w.start("b")
    await asyncio.sleep(20.0)


async def work_that_takes_long_to_end(w: World, parts: Parts) -> None:
    async def work(term: Term) -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            await asyncio.sleep(3.0)

    a = await w.start("a", work, kind=parts.kind)
    await asyncio.sleep(5.0)
    await w.stop(a)


async def a_lease_that_is_deleted_between_two_terms(w: World, parts: Parts) -> None:
    a = await w.start("a", kind=parts.kind)
    await asyncio.sleep(5.0)
    await w.stop(a)
    w.store.delete(LEASE)
    await w.start("b", kind=parts.kind)
    await asyncio.sleep(20.0)


async def a_lease_that_is_deleted_behind_its_holder(w: World, parts: Parts) -> None:
    a = await w.start("a")
    await w.start("b", kind=parts.kind)
    await asyncio.sleep(5.0)
    silent(a)
    w.store.delete(LEASE)
    await asyncio.sleep(20.0)


async def a_standby_with_nothing_to_do(w: World, parts: Parts) -> None:
    await w.start("a")
    await asyncio.sleep(1.0)
    b = await w.start("b", kind=parts.kind)
    await asyncio.sleep(60.0)
    assert len(b.requests) <= 3


async def a_standby_without_a_watch(w: World, parts: Parts) -> None:
    w.store.forbidden = {"watch", "list"}
    await w.start("a")
    await asyncio.sleep(1.0)
    await w.start("b", kind=parts.kind)
    await asyncio.sleep(20.0)


Scenario = Callable[[World, Parts], Awaitable[None]]

BUGS: list[tuple[Scenario, Parts]] = [
    (answers_that_take_long_and_then_never_come, Parts(kind=CountsFromTheAnswer)),
    (connections_that_come_late, Parts(candidate=DropsTheDeadline)),
    (a_clock_that_is_an_hour_ahead, Parts(kind=BelievesTheWallClock)),
    (a_clock_that_stands_still, Parts(kind=StampsWithTheTimeOfDay)),
    (work_that_takes_long_to_end, Parts(kind=ReleasesBeforeItJoined)),
    (a_lease_that_is_deleted_between_two_terms, Parts(kind=CountsOnlyTheLease)),
    (a_lease_that_is_deleted_behind_its_holder, Parts(kind=TakesADeletedLeaseAtOnce)),
    (a_standby_with_nothing_to_do, Parts(kind=Polls)),
    (a_standby_without_a_watch, Parts(kind=DoesNotCompare)),
]


@pytest.mark.parametrize(("scenario", "bug"), BUGS)
def test_a_bug_is_noticed_and_nothing_else(scenario: Scenario, bug: Parts) -> None:
    @virtual_time
    async def play(parts: Parts) -> None:
        async with world() as w:
            await scenario(w, parts)

    play(Parts())
    with pytest.raises(AssertionError):
        play(bug)

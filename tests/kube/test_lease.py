"""Standing by: when a lease is free, who takes it, and under which epoch."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from backstay.kube.errors import ConfigError, TooLate, Unreachable
from backstay.kube.lease import LeaseTimes, Term
from backstay.sim.clock import LoopClock
from tests.support.candidates import LEASE, TIMES, Candidate, heal, rest, world
from tests.support.virtual import virtual_time

HOUR = timedelta(hours=1)
NEW_YEAR = datetime(2030, 1, 1, tzinfo=UTC)


# Times and terms


@pytest.mark.parametrize("times", [(10, 10, 2), (15, 10, 3), (15, 10, 0), (15, float("nan"), 2)])
def test_times_that_cannot_be_safe_are_refused(times: tuple[float, float, float]) -> None:
    with pytest.raises(ConfigError, match=r"lease times .* cannot be safe"):
        LeaseTimes(*times)


@virtual_time
async def test_a_term_is_over_at_its_end_and_not_before() -> None:
    term = Term(1, 10.0)
    await asyncio.sleep(9.999)
    assert term.require() == 10.0
    await asyncio.sleep(0.001)
    with pytest.raises(TooLate, match="this process no longer leads"):
        term.require()


@virtual_time
async def test_a_term_that_was_over_does_not_come_back() -> None:
    term, ended = Term(1, 10.0), Term(2, 10.0)
    term.extend(12.0)
    term.extend(11.0)
    assert term.not_after == 12.0
    ended.end()
    ended.extend(99.0)
    await asyncio.sleep(12.0)
    term.extend(99.0)
    assert term.over
    assert ended.over


# Standing by


@virtual_time
async def test_the_first_candidate_leads_at_once() -> None:
    async with world() as w:
        a = await w.start("a", rest)
        await asyncio.sleep(0.001)
        assert a.leads
        assert a.leadership.holder == "a"
        assert w.terms == [("a", 1)]
        assert w.lease == {
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "acquireTime": "2030-01-01T00:00:00.000000Z",
            "renewTime": "2030-01-01T00:00:00.000000Z",
            "leaseTransitions": 1,
        }


@virtual_time
async def test_of_many_candidates_exactly_one_leads() -> None:
    async with world() as w:
        for name in "abcde":
            await w.start(name, rest)
        await asyncio.sleep(60.0)
        assert len(w.leaders) == 1
        assert len(w.terms) == 1
        assert {each.leadership.holder for each in w.candidates} == set(w.leaders)


@virtual_time
async def test_a_standby_does_not_poll() -> None:
    async with world() as w:
        await w.start("a", rest)
        await asyncio.sleep(1.0)
        b = await w.start("b", rest)
        await asyncio.sleep(600.0)
        # One read, one streaming list, and a watch each time that the server ended the last one.
        assert len(b.requests) <= 5
        assert {request.method for request in b.requests} == {"GET"}
        assert w.leaders == ["a"]


@virtual_time
async def test_a_standby_takes_over_when_it_saw_no_renewal_for_the_whole_duration() -> None:
    async with world() as w:
        a = await w.start("a", rest)
        await w.start("b", rest)
        await asyncio.sleep(5.0)
        a.die()  # It renewed at 2 and at 4.
        await asyncio.sleep(13.99)
        assert w.leaders == []
        await asyncio.sleep(0.02)
        assert w.leaders == ["b"]
        assert w.terms == [("a", 1), ("b", 2)]


@virtual_time
async def test_a_released_lease_is_taken_at_once() -> None:
    async with world() as w:
        a = await w.start("a", rest)
        await w.start("b", rest)
        await asyncio.sleep(5.0)
        await w.stop(a)
        assert w.lease["holderIdentity"] == ""
        await asyncio.sleep(0.001)
        assert w.leaders == ["b"]


@virtual_time
async def test_a_lease_that_asks_for_more_time_gets_it() -> None:
    async with world() as w:
        w.store.create(LEASE, {"holderIdentity": "slow", "leaseDurationSeconds": 60})
        await w.start("a", rest)
        await asyncio.sleep(59.9)
        assert w.leaders == []
        await asyncio.sleep(0.2)
        assert w.leaders == ["a"]


@virtual_time
async def test_a_lease_that_asks_for_less_time_than_ours_gets_ours() -> None:
    async with world() as w:
        w.store.create(LEASE, {"holderIdentity": "hasty", "leaseDurationSeconds": 1})
        await w.start("a", rest)
        await asyncio.sleep(14.9)
        assert w.leaders == []
        await asyncio.sleep(0.2)
        assert w.leaders == ["a"]


@virtual_time
async def test_a_label_on_the_lease_is_no_sign_of_life() -> None:
    async with world() as w:
        a = await w.start("a", rest)
        await w.start("b", rest)
        await asyncio.sleep(5.0)
        a.die()
        for second in range(13):
            await asyncio.sleep(1.0)
            w.store.edit(LEASE, {"metadata": {"labels": {"seen": str(second)}}})
        await asyncio.sleep(1.01)
        assert w.leaders == ["b"]


@virtual_time
async def test_a_standby_takes_over_without_a_watch_too() -> None:
    async with world() as w:
        w.store.forbidden = {"watch", "list"}
        a = await w.start("a", rest)
        await asyncio.sleep(1.0)
        b = await w.start("b", rest)
        await asyncio.sleep(60.0)
        assert w.leaders == ["a"]
        # Each time that it would be free it turns out that it is not: not a poll, but a look.
        assert len([each for each in b.requests if each.method == "PATCH"]) == 3
        a.die()
        await asyncio.sleep(30.0)
        assert w.leaders == ["b"]


@virtual_time
async def test_a_watch_that_went_silent_is_not_waited_for() -> None:
    async with world() as w:
        a = await w.start("a", rest)
        b = await w.start("b", rest)
        await asyncio.sleep(5.0)
        b.watch_lag = 1e6  # Its connection leads nowhere, while others would work.
        await asyncio.sleep(2.0)
        b.watch_lag = 0.0
        await asyncio.sleep(13.5)
        a.die()  # It renewed at 20.
        await asyncio.sleep(14.6)
        assert w.leaders == ["b"]


@virtual_time
async def test_those_who_knew_a_deleted_lease_wait_as_if_it_were_there() -> None:
    async with world() as w:
        a = await w.start("a", rest)
        await w.start("b", rest)
        await asyncio.sleep(5.0)
        a.link.silent = True
        w.store.delete(LEASE)
        await asyncio.sleep(14.9)
        assert w.terms == [("a", 1)]
        await asyncio.sleep(0.2)
        assert w.terms == [("a", 1), ("b", 2)]


@virtual_time
async def test_those_who_find_a_record_of_a_deleted_lease_wait_as_if_it_were_there() -> None:
    async with world() as w:
        a = await w.start("a", rest)
        await asyncio.sleep(5.0)
        a.link.silent = True
        w.store.delete(LEASE)
        await w.start("b", rest)
        await asyncio.sleep(14.9)
        assert w.terms == [("a", 1)]
        await asyncio.sleep(0.2)
        assert w.terms == [("a", 1), ("b", 2)]


@virtual_time
async def test_a_lease_that_came_and_went_while_nobody_looked_is_waited_for() -> None:
    async with world() as w:
        a, b = await w.start("a", rest), await w.start("b", rest)
        await asyncio.sleep(5.0)
        w.store.delete(LEASE)
        await asyncio.sleep(1.0)
        b.die()
        await asyncio.sleep(19.0)
        assert w.leaders == ["a"]
        a.link.silent = True
        w.store.delete(LEASE)
        heal(b)
        await asyncio.sleep(14.9)
        assert w.terms == [("a", 1), ("a", 2)]
        await asyncio.sleep(TIMES.renew)
        assert w.leaders == ["b"]


@virtual_time
async def test_clocks_that_are_hours_apart_and_jump_change_nothing() -> None:
    async with world() as w:
        early, late = LoopClock(NEW_YEAR - 5 * HOUR), LoopClock(NEW_YEAR + 7 * HOUR)
        a = await w.start("a", rest, wall=late)
        await w.start("b", rest, wall=early)
        for _ in range(60):
            await asyncio.sleep(1.0)
            early.start += 3 * HOUR
            late.start -= 2 * HOUR
        assert w.leaders == ["a"]
        await asyncio.sleep(0.5)
        a.die()  # It renewed at 60.
        await asyncio.sleep(14.4)
        assert w.leaders == []
        await asyncio.sleep(0.2)
        assert w.leaders == ["b"]


@virtual_time
async def test_renewals_are_seen_from_a_clock_that_stands_still() -> None:
    class Stopped:
        def now(self) -> datetime:
            return NEW_YEAR

    async with world() as w:
        a = await w.start("a", rest, wall=Stopped())
        await w.start("b", rest)
        await asyncio.sleep(60.0)
        assert w.terms == [("a", 1)]
        assert a.leads


@virtual_time
async def test_a_namespace_that_is_missing_is_named_and_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world() as w:
        w.store.namespaces.clear()
        await w.start("a", rest)
        await asyncio.sleep(60.0)
        said = [record.message for record in caplog.records if record.name == "backstay.lease"]
        assert said == [
            "cannot take the lease default/backstay: POST /apis/coordination.k8s.io/v1/namespaces"
            '/default/leases: namespaces "default" not found'
        ]
        w.store.namespaces.add("default")
        await asyncio.sleep(TIMES.renew)
        assert w.leaders == ["a"]


@pytest.mark.parametrize("verb", ["get", "create"])
@virtual_time
async def test_a_missing_permission_is_named_and_waited_for(
    caplog: pytest.LogCaptureFixture, verb: str
) -> None:
    async with world() as w:
        w.store.forbidden = {verb}
        await w.start("a", rest)
        await asyncio.sleep(60.0)
        said = [record.message for record in caplog.records if record.name == "backstay.lease"]
        assert len(said) == 1
        assert f'User "ordinary" cannot {verb} resource "leases"' in said[0]
        w.store.forbidden.clear()
        await asyncio.sleep(TIMES.renew)
        assert w.leaders == ["a"]


# Epochs


@virtual_time
async def test_each_term_has_a_higher_epoch_whoever_leads() -> None:
    async with world() as w:
        a = await w.start("a", rest)
        b = await w.start("b", rest)
        await asyncio.sleep(1.0)
        for leader in (a, b, a, b):
            leader.link.silent = True
            await asyncio.sleep(30.0)
            leader.link.silent = False
            await asyncio.sleep(1.0)
        assert w.terms == [("a", 1), ("b", 2), ("a", 3), ("b", 4), ("a", 5)]


@virtual_time
async def test_the_same_process_leads_again_under_a_higher_epoch() -> None:
    async with world() as w:
        a = await w.start("a", rest)
        await asyncio.sleep(1.0)
        a.link.silent = True
        await asyncio.sleep(30.0)
        assert w.leaders == []
        a.link.silent = False
        await asyncio.sleep(TIMES.attempt + TIMES.renew)
        assert w.leaders == ["a"]
        assert w.terms == [("a", 1), ("a", 2)]
        assert a.leadership.terms == 2


@virtual_time
async def test_an_epoch_is_higher_than_any_recorded_one() -> None:
    async with world() as w:
        w.recorded = 41
        w.store.create(LEASE, {"holderIdentity": "", "leaseTransitions": 7})
        await w.start("a", rest)
        await asyncio.sleep(1.0)
        assert w.terms == [("a", 42)]
        assert w.lease["leaseTransitions"] == 42


@virtual_time
async def test_an_epoch_is_higher_than_the_transitions_of_the_lease() -> None:
    async with world() as w:
        w.store.create(LEASE, {"holderIdentity": "", "leaseTransitions": 7})
        await w.start("a", rest)
        await asyncio.sleep(1.0)
        assert w.terms == [("a", 8)]


@virtual_time
async def test_who_cannot_read_the_recorded_epochs_does_not_lead(
    caplog: pytest.LogCaptureFixture,
) -> None:
    readable = False

    class Forgetful(Candidate):
        async def floor(self) -> int:
            if not readable:
                raise Unreachable("incidents cannot be read")
            return await super().floor()

    async with world() as w:
        await w.start("a", rest, candidate=Forgetful)
        await asyncio.sleep(60.0)
        assert w.terms == []
        said = [record.message for record in caplog.records if record.name == "backstay.lease"]
        assert said == ["cannot take the lease default/backstay: incidents cannot be read"]
        readable = True
        await asyncio.sleep(TIMES.renew)
        assert w.leaders == ["a"]


@virtual_time
async def test_a_lease_that_is_made_anew_does_not_begin_to_count_again() -> None:
    async with world() as w:
        a = await w.start("a", rest)
        await asyncio.sleep(5.0)
        await w.stop(a)
        w.store.delete(LEASE)
        await w.start("b", rest)
        await asyncio.sleep(TIMES.duration + 0.1)
        assert w.terms == [("a", 1), ("b", 2)]
        assert w.lease["leaseTransitions"] == 2

"""Leadership, step by step. What no fault may break is in ``test_lease_faults.py``."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from backstay.kube.errors import ConfigError, TooLate, Unreachable
from backstay.kube.lease import LeaseTimes, Term
from backstay.sim.clock import LoopClock
from tests.support.candidates import LEASE, TIMES, Candidate, now, world
from tests.support.virtual import virtual_time

HOUR = timedelta(hours=1)
NEW_YEAR = datetime(2030, 1, 1, tzinfo=UTC)


async def rest(term: Term) -> None:
    """Work that waits to be stopped."""
    await asyncio.sleep(1e6)


def die(candidate: Candidate) -> None:
    """Nothing leaves it any more, as if its node had lost power."""
    candidate.link.refuse = True
    candidate.link.cut()


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
        die(a)  # It renewed at 2 and at 4.
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
        die(a)
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
        die(a)
        await asyncio.sleep(30.0)
        assert w.leaders == ["b"]


@virtual_time
async def test_a_watch_that_went_silent_is_not_waited_for() -> None:
    async with world() as w:
        a = await w.start("a", rest)
        b = await w.start("b", rest)
        await asyncio.sleep(5.0)
        b.link.silent = True
        await asyncio.sleep(8.0)
        b.link.silent = False  # Packets were lost: what was under way will never arrive.
        b.link.cut()
        die(a)
        await asyncio.sleep(15.6)
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
        die(a)  # It renewed at 60.
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
        await asyncio.sleep(1.0)
        assert w.terms == [("a", 1), ("b", 2)]
        assert w.lease["leaseTransitions"] == 2


# Leading


@virtual_time
async def test_the_leader_renews_at_its_interval() -> None:
    async with world() as w:
        a = await w.start("a", rest)
        await asyncio.sleep(60.5)
        renewals = [sent.at for sent in a.link.sent if sent.request.method == "PATCH"]
        assert renewals == [2.0 * n for n in range(1, 31)]
        assert a.leadership.term is not None
        assert a.leadership.term.not_after == 60.0 + TIMES.hold


@virtual_time
async def test_what_others_put_on_the_lease_stays_and_disturbs_nobody() -> None:
    async with world() as w:
        a = await w.start("a", rest)
        await w.start("b", rest)
        for second in range(30):
            await asyncio.sleep(0.7)
            labels = {"seen": str(second)}
            w.store.edit(LEASE, {"metadata": {"labels": labels}, "spec": {"strategy": "Ours"}})
        assert w.store.lease(LEASE)["metadata"]["labels"] == {"seen": "29"}
        assert w.lease["strategy"] == "Ours"
        assert w.terms == [("a", 1)]
        assert a.leads


@virtual_time
async def test_what_others_put_on_the_lease_disturbs_nobody_without_a_watch() -> None:
    async with world() as w:
        w.store.forbidden = {"watch", "list"}
        a = await w.start("a", rest)
        for second in range(30):
            await asyncio.sleep(0.7)
            w.store.edit(LEASE, {"metadata": {"labels": {"seen": str(second)}}})
        assert w.terms == [("a", 1)]
        assert a.leads


@virtual_time
async def test_a_watch_that_lags_behind_our_own_writes_disturbs_nobody() -> None:
    async with world() as w:
        a = await w.start("a", rest)
        await asyncio.sleep(1.0)
        a.link.delay = 1.2
        await asyncio.sleep(120.0)
        assert w.terms == [("a", 1)]
        conflicts = [each for each in a.requests if each.url.endswith(f"/{LEASE}")]
        assert {each.method for each in conflicts[1:]} == {"PATCH"}


@virtual_time
async def test_another_name_on_the_lease_ends_the_term_at_once() -> None:
    async with world() as w:
        a = await w.start("a", rest)
        await asyncio.sleep(5.0)
        w.store.edit(LEASE, {"spec": {"holderIdentity": "a person", "leaseDurationSeconds": 30}})
        await asyncio.sleep(0.001)
        assert not a.leads
        assert a.leadership.holder == "a person"
        await asyncio.sleep(29.9)
        assert not a.leads
        await asyncio.sleep(0.2)
        assert w.terms == [("a", 1), ("a", 2)]


@virtual_time
async def test_deleting_the_lease_ends_the_term_at_once() -> None:
    async with world() as w:
        stopped_at: list[float] = []

        async def work(term: Term) -> None:
            try:
                await rest(term)
            finally:
                stopped_at.append(now())

        await w.start("a", work)
        await w.start("b", rest)
        await asyncio.sleep(5.0)
        w.store.delete(LEASE)
        await asyncio.sleep(1.0)
        assert stopped_at == [5.0]
        await asyncio.sleep(TIMES.duration - 1.1)
        assert w.terms == [("a", 1)]
        await asyncio.sleep(0.2)
        assert [epoch for _, epoch in w.terms] == [1, 2]


@virtual_time
async def test_a_lease_that_was_made_anew_by_somebody_else_ends_the_term() -> None:
    async with world() as w:
        w.store.forbidden = {"watch", "list"}
        a = await w.start("a", rest)
        await asyncio.sleep(5.0)
        w.store.delete(LEASE)
        w.store.create(LEASE, {"holderIdentity": "a person", "leaseDurationSeconds": 30})
        await asyncio.sleep(TIMES.renew)
        assert not a.leads


@pytest.mark.parametrize("watch", [True, False], ids=["watched", "unwatched"])
@virtual_time
async def test_a_renewal_without_an_answer_counts_from_its_start(watch: bool) -> None:
    async with world() as w:
        if not watch:
            w.store.forbidden = {"watch", "list"}
        a = await w.start("a", rest)
        await asyncio.sleep(5.0)
        term = a.leadership.term
        assert term is not None
        assert term.not_after == 14.0
        a.link.lose_answer = "silence"
        await asyncio.sleep(2.0)  # The renewal of 6 has landed, and nobody says so.
        a.link.lose_answer = None
        await asyncio.sleep(2.1)
        assert term.not_after == 16.0
        assert w.terms == [("a", 1)]


@virtual_time
async def test_a_renewal_that_never_arrived_does_not_count() -> None:
    async with world() as w:
        a = await w.start("a", rest)
        await asyncio.sleep(5.0)
        term = a.leadership.term
        assert term is not None
        a.link.silent = True
        await asyncio.sleep(8.99)
        assert term.not_after == 14.0
        assert a.leads
        await asyncio.sleep(0.02)
        assert not a.leads


# Ending


@virtual_time
async def test_work_that_is_done_releases_the_lease() -> None:
    async with world() as w:

        async def work(term: Term) -> None:
            await asyncio.sleep(5.0)

        a = await w.start("a", work)
        await w.run(a)
        assert now() == 5.0
        assert w.lease["holderIdentity"] == ""
        assert w.lease["leaseTransitions"] == 1
        assert a.leadership.term is None


@virtual_time
async def test_work_that_fails_releases_the_lease_and_is_heard_of() -> None:
    async with world() as w:

        async def work(term: Term) -> None:
            await asyncio.sleep(5.0)
            raise LookupError("a bug")

        a = await w.start("a", work)
        with pytest.raises(LookupError, match="a bug"):
            await w.run(a)
        assert w.lease["holderIdentity"] == ""


@virtual_time
async def test_work_that_is_told_that_its_time_is_over_is_not_a_failure() -> None:
    async with world() as w:

        async def work(term: Term) -> None:
            while True:
                term.require()
                await asyncio.sleep(1.0)

        a = await w.start("a", work)
        await asyncio.sleep(5.0)
        a.link.silent = True
        await asyncio.sleep(10.0)
        assert not a.leads
        a.link.silent = False
        await asyncio.sleep(TIMES.attempt + TIMES.renew)
        assert w.terms == [("a", 1), ("a", 2)]


@virtual_time
async def test_who_is_told_to_stop_waits_for_its_work_and_keeps_the_lease_until_then() -> None:
    async with world() as w:

        async def work(term: Term) -> None:
            try:
                await rest(term)
            finally:
                await asyncio.sleep(40.0)
                term.require()

        a = await w.start("a", work)
        await w.start("b", rest)
        await asyncio.sleep(5.0)
        stopping = asyncio.gather(w.stop(a))
        await asyncio.sleep(39.9)
        assert w.leaders == ["a"]
        await stopping
        assert now() == 45.0
        await asyncio.sleep(0.001)
        assert w.leaders == ["b"]


@virtual_time
async def test_who_lost_the_lease_waits_for_its_work_before_it_leads_again() -> None:
    async with world() as w:
        ends: list[float] = []

        async def work(term: Term) -> None:
            try:
                await rest(term)
            finally:
                await asyncio.sleep(40.0)
                ends.append(now())

        a = await w.start("a", work)
        await asyncio.sleep(5.0)
        a.link.silent = True
        await asyncio.sleep(10.0)
        a.link.silent = False
        await asyncio.sleep(38.9)
        assert w.terms == [("a", 1)]
        await asyncio.sleep(0.2)
        assert ends == [54.0]
        assert w.terms == [("a", 1), ("a", 2)]


@virtual_time
async def test_work_that_does_not_end_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as w:

        async def work(term: Term) -> None:
            try:
                await rest(term)
            finally:
                await asyncio.sleep(600.0)

        a = await w.start("a", work)
        await asyncio.sleep(5.0)
        a.link.silent = True
        await asyncio.sleep(30.0)
        said = [record.message for record in caplog.records if record.levelname == "ERROR"]
        assert said == ["the work of the last term does not end: not leading again before it does"]


@virtual_time
async def test_a_renewal_under_way_does_not_keep_the_lease_from_being_released() -> None:
    async with world() as w:
        a = await w.start("a", rest)
        await asyncio.sleep(5.0)
        a.link.delay = 0.4
        await asyncio.sleep(1.1)  # The renewal of 6 is on its way.
        await w.stop(a)
        assert w.lease["holderIdentity"] == ""


@virtual_time
async def test_a_lease_that_cannot_be_released_runs_out() -> None:
    async with world() as w:
        a = await w.start("a", rest)
        await w.start("b", rest)
        await asyncio.sleep(5.0)
        die(a)
        await w.stop(a)
        await asyncio.sleep(13.9)
        assert w.leaders == []
        await asyncio.sleep(0.2)
        assert w.leaders == ["b"]


@virtual_time
async def test_who_only_stands_by_can_be_stopped_and_leaves_the_lease_alone() -> None:
    async with world() as w:
        await w.start("a", rest)
        b = await w.start("b", rest)
        await asyncio.sleep(5.0)
        await w.stop(b)
        assert now() == 5.0
        assert w.lease["holderIdentity"] == "a"

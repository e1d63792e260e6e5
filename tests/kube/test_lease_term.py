"""Leading: renewing the lease, losing it, and how a term ends."""

import asyncio

import pytest

from backstay.kube.lease import Term
from tests.support.candidates import LEASE, TIMES, heal, now, rest, world
from tests.support.virtual import virtual_time


@virtual_time
async def test_a_term_counts_from_when_the_lease_began_to_be_taken() -> None:
    async with world() as w:
        a = await w.start("a", rest)
        a.link.delay = 1.2  # Looking takes 2.4 s, and so does reading the recorded epochs.
        await asyncio.sleep(7.3)
        assert a.leadership.term is not None
        assert a.leadership.term.not_after == pytest.approx(4.8 + TIMES.hold)


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
        a.watch_lag = 3.0
        await asyncio.sleep(60.0)
        assert w.terms == [("a", 1)]
        on_it = [request.method for request in a.requests if request.url.endswith(f"/{LEASE}")]
        assert on_it == ["GET", *["PATCH"] * 29]


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
async def test_another_name_on_the_lease_ends_the_term_while_a_renewal_is_under_way() -> None:
    async with world() as w:
        a = await w.start("a", rest)
        await asyncio.sleep(5.0)
        a.answer_lag = 1.0
        await asyncio.sleep(1.5)  # The renewal of 6 has landed, and its answer is yet to come.
        w.store.edit(LEASE, {"spec": {"holderIdentity": "a person"}})
        await asyncio.sleep(0.001)
        assert not a.leads
        await asyncio.sleep(1.0)
        assert a.leadership.holder == "a person"


@virtual_time
async def test_another_epoch_on_the_lease_ends_the_term_at_once() -> None:
    async with world() as w:
        await w.start("a", rest)
        await asyncio.sleep(5.0)
        w.store.edit(LEASE, {"spec": {"leaseTransitions": 7}})
        await asyncio.sleep(0.001)
        assert w.terms == [("a", 1), ("a", 8)]


@virtual_time
async def test_a_term_that_was_lost_is_over_while_its_work_winds_up() -> None:
    async with world() as w:
        over: list[bool] = []

        async def work(term: Term) -> None:
            try:
                await rest(term)
            finally:
                over.append(term.over)
                await asyncio.sleep(1.0)

        await w.start("a", work)
        await asyncio.sleep(5.0)
        w.store.edit(LEASE, {"spec": {"holderIdentity": "a person"}})
        await asyncio.sleep(0.001)
        assert over == [True]


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


@virtual_time
async def test_an_api_that_is_rolled_back_keeps_its_leader_and_its_standby() -> None:
    async with world() as w:
        a = await w.start("a", rest)
        await w.start("b", rest)
        await asyncio.sleep(31.0)
        w.store.roll_back(10)
        await asyncio.sleep(60.0)
        assert w.terms == [("a", 1)]
        a.die()
        await asyncio.sleep(2 * TIMES.duration)
        assert w.terms == [("a", 1), ("b", 2)]


@virtual_time
async def test_whoever_finds_the_lease_older_than_before_knows_that_the_store_was_put_back() -> (
    None
):
    async with world() as w:
        a = await w.start("a", rest)
        await asyncio.sleep(31.0)
        before = int(w.store.lease(LEASE)["metadata"]["resourceVersion"])
        w.store.roll_back(10)
        await asyncio.sleep(1.5)
        # Before the lease is renewed again, while there still is time to act.
        assert a.trace.lowered == (str(before), str(before - 10))
        a.trace.lowered = None
        await asyncio.sleep(60.0)
        assert a.trace.lowered is None


@virtual_time
async def test_whoever_knew_a_lease_that_is_gone_finds_it_back_and_older() -> None:
    async with world() as w:
        a = await w.start("a", rest)
        await asyncio.sleep(31.0)
        a.link.silent = True
        w.store.delete(LEASE)
        await asyncio.sleep(20.0)
        heal(a)
        await asyncio.sleep(5.0)
        assert a.leadership.holder == ""
        w.store.roll_back(10)
        await asyncio.sleep(60.0)
        assert a.trace.lowered is not None


@virtual_time
async def test_a_standby_that_takes_over_finds_it_too() -> None:
    async with world() as w:
        a = await w.start("a", rest)
        b = await w.start("b", rest)
        await asyncio.sleep(31.0)
        assert (a.trace.followed, b.trace.followed) == (False, True)
        a.die()
        w.store.roll_back(10)
        await asyncio.sleep(2 * TIMES.duration)
        assert w.terms == [("a", 1), ("b", 2)]
        assert b.trace.lowered is not None


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
        a.die()
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

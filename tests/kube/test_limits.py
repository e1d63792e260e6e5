"""Rate limits and backoff: exact moments under virtual time, and nothing lost on the way."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.kube.errors import TooLate, Unreachable
from backstay.kube.limits import Backoff, RateLimit, TokenBucket, VerbLimits, until_answered
from backstay.kube.resource import LEASES, PODS
from backstay.sim.loop import Deadlock, VirtualLoop, run
from tests.support.dice import HIGHEST, LOWEST
from tests.support.virtual import virtual_time

# Backoff


def test_waits_double_up_to_the_cap() -> None:
    backoff = Backoff(base=1, cap=10, rng=HIGHEST)
    assert [round(backoff.next(), 6) for _ in range(6)] == [1, 2, 4, 8, 10, 10]


def test_chance_never_makes_a_wait_shorter_than_half_the_base() -> None:
    backoff = Backoff(base=1, cap=10, rng=LOWEST)
    assert [backoff.next() for _ in range(6)] == [0.5] * 6


def test_a_reset_starts_from_the_base_again() -> None:
    backoff = Backoff(base=1, cap=10, rng=HIGHEST)
    for _ in range(4):
        backoff.next()
    backoff.reset()
    assert backoff.attempts == 0
    assert round(backoff.next(), 6) == 1


def test_ten_thousand_failures_still_wait_for_the_cap() -> None:
    backoff = Backoff(base=0.1, cap=30, factor=10, rng=HIGHEST)
    waits = [backoff.next() for _ in range(10_000)]
    assert backoff.attempts == 10_000
    assert round(waits[-1], 6) == 30


@pytest.mark.parametrize(
    ("base", "cap", "factor"),
    [(0, 1, 2), (2, 1, 2), (1, 2, 0.5)],
    ids=["no base", "cap below base", "shrinking"],
)
def test_a_backoff_that_could_not_back_off_is_refused(
    base: float, cap: float, factor: float
) -> None:
    with pytest.raises(ValueError, match="base"):
        Backoff(base=base, cap=cap, factor=factor, rng=LOWEST)


# Until there is an answer


class Asked:
    """Fails with these words, one after another, and then answers."""

    def __init__(self, *words: str) -> None:
        self._words = iter(words)
        self.told: list[str] = []

    async def answer(self) -> int:
        for words in self._words:
            raise Unreachable(words)
        return 42

    async def until_answered(self) -> int:
        return await until_answered(self.answer, rng=HIGHEST, tell=self.told.append)


@virtual_time
async def test_what_is_answered_at_once_is_told_nothing_of() -> None:
    asked = Asked()
    assert (await asked.until_answered(), asked.told) == (42, [])


@virtual_time
async def test_what_is_not_answered_is_asked_again_and_each_sentence_is_told_once() -> None:
    asked, loop = Asked("refused", "refused", "busy", "busy"), asyncio.get_running_loop()
    assert await asked.until_answered() == 42
    assert asked.told == ["refused", "busy", ""]
    assert round(loop.time(), 6) == 0.5 + 1 + 2 + 4


@virtual_time
async def test_who_waits_no_longer_because_he_was_cancelled_says_so_too() -> None:
    asked = Asked(*["refused"] * 9)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3):
            await asked.until_answered()
    assert asked.told == ["refused", ""]


@virtual_time
async def test_a_fault_that_is_not_the_apis_ends_the_asking() -> None:
    async def wrong() -> int:
        raise ValueError("not the API's")

    with pytest.raises(ValueError, match="not the API's"):
        await until_answered(wrong, rng=HIGHEST, tell=pytest.fail)


# TokenBucket


@given(
    rate=st.floats(0.001, 1000),
    burst=st.integers(1, 50),
    gaps=st.lists(st.floats(0, 100), max_size=200),
)
def test_no_window_sees_more_than_the_burst_and_the_rate(
    rate: float, burst: int, gaps: list[float]
) -> None:
    bucket = TokenBucket(rate, burst)
    now, taken = 0.0, []
    for gap in gaps:
        now += gap
        if bucket.take(now):
            taken.append(now)
    for start in range(len(taken)):
        for end in range(start, len(taken)):
            allowed = burst + (taken[end] - taken[start]) * rate
            assert end - start + 1 <= allowed + 1e-6


@given(rate=st.floats(0.001, 1000), burst=st.integers(1, 50), now=st.floats(0, 1e9))
def test_waiting_until_the_next_token_is_always_enough(rate: float, burst: int, now: float) -> None:
    bucket = TokenBucket(rate, burst)
    while bucket.take(now):
        pass
    assert bucket.next_at > now
    assert bucket.take(bucket.next_at)


def test_a_token_given_back_can_be_taken_again() -> None:
    bucket = TokenBucket(rate=1, burst=1)
    assert bucket.take(0)
    bucket.give_back()
    assert bucket.take(0)
    assert not bucket.take(0)


def test_a_long_quiet_time_saves_up_no_more_than_the_burst() -> None:
    bucket = TokenBucket(rate=1, burst=3)
    bucket.take(0)
    assert [bucket.take(1000) for _ in range(4)] == [True, True, True, False]


def test_a_bucket_without_rate_or_burst_is_refused() -> None:
    with pytest.raises(ValueError, match="rate > 0"):
        TokenBucket(0, 1)
    with pytest.raises(ValueError, match="burst >= 1"):
        TokenBucket(1, 0)


# RateLimit


class Line:
    """Callers of one limit, each noting its moment when it got its token."""

    def __init__(self, limit: RateLimit) -> None:
        self.limit = limit
        self.served: list[tuple[str, float]] = []

    def join(self, group: asyncio.TaskGroup, name: str) -> asyncio.Task[None]:
        return group.create_task(self.call(name))

    async def call(self, name: str) -> None:
        await self.limit.acquire()
        self.served.append((name, asyncio.get_running_loop().time()))


def stall(*, until: float) -> None:
    """As if the process had been stopped: time has gone on, and no timer has run meanwhile."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.true_time = until


@virtual_time
async def test_tokens_that_are_there_cost_no_turn_of_the_loop() -> None:
    limit = RateLimit(rate=1, burst=3)
    turns: list[str] = []
    asyncio.get_running_loop().call_soon(turns.append, "another turn")
    for _ in range(3):
        await limit.acquire()
    assert turns == []


@virtual_time
async def test_beyond_the_burst_callers_are_served_in_order_at_the_rate() -> None:
    line = Line(RateLimit(rate=2, burst=2))
    async with asyncio.TaskGroup() as group:
        for name in "abcde":
            line.join(group, name)
    assert line.served == [("a", 0), ("b", 0), ("c", 0.5), ("d", 1.0), ("e", 1.5)]


@virtual_time
async def test_a_newcomer_does_not_overtake_the_line() -> None:
    line = Line(RateLimit(rate=1, burst=1))
    async with asyncio.TaskGroup() as group:
        for name in "abc":
            line.join(group, name)
        await asyncio.sleep(0.5)
        # The token for b is due by now, and b has not been told yet.
        stall(until=1.5)
        await line.call("late")
    assert [name for name, _ in line.served] == ["a", "b", "c", "late"]


@virtual_time
async def test_a_cancelled_waiter_leaves_its_place_to_the_next() -> None:
    line = Line(RateLimit(rate=1, burst=1))
    async with asyncio.TaskGroup() as group:
        line.join(group, "a")
        leaver = line.join(group, "b")
        line.join(group, "c")
        await asyncio.sleep(0.5)
        leaver.cancel()
    assert line.served == [("a", 0), ("c", 1.0)]
    assert line.limit.waiting == 0


@virtual_time
async def test_a_token_handed_to_a_cancelled_waiter_goes_to_the_next() -> None:
    limit = RateLimit(rate=1, burst=1)
    line = Line(limit)
    await limit.acquire()
    async with asyncio.TaskGroup() as group:
        leaver = line.join(group, "a")
        line.join(group, "b")
        await asyncio.sleep(0)
        # The timer that serves a is older and runs first; a has its token when it is cancelled.
        asyncio.get_running_loop().call_at(1.0, leaver.cancel)
    assert leaver.cancelled()
    assert line.served == [("b", 1.0)]


@virtual_time
async def test_a_waiter_cancelled_in_the_moment_of_its_turn_does_not_stop_the_line() -> None:
    limit = RateLimit(rate=1, burst=1)
    line = Line(limit)
    leavers: list[asyncio.Task[None]] = []
    # Older than the timer that serves the line: the cancellation comes first.
    asyncio.get_running_loop().call_at(1.0, lambda: leavers[0].cancel())
    await limit.acquire()
    async with asyncio.TaskGroup() as group:
        leavers.append(line.join(group, "a"))
        line.join(group, "b")
    assert line.served == [("b", 1.0)]


def test_a_limit_that_everybody_left_leaves_no_timer_behind() -> None:
    async def scenario() -> None:
        limit = RateLimit(rate=0.001, burst=1)
        await limit.acquire()
        async with asyncio.TaskGroup() as group:
            waiter = group.create_task(limit.acquire())
            await asyncio.sleep(1)
            waiter.cancel()
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock, match="at 1 s nothing is left"):
        run(scenario())


@virtual_time
async def test_a_deadline_that_cannot_be_met_is_refused_at_once() -> None:
    limit = RateLimit(rate=1, burst=1)
    line = Line(limit)
    async with asyncio.TaskGroup() as group:
        for name in "abc":
            line.join(group, name)
        await asyncio.sleep(0)
        with pytest.raises(TooLate, match="1 requests per second"):
            await limit.acquire(not_after=2.5)
        assert asyncio.get_running_loop().time() == 0
    assert len(line.served) == 3


@virtual_time
async def test_a_deadline_that_can_be_met_is_waited_for() -> None:
    limit = RateLimit(rate=1, burst=1)
    await limit.acquire()
    await limit.acquire(not_after=1.0)
    assert asyncio.get_running_loop().time() == 1.0


@virtual_time
async def test_a_deadline_in_the_past_takes_no_token() -> None:
    limit = RateLimit(rate=1, burst=1)
    await asyncio.sleep(5)
    with pytest.raises(TooLate):
        await limit.acquire(not_after=4)
    await limit.acquire(not_after=5)


@virtual_time
async def test_a_caller_held_up_beyond_its_deadline_passes_its_token_on() -> None:
    limit = RateLimit(rate=1, burst=1)
    line = Line(limit)
    await limit.acquire()
    async with asyncio.TaskGroup() as group:
        stalled = group.create_task(_expect_too_late(limit, not_after=1.1))
        line.join(group, "b")
        await asyncio.sleep(0)
        # The timer that serves the first is older, so it has its token when time runs on.
        asyncio.get_running_loop().call_at(1.0, lambda: stall(until=1.2))
    assert stalled.result()
    assert line.served == [("b", 1.2)]


async def _expect_too_late(limit: RateLimit, *, not_after: float) -> bool:
    with pytest.raises(TooLate):
        await limit.acquire(not_after=not_after)
    return True


@given(
    burst=st.integers(1, 4),
    callers=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8) | st.none()), max_size=12),
)
def test_whoever_leaves_the_rest_are_served_as_if_it_had_never_come(
    burst: int, callers: list[tuple[int, int | None]]
) -> None:
    """The bucket stays as full as the served alone would leave it, and the line keeps moving."""

    @virtual_time
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        limit = RateLimit(rate=0.5, burst=burst)
        served: list[float] = []

        async def caller(at: int, patience: int | None) -> None:
            await asyncio.sleep(at)
            try:
                # The odd fraction keeps leaving and being served from being the same moment.
                async with asyncio.timeout(None if patience is None else patience + 0.37):
                    await limit.acquire()
            except TimeoutError:
                return
            served.append(loop.time())

        async with asyncio.TaskGroup() as group:
            for at, patience in callers:
                group.create_task(caller(at, patience))
        assert limit.waiting == 0
        assert sum(patience is None for _, patience in callers) <= len(served)
        reference = TokenBucket(0.5, burst)
        assert all(reference.take(moment) for moment in served)
        while reference.take(loop.time()):
            await limit.acquire(not_after=loop.time())
        with pytest.raises(TooLate):
            await limit.acquire(not_after=loop.time())

    scenario()


# VerbLimits


@virtual_time
async def test_reads_and_writes_do_not_wait_for_each_other() -> None:
    limits = VerbLimits(reads=RateLimit(0.1, 1), writes=RateLimit(0.1, 2))
    await limits.admit("GET", PODS)
    await limits.admit("POST", PODS)
    await limits.admit("DELETE", PODS)
    assert asyncio.get_running_loop().time() == 0
    await limits.admit("GET", PODS)
    assert asyncio.get_running_loop().time() == 10


@virtual_time
async def test_a_call_beside_any_resource_is_limited_like_the_others() -> None:
    limits = VerbLimits(reads=RateLimit(0.1, 1), writes=RateLimit(0.1, 1))
    await limits.admit("GET", None)
    with pytest.raises(TooLate):
        await limits.admit("GET", None, not_after=5)


@virtual_time
async def test_a_lease_is_never_held_up() -> None:
    limits = VerbLimits(reads=RateLimit(0.1, 1), writes=RateLimit(0.1, 1))
    for _ in range(100):
        await limits.admit("PUT", LEASES)
        await limits.admit("GET", LEASES)
    assert asyncio.get_running_loop().time() == 0

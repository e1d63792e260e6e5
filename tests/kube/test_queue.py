"""The work queue: its rules against a naive model, its shell under virtual time."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from backstay.kube import errors
from backstay.kube.errors import Status
from backstay.kube.queue import Again, Done, Priority, Result, Schedule, WorkQueue
from tests.support.dice import HIGHEST
from tests.support.virtual import virtual_time

# The schedule


class Want:
    """One waiting key in the model: no heap, no lazy removal, just what was asked for."""

    def __init__(self, priority: int, due: float, now: float, serial: int) -> None:
        self.priority = priority
        self.due = max(due, now)
        # Of what became ready in the same moment, what had been waiting for it goes first.
        self.order = (self.due, due <= now, serial)


class ScheduleMachine(RuleBasedStateMachine):
    """Few keys, few priorities and whole seconds, so that every kind of tie happens."""

    keys = st.integers(0, 5)
    priorities = st.integers(0, 2)
    delays = st.integers(-1, 4)

    def __init__(self) -> None:
        super().__init__()
        self.schedule: Schedule[int] = Schedule()
        self.now = 0.0
        self.serial = 0
        self.waiting: dict[int, Want] = {}
        self.parked: dict[int, tuple[int, float]] = {}
        self.working: dict[int, int] = {}

    def want(self, key: int, priority: int, due: float) -> None:
        self.serial += 1
        self.waiting[key] = Want(priority, due, self.now, self.serial)

    def park(self, key: int, priority: int, due: float) -> None:
        known = self.parked.get(key, (priority, due))
        self.parked[key] = min(priority, known[0]), min(due, known[1])

    @rule(seconds=st.sampled_from([0.5, 1, 1, 2, 7]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(key=keys, priority=priorities, delay=delays)
    def add(self, key: int, priority: int, delay: int) -> None:
        due = self.now + delay
        new = self.schedule.add(key, priority=priority, due=due, now=self.now)
        assert new == (key not in (self.parked if key in self.working else self.waiting))
        if key in self.working:
            self.park(key, priority, due)
        elif (known := self.waiting.get(key)) is None:
            self.want(key, priority, due)
        elif known.due <= self.now:
            known.priority = min(priority, known.priority)
        elif priority < known.priority or due < known.due:
            self.want(key, min(priority, known.priority), min(due, known.due))

    @rule()
    def take(self) -> None:
        ready = {key: want for key, want in self.waiting.items() if want.due <= self.now}
        expected = min(ready, key=lambda key: (ready[key].priority, ready[key].order), default=None)
        assert self.schedule.take(self.now) == expected
        if expected is not None:
            self.working[expected] = self.waiting.pop(expected).priority

    @precondition(lambda self: self.working)
    @rule(data=st.data(), again=st.none() | delays)
    def finish(self, data: st.DataObject, again: int | None) -> None:
        key = data.draw(st.sampled_from(sorted(self.working)))
        moment = None if again is None else self.now + again
        self.schedule.done(key, now=self.now, again=moment)
        priority = self.working.pop(key)
        if moment is not None:
            self.park(key, priority, moment)
        if key in self.parked:
            self.want(key, *self.parked.pop(key))

    @rule()
    def look(self) -> None:
        ready = [want for want in self.waiting.values() if want.due <= self.now]
        later = [want.due for want in self.waiting.values() if want.due > self.now]
        oldest = max((self.now - want.due for want in ready), default=0.0)
        assert self.schedule.oldest_age(self.now) == oldest
        assert self.schedule.ready == len(ready)
        assert self.schedule.delayed == len(later)
        assert self.schedule.next_due == min(later, default=None)

    @invariant()
    def every_key_is_in_its_place(self) -> None:
        assert self.schedule.working == len(self.working)
        assert self.schedule.parked == len(self.parked)
        assert self.schedule.ready + self.schedule.delayed == len(self.waiting)


TestScheduleAgainstTheModel = ScheduleMachine.TestCase
TestScheduleAgainstTheModel.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None
)


class Counted(int):
    """A priority that counts how often it was compared."""

    comparisons = 0

    def __lt__(self, other: int) -> bool:
        Counted.comparisons += 1
        return int(self) < int(other)


def test_among_a_hundred_thousand_keys_each_step_costs_logarithmic_work() -> None:
    n, steps = 100_000, 5_000
    schedule: Schedule[int] = Schedule()
    Counted.comparisons = 0
    for key in range(n):
        schedule.add(key, priority=Counted(key * 7919 % n), due=0, now=0)
    assert Counted.comparisons < n * math.log2(n)
    Counted.comparisons = 0
    for _ in range(steps):
        key_taken = schedule.take(0)
        assert key_taken is not None
        schedule.done(key_taken, now=0, again=0)
    assert Counted.comparisons < 3 * steps * math.log2(n)


def test_a_key_that_is_raised_again_and_again_leaves_nothing_behind() -> None:
    schedule: Schedule[str] = Schedule()
    for step in range(10_000):
        schedule.add("key", priority=Counted(-step), due=0, now=0)
    Counted.comparisons = 0
    assert schedule.take(0) == "key"
    assert schedule.take(0) is None
    assert Counted.comparisons < 100


def test_keys_that_cannot_be_compared_may_wait_side_by_side() -> None:
    schedule: Schedule[object] = Schedule()
    keys = [object(), "text", ("a", 1), None.__class__]
    for key in keys:
        schedule.add(key, priority=0, due=5, now=0)
    assert [schedule.take(5) for _ in keys] == keys


# The shell


class Workshop:
    """A queue with a handler that notes what it does and follows a script."""

    def __init__(self, *, parallel: int = 1) -> None:
        self.queue: WorkQueue[str] = WorkQueue(
            "test", rng=HIGHEST, parallel=parallel, first_retry=1, last_retry=60
        )
        self.seen: list[tuple[str, float]] = []
        self.busy: set[str] = set()
        self.most_busy = 0
        self.takes = 0.0
        self.takes_longer: dict[str, float] = {}
        self.script: dict[str, list[Result | BaseException]] = {}

    async def handle(self, key: str) -> Result:
        assert key not in self.busy
        self.busy.add(key)
        self.most_busy = max(self.most_busy, len(self.busy))
        self.seen.append((key, asyncio.get_running_loop().time()))
        try:
            await asyncio.sleep(self.takes_longer.get(key, self.takes))
        finally:
            self.busy.discard(key)
        outcome = self.script[key].pop(0) if self.script.get(key) else Done()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs the queue for the block, then cancels it."""
        async with asyncio.TaskGroup() as group:
            run = group.create_task(self.queue.run(self.handle))
            yield
            run.cancel()

    async def work_for(self, seconds: float) -> list[tuple[str, float]]:
        async with self.running():
            await asyncio.sleep(seconds)
        return self.seen


@virtual_time
async def test_the_most_urgent_goes_first_and_equals_in_order() -> None:
    shop = Workshop()
    shop.queue.add("resync", priority=Priority.BACKGROUND)
    shop.queue.add("first")
    shop.queue.add("second")
    shop.queue.add("dead node", priority=Priority.URGENT)
    seen = await shop.work_for(1)
    assert [key for key, _ in seen] == ["dead node", "first", "second", "resync"]


@virtual_time
async def test_adding_a_waiting_key_again_raises_it_and_counts_as_deduplicated() -> None:
    shop = Workshop()
    shop.queue.add("a")
    shop.queue.add("b", priority=Priority.BACKGROUND)
    shop.queue.add("b", priority=Priority.URGENT)
    seen = await shop.work_for(1)
    assert [key for key, _ in seen] == ["b", "a"]
    assert (shop.queue.added, shop.queue.deduplicated) == (2, 1)


@virtual_time
async def test_a_delayed_key_is_worked_on_at_its_moment() -> None:
    shop = Workshop()
    shop.queue.add("later", after=30)
    assert await shop.work_for(100) == [("later", 30)]


@virtual_time
async def test_the_earliest_of_several_moments_wins() -> None:
    shop = Workshop()
    async with shop.running():
        shop.queue.add("key", after=30)
        await asyncio.sleep(1)
        shop.queue.add("key", after=5)
        shop.queue.add("key", after=50)
        await asyncio.sleep(100)
    assert shop.seen == [("key", 6)]


@virtual_time
async def test_an_immediate_addition_overtakes_a_delayed_one() -> None:
    shop = Workshop()
    async with shop.running():
        shop.queue.add("key", after=30)
        await asyncio.sleep(1)
        shop.queue.add("key")
        await asyncio.sleep(100)
    assert shop.seen == [("key", 1)]


@virtual_time
async def test_a_key_added_while_it_is_worked_on_is_worked_on_once_more_afterwards() -> None:
    shop = Workshop(parallel=5)
    shop.takes = 10
    async with shop.running():
        shop.queue.add("key")
        await asyncio.sleep(2)
        for _ in range(3):
            shop.queue.add("key")
        await asyncio.sleep(100)
    assert shop.seen == [("key", 0), ("key", 10)]


@virtual_time
async def test_no_more_run_side_by_side_than_allowed() -> None:
    shop = Workshop(parallel=3)
    shop.takes = 1
    for key in "abcdefgh":
        shop.queue.add(key)
    seen = await shop.work_for(10)
    assert [when for _, when in seen] == [0, 0, 0, 1, 1, 1, 2, 2]
    assert shop.most_busy == 3


@virtual_time
async def test_the_counters_tell_what_waits_and_for_how_long() -> None:
    shop = Workshop(parallel=1)
    shop.takes = 100
    async with shop.running():
        for key in ("a", "b", "c"):
            shop.queue.add(key)
        shop.queue.add("later", after=20)
        await asyncio.sleep(15)
        assert (shop.queue.working, shop.queue.depth, shop.queue.delayed) == (1, 2, 1)
        assert shop.queue.oldest_age(15) == 15
        await asyncio.sleep(10)
        assert (shop.queue.working, shop.queue.depth, shop.queue.delayed) == (1, 3, 0)


@virtual_time
async def test_a_handler_may_ask_to_look_again_later() -> None:
    shop = Workshop()
    shop.script["key"] = [Again(after=7), Again(after=0)]
    shop.queue.add("key")
    assert await shop.work_for(100) == [("key", 0), ("key", 7), ("key", 7)]
    assert shop.queue.failures == 0


@virtual_time
async def test_a_handler_may_ask_for_backoff_without_failing() -> None:
    shop = Workshop()
    shop.script["key"] = [Again(), Again(), Done()]
    shop.queue.add("key")
    seen = await shop.work_for(100)
    assert [round(when, 6) for _, when in seen] == [0, 1, 3]
    assert (shop.queue.failures, shop.queue.retries) == (0, 2)


# Failures


@virtual_time
async def test_a_failure_is_logged_with_its_key_and_tried_again_with_backoff(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shop = Workshop()
    shop.script["key"] = [ValueError("no luck"), ValueError("no luck"), ValueError("no luck")]
    shop.queue.add("key")
    seen = await shop.work_for(100)
    assert [round(when, 6) for _, when in seen] == [0, 1, 3, 7]
    assert (shop.queue.failures, shop.queue.retries) == (3, 3)
    assert "test: key failed and will be tried again in 1.0 s: no luck" in caplog.messages[0]
    assert caplog.records[0].exc_info is not None


@virtual_time
async def test_success_lets_the_backoff_start_afresh() -> None:
    shop = Workshop()
    shop.script["key"] = [ValueError(), ValueError(), Done(), ValueError()]
    shop.queue.add("key")
    async with shop.running():
        await asyncio.sleep(50)
        shop.queue.add("key")
        await asyncio.sleep(50)
    assert [round(when, 6) for _, when in shop.seen] == [0, 1, 3, 50, 51]


@virtual_time
async def test_a_failing_key_keeps_its_priority() -> None:
    shop = Workshop()
    shop.takes = 2
    shop.script["urgent"] = [ValueError()]
    shop.queue.add("urgent", priority=Priority.URGENT)
    for key in "abc":
        shop.queue.add(key)
    seen = await shop.work_for(100)
    assert [key for key, _ in seen] == ["urgent", "a", "urgent", "b", "c"]


@virtual_time
async def test_one_failing_key_does_not_hold_up_the_others() -> None:
    shop = Workshop()
    shop.script["bad"] = [ValueError()] * 50
    shop.queue.add("bad")
    shop.queue.add("good")
    seen = await shop.work_for(100)
    assert ("good", 0) in seen


@virtual_time
async def test_an_answer_of_the_api_is_logged_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shop = Workshop()
    shop.script["key"] = [errors.Unreachable("PUT /x at 10.0.0.1: refused")]
    shop.queue.add("key")
    await shop.work_for(100)
    assert caplog.records[0].exc_info is None


def refusal(kind: type[errors.ApiError], *, retry_after: float | None = None) -> errors.ApiError:
    return kind(Status(message="no"), call="PUT /x", retry_after=retry_after)


@pytest.mark.parametrize(
    ("error", "second_attempt"),
    [
        (refusal(errors.InternalError), 1),
        (refusal(errors.TooManyRequests, retry_after=20), 20),
        (refusal(errors.TooManyRequests, retry_after=0.1), 1),
        (refusal(errors.ServiceUnavailable, retry_after=86400), 60),
        (refusal(errors.Conflict), 1),
        (refusal(errors.NotFound), 1),
        (errors.TooLate("too late"), 1),
        (refusal(errors.Forbidden), 60),
        (refusal(errors.Invalid), 60),
        (errors.ConfigError("no such file"), 60),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else f"{value} s",
)
@virtual_time
async def test_the_kind_of_failure_decides_when_it_is_tried_again(
    error: Exception, second_attempt: float
) -> None:
    shop = Workshop()
    shop.script["key"] = [error]
    shop.queue.add("key")
    seen = await shop.work_for(100)
    assert [round(when, 6) for _, when in seen] == [0, second_attempt]


@virtual_time
async def test_a_change_overtakes_the_long_wait_after_a_refusal() -> None:
    shop = Workshop()
    shop.script["key"] = [refusal(errors.Forbidden)]
    shop.queue.add("key")
    async with shop.running():
        await asyncio.sleep(5)
        shop.queue.add("key")
        await asyncio.sleep(100)
    assert shop.seen == [("key", 0), ("key", 5)]


@virtual_time
async def test_retry_from_outside_uses_the_backoff_and_forget_resets_it() -> None:
    shop = Workshop()
    shop.queue.retry("a")
    shop.queue.retry("b")
    shop.queue.forget("b")
    async with shop.running():
        await asyncio.sleep(10)
        shop.queue.retry("b")
        await asyncio.sleep(10)
    assert [(key, round(when, 6)) for key, when in shop.seen] == [("a", 1), ("b", 1), ("b", 11)]


@virtual_time
async def test_a_cancelled_thing_inside_a_handler_is_a_failure_and_not_a_busy_loop() -> None:
    shop = Workshop()
    shop.script["key"] = [asyncio.CancelledError(), asyncio.CancelledError()]
    shop.queue.add("key")
    seen = await shop.work_for(100)
    assert [round(when, 6) for _, when in seen] == [0, 1, 3]
    assert shop.queue.failures == 2


# Stopping


@virtual_time
async def test_a_stop_takes_nothing_more_and_waits_for_what_runs() -> None:
    shop = Workshop()
    shop.takes = 10
    shop.queue.add("running")
    shop.queue.add("waiting")
    async with asyncio.TaskGroup() as group:
        run = group.create_task(shop.queue.run(shop.handle))
        await asyncio.sleep(1)
        assert await shop.queue.stop(within=60)
        await run
    assert asyncio.get_running_loop().time() == 10
    assert shop.seen == [("running", 0)]
    assert (shop.queue.depth, shop.queue.working) == (1, 0)


@virtual_time
async def test_a_stop_waits_for_the_slowest() -> None:
    shop = Workshop(parallel=2)
    shop.takes_longer = {"quick": 5, "slow": 10}
    shop.queue.add("slow")
    shop.queue.add("quick")
    async with shop.running():
        await asyncio.sleep(1)
        assert await shop.queue.stop(within=60)
    assert asyncio.get_running_loop().time() == 10


@virtual_time
async def test_a_stop_cancels_what_has_not_ended_within_its_bound() -> None:
    shop = Workshop(parallel=2)
    shop.takes = 1000
    shop.queue.add("a")
    shop.queue.add("b")
    async with asyncio.TaskGroup() as group:
        run = group.create_task(shop.queue.run(shop.handle))
        await asyncio.sleep(1)
        assert not await shop.queue.stop(within=60)
        await run
    assert asyncio.get_running_loop().time() == 61
    assert (shop.queue.depth, shop.queue.working) == (2, 0)


@virtual_time
async def test_a_stop_before_the_first_key_ends_the_run() -> None:
    shop = Workshop()
    assert await shop.queue.stop(within=1)
    await shop.queue.run(shop.handle)
    assert asyncio.get_running_loop().time() == 0


@virtual_time
async def test_a_cancelled_run_puts_its_keys_back_for_the_next_one() -> None:
    shop = Workshop(parallel=2)
    shop.takes = 10
    for key in "abc":
        shop.queue.add(key)
    await shop.work_for(1)
    assert (shop.queue.depth, shop.queue.working, shop.queue.failures) == (3, 0, 0)
    await shop.work_for(100)
    assert sorted(key for key, when in shop.seen if when >= 1) == ["a", "b", "c"]


@virtual_time
async def test_a_run_ends_after_its_handlers_however_often_it_is_cancelled() -> None:
    queue: WorkQueue[str] = WorkQueue("work", rng=HIGHEST, parallel=1)
    loop = asyncio.get_running_loop()
    ended: list[float] = []

    async def tidy_up_slowly(_key: str) -> Result:
        try:
            await asyncio.sleep(100)
        finally:
            for _ in range(2):
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(10)
            ended.append(loop.time())
        return Done()

    queue.add("key")
    run = asyncio.ensure_future(queue.run(tidy_up_slowly))
    for _ in range(2):
        await asyncio.sleep(1)
        run.cancel()
    await asyncio.wait({run})
    assert run.cancelled()
    assert ended == [loop.time()] == [12]


@virtual_time
async def test_a_run_that_is_cancelled_while_it_stops_cancels_what_is_under_way() -> None:
    shop = Workshop()
    shop.takes = 1000
    shop.queue.add("key")
    run = asyncio.ensure_future(shop.queue.run(shop.handle))
    stop = asyncio.ensure_future(shop.queue.stop(within=60))
    await asyncio.sleep(1)
    run.cancel()
    await asyncio.wait({run, stop})
    assert run.cancelled()
    assert asyncio.get_running_loop().time() == 1
    assert (shop.queue.depth, shop.queue.working) == (1, 0)


@virtual_time
async def test_a_handler_cancelled_before_its_first_step_does_not_keep_its_key() -> None:
    shop = Workshop()
    shop.queue.add("key")
    async with asyncio.TaskGroup() as group:
        group.create_task(shop.queue.run(shop.handle))
        await asyncio.sleep(0)  # the handler's task exists now and has not run yet
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()  # as a loop does that shuts down
    assert shop.seen == []
    assert (shop.queue.depth, shop.queue.working) == (1, 0)


@virtual_time
async def test_a_key_added_and_cancelled_while_it_is_worked_on_waits_once() -> None:
    shop = Workshop()
    shop.takes = 10
    shop.queue.add("key")
    async with shop.running():
        await asyncio.sleep(1)
        shop.queue.add("key", after=500)
    assert (shop.queue.depth, shop.queue.delayed) == (1, 0)

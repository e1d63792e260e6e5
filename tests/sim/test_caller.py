"""How long a caller waits: one timer after the other serves all of its deadlines."""

import asyncio

from backstay.sim.caller import Caller
from tests.support.virtual import virtual_time


class Answer:
    """Somebody waits for it."""

    def __init__(self) -> None:
        self.given_up_at: float | None = None

    def expire(self) -> None:
        self.given_up_at = asyncio.get_running_loop().time()


def timers_of(caller: Caller) -> int:
    assert caller.virtual is not None
    return len(caller.virtual._timers)


@virtual_time
async def test_each_answer_is_given_up_at_its_own_deadline() -> None:
    caller, answers = Caller(None), [Answer() for _ in range(4)]
    for answer, deadline in zip(answers, (60.0, 5.0, 5.0, 20.0), strict=True):
        caller.must_hear(answer, deadline)
    await asyncio.sleep(100)
    assert [answer.given_up_at for answer in answers] == [60.0, 5.0, 5.0, 20.0]
    assert not caller.deadlines


@virtual_time
async def test_a_deadline_that_is_put_off_counts_from_then_on() -> None:
    caller, answer = Caller(None), Answer()
    caller.must_hear(answer, 5.0)
    await asyncio.sleep(4)
    caller.must_hear(answer, 9.0)
    await asyncio.sleep(100)
    assert answer.given_up_at == 9.0


@virtual_time
async def test_what_was_heard_is_not_given_up() -> None:
    caller, heard, waited_for = Caller(None), Answer(), Answer()
    caller.must_hear(heard, 5.0)
    caller.must_hear(waited_for, 6.0)
    del caller.deadlines[heard]
    await asyncio.sleep(100)
    assert (heard.given_up_at, waited_for.given_up_at) == (None, 6.0)


@virtual_time
async def test_many_requests_beside_a_long_one_take_two_timers() -> None:
    caller, stream = Caller(None), Answer()
    caller.must_hear(stream, 1000.0)
    most = 0
    for number in range(100):
        request = Answer()
        caller.must_hear(request, number + 10.0)
        del caller.deadlines[request]
        most = max(most, timers_of(caller))
        await asyncio.sleep(1)
    assert most == 2

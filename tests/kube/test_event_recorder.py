"""Events: how they are sent. The recorder, under virtual time."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from backstay.kube import errors
from backstay.kube.errors import Json, Status
from backstay.kube.events import EventRecorder, ObjectRef
from backstay.kube.resource import EVENTS, Resource
from backstay.seam.system import SystemRng
from tests.support.local import LocalClock
from tests.support.virtual import virtual_time

POD = ObjectRef(api_version="v1", kind="Pod", namespace="prod", name="web-0", uid="u-1")


def pod(number: int) -> ObjectRef:
    return ObjectRef(api_version="v1", kind="Pod", namespace="prod", name=f"pod-{number}")


class Api:
    """A store of Events that takes its time and follows a script of failures."""

    def __init__(self, *failures: Exception | None, takes: float = 0.0) -> None:
        self.failures = list(failures)
        self.takes = takes
        self.loses_answers = 0
        self.ninth_call = asyncio.Event()
        self.stored: dict[tuple[str, str], Json] = {}
        self.calls: list[tuple[str, float]] = []

    async def create(
        self, resource: Resource, body: object, /, *, namespace: str, timeout: float
    ) -> Json:
        assert isinstance(body, dict)
        name = body["metadata"]["name"]
        await self._answer("create", resource)
        if (namespace, name) in self.stored:
            raise refusal(errors.AlreadyExists)
        self.stored[namespace, name] = body
        if self.loses_answers:
            self.loses_answers -= 1
            raise errors.OutcomeUnknown("connection lost")
        return body

    async def merge_patch(
        self,
        resource: Resource,
        name: str,
        patch: Mapping[str, object],
        /,
        *,
        namespace: str,
        timeout: float,
    ) -> Json:
        await self._answer("patch", resource)
        if (namespace, name) not in self.stored:
            raise refusal(errors.NotFound)
        self.stored[namespace, name] |= patch
        return self.stored[namespace, name]

    async def _answer(self, verb: str, resource: Resource) -> None:
        assert resource == EVENTS
        self.calls.append((verb, asyncio.get_running_loop().time()))
        if len(self.calls) == 9:
            self.ninth_call.set()
        await asyncio.sleep(self.takes)
        if self.failures and (failure := self.failures.pop(0)) is not None:
            raise failure

    @property
    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.calls]

    @property
    def counts(self) -> list[int]:
        return [event["count"] for event in self.stored.values()]


def refusal(kind: type[errors.ApiError], *, retry_after: float | None = None) -> errors.ApiError:
    return kind(Status(message="no"), call="POST /events", retry_after=retry_after)


def recorder_for(api: Api) -> EventRecorder:
    return EventRecorder(
        api, component="backstay", instance="pod-1", wall=LocalClock(), rng=SystemRng(seed=0)
    )


@asynccontextmanager
async def sending(recorder: EventRecorder) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        run = group.create_task(recorder.run())
        yield
        run.cancel()


def say(recorder: EventRecorder, *messages: str, about: Iterable[ObjectRef] = (POD,)) -> None:
    for ref in about:
        for message in messages or ("it broke",):
            recorder.record(about=ref, type="Warning", reason="Broken", message=message)


@virtual_time
async def test_what_is_recorded_is_sent() -> None:
    api = Api()
    recorder = recorder_for(api)
    async with sending(recorder):
        say(recorder)
        assert await recorder.flush(5)
    assert api.counts == [1]
    assert (recorder.sent, recorder.waiting) == (1, 0)


@virtual_time
async def test_repeats_while_a_send_is_under_way_cost_one_patch() -> None:
    api = Api(takes=1)
    recorder = recorder_for(api)
    async with sending(recorder):
        say(recorder)
        await asyncio.sleep(0.5)
        for _ in range(50):
            say(recorder)
        assert await recorder.flush(5)
    assert api.verbs == ["create", "patch"]
    assert api.counts == [51]


@virtual_time
async def test_an_expired_event_is_created_anew() -> None:
    api = Api()
    recorder = recorder_for(api)
    async with sending(recorder):
        say(recorder)
        await recorder.flush(5)
        api.stored.clear()
        say(recorder)
        assert await recorder.flush(5)
    assert api.verbs == ["create", "patch", "create"]
    assert api.counts == [2]


@virtual_time
async def test_an_event_stored_by_an_attempt_of_unknown_outcome_is_patched() -> None:
    api = Api()
    api.loses_answers = 1
    recorder = recorder_for(api)
    async with sending(recorder):
        say(recorder)
        await asyncio.sleep(0)
        say(recorder)
        await asyncio.sleep(100)
    assert api.verbs == ["create", "create", "patch"]
    assert api.counts == [2]


@virtual_time
async def test_a_failing_api_is_tried_again_with_growing_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = Api(*[errors.Unreachable("refused")] * 6)
    recorder = recorder_for(api)
    async with sending(recorder):
        say(recorder)
        await asyncio.sleep(120)
    assert len(api.calls) == 7
    pauses = [later - earlier for (_, earlier), (_, later) in pairwise(api.calls)]
    assert all(0.25 <= pause <= 0.5 * 2**n for n, pause in enumerate(pauses))
    assert api.counts == [1]
    assert len(caplog.messages) == 1
    assert "Events wait" in caplog.messages[0]


@virtual_time
async def test_success_ends_the_trouble_and_the_next_one_is_said_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = Api(*[errors.Unreachable("refused")] * 6, None, errors.Unreachable("refused again"))
    recorder = recorder_for(api)
    async with sending(recorder):
        say(recorder, "one")
        await asyncio.sleep(120)
        say(recorder, "two")
        await asyncio.sleep(0.5)
    assert api.counts == [1, 1]
    assert len(caplog.messages) == 2


@virtual_time
async def test_a_pause_holds_back_everything_that_waits() -> None:
    api = Api(refusal(errors.TooManyRequests, retry_after=20))
    recorder = recorder_for(api)
    async with sending(recorder):
        say(recorder, about=[pod(n) for n in range(10)])
        await asyncio.sleep(10)
        assert len(api.calls) == 1
        await asyncio.sleep(11)
    assert [when for _, when in api.calls] == [0] + [20] * 10
    assert api.counts == [1] * 10


@virtual_time
async def test_one_event_that_keeps_failing_does_not_hold_up_the_others() -> None:
    api = Api(refusal(errors.InternalError), None, None, refusal(errors.InternalError))
    recorder = recorder_for(api)
    async with sending(recorder):
        say(recorder, "bad", "good", "better")
        await asyncio.sleep(100)
    assert [event["message"] for event in api.stored.values()] == ["good", "better", "bad"]


@pytest.mark.parametrize(
    "error",
    [refusal(errors.Forbidden), refusal(errors.NotFound), refusal(errors.Invalid)],
    ids=["forbidden", "namespace gone", "invalid"],
)
@virtual_time
async def test_a_refused_event_is_dropped_and_said_once(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    api = Api(error, error, error)
    recorder = recorder_for(api)
    async with sending(recorder):
        say(recorder, "one", "two", "three", "four")
        assert await recorder.flush(5)
    assert asyncio.get_running_loop().time() == 0
    assert [event["message"] for event in api.stored.values()] == ["four"]
    assert recorder.refused == 3
    assert len(caplog.messages) == 1
    assert "in namespace prod was dropped" in caplog.messages[0]


@virtual_time
async def test_a_fault_of_ours_does_not_end_the_sending(caplog: pytest.LogCaptureFixture) -> None:
    api = Api(ZeroDivisionError())
    recorder = recorder_for(api)
    async with sending(recorder):
        say(recorder, "one", "two")
        assert await recorder.flush(5)
    assert [event["message"] for event in api.stored.values()] == ["two"]
    assert caplog.records[0].exc_info is not None


@virtual_time
async def test_a_cancelled_send_waits_for_the_next_run() -> None:
    api = Api(takes=10)
    recorder = recorder_for(api)
    say(recorder)
    async with sending(recorder):
        await asyncio.sleep(1)
    assert (api.counts, recorder.waiting) == ([], 1)
    async with sending(recorder):
        assert await recorder.flush(60)
    assert api.counts == [1]


@virtual_time
async def test_a_flush_gives_up_when_its_time_is_over() -> None:
    api = Api(takes=10)
    recorder = recorder_for(api)
    async with sending(recorder):
        say(recorder)
        await asyncio.sleep(0)
        assert not await recorder.flush(3)
        assert asyncio.get_running_loop().time() == 3


@virtual_time
async def test_a_flush_does_not_sit_out_a_pause() -> None:
    api = Api(refusal(errors.ServiceUnavailable, retry_after=30))
    recorder = recorder_for(api)
    async with sending(recorder):
        say(recorder)
        await asyncio.sleep(1)
        assert await recorder.flush(2)
    assert api.counts == [1]
    assert asyncio.get_running_loop().time() == 1


@virtual_time
async def test_a_flush_tries_more_than_once_also_after_a_long_outage() -> None:
    api = Api(*[errors.Unreachable("refused")] * 10)
    recorder = recorder_for(api)
    async with sending(recorder):
        say(recorder)
        await api.ninth_call.wait()
        await asyncio.sleep(0)  # the answer to it, and the pause begins
        assert await recorder.flush(1.5)
    assert len(api.calls) == 11


@virtual_time
async def test_a_flush_does_not_hammer_an_api_that_is_down() -> None:
    api = Api(*[errors.Unreachable("refused")] * 1000)
    recorder = recorder_for(api)
    async with sending(recorder):
        say(recorder)
        assert not await recorder.flush(5)
    assert len(api.calls) < 15


@virtual_time
async def test_a_flush_of_nothing_is_over_at_once() -> None:
    assert await recorder_for(Api()).flush(5)
    assert asyncio.get_running_loop().time() == 0


def test_recording_never_raises(caplog: pytest.LogCaptureFixture) -> None:
    recorder = recorder_for(Api())
    say(recorder)  # no loop runs here, so there is no time to note
    assert recorder.dropped == 1
    assert "could not be recorded" in caplog.messages[0]

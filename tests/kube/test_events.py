"""Events: what is sent (the aggregator, told the time) and how (the recorder, virtual time)."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.kube import errors
from backstay.kube.errors import Json, Status
from backstay.kube.events import Aggregator, EventRecorder, EventType, ObjectRef, Occurrence, Send
from backstay.kube.resource import EVENTS, Resource
from backstay.seam.system import SystemRng
from tests.support.local import LocalClock
from tests.support.virtual import virtual_time

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
POD = ObjectRef(api_version="v1", kind="Pod", namespace="prod", name="web-0", uid="u-1")
NODE = ObjectRef(api_version="v1", kind="Node", name="n1", uid="u-2")


# The aggregator


class Story:
    """Things that happen, and an aggregator that is told of them."""

    def __init__(self) -> None:
        self.aggregator = Aggregator(component="backstay", instance="pod-1", rng=SystemRng(seed=0))
        self.now = 0.0

    def happens(
        self,
        message: str = "it broke",
        *,
        about: ObjectRef = POD,
        type: EventType = "Warning",
        reason: str = "Broken",
    ) -> None:
        what = Occurrence(about=about, type=type, reason=reason, message=message, action="Repair")
        self.aggregator.observe(what, now=self.now, at=START + timedelta(seconds=self.now))

    def deliver(self) -> list[Send]:
        sends = []
        while (send := self.aggregator.next()) is not None:
            self.aggregator.delivered(send)
            sends.append(send)
        return sends


def test_the_first_occurrence_creates_a_complete_event() -> None:
    story = Story()
    story.happens()
    (send,) = story.deliver()
    name = send.series.name
    assert send.creates
    assert re.fullmatch(r"web-0\.[0-9a-f]{13}", name)
    assert send.body == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "prod"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "prod",
            "name": "web-0",
            "uid": "u-1",
        },
        "type": "Warning",
        "reason": "Broken",
        "message": "it broke",
        "action": "Repair",
        "count": 1,
        "firstTimestamp": "2026-03-01T12:00:00Z",
        "lastTimestamp": "2026-03-01T12:00:00Z",
        "source": {"component": "backstay"},
        "reportingComponent": "backstay",
        "reportingInstance": "pod-1",
    }


def test_an_event_about_a_cluster_scoped_object_lives_in_default() -> None:
    story = Story()
    story.happens(about=NODE)
    (send,) = story.deliver()
    assert send.series.namespace == "default"
    assert send.body["metadata"]["namespace"] == "default"
    assert send.body["involvedObject"]["namespace"] == ""


def test_a_repeat_patches_the_count_of_the_same_event() -> None:
    story = Story()
    story.happens()
    (created,) = story.deliver()
    story.now = 60
    story.happens()
    (patch,) = story.deliver()
    assert not patch.creates
    assert patch.series.name == created.series.name
    assert patch.body == {
        "count": 2,
        "lastTimestamp": "2026-03-01T12:01:00Z",
        "message": "it broke",
    }


def test_repeats_that_wait_together_are_one_send() -> None:
    story = Story()
    for _ in range(100):
        story.happens()
    (send,) = story.deliver()
    assert send.body["count"] == 100
    assert story.aggregator.limited == 0


def test_repeats_during_a_send_are_one_further_send() -> None:
    story = Story()
    story.happens()
    send = story.aggregator.next()
    assert send is not None
    for _ in range(100):
        story.happens()
    story.aggregator.delivered(send)
    (patch,) = story.deliver()
    assert not patch.creates
    assert patch.body["count"] == 101


@pytest.mark.parametrize(
    "difference",
    [
        {"about": NODE},
        {"about": ObjectRef(api_version="v1", kind="Pod", namespace="prod", name="web-0")},
        {"type": "Normal"},
        {"reason": "Other"},
        {"message": "it broke again"},
    ],
    ids=["object", "uid", "type", "reason", "message"],
)
def test_what_differs_is_another_event(difference: dict[str, Any]) -> None:
    story = Story()
    story.happens()
    story.happens(**difference)
    assert [send.creates for send in story.deliver()] == [True, True]


@pytest.mark.parametrize(("silence", "creates"), [(600, False), (601, True)])
def test_ten_minutes_of_silence_end_a_series(silence: float, creates: bool) -> None:
    story = Story()
    story.happens()
    story.deliver()
    story.now = silence
    story.happens()
    (send,) = story.deliver()
    assert send.creates == creates
    assert send.body["count"] == (1 if creates else 2)


def test_a_series_that_goes_on_outlives_the_window() -> None:
    story = Story()
    for minute in range(0, 60, 5):
        story.now = minute * 60
        story.happens()
    (send,) = story.deliver()
    assert send.body["count"] == 12
    assert send.body["firstTimestamp"] == "2026-03-01T12:00:00Z"
    assert send.body["lastTimestamp"] == "2026-03-01T12:55:00Z"


def test_more_than_ten_messages_for_one_reason_are_combined() -> None:
    story = Story()
    for number in range(14):
        story.happens(f"attempt {number} failed")
    sends = story.deliver()
    assert len(sends) == 11
    assert sends[-1].body["message"] == "(combined from similar events): attempt 13 failed"
    assert sends[-1].body["count"] == 4


def test_a_message_that_has_its_own_event_is_not_combined() -> None:
    story = Story()
    for number in range(14):
        story.happens(f"attempt {number} failed")
    story.deliver()
    story.happens("attempt 3 failed")
    (send,) = story.deliver()
    assert send.body["message"] == "attempt 3 failed"
    assert send.body["count"] == 2


def test_a_trickle_of_different_messages_is_combined_as_well() -> None:
    story = Story()
    for number in range(11):
        story.now = number * 300
        story.happens(f"attempt {number} failed")
    assert story.deliver()[-1].body["message"].startswith("(combined from similar events)")


def test_after_ten_minutes_of_silence_messages_stand_alone_again() -> None:
    story = Story()
    for number in range(14):
        story.happens(f"attempt {number} failed")
    story.deliver()
    story.now = 601
    story.happens("attempt 99 failed")
    (send,) = story.deliver()
    assert send.body["message"] == "attempt 99 failed"


def test_each_object_has_its_own_limit_and_the_count_catches_up() -> None:
    story = Story()
    for _ in range(40):
        story.happens()
        story.deliver()
    assert story.aggregator.limited == 15
    story.happens(about=NODE)
    assert len(story.deliver()) == 1
    story.now = 300
    story.happens()
    (send,) = story.deliver()
    assert send.body["count"] == 41
    story.happens()
    assert story.deliver() == []


def test_what_does_not_fit_into_the_line_is_dropped_and_counted() -> None:
    story = Story()
    for number in range(1030):
        story.happens(about=pod(number))
    assert story.aggregator.waiting == 1024
    assert story.aggregator.dropped == 6
    story.happens(about=pod(0))
    assert story.aggregator.dropped == 6
    assert len(story.deliver()) == 1024


def test_of_more_than_4096_series_the_least_recently_used_is_forgotten() -> None:
    story = Story()
    for number in [*range(4096), 0, 4096]:
        story.happens(about=pod(number))
        story.deliver()
    story.happens(about=pod(0))
    story.happens(about=pod(1))
    assert [send.creates for send in story.deliver()] == [False, True]


def test_an_event_that_expired_is_created_anew_with_its_whole_count() -> None:
    story = Story()
    story.happens()
    story.deliver()
    story.happens()
    patch = story.aggregator.next()
    assert patch is not None
    anew = story.aggregator.other_way(patch)
    assert anew.creates
    assert anew.body["count"] == 2
    assert anew.body["metadata"]["name"] == patch.series.name


def test_the_same_dice_give_the_same_names() -> None:
    stories = [Story(), Story()]
    for story in stories:
        for number in range(5):
            story.happens(f"{number}")
    names = [[send.series.name for send in story.deliver()] for story in stories]
    assert names[0] == names[1]
    assert len(set(names[0])) == 5


DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@given(name=st.text(max_size=300) | st.text(alphabet="ab-.:A", min_size=200, max_size=300))
def test_any_object_gives_a_valid_event_name(name: str) -> None:
    story = Story()
    story.happens(about=ObjectRef(api_version="v1", kind="Role", name=name))
    (send,) = story.deliver()
    assert DNS_SUBDOMAIN.fullmatch(send.series.name)
    assert len(send.series.name) <= 253


@given(message=st.text(max_size=30).map(lambda text: text * 50), reason=st.text(max_size=200))
def test_texts_are_cut_to_what_the_api_accepts_without_half_characters(
    message: str, reason: str
) -> None:
    story = Story()
    for number in range(12):
        story.happens(message + str(number), reason=reason)
    for send in story.deliver():
        assert len(send.body["message"].encode()) <= 1024
        assert len(send.body["reason"].encode()) <= 128
        assert "�" not in send.body["message"]


def test_a_text_is_cut_between_characters() -> None:
    story = Story()
    story.happens("a" + "é" * 600)
    (send,) = story.deliver()
    assert send.body["message"] == "a" + "é" * 511


def test_a_text_that_is_not_valid_unicode_is_sent_with_a_mark_in_place_of_the_fault() -> None:
    story = Story()
    story.happens("file \udcff is missing")
    (send,) = story.deliver()
    assert send.body["message"] == "file ? is missing"


def pod(number: int) -> ObjectRef:
    return ObjectRef(api_version="v1", kind="Pod", namespace="prod", name=f"pod-{number}")


# The recorder


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

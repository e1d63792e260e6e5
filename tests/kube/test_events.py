"""Events: what is sent. The aggregator is told of what happens, and the time."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.kube.events import Aggregator, EventType, ObjectRef, Occurrence, Send
from backstay.seam.system import SystemRng

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
POD = ObjectRef(api_version="v1", kind="Pod", namespace="prod", name="web-0", uid="u-1")
NODE = ObjectRef(api_version="v1", kind="Node", name="n1", uid="u-2")


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

"""Events, which are in two groups at once, on every target (one is pytest.mark.real)."""

import pytest

from tests.conformance.objects import event
from tests.conformance.targets import JSON_PATCH, Api, Json

GROUP = "events.k8s.io/v1"
WHEN = "2026-01-02T03:04:05.000006Z"


def news(name: str, namespace: str, **more: object) -> Json:
    """An event in the words of the newer group."""
    return {
        "metadata": {"name": name},
        "eventTime": WHEN,
        "reportingController": "x.test/me",
        "reportingInstance": "me-1",
        "action": "Looking",
        "reason": "Seen",
        "type": "Normal",
        "note": "hello",
        "regarding": {"kind": "Pod", "namespace": namespace, "name": "web"},
        **more,
    }


async def test_an_event_of_one_group_is_one_of_the_other(api: Api) -> None:
    made = await api.make(api.at("events", group=GROUP), news("a", api.namespace))
    assert (made["apiVersion"], made["note"]) == (GROUP, "hello")
    found = await api.read(api.at("events", "a"))
    assert found["metadata"]["uid"] == made["metadata"]["uid"]
    assert (found["apiVersion"], found["message"]) == ("v1", "hello")
    assert found["involvedObject"]["name"] == "web"
    assert found["reportingComponent"] == "x.test/me"


async def test_and_the_other_way_round(api: Api) -> None:
    since = "2026-01-02T03:04:05Z"
    old = {"message": "hi", "count": 2, "firstTimestamp": since, "source": {"component": "c"}}
    await api.make(api.at("events"), event("a", api.namespace, **old))
    found = await api.read(api.at("events", "a", group=GROUP))
    assert (found["note"], found["deprecatedCount"]) == ("hi", 2)
    assert found["deprecatedFirstTimestamp"] == since
    assert found["deprecatedSource"] == {"component": "c"}
    assert found["eventTime"] is None


async def test_both_groups_list_and_select_the_same(api: Api) -> None:
    await api.make(api.at("events"), event("a", api.namespace))
    await api.make(api.at("events", group=GROUP), news("b", api.namespace))
    assert await api.names(api.at("events")) == ["a", "b"]
    path = api.at("events", group=GROUP)
    assert await api.names(f"{path}?fieldSelector=regarding.name%3Dweb") == ["a", "b"]
    assert await api.names(f"{path}?fieldSelector=reason%3DSeen") == ["b"]


async def test_both_groups_watch_the_same(api: Api) -> None:
    path = api.at("events", group=GROUP)
    async with api.watch(f"{path}?watch=1&resourceVersion=0") as events:
        await api.make(api.at("events"), event("a", api.namespace, message="hi"))
        kind, seen = await events.next_change()
    assert (kind, seen["apiVersion"], seen["note"]) == ("ADDED", GROUP, "hi")


async def test_a_series_is_patched(api: Api) -> None:
    path = api.at("events", "a", group=GROUP)
    await api.make(api.at("events", group=GROUP), news("a", api.namespace))
    series = {"count": 2, "lastObservedTime": WHEN}
    assert (await api.change(path, {"series": series}))["series"] == series
    more = [{"op": "replace", "path": "/series/count", "value": 3}]
    assert (await api.change(path, more, JSON_PATCH))["series"]["count"] == 3


@pytest.mark.parametrize("about", ["elsewhere", ""])
async def test_an_event_is_where_its_object_is(api: Api, about: str) -> None:
    body = event("a", api.namespace)
    body["involvedObject"]["namespace"] = about
    got = await api.post(api.at("events"), body)
    why = f'involvedObject.namespace: Invalid value: "{about}": does not match event.namespace'
    assert got.refusal == (422, "Invalid", f'Event "a" is invalid: {why}')


async def test_what_is_in_no_namespace_is_told_of_in_the_default_one(api: Api) -> None:
    body = event(api.namespace, "")
    del body["involvedObject"]["namespace"]
    async with api.for_a_while("/api/v1/namespaces/default/events", body) as path:
        assert (await api.read(path))["involvedObject"] == {"kind": "Pod", "name": "web"}

"""Watches: which events come, in which order, and how they begin and end (pytest.mark.real)."""

from tests.conformance.objects import config, named, pod
from tests.conformance.targets import Api, Json

STREAMING = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"


async def version_now(api: Api, plural: str = "secrets") -> str:
    version: str = (await api.read(api.at(plural)))["metadata"]["resourceVersion"]
    return version


def label(value: str | None) -> Json:
    return {"metadata": {"labels": {"app": value}}}


async def test_a_watch_tells_what_happened_since_a_version(api: Api) -> None:
    path = api.at("secrets")
    version = await version_now(api)
    await api.make(path, named("a"))
    await api.change(path + "/a", label("web"))
    async with api.watch(f"{path}?watch=1&resourceVersion={version}") as events:
        assert await events.names(2) == [("ADDED", "a"), ("MODIFIED", "a")]
        await api.delete(path + "/a")
        assert await events.names(1) == [("DELETED", "a")]


async def test_an_event_carries_the_object_as_it_was_then(api: Api) -> None:
    path = api.at("secrets")
    version = await version_now(api)
    made = await api.make(path, named("a"))
    changed = await api.change(path + "/a", label("web"))
    async with api.watch(f"{path}?watch=1&resourceVersion={version}") as events:
        assert await events.next_change() == ("ADDED", made)
        assert await events.next_change() == ("MODIFIED", changed)


async def test_what_was_deleted_is_told_in_its_last_state_with_a_new_version(api: Api) -> None:
    path = api.at("secrets")
    made = await api.make(path, {**named("a"), "data": {"x": "YQ=="}})
    version = made["metadata"]["resourceVersion"]
    async with api.watch(f"{path}?watch=1&resourceVersion={version}") as events:
        await api.delete(path + "/a")
        kind, last = await events.next_change()
    assert (kind, last["data"]) == ("DELETED", made["data"])
    assert int(last["metadata"]["resourceVersion"]) > int(version)


async def test_a_watch_from_zero_begins_with_what_is_there(api: Api) -> None:
    path = api.at("secrets")
    for name in ("a", "b"):
        await api.make(path, named(name))
    await version_now(api)
    async with api.watch(path + "?watch=1&resourceVersion=0") as events:
        assert sorted(await events.names(2)) == [("ADDED", "a"), ("ADDED", "b")]
        await api.delete(path + "/a")
        assert await events.names(1) == [("DELETED", "a")]


async def test_a_watch_without_a_version_begins_with_what_is_there(api: Api) -> None:
    path = api.at("secrets")
    await api.make(path, named("a"))
    async with api.watch(path + "?watch=1") as events:
        assert await events.names(1) == [("ADDED", "a")]


async def test_initial_events_end_with_a_bookmark(api: Api) -> None:
    path = api.at("secrets")
    await api.make(path, named("a"))
    version = await version_now(api)
    query = f"?watch=1&{STREAMING}&allowWatchBookmarks=true"
    async with api.watch(path + query) as events:
        assert await events.names(1) == [("ADDED", "a")]
        end = await events.next()
    assert end["type"] == "BOOKMARK"
    assert (end["object"]["kind"], end["object"]["apiVersion"]) == ("Secret", "v1")
    meta = end["object"]["metadata"]
    assert set(meta) == {"resourceVersion", "annotations"}
    assert meta["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(meta["resourceVersion"]) >= int(version)


async def test_changes_follow_the_initial_events(api: Api) -> None:
    path = api.at("secrets")
    await api.make(path, named("a"))
    query = f"?watch=1&{STREAMING}&allowWatchBookmarks=true"
    async with api.watch(path + query) as events:
        await events.names(1)
        await events.next()
        await api.make(path, named("b"))
        assert await events.names(1) == [("ADDED", "b")]


async def test_one_who_wants_no_bookmarks_gets_none(api: Api) -> None:
    path = api.at("secrets")
    await api.make(path, named("a"))
    async with api.watch(f"{path}?watch=1&{STREAMING}&timeoutSeconds=1") as events:
        assert [event["type"] for event in await events.rest()] == ["ADDED"]


async def test_a_watch_can_go_on_from_a_bookmark(api: Api) -> None:
    path = api.at("secrets")
    await api.make(path, named("a"))
    query = f"?watch=1&{STREAMING}&allowWatchBookmarks=true"
    async with api.watch(path + query) as events:
        await events.names(1)
        version = (await events.next())["object"]["metadata"]["resourceVersion"]
    await api.make(path, named("b"))
    async with api.watch(f"{path}?watch=1&resourceVersion={version}") as events:
        assert await events.names(1) == [("ADDED", "b")]


async def test_what_begins_to_match_is_added_and_what_ceases_is_deleted(api: Api) -> None:
    path = api.at("secrets")
    version = await version_now(api)
    query = f"?watch=1&resourceVersion={version}&labelSelector=app%3Dweb"
    async with api.watch(path + query) as events:
        await api.make(path, named("a"))
        entered = await api.change(path + "/a", label("web"))
        await api.change(path + "/a", {"data": {"x": "YQ=="}})
        await api.change(path + "/a", label("db"))
        assert await events.next_change() == ("ADDED", entered)
        assert await events.names(1) == [("MODIFIED", "a")]
        kind, last = await events.next_change()
    assert kind == "DELETED"
    assert last["metadata"]["labels"] == {"app": "web"}


async def test_what_ceases_to_match_comes_with_the_version_of_the_change(api: Api) -> None:
    path = api.at("secrets")
    made = await api.make(path, named("a", labels={"app": "web"}))
    version = made["metadata"]["resourceVersion"]
    query = f"?watch=1&resourceVersion={version}&labelSelector=app%3Dweb"
    async with api.watch(path + query) as events:
        left = await api.change(path + "/a", label("db"))
        _, last = await events.next_change()
    assert last["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]


async def test_what_never_matched_is_never_told(api: Api) -> None:
    path = api.at("secrets")
    version = await version_now(api)
    await api.make(path, named("a"))
    await api.delete(path + "/a")
    await api.make(path, named("b", labels={"app": "web"}))
    query = f"?watch=1&resourceVersion={version}&labelSelector=app%3Dweb"
    async with api.watch(path + query) as events:
        assert await events.names(1) == [("ADDED", "b")]


async def test_fields_select_events(api: Api) -> None:
    version = await version_now(api, "pods")
    await api.make(api.at("pods"), pod("a", nodeName="one"))
    await api.make(api.at("pods"), pod("b", nodeName="two"))
    query = f"?watch=1&resourceVersion={version}&fieldSelector=spec.nodeName%3Dtwo"
    async with api.watch(api.at("pods") + query) as events:
        assert await events.names(1) == [("ADDED", "b")]


async def test_a_watch_of_a_namespace_tells_of_that_one_only(api: Api) -> None:
    version = await version_now(api)
    elsewhere = "/api/v1/namespaces/default/secrets"
    made = await api.make(elsewhere, {"metadata": {"generateName": "conformance-"}})
    await api.make(api.at("secrets"), named("b"))
    async with api.watch(f"{api.at('secrets')}?watch=1&resourceVersion={version}") as events:
        assert await events.names(1) == [("ADDED", "b")]
    await api.delete(f"{elsewhere}/{made['metadata']['name']}")


async def test_events_come_in_the_order_of_their_versions(api: Api) -> None:
    path = api.at("configmaps")
    made = await api.make(path, config("a", x="0"))
    version = made["metadata"]["resourceVersion"]
    for n in range(1, 20):
        await api.change(path + "/a", {"data": {"x": str(n)}})
    query = f"?watch=1&resourceVersion={version}&fieldSelector=metadata.name%3Da"
    async with api.watch(path + query) as events:
        seen = [(await events.next_change())[1]["data"]["x"] for _ in range(1, 20)]
    assert seen == [str(n) for n in range(1, 20)]


async def test_a_pod_that_is_being_deleted_is_modified_first(api: Api) -> None:
    made = await api.make(api.at("pods"), pod("a"))
    version = made["metadata"]["resourceVersion"]
    async with api.watch(f"{api.at('pods')}?watch=1&resourceVersion={version}") as events:
        await api.delete(api.at("pods", "a"))
        kind, obj = await events.next_change()
        assert (kind, obj["metadata"]["deletionGracePeriodSeconds"]) == ("MODIFIED", 30)
        await api.delete(api.at("pods", "a") + "?gracePeriodSeconds=0")
        assert (await events.next_change())[0] in ("MODIFIED", "DELETED")


async def test_a_watch_ends_when_its_time_is_over(api: Api) -> None:
    version = await version_now(api)
    path = f"{api.at('secrets')}?watch=1&resourceVersion={version}&timeoutSeconds=1"
    async with api.watch(path) as events:
        assert await events.rest() == []


async def test_a_watch_of_one_object_is_a_watch_of_a_field(api: Api) -> None:
    await api.make(api.at("secrets"), named("a"))
    got = await api.get(api.at("secrets", "a") + "?watch=1&timeoutSeconds=1")
    assert got.json["kind"] == "Secret"


async def test_a_watch_of_a_version_that_is_no_number_is_refused(api: Api) -> None:
    got = await api.get(api.at("secrets") + "?watch=1&resourceVersion=x")
    words = 'resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax'
    assert got.refusal == (500, "", words)


async def test_initial_events_need_to_say_which_versions_will_do(api: Api) -> None:
    got = await api.get(api.at("secrets") + "?watch=1&sendInitialEvents=true")
    words = (
        'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: '
        "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
    )
    assert got.refusal == (422, "Invalid", words)


async def test_a_match_without_initial_events_is_refused(api: Api) -> None:
    query = "?watch=1&resourceVersion=1&resourceVersionMatch=NotOlderThan"
    got = await api.get(api.at("secrets") + query)
    words = (
        'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: '
        "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
    )
    assert got.refusal == (422, "Invalid", words)


async def test_a_selector_of_a_watch_that_makes_no_sense_is_refused(api: Api) -> None:
    got = await api.get(api.at("secrets") + "?watch=1&labelSelector=(")
    words = "found '(', expected: !, identifier, or 'end of string'"
    assert got.refusal == (400, "BadRequest", words)

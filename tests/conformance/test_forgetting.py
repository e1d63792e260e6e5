"""Versions that have been forgotten, on every target (one is pytest.mark.real).

A real server has two memories: its etcd, which was compacted, and for most kinds the recent
changes, which outlast that. Events are read from etcd; of a custom kind, whatever was before its
definition is not among the recent changes.
"""

from urllib.parse import quote

from tests.conformance.objects import event
from tests.conformance.targets import Api
from tests.conformance.test_custom_resources import define

TOO_OLD_TO_GO_ON = (
    "The provided continue parameter is too old to display a consistent list result. You can "
    "start a new list without the continue parameter, or use the continue token in this response "
    "to retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)


async def some_events(api: Api, *names: str) -> list[str]:
    """Makes them; the version of each."""
    made = [await api.make(api.at("events"), event(name, api.namespace)) for name in names]
    return [each["metadata"]["resourceVersion"] for each in made]


async def test_a_watch_of_a_forgotten_version_is_told_so(api: Api) -> None:
    version, *_ = await some_events(api, "a", "b", "c")
    await api.forget()
    async with api.watch(f"{api.at('events')}?watch=1&resourceVersion={version}") as events:
        (told,) = await events.rest()
    assert told["type"] == "ERROR"
    status = told["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert status["message"] == "The resourceVersion for the provided watch is too old."


async def test_a_watch_of_what_nobody_remembers_is_told_so(api: Api) -> None:
    things = await define(api, "conformance.test")
    await api.forget()
    async with api.watch(f"{things.path}?watch=1&resourceVersion=1") as events:
        (told,) = await events.rest()
    assert told["type"] == "ERROR"
    status = told["object"]
    assert (status["code"], status["reason"]) == (410, "Expired")
    assert status["message"].startswith("too old resource version: 1 (")


async def test_a_watch_of_the_latest_version_goes_on_all_the_same(api: Api) -> None:
    *_, version = await some_events(api, "a", "b")
    await api.forget()
    async with api.watch(f"{api.at('events')}?watch=1&resourceVersion={version}") as events:
        await some_events(api, "c")
        assert await events.names(1) == [("ADDED", "c")]


async def test_a_page_of_a_forgotten_list_comes_with_a_way_to_go_on(api: Api) -> None:
    path = api.at("events")
    await some_events(api, "a", "b", "c")
    token = (await api.read(path + "?limit=1"))["metadata"]["continue"]
    await api.delete(path + "/b")
    await api.forget()
    got = await api.get(f"{path}?limit=1&continue={quote(token)}")
    assert got.refusal == (410, "Expired", TOO_OLD_TO_GO_ON)
    fresh = got.json["metadata"]["continue"]
    await api.delete(path + "/c")
    await some_events(api, "d")
    assert await api.names(f"{path}?continue={quote(fresh)}") == ["d"]


async def test_a_list_of_exactly_a_forgotten_version_is_refused(api: Api) -> None:
    version, *_ = await some_events(api, "a", "b", "c")
    await api.forget()
    path = f"{api.at('events')}?resourceVersion={version}&resourceVersionMatch=Exact"
    words = "The resourceVersion for the provided list is too old."
    assert (await api.get(path)).refusal == (410, "Expired", words)

"""Versions that have been forgotten. A real server forgets every five minutes and cannot be told
to, so these run on the embedded API only."""

from urllib.parse import quote

import pytest

from tests.conformance.objects import named
from tests.conformance.targets import Api

pytestmark = pytest.mark.embedded


def forget(api: Api) -> None:
    assert api.embedded is not None
    api.embedded.store.compact()


async def test_a_watch_of_a_forgotten_version_is_told_so(api: Api) -> None:
    path = api.at("secrets")
    version = (await api.make(path, named("a")))["metadata"]["resourceVersion"]
    await api.make(path, named("b"))
    forget(api)
    async with api.watch(f"{path}?watch=1&resourceVersion={version}") as events:
        (event,) = await events.rest()
    assert event["type"] == "ERROR"
    status = event["object"]
    assert (status["code"], status["reason"]) == (410, "Expired")
    assert status["message"].startswith(f"too old resource version: {version} (")


async def test_a_watch_of_the_latest_version_goes_on_all_the_same(api: Api) -> None:
    path = api.at("secrets")
    version = (await api.make(path, named("a")))["metadata"]["resourceVersion"]
    forget(api)
    async with api.watch(f"{path}?watch=1&resourceVersion={version}") as events:
        await api.make(path, named("b"))
        assert await events.names(1) == [("ADDED", "b")]


async def test_a_page_of_a_forgotten_list_comes_with_a_way_to_go_on(api: Api) -> None:
    path = api.at("secrets")
    for name in ("a", "b", "c"):
        await api.make(path, named(name))
    token = (await api.read(path + "?limit=1"))["metadata"]["continue"]
    await api.delete(path + "/b")
    forget(api)
    got = await api.get(f"{path}?limit=1&continue={quote(token)}")
    assert got.refusal[:2] == (410, "Expired")
    fresh = got.json["metadata"]["continue"]
    assert await api.names(f"{path}?continue={quote(fresh)}") == ["c"]

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import pytest

from backstay.kube.endpoints import EndpointWatch
from backstay.seam.serve import Answer, Inbound
from backstay.seam.tasks import Tasks
from tests.support.dice import LOWEST
from tests.support.scripted import World, refusal, url, world
from tests.support.virtual import virtual_time

INITIAL_EVENTS_END = {"annotations": {"k8s.io/initial-events-end": "true"}}


def endpoint(*addresses: str, **more: Any) -> dict[str, Any]:
    return {"addresses": list(addresses), **more}


def a_slice(
    *endpoints: dict[str, Any], version: str, name: str = "kubernetes", **more: Any
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name, "namespace": "default", "uid": name, "resourceVersion": version,
        },
        "endpoints": list(endpoints),
        "ports": [{"name": "https", "port": 6443}],
        **more,
    }  # fmt: skip


class Slices:
    """The API's side of a watch: what is put in comes out as events."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[bytes] = asyncio.Queue()
        self.queries: list[dict[str, str]] = []

    async def __call__(self, inbound: Inbound) -> Answer:
        self.queries.append(dict(parse_qsl(inbound.query)))
        return Answer(body=self._stream())

    async def _stream(self) -> AsyncIterator[bytes]:
        while True:
            yield await self._events.get()

    def say(self, kind: str, obj: dict[str, Any]) -> None:
        self._events.put_nowait(msgspec.json.encode({"type": kind, "object": obj}) + b"\n")

    def begin_with(self, *slices: dict[str, Any]) -> None:
        for each in slices:
            self.say("ADDED", each)
        self.say("BOOKMARK", {"metadata": {"resourceVersion": "100", **INITIAL_EVENTS_END}})


@asynccontextmanager
async def watching(*slices: dict[str, Any]) -> AsyncIterator[tuple[World, Slices]]:
    api, side = await world(), Slices()
    api.server().script = [side]
    side.begin_with(*slices)
    async with Tasks("test") as tasks:
        tasks.spawn(EndpointWatch(api.client, rng=LOWEST).run(), name="endpoints")
        await asyncio.sleep(0.1)
        yield api, side


def learned(api: World) -> tuple[str, ...]:
    return api.client.addresses.all[1:]


@virtual_time
async def test_only_the_endpoints_of_the_api_itself_are_watched() -> None:
    async with watching() as (api, side):
        assert api.server().seen[0].path == (
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
        )
        assert side.queries[0]["labelSelector"] == "kubernetes.io/service-name=kubernetes"


@virtual_time
async def test_the_api_servers_addresses_are_learned() -> None:
    async with watching(a_slice(endpoint("192.0.2.1"), endpoint("192.0.2.2"), version="5")) as (
        api,
        _,
    ):
        assert learned(api) == ("https://192.0.2.1:6443", "https://192.0.2.2:6443")


@virtual_time
async def test_an_api_server_that_comes_and_one_that_goes_are_noticed() -> None:
    async with watching(a_slice(endpoint("192.0.2.1"), version="5")) as (api, side):
        side.say("MODIFIED", a_slice(endpoint("192.0.2.2"), endpoint("192.0.2.3"), version="101"))
        await asyncio.sleep(0.1)
        assert learned(api) == ("https://192.0.2.2:6443", "https://192.0.2.3:6443")


@virtual_time
async def test_all_slices_count_together() -> None:
    v6 = a_slice(endpoint("2001:db8::1"), version="6", name="kubernetes-v6")
    async with watching(a_slice(endpoint("192.0.2.1"), version="5"), v6) as (api, _):
        assert learned(api) == ("https://192.0.2.1:6443", "https://[2001:db8::1]:6443")


@virtual_time
async def test_endpoints_that_vanish_leave_us_what_we_know() -> None:
    first = a_slice(endpoint("192.0.2.1"), version="5")
    async with watching(first) as (api, side):
        side.say("DELETED", a_slice(endpoint("192.0.2.1"), version="101"))
        await asyncio.sleep(0.1)
        assert learned(api) == ("https://192.0.2.1:6443",)


@pytest.mark.parametrize(
    ("conditions", "count"),
    [(None, 1), ({}, 1), ({"ready": None}, 1), ({"ready": True}, 1), ({"ready": False}, 0)],
)
@virtual_time
async def test_an_api_server_counts_unless_it_is_known_not_to_be_ready(
    conditions: dict[str, bool | None] | None, count: int
) -> None:
    found = a_slice(endpoint("192.0.2.1", conditions=conditions), version="5")
    async with watching(found) as (api, _):
        assert len(learned(api)) == count


@pytest.mark.parametrize(
    ("ports", "count"),
    [
        ([{"name": "https", "port": 6443}], 1),
        ([{"name": "", "port": 6443}], 1),
        ([{"port": 6443}], 1),
        ([{"name": "konnectivity", "port": 8132}], 0),
        ([{"name": "https"}], 0),
        ([], 0),
        (None, 0),
    ],
)
@virtual_time
async def test_only_the_port_of_the_api_counts(
    ports: list[dict[str, Any]] | None, count: int
) -> None:
    found = a_slice(endpoint("192.0.2.1"), version="5", ports=ports)
    async with watching(found) as (api, _):
        assert len(learned(api)) == count


@virtual_time
async def test_a_slice_without_endpoints_teaches_nothing() -> None:
    async with watching(a_slice(version="5", endpoints=None)) as (api, _):
        assert learned(api) == ()


@virtual_time
async def test_where_endpoints_cannot_be_read_the_configured_address_serves() -> None:
    api = await world()
    api.server().script = [refusal(403)]
    async with Tasks("test") as tasks:
        running = tasks.spawn(EndpointWatch(api.client, rng=LOWEST).run(), name="endpoints")
        await asyncio.sleep(100.0)
        assert not running.done()
    assert api.client.addresses.all == (url("vip"),)

"""The sweep, against an API: what it removes, when, and how much at a time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from backstay.apis.backstay import INCIDENTS
from backstay.apis.definitions import definitions
from backstay.control.sweep import FIRST, INTERVAL, MOST, Sweeper
from backstay.kube.access import GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.kube.lease import Term
from backstay.kube.resource import CONFIG_MAPS, NAMESPACES, Resource
from backstay.model.labels import FRAMES, INCIDENT
from backstay.model.moments import time_text
from backstay.record.blackbox import BlackBox
from backstay.record.incidents import IncidentBook
from backstay.record.retention import NEWEST
from backstay.seam.system import SystemRng
from backstay.seam.tasks import Tasks
from backstay.sim.api.server import ApiServer
from backstay.sim.clock import LoopClock
from backstay.sim.network import Network
from tests.support.virtual import virtual_time

URL = "http://api:80"
OURS = "backstay-system"
DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
    namespaced=False,
)  # fmt: skip


class Attic:
    """An API full of incidents."""

    def __init__(self) -> None:
        self.network = Network()
        self.wall = LoopClock()
        self.server = ApiServer(wall=self.wall, rng=SystemRng(1))
        self.client = KubeClient(self.network.transport, GivenAccess(URL, Grant()))
        book = IncidentBook(self.client, wall=self.wall, rng=SystemRng(2))
        box = BlackBox(self.client, namespace=OURS, program="backstay 0", wall=self.wall)
        self.sweeper = Sweeper(book, box, wall=self.wall)

    async def incident(self, name: str, *, days: float | None = None) -> None:
        """Over since so many days; without them it is open."""
        spec = {"node": "n1", "nodeUID": "u", "bootID": "b"}
        await self.client.create(INCIDENTS, {"metadata": {"name": name}, "spec": spec})
        closed = "" if days is None else time_text(self.wall.now() - timedelta(days=days))
        status = {"status": {"closedAt": closed, "epoch": 1}}
        await self.client.merge_patch(INCIDENTS, name, status, subresource="status")

    async def box(self, incident: str) -> None:
        meta = {
            "name": f"frames-{incident}",
            "labels": {FRAMES: "true"},
            "annotations": {INCIDENT: incident},
        }
        await self.client.create(CONFIG_MAPS, {"metadata": meta}, namespace=OURS)

    async def names(self, resource: Resource = INCIDENTS) -> set[str]:
        reply = await self.client.list(resource)
        return {each["metadata"]["name"] for each in reply.json()["items"]}

    @asynccontextmanager
    async def led(self, *, leads_for: float = 1e9) -> AsyncIterator[Term]:
        async with Tasks("leader") as tasks:
            term = Term(1, asyncio.get_running_loop().time() + leads_for)
            tasks.spawn(self.sweeper.run(term), name="sweep")
            yield term


async def attic(*, old: int) -> Attic:
    """With the newest hundred, and so many old ones beyond them."""
    made = Attic()
    await made.network.serve.listen(made.server.handle, host="api", port=80)
    await made.client.create(NAMESPACES, {"metadata": {"name": OURS}})
    for definition in definitions():
        await made.client.create(DEFINITIONS, definition)
    for number in range(NEWEST):
        await made.incident(f"new-{number}", days=number / NEWEST)
    for number in range(old):
        await made.incident(f"old-{number}", days=40)
    return made


@virtual_time
async def test_old_incidents_go_with_their_decisions_and_the_rest_stays() -> None:
    at = await attic(old=3)
    await at.incident("open")
    for name in ("open", "new-0", "old-0", "nobodys"):
        await at.box(name)
    await at.client.create(CONFIG_MAPS, {"metadata": {"name": "a-persons"}}, namespace=OURS)
    async with at.led():
        await asyncio.sleep(FIRST - 1)
        assert len(await at.names()) == NEWEST + 4
        await asyncio.sleep(2)
    assert await at.names() == {"open", *(f"new-{n}" for n in range(NEWEST))}
    assert await at.names(CONFIG_MAPS) == {"frames-open", "frames-new-0", "a-persons"}
    assert at.sweeper.removed == 3


@virtual_time
async def test_a_sweep_is_bounded_and_goes_on_an_hour_later() -> None:
    at = await attic(old=MOST + 20)
    async with at.led():
        await asyncio.sleep(FIRST + 1)
        assert len(await at.names()) == NEWEST + 20
        await asyncio.sleep(INTERVAL)
    assert len(await at.names()) == NEWEST


@virtual_time
async def test_every_removal_names_the_version_that_was_judged() -> None:
    at = await attic(old=2)
    await at.box("old-0")
    async with at.led():
        await asyncio.sleep(FIRST + 1)
    sent = [each.request for each in at.network.link(URL).sent if each.request.method == "DELETE"]
    assert len(sent) == 3
    for request in sent:
        assert b'"uid"' in request.body
        assert b'"resourceVersion"' in request.body


@virtual_time
async def test_nothing_is_removed_after_the_term() -> None:
    at = await attic(old=2)
    async with at.led(leads_for=FIRST + 5):
        at.network.link(URL).connect_delay = 3.0
        await asyncio.sleep(FIRST + 60)
    assert len(await at.names()) == NEWEST + 2


@virtual_time
async def test_an_api_that_fails_is_said_and_the_next_hour_is_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    at = await attic(old=2)
    at.network.link(URL).refuse = True
    async with at.led():
        await asyncio.sleep(FIRST + 60)
        at.network.link(URL).refuse = False
        await asyncio.sleep(INTERVAL)
    assert len(await at.names()) == NEWEST
    assert len(caplog.records) == 1

"""Backstay's own client on a control plane of the harness, and waiting without sleeping."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from backstay.kube.access import GivenAccess, Grant
from backstay.kube.cache import Cache
from backstay.kube.client import KubeClient
from backstay.kube.projection import Projection
from backstay.kube.reflector import Reflector
from backstay.kube.resource import Resource
from backstay.seam.aiohttp_transport import AiohttpTransport
from backstay.seam.real import open_seams
from backstay.seam.system import SystemRng
from backstay.seam.tasks import Tasks
from backstay.seam.transport import Tls
from backstay.sim.nodes.fleet import HollowFleet
from backstay.sim.nodes.kubelet import Pace
from backstay.sim.nodes.wire import Json
from harness import pki
from harness.cluster import ControlPlane

_ORIGIN = "the harness"

REAL_PACE = Pace()

FAST_PACE = Pace(lease=1.0, status=1.0)
"""Heartbeats for a control plane with ``cluster.FAST`` timers."""


def access(plane: ControlPlane, user: str = pki.ADMIN) -> GivenAccess:
    """One of the users of ``pki.py``."""
    who = plane.identities
    if user == pki.ADMIN:
        tls = Tls(ca=who.ca, cert=who.admin_cert, key=who.admin_key)
        return GivenAccess(plane.url, Grant(tls=tls), origin=_ORIGIN)
    token = {pki.ADMIN_TOKEN: who.admin_token, pki.ORDINARY: who.ordinary_token}[user]
    headers = {"Authorization": f"Bearer {token}"}
    grant = Grant(headers=headers, tls=Tls(ca=who.ca))
    return GivenAccess(plane.url, grant, origin=_ORIGIN)


@asynccontextmanager
async def connect(plane: ControlPlane, user: str = pki.ADMIN) -> AsyncIterator[KubeClient]:
    transport = AiohttpTransport()
    try:
        yield KubeClient(transport, access(plane, user), user_agent="backstay-harness")
    finally:
        await transport.close()


@asynccontextmanager
async def hollow_nodes(client: KubeClient, *, pace: Pace = REAL_PACE) -> AsyncIterator[HollowFleet]:
    """Hollow nodes on the control plane of this client, on this machine's network and clocks."""
    async with open_seams() as seams, HollowFleet(client, seams, pace=pace) as fleet:
        yield fleet


class _Object(msgspec.Struct, frozen=True):
    key: str
    uid: str
    version: str
    body: Json


class _Attentive(Cache[_Object]):
    """Says when it has heard something, also that there is nothing at all."""

    def __init__(self) -> None:
        super().__init__()
        self.news = asyncio.Event()

    def heard(self, now: float, version: str = "") -> None:
        super().heard(now, version)
        self.news.set()


def _object(body: Json) -> _Object:
    meta = body["metadata"]
    key = f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
    return _Object(key, meta["uid"], meta["resourceVersion"], body)


async def until(
    client: KubeClient,
    resource: Resource,
    holds: Callable[[list[Json]], bool],
    *,
    namespace: str | None = None,
    name: str | None = None,
    timeout: float = 15.0,
) -> list[Json]:
    """Watches objects until something holds for all of them together; returns them as they are."""
    cache = _Attentive()
    reflector = Reflector(
        client,
        resource,
        Projection(dict, _object),
        cache,
        rng=SystemRng(),
        namespace=namespace,
        fields=f"metadata.name={name}" if name else None,
    )
    async with Tasks("until") as tasks:
        tasks.spawn(reflector.run(), name=resource.label)
        try:
            async with asyncio.timeout(timeout):
                while not (cache.synced and holds([row.body for row in cache])):
                    await cache.news.wait()
                    cache.news.clear()
        except TimeoutError:
            seen = msgspec.json.encode([row.body.get("status") for row in cache]).decode()
            raise TimeoutError(f"not within {timeout:g} s; last seen: {seen}") from None
    return [row.body for row in cache]

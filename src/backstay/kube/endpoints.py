"""Learning the API servers' own addresses, so that a dead service IP does not blind us.

The API servers keep their addresses in the endpoints of ``default/kubernetes``. We watch them
through whatever address works and hand them to the client. Where they cannot be read, or lead
nowhere (a laptop outside the cluster's network), the configured address goes on to serve.
"""

from typing import NoReturn

import msgspec

from backstay.kube.cache import Cache
from backstay.kube.client import KubeClient
from backstay.kube.projection import Meta, Projection
from backstay.kube.reflector import Reflector
from backstay.kube.resource import ENDPOINT_SLICES
from backstay.seam.clock import Rng


class _Port(msgspec.Struct, frozen=True):
    name: str | None = None
    port: int | None = None


class _Conditions(msgspec.Struct, frozen=True):
    ready: bool | None = None


class _Endpoint(msgspec.Struct, frozen=True):
    addresses: list[str] | None = None
    conditions: _Conditions | None = None


class _Slice(msgspec.Struct, frozen=True):
    metadata: Meta
    endpoints: list[_Endpoint] | None = None
    ports: list[_Port] | None = None


class SliceRow(msgspec.Struct, frozen=True):
    """One slice, as the base URLs of the API servers in it that are ready."""

    key: str
    uid: str
    version: str
    urls: tuple[str, ...]


def _row(found: _Slice) -> SliceRow:
    ports = [p.port for p in found.ports or () if p.port and p.name in (None, "", "https")]
    urls = [
        f"https://{f'[{address}]' if ':' in address else address}:{port}"
        for endpoint in found.endpoints or ()
        # A missing condition means ready.
        if endpoint.conditions is None or endpoint.conditions.ready is not False
        for address in endpoint.addresses or ()
        for port in ports
    ]
    meta = found.metadata
    return SliceRow(meta.key, meta.uid, meta.resource_version, tuple(urls))


_PROJECTION: Projection[_Slice, SliceRow] = Projection(_Slice, _row)


class EndpointWatch:
    """Keeps ``client.addresses`` in step with the cluster's API servers, for ever."""

    def __init__(self, client: KubeClient, *, rng: Rng) -> None:
        self._client = client
        self._cache: Cache[SliceRow] = Cache()
        self._cache.subscribe(self._changed)
        self._reflector = Reflector(
            client, ENDPOINT_SLICES, _PROJECTION, self._cache,
            rng=rng, namespace="default", labels="kubernetes.io/service-name=kubernetes",
        )  # fmt: skip

    async def run(self) -> NoReturn:
        await self._reflector.run()

    def _changed(self, _old: SliceRow | None, _new: SliceRow | None) -> None:
        self._client.addresses.learn(url for row in self._cache for url in row.urls)

"""Three ways to one API: what the conformance tests talk to.

* ``memory``: the embedded API behind the simulated network;
* ``http``: the same behind the real server and the real transport, over TLS on loopback;
* ``real``: the harness's kube-apiserver.

A test sees an ``Api`` and cannot tell which one it has. It speaks plain requests, so that it sees
each word of an answer; what our client makes of those words is tested beside the client.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import trustme
import yaml

from backstay.kube.access import GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.seam.aiohttp_serve import AiohttpServe
from backstay.seam.aiohttp_transport import AiohttpTransport
from backstay.seam.serve import ServerTls
from backstay.seam.system import SystemClock, SystemRng
from backstay.seam.tasks import Tasks
from backstay.seam.transport import Request, Stream, Tls, Transport
from backstay.sim.api.disruption import DisruptionController
from backstay.sim.api.garbage import GarbageCollector, NamespaceController
from backstay.sim.api.operations import Write
from backstay.sim.api.requests import Target
from backstay.sim.api.server import ApiServer
from backstay.sim.network import Network
from harness.cluster import ControlPlane
from harness.connect import access
from tests.support.etcd import compact

Json = dict[str, Any]

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

TIMEOUT = 20.0
"""Seconds. Nothing in here takes as long; a busy machine may."""


@dataclass(frozen=True)
class Got:
    """An answer, and what a refusal says."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        decoded: Json = msgspec.json.decode(self.body)
        return decoded

    @property
    def reason(self) -> str:
        return str(self.json.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.json.get("message", ""))

    @property
    def details(self) -> Json:
        return dict(self.json.get("details") or {})

    @property
    def causes(self) -> list[Json]:
        return list(self.details.get("causes") or ())

    @property
    def refusal(self) -> tuple[int, str, str]:
        """The code, the reason and the words."""
        assert self.json["kind"] == "Status", self.body
        assert self.json["code"] == self.status
        return self.status, self.reason, self.message


class Events:
    """The events of one watch, in order."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._held = b""
        self._lines: list[bytes] = []

    async def next(self) -> Json:
        """The next event; there must be one."""
        event = await self._next()
        assert event is not None, "the watch has ended"
        return event

    async def next_change(self) -> tuple[str, Json]:
        """The type and object of the next event that is no bookmark."""
        while (event := await self.next())["type"] == "BOOKMARK":
            pass
        return event["type"], event["object"]

    async def names(self, count: int) -> list[tuple[str, str]]:
        """The next changes, as types and names."""
        changes = [await self.next_change() for _ in range(count)]
        return [(kind, obj["metadata"]["name"]) for kind, obj in changes]

    async def rest(self) -> list[Json]:
        """Everything until the server ends the watch."""
        events = []
        while (event := await self._next()) is not None:
            events.append(event)
        return events

    async def _next(self) -> Json | None:
        while not self._lines:
            chunk = await self._stream.read(TIMEOUT)
            if not chunk:
                return None
            *lines, self._held = (self._held + chunk).split(b"\n")
            self._lines += [line for line in lines if line]
        event: Json = msgspec.json.decode(self._lines.pop(0))
        return event


@dataclass(frozen=True)
class Api:
    """One target, and a namespace in it that nobody else uses."""

    target: str
    client: KubeClient
    namespace: str
    transport: Transport
    grant: Grant
    kubeconfig: Path | None = None
    home: Path | None = None
    embedded: ApiServer | None = field(default=None, repr=False)
    plane: ControlPlane | None = field(default=None, repr=False)

    def at(self, plural: str, name: str = "", subresource: str = "", group: str = "v1") -> str:
        """The path of something in our namespace."""
        root = f"/apis/{group}" if "/" in group else f"/api/{group}"
        parts = (root, "namespaces", self.namespace, plural, name, subresource)
        return "/".join(filter(None, parts))

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Got:
        """Bytes are sent as they are, everything else as JSON."""
        answer = await self.transport.request(self._request(method, path, body, headers))
        return Got(answer.status, answer.headers, answer.body)

    def _request(
        self, method: str, path: str, body: object, headers: Mapping[str, str] | None
    ) -> Request:
        sent = b"" if body is None else body if isinstance(body, bytes) else _encoded(body)
        kind = {"content-type": "application/json"} if sent else {}
        return Request(
            method=method,
            url=self.client.access.server + path,
            headers={"user-agent": "suite", **kind, **self.grant.headers, **(headers or {})},
            body=sent,
            tls=self.grant.tls,
            timeout=TIMEOUT,
        )

    async def get(self, path: str) -> Got:
        return await self.request("GET", path)

    async def post(self, path: str, body: object) -> Got:
        return await self.request("POST", path, body)

    async def put(self, path: str, body: object) -> Got:
        return await self.request("PUT", path, body)

    async def patch(self, path: str, body: object, kind: str = MERGE) -> Got:
        return await self.request("PATCH", path, body, {"content-type": kind})

    async def delete(self, path: str, body: object = None) -> Got:
        return await self.request("DELETE", path, body)

    async def read(self, path: str) -> Json:
        """What is there; it must be."""
        got = await self.get(path)
        assert got.status == 200, got.body
        return got.json

    async def make(self, path: str, body: object) -> Json:
        """Creates; it must work."""
        got = await self.post(path, body)
        assert got.status == 201, got.body
        return got.json

    async def change(self, path: str, body: object, kind: str = MERGE) -> Json:
        """Patches; it must work."""
        got = await self.patch(path, body, kind)
        assert got.status in (200, 201), got.body
        return got.json

    @asynccontextmanager
    async def for_a_while(self, path: str, body: Json) -> AsyncIterator[str]:
        """Something outside of our namespace, which others would come across; its path."""
        await self.make(path, body)
        place = f"{path}/{body['metadata']['name']}"
        try:
            yield place
        finally:
            await self.delete(place)
            await self.patch(place, {"metadata": {"finalizers": None}})

    async def until(self, path: str, status: int) -> None:
        """Waits for what a controller does in its own time."""
        async with asyncio.timeout(TIMEOUT):
            while (await self.get(path)).status != status:  # noqa: ASYNC110 - nobody tells us
                await asyncio.sleep(0.05)

    async def names(self, path: str) -> list[str]:
        return [item["metadata"]["name"] for item in (await self.read(path))["items"]]

    async def forget(self) -> None:
        """Makes the API forget all versions but the latest, as it does every few minutes."""
        if self.embedded is not None:
            self.embedded.store.compact()
        else:
            assert self.plane is not None
            # Events are read from etcd itself, so this is its latest version.
            listed = await self.read(self.at("events"))
            await compact(self.plane, listed["metadata"]["resourceVersion"])

    @asynccontextmanager
    async def watch(self, path: str) -> AsyncIterator[Events]:
        async with self.transport.stream(self._request("GET", path, None, None)) as stream:
            assert stream.status == 200, await stream.read(TIMEOUT)
            yield Events(stream)

    async def kubectl(self, *arguments: str, stdin: str = "", fails: bool = False) -> str:
        """What kubectl prints; with ``fails`` what it complains of."""
        process = await self.start_kubectl(*arguments)
        out, err = await process.communicate(stdin.encode())
        assert (process.returncode != 0) == fails, err.decode() or out.decode()
        return (err if fails else out).decode()

    async def start_kubectl(self, *arguments: str) -> asyncio.subprocess.Process:
        assert self.kubeconfig is not None
        return await asyncio.create_subprocess_exec(
            Path(sys.executable).parent / "kubectl",
            f"--namespace={self.namespace}",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={
                "KUBECONFIG": str(self.kubeconfig),
                "HOME": str(self.home),
                "PATH": os.environ.get("PATH", ""),
            },
        )


def _encoded(body: object) -> bytes:
    return msgspec.json.encode(body)


@asynccontextmanager
async def in_memory() -> AsyncIterator[Api]:
    network = Network(grace=0.1, keeps_record=False)
    async with _embedded() as server:
        listener = await network.serve.listen(server.handle)
        try:
            yield await _api("memory", listener.url, network.transport, Grant(), embedded=server)
        finally:
            await listener.close()


@asynccontextmanager
async def over_http(home: Path) -> AsyncIterator[Api]:
    tls, ca = _identity()
    transport = AiohttpTransport()
    async with _embedded() as server:
        listener = await AiohttpServe(grace=0.1).listen(server.handle, tls=tls)
        try:
            config = _kubeconfig(home, listener.url, ca)
            grant = Grant(tls=Tls(ca=ca))
            yield await _api("http", listener.url, transport, grant, config, home, embedded=server)
        finally:
            await transport.close()
            await listener.close()


@cache
def _identity() -> tuple[ServerTls, bytes]:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    cert = b"".join(part.bytes() for part in issued.cert_chain_pems)
    tls = ServerTls(cert=cert, key=issued.private_key_pem.bytes())
    return tls, authority.cert_pem.bytes()


@asynccontextmanager
async def on_real(plane: ControlPlane) -> AsyncIterator[Api]:
    transport = AiohttpTransport()
    try:
        grant = await access(plane).grant()
        where = (plane.kubeconfig, plane.directory)
        api = await _api("real", plane.url, transport, grant, *where, plane=plane)
        try:
            yield api
        finally:
            # The namespace stays: to empty hundreds of them would keep the controllers busy that
            # other tests wait for. Pods go, because there are tests that count all of them.
            await api.delete(api.at("pods") + "?gracePeriodSeconds=0")
    finally:
        await transport.close()


@asynccontextmanager
async def _embedded() -> AsyncIterator[ApiServer]:
    """With the namespaces and the controllers that every cluster has."""
    server = ApiServer(wall=SystemClock(), rng=SystemRng())
    namespaces = server.kinds.find("", "v1", "namespaces")
    assert namespaces is not None
    for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
        server.operations.create(Target(namespaces), {"metadata": {"name": name}}, Write("suite"))
    controllers = (GarbageCollector, NamespaceController, DisruptionController)
    async with Tasks("controllers") as tasks:
        for controller in controllers:
            tasks.spawn(controller(server.operations).run(), name=controller.__name__)
        yield server


async def _api(
    target: str,
    url: str,
    transport: Transport,
    grant: Grant,
    kubeconfig: Path | None = None,
    home: Path | None = None,
    **more: Any,
) -> Api:
    client = KubeClient(transport, GivenAccess(url, grant), user_agent="suite")
    api = Api(target, client, "", transport, grant, kubeconfig, home, **more)
    made = await api.make("/api/v1/namespaces", {"metadata": {"generateName": "suite-"}})
    return Api(target, client, made["metadata"]["name"], transport, grant, kubeconfig, home, **more)


def _kubeconfig(home: Path, url: str, ca: bytes) -> Path:
    authority = home / "ca.pem"
    authority.write_bytes(ca)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "it", "cluster": {"server": url, "certificate-authority": str(authority)}}
        ],
        "users": [{"name": "me", "user": {"token": "anybody"}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
        "current-context": "it",
    }
    path = home / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path

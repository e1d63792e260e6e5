"""A large fleet behind an embedded API, over HTTPS: ``python -m bench.fleet`` with a ``Setup``.

Every node has a status as a kubelet writes it, with the images that it holds (10 KB), and a lease
that is renewed every ten seconds. The renewals are put into the store directly: kubelets are not
what is measured. It answers with one line, the port, and ends when its stdin does.
"""

import asyncio
import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from backstay.apis.definitions import definitions
from backstay.model.labels import LEASE_NAMESPACE
from backstay.seam.aiohttp_serve import AiohttpServe
from backstay.seam.serve import Inbound, ServerTls
from backstay.seam.system import SystemClock, SystemRng
from backstay.sim.api.server import ApiServer
from backstay.sim.kubevirt.definitions import install as install_kubevirt
from bench import plane
from bench.guests import NAMESPACE, guest
from bench.server import Setup

_RENEW_EVERY = 10.0
_TICK = 0.25
_IMAGES = 50
_CROWD = 200
"""VMs on the one node that is silent, if there are any."""
_STORED_LEASES = "leases.coordination.k8s.io"


def node(name: str) -> dict[str, Any]:
    made = plane.node(name)
    made["metadata"]["labels"] = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": "zone-a",
        "node.kubernetes.io/instance-type": "large",
    }
    amounts = {"cpu": "64", "memory": "263848920Ki", "pods": "250", "ephemeral-storage": "900Gi"}
    made["status"] |= {
        "capacity": amounts,
        "allocatable": amounts,
        "addresses": [{"type": "Hostname", "address": name}],
        "images": [_image(number) for number in range(_IMAGES)],
    }
    return made


def _image(number: int) -> dict[str, Any]:
    repository = f"registry.example/team-{number:02}/application-{number:02}"
    digest = f"{number:02}" * 32
    return {"names": [f"{repository}@sha256:{digest}", f"{repository}:v1"], "sizeBytes": 10**8}


async def _create(server: ApiServer, path: str, body: Mapping[str, Any]) -> str:
    """The uid that it was given."""
    headers = {"content-type": "application/json", "user-agent": "bench"}
    answer = await server.handle(
        Inbound(method="POST", path=path, headers=headers, body=msgspec.json.encode(body))
    )
    assert answer.status == 201, answer.body
    assert isinstance(answer.body, bytes)
    return str(msgspec.json.decode(answer.body)["metadata"]["uid"])


async def _furnish(server: ApiServer, names: Sequence[str]) -> None:
    for definition in definitions():
        await _create(server, plane.DEFINITIONS, definition)
    for namespace in ("default", LEASE_NAMESPACE, "backstay-system"):
        await _create(server, "/api/v1/namespaces", {"metadata": {"name": namespace}})
    for name in names:
        await _create(server, "/api/v1/nodes", node(name))
        await _create(server, plane.LEASES_PATH, plane.lease(name))


async def _invite(server: ApiServer, names: Sequence[str], guests: int) -> None:
    """Many of them onto the first node, and the others onto all the rest in turn."""
    install_kubevirt(server)
    await _create(server, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    crowded = min(_CROWD, guests // 2)
    others = itertools.cycle(names[1:])
    for number in range(guests):
        uid = ""
        for path, body in guest(number, names[0] if number < crowded else next(others)):
            for owner in body["metadata"].get("ownerReferences", ()):
                owner["uid"] = uid
            uid = await _create(server, path, body)


async def _renew_all(server: ApiServer, names: Sequence[str]) -> None:
    """A share of them at each tick, so that all have had their turn after ten seconds."""
    share = max(1, round(len(names) * _TICK / _RENEW_EVERY))
    turns = itertools.cycle(names)
    while True:
        for name in itertools.islice(turns, share):
            _renew(server, name)
        await asyncio.sleep(_TICK)


def _renew(server: ApiServer, name: str) -> None:
    store, key = server.store, (LEASE_NAMESPACE, name)
    found = store.get(_STORED_LEASES, key)
    assert found is not None
    meta = {**found.object["metadata"], "resourceVersion": str(store.next_version())}
    renewed = {**found.object, "metadata": meta, "spec": plane.lease(name)["spec"]}
    store.put(_STORED_LEASES, key, renewed)


async def _serve(setup: Setup, pem: bytes) -> None:
    server = ApiServer(wall=SystemClock(), rng=SystemRng(1))
    names = [f"node-{number:04}" for number in range(setup.nodes)]
    await _furnish(server, names)
    if setup.guests:
        await _invite(server, names, setup.guests)
    listener = await AiohttpServe().listen(server.handle, tls=ServerTls(cert=pem, key=pem))
    print(listener.url.rpartition(":")[2], flush=True)
    alive = names[1:] if setup.guests else names
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    renewing = asyncio.get_running_loop().create_task(_renew_all(server, alive))
    await ended.wait()
    renewing.cancel()
    await listener.close()


if __name__ == "__main__":
    wanted = msgspec.json.decode(sys.argv[1], type=Setup)
    asyncio.run(_serve(wanted, Path(wanted.certificate).read_bytes()))

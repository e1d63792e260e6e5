"""An embedded cluster in real time, for programs that know nothing of it."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme

from backstay.kube.access import GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.kube.errors import Forbidden
from backstay.kube.kubeconfig import parse_kubeconfig
from backstay.kube.resource import NODES
from backstay.seam import Seams
from backstay.seam.real import open_seams
from backstay.seam.serve import ServerTls
from backstay.seam.transport import Tls
from backstay.sim.api.access import User
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.cluster.ground import on_this_loop
from tests.sim.cluster.stages import FAST, play


@pytest.fixture
async def seams() -> AsyncIterator[Seams]:
    async with open_seams() as opened:
        yield opened


@pytest.fixture
async def cluster(seams: Seams) -> AsyncIterator[EmbeddedCluster]:
    async with on_this_loop(seams) as ground:
        cluster = EmbeddedCluster(ground, timers=FAST)
        cluster.add_node("n1")
        await cluster.settled()
        yield cluster


async def kubectl(kubeconfig: Path, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).parent / "kubectl",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        env={
            "KUBECONFIG": str(kubeconfig),
            "HOME": str(kubeconfig.parent),
            "PATH": os.environ.get("PATH", ""),
        },
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


async def test_kubectl_runs_a_pod_on_it(
    cluster: EmbeddedCluster, seams: Seams, tmp_path: Path
) -> None:
    async with cluster.serve(seams.serve) as served:
        config = tmp_path / "config"
        config.write_bytes(served.kubeconfig)
        await kubectl(config, "run", "web", "--image=none")
        await kubectl(config, "wait", "--for=condition=Ready", "pod/web", "--timeout=20s")
        assert cluster.truth.copies("default", "web") == ["n1"]
        nodes = await kubectl(config, "get", "nodes", "--no-headers")
        assert nodes.split()[:2] == ["n1", "Ready"]


async def test_it_is_served_over_tls_to_those_who_trust_its_authority(
    cluster: EmbeddedCluster, seams: Seams
) -> None:
    authority = trustme.CA()
    issued, ca = authority.issue_cert("127.0.0.1"), authority.cert_pem.bytes()
    cert = b"".join(part.bytes() for part in issued.cert_chain_pems)
    tls = ServerTls(cert=cert, key=issued.private_key_pem.bytes())
    async with cluster.serve(seams.serve, tls=tls, ca=ca) as served:
        config = parse_kubeconfig(served.kubeconfig, "config")
        entry = config.clusters["embedded"].value
        assert entry.server == served.url
        assert served.url.startswith("https://127.0.0.1:")
        client = KubeClient(seams.transport, GivenAccess(served.url, Grant(tls=Tls(ca=ca))))
        assert (await client.get(NODES, "n1")).json()["metadata"]["name"] == "n1"


def test_users_may_do_what_their_roles_allow() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        assert (await cluster.client().list(NODES)).json()["items"]
        with pytest.raises(Forbidden):
            await cluster.client("visitor").list(NODES)

    play(scenario, users={"visitor": User("visitor")})

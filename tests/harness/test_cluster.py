import socket

import pytest

from backstay.kube.client import KubeClient
from backstay.kube.errors import Retryable
from backstay.kube.resource import NAMESPACES
from harness.build import ensure_binaries
from harness.cluster import ControlPlane, ControlPlaneError, KubectlFailed
from harness.pki import ORDINARY

pytestmark = pytest.mark.real


async def test_the_real_kubectl_meets_a_server_of_the_version_that_was_built(
    control_plane: ControlPlane,
) -> None:
    version = await control_plane.kubectl("version")
    assert f"Server Version: {ensure_binaries().kubernetes}\n" in version


async def test_admin_may_do_everything_and_an_ordinary_user_nothing(
    control_plane: ControlPlane, namespace: str
) -> None:
    assert namespace in await control_plane.kubectl("get", "namespaces", "--output=name")
    with pytest.raises(KubectlFailed, match='User "ordinary" cannot list resource "namespaces"'):
        await control_plane.kubectl("get", "namespaces", context=ORDINARY)


async def test_a_paused_api_server_keeps_silent_and_a_resumed_one_answers_again(
    control_plane: ControlPlane, client: KubeClient, namespace: str
) -> None:
    control_plane.pause()
    try:
        with pytest.raises(Retryable):
            await client.get(NAMESPACES, namespace, timeout=0.5)
    finally:
        control_plane.resume()
    assert (await client.get(NAMESPACES, namespace)).json()["metadata"]["name"] == namespace


async def test_a_restarted_api_server_has_its_address_and_its_data(
    control_plane: ControlPlane, client: KubeClient, namespace: str
) -> None:
    url = control_plane.url
    await control_plane.restart()
    assert control_plane.url == url
    assert (await client.get(NAMESPACES, namespace)).json()["metadata"]["name"] == namespace


async def test_several_api_servers_share_one_truth_and_nothing_is_left_of_any_of_it() -> None:
    async with ControlPlane(ensure_binaries(), extra_apiservers=1) as plane:
        first, second = plane.apiservers
        await first.call("POST", "/api/v1/namespaces", {"metadata": {"name": "shared"}})
        seen = await second.call("GET", "/api/v1/namespaces/shared")
        assert seen["metadata"]["name"] == "shared"
        directory, pids = plane.directory, plane.pids
        assert sorted(pids) == [
            "etcd",
            "kube-apiserver",
            "kube-apiserver-2",
            "kube-controller-manager",
            "kube-scheduler",
        ]
    assert not directory.exists()
    assert [pid for pid in pids.values() if _exists(pid)] == []


async def test_a_part_that_dies_is_reported_with_its_last_words() -> None:
    plane = ControlPlane(ensure_binaries(), flags={"kube-apiserver": ["--no-such-flag"]})
    with pytest.raises(ControlPlaneError) as caught:
        await plane.start()
    sentence, *log = str(caught.value).splitlines()
    assert sentence == "kube-apiserver ended before it was ready. Its last words:"
    assert "no-such-flag" in "".join(log)
    assert plane.pids == {}


async def test_a_port_that_somebody_else_took_meanwhile_is_tried_again_and_then_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        flags = {"kube-apiserver": [f"--secure-port={port}"]}
        with pytest.raises(ControlPlaneError, match="ports were taken 2 times in a row"):
            await ControlPlane(ensure_binaries(), flags=flags).start(attempts=2)


def _exists(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return " Z " not in stat.read()
    except FileNotFoundError:
        return False

"""On how many nodes controllers of ours run."""

import pytest

from backstay.kube.resource import PODS
from backstay.sources.places import places
from tests.sources.conftest import CountingApi
from tests.support import piraeus

OURS, NAME = "backstay-system", "backstay-controller"


@pytest.fixture(autouse=True)
async def namespaces(api: CountingApi) -> None:
    for name in (OURS, piraeus.ACCOUNT):
        await api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


async def put(
    api: CountingApi, namespace: str, name: str, *, node: str, args: tuple[str, ...] = ()
) -> None:
    """A pod of that Deployment, which runs."""
    pod = f"{name}-on-{node}"
    await api.put({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": pod, "namespace": namespace, "labels": {"app.kubernetes.io/name": name},
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "controller", "image": "x", "args": list(args)}],
        },
    })  # fmt: skip
    running = {"status": {"phase": "Running"}}
    await api.client.merge_patch(PODS, pod, running, namespace=namespace, subresource="status")


async def test_nobody_can_tell_where_none_is_installed(api: CountingApi) -> None:
    assert await places(api.client) is None


async def test_those_in_both_namespaces_count_once_for_each_node(api: CountingApi) -> None:
    for namespace, name in ((OURS, NAME), (piraeus.ACCOUNT, piraeus.NAME)):
        for node in ("n1", "n2"):
            await put(api, namespace, name, node=node, args=("run", f"--node-name={node}"))
    assert await places(api.client) == 2


async def test_one_that_was_not_told_where_it_runs_is_no_place(api: CountingApi) -> None:
    arguments = piraeus.arguments(name="ha-1")
    for node in ("n1", "n2"):
        await put(api, piraeus.ACCOUNT, piraeus.NAME, node=node, args=arguments)
    assert await places(api.client) == 0

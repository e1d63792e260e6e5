"""``backstay confirm-dead`` in front of a real API server, by one who may nothing else."""

from typing import Any

import pytest

from backstay.apis.backstay import CONFIRMATIONS
from backstay.kube.client import KubeClient
from backstay.kube.resource import NODES
from harness.connect import FAST_PACE, hollow_nodes, until
from tests.support.installed import Installed
from tests.support.small_cluster import run

pytestmark = pytest.mark.real

CONFIRM = ("confirm-dead", "h1", "--watch", "3", "--yes=h1")


async def test_a_node_is_believed_alive_until_it_falls_silent(
    installed: Installed, client: KubeClient
) -> None:
    path = installed.kubeconfig("confirmer")
    async with hollow_nodes(client, pace=FAST_PACE) as fleet:
        fleet.add("h1", "h2")
        await until(client, NODES, lambda nodes: is_ready(nodes, "h1", "True"))
        said = await run(path, *CONFIRM)
        assert said.code == 1
        assert "h1 is alive: its kubelet renewed its lease" in said.err
        fleet["h1"].kill()
        await until(client, NODES, lambda nodes: is_ready(nodes, "h1", "Unknown"))
        said = await run(path, *CONFIRM)
        assert said.code == 0, said.err
        spec = (await client.get(CONFIRMATIONS, "h1")).json()["spec"]
        node = (await client.get(NODES, "h1")).json()
        said = await run(path, "confirm-dead", "h1", "--withdraw")
        assert said.code == 0, said.err
    assert spec["bootID"] == node["status"]["nodeInfo"]["bootID"]
    assert (spec["nodeUID"], spec["by"]) == (node["metadata"]["uid"], "carla")


def is_ready(nodes: list[dict[str, Any]], name: str, status: str) -> bool:
    return any(
        condition["status"] == status
        for node in nodes
        if node["metadata"]["name"] == name
        for condition in node["status"].get("conditions", ())
        if condition["type"] == "Ready"
    )

"""``readiness`` and ``explain`` in front of a real API server, with what real controllers made."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from backstay.apis.apps import STATEFUL_SETS
from backstay.apis.storage import CLAIMS, VOLUMES
from backstay.kube.client import KubeClient
from backstay.kube.resource import LEASES, NODES, PODS
from harness.cluster import ControlPlane
from harness.connect import until
from tests.support import objects as some
from tests.support.furnished import anew, past
from tests.support.small_cluster import run

pytestmark = pytest.mark.real

Json = dict[str, Any]


@pytest.fixture
async def node(client: KubeClient, namespace: str) -> AsyncIterator[str]:
    """A node that nobody runs: it has not been heard of for five minutes."""
    name = f"{namespace}-n1"
    await client.create(NODES, {"metadata": {"name": name}})
    lease = {"metadata": {"name": name}, "spec": {"renewTime": past(300), "holderIdentity": name}}
    await client.create(LEASES, lease, namespace="kube-node-lease")
    yield name
    # The pod goes with it: no kubelet will ever say that it has ended.
    await client.delete(PODS, "db-0", namespace=namespace, conditions={"grace": 0})
    await client.delete(NODES, name)
    await client.delete(LEASES, name, namespace="kube-node-lease")


async def make_set(client: KubeClient, namespace: str, node: str) -> None:
    """A StatefulSet of one pod with one volume, put on the node by hand."""
    volume = anew(some.volume(f"pv-{namespace}"))
    claim = anew(some.claim("data", volume=f"pv-{namespace}"))
    await client.create(VOLUMES, volume)
    await client.create(CLAIMS, {**claim, "metadata": {"name": "data"}}, namespace=namespace)
    wanted = anew(some.stateful_set("db", replicas=1))
    wanted["metadata"]["namespace"] = namespace
    wanted["spec"]["template"]["spec"] |= {
        "nodeName": node,
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    }
    await client.create(STATEFUL_SETS, wanted, namespace=namespace)
    await until(client, PODS, lambda pods: len(pods) == 1, namespace=namespace)


async def test_a_pod_of_a_real_stateful_set_is_told_in_both_ways(
    control_plane: ControlPlane, client: KubeClient, namespace: str, node: str
) -> None:
    await make_set(client, namespace, node)
    said = await run(control_plane.kubeconfig, "readiness", f"node/{node}", "-o", "json")
    assert said.code == 0, said.err
    [judged] = json.loads(said.out)["nodes"]
    [line] = judged["workloads"]
    assert (judged["state"], line["ending"]) == ("Lost", "Recovers")
    assert line["volumes"] == ["data (rbd.csi.ceph.com, RWO)"]
    said = await run(control_plane.kubeconfig, "explain", f"pod/{namespace}/db-0", "-o", "json")
    assert said.code == 2, said.err
    [answer] = json.loads(said.out)["answers"]
    # Other tests may have left most nodes of this control plane silent.
    assert answer["code"] in ("ProofMissing", "StaleView")
    await client.delete(VOLUMES, f"pv-{namespace}")


async def test_who_may_not_look_is_told_what_is_missing(control_plane: ControlPlane) -> None:
    for command in (("status",), ("readiness",), ("explain", "node/n1")):
        said = await run(control_plane.kubeconfig, *command, "--context", "ordinary")
        assert said.code == 1
        assert 'cannot list resource "nodes"' in said.err

"""An API that was restored from a backup: what people see of it, and how they accept it."""

import json
from datetime import UTC, datetime

from backstay.model.labels import ARMED, ROLLED_BACK
from tests.support.small_cluster import Json, SmallCluster

QUESTION = "Arm Backstay? [y/N]: "
WENT_BACK = '{"highest":"900","found":"100","armed":"monday"}'


async def rolled_back(cluster: SmallCluster, remark: str = WENT_BACK) -> None:
    """Armed on monday, and a leader that has seen the version of the API go back."""
    await cluster.node("n1", ready="True")
    await cluster.put({
        "apiVersion": "backstay.dev/v1alpha1", "kind": "BackstayConfig",
        "metadata": {"name": "cluster", "annotations": {ARMED: "monday"}},
        "spec": {"mode": "Armed"},
    })  # fmt: skip
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    await cluster.put({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": "backstay-controller", "namespace": "backstay-system",
            "annotations": {ROLLED_BACK: remark},
        },
        "spec": {"holderIdentity": "b-1", "renewTime": now, "leaseDurationSeconds": 15},
    })  # fmt: skip


def stamp(cluster: SmallCluster) -> str:
    (config,) = cluster.storage("backstayconfigs.backstay.dev")
    meta: Json = config["metadata"]
    return str(meta["annotations"][ARMED])


async def test_the_status_says_so_and_what_to_do(cluster: SmallCluster) -> None:
    await rolled_back(cluster)
    said = await cluster.run("viewer", "status", "-o", "json")
    status = json.loads(said.out)
    assert status["mode"] == "Disarmed"
    assert "was rolled back (its version was 900 before, and then 100)" in status["mode_sentence"]
    assert status["next"][0] == "backstay arm"


async def test_arming_again_asks_and_leaves_another_stamp(cluster: SmallCluster) -> None:
    await rolled_back(cluster)
    said = await cluster.at_terminal("operator", "arm", answers=[(QUESTION, "y\n")])
    assert said.code == 0, said.out
    assert "Arming accepts the API as it is now" in " ".join(said.out.split())
    assert stamp(cluster) != "monday"


async def test_what_cannot_be_read_on_the_lease_is_left_alone(cluster: SmallCluster) -> None:
    await rolled_back(cluster, remark="gibberish")
    said = await cluster.run("operator", "arm")
    assert said.code == 0, said.err
    assert "armed already" in said.out
    assert stamp(cluster) == "monday"

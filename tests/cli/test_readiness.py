"""``backstay readiness``: what would happen, to whom, and what would make it better."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backstay.seam.real import open_seams
from backstay.sim.linstor.served import Lab, serving
from tests.support import objects as some
from tests.support.furnished import Furnished
from tests.support.small_cluster import SmallCluster, small_cluster


@pytest.fixture
async def furnished(cluster: SmallCluster) -> Furnished:
    """Two healthy nodes, of which the first has a guest of each sort."""
    made = Furnished(cluster)
    await made.begin()
    await made.node("n1")
    await made.node("n2")
    local = some.volume("pv-disk", source={"local": {"path": "/d"}},
                        affinity=[some.term("kubernetes.io/hostname", "n1")])  # fmt: skip
    await made.machine("web", claims=[some.claim("root")], volumes=[some.volume("pv-root")])
    await made.machine("mail", strategy="Manual")
    await made.machine("old", claims=[some.claim("disk")], volumes=[local])
    await made.pod(some.pod("job-1", owners=some.owned_by("Job", "job")))
    return made


async def test_every_node_has_a_line(furnished: Furnished) -> None:
    said = await furnished.cluster.run("viewer", "readiness")
    assert said.code == 0, said.err
    lines = {line.split()[0]: line for line in said.out.splitlines() if line.startswith("n")}
    assert lines["n1"].split()[1:3] == ["3", "1"]
    assert "1 bound to the node, 1 not started again" in lines["n1"]
    assert lines["n2"].split()[1:3] == ["0", "0"]
    assert "NEXT: backstay readiness node/n1" in said.out
    assert max(map(len, said.out.splitlines())) <= 80


async def test_a_node_is_told_workload_by_workload(furnished: Furnished) -> None:
    docker = {"status": {"nodeInfo": {"containerRuntimeVersion": "docker://24.0.7"}}}
    await furnished.cluster.change("/api/v1/nodes/n1/status", docker)
    said = await furnished.cluster.run("viewer", "readiness", "node/n1")
    assert said.code == 0, said.err
    assert "VM shop/web   recovers once the death is confirmed" in said.out
    assert "root (rbd.csi.ceph.com, RWO)" in said.out
    assert "notices it within a minute" in " ".join(said.out.split())
    assert "VM shop/mail   STAYS DOWN" in said.out
    assert 'kubectl patch vm mail -n shop --type merge -p \'{"spec"' in said.out
    assert "VM shop/old   IS HELD" in said.out
    assert "move disk to storage that other nodes can reach" in said.out
    assert "LEFT ALONE (1)" in said.out
    assert "runs its containers with docker://24.0.7" in " ".join(said.out.split())


def told(**reports: dict[str, str]) -> dict[str, object]:
    """A lease in which a controller says how the BMCs of nodes are."""
    said = {"backstay.dev/devices": json.dumps(reports)}
    about = {"name": "backstay-devices", "namespace": "backstay-system", "annotations": said}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": about}


async def test_a_working_bmc_is_proof_and_one_that_is_anothers_is_named(
    furnished: Furnished,
) -> None:
    cluster = furnished.cluster
    spec = {"mode": "Observe", "fencing": {"power": {"enabled": True}}}
    config = {"apiVersion": "backstay.dev/v1alpha1", "kind": "BackstayConfig"}
    await cluster.put({**config, "metadata": {"name": "cluster"}, "spec": spec})
    wrong = {"code": "WrongDevice", "sentence": "the BMC of n2 is that of another machine."}
    await cluster.put(told(n1={}, n2=wrong))
    said = await cluster.run("viewer", "readiness", "node/n1")
    assert said.code == 0, said.err
    words = " ".join(said.out.split())
    assert "VM shop/web recovers by itself" in words
    assert "The BMC of n1 would switch it off, and show within 10 s or so that it is." in words
    assert "without anybody's word, on that of its BMC." in words
    every = " ".join((await cluster.run("viewer", "readiness")).out.split())
    assert "the BMC of n2 is that of another machine. (WrongDevice)" in every
    doctor = json.loads((await cluster.run("viewer", "doctor", "--output", "json")).out)
    [power] = [check for check in doctor if check["check"] == "power"]
    assert power["result"] == "warning"
    assert power["detail"].startswith("1 of 2 BMCs cannot be used: the BMC of n2")


async def test_linstor_is_asked_what_drbd_would_prove(furnished: Furnished) -> None:
    """If the environment says where it is: of two machines one has a tie-breaker."""
    driver = {"driver": "linstor.csi.linbit.com"}
    for name in ("safe", "lone"):
        source = {"csi": {**driver, "volumeHandle": f"res-{name}"}}
        volume = some.volume(f"pv-{name}", source=source)
        await furnished.machine(name, claims=[some.claim(name)], volumes=[volume])
    lab = Lab("n1", "n2", "n3")
    lab.define("res-safe")
    lab.define("res-lone", quorum="off")
    async with open_seams() as seams, serving(seams.serve, lab.controller()) as linstor:
        online = linstor.controller.is_online
        while not all(map(online, lab.database.nodes)):  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
        environment = {"LS_CONTROLLERS": linstor.url}
        said = await furnished.cluster.run(
            "viewer", "readiness", "node/n1", environment=environment
        )
        lab.close()
    assert said.code == 0, said.err
    words = " ".join(said.out.split())
    assert "is 5 workloads, of which 1 would recover without anybody's word" in words
    assert "VM shop/safe recovers by itself" in words
    assert "DRBD shows within 55 s or so that n1 cannot write" in words
    assert "VM shop/lone recovers once the death is confirmed" in words
    assert "its volume lone: its DRBD quorum is off" in words


async def test_a_program_gets_the_same_as_data(furnished: Furnished) -> None:
    said = await furnished.cluster.run("viewer", "readiness", "n1", "-o", "json")
    [node] = json.loads(said.out)["nodes"]
    endings = {each["workload"]: each["ending"] for each in node["workloads"]}
    assert endings == {
        "VM shop/web": "Recovers", "VM shop/mail": "StaysDown", "VM shop/old": "Held",
        "pod shop/job-1": "Left",
    }  # fmt: skip
    assert (node["recover"], node["stay_down"], node["held"], node["left"]) == (1, 1, 1, 1)


async def test_a_node_that_there_is_not_is_met_with_near_names(furnished: Furnished) -> None:
    said = await furnished.cluster.run("viewer", "readiness", "node/n11")
    assert (said.code, said.out) == (1, "")
    assert said.err == "Error: There is no node n11. Did you mean n1?\n"


@pytest.fixture
async def bare(tmp_path: Path) -> AsyncIterator[Furnished]:
    async with small_cluster(tmp_path, with_kinds=False) as cluster:
        made = Furnished(cluster)
        await made.begin(kubevirt=False)
        yield made


async def test_it_is_worth_having_where_nothing_is_installed(bare: Furnished) -> None:
    await bare.node("n1")
    await bare.stateful_pod("db")
    said = await bare.cluster.run("admin", "readiness")
    assert said.code == 0, said.err
    assert "Then 1 of 1 workload would recover." in said.out


async def test_a_cluster_with_nothing_to_protect_is_told_so(bare: Furnished) -> None:
    await bare.node("n1")
    said = await bare.cluster.run("admin", "readiness")
    assert "nothing here that Backstay protects" in said.out

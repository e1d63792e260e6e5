"""``backstay status``: what a person reads at night, and what a script learns from it."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support import objects as some
from tests.support.furnished import Furnished
from tests.support.small_cluster import Json, SmallCluster, run, small_cluster


@pytest.fixture
async def furnished(cluster: SmallCluster) -> Furnished:
    """Two nodes of which none is silent."""
    made = Furnished(cluster)
    await made.begin()
    for name in ("n2", "n3"):
        await made.node(name)
    return made


@pytest.fixture
async def bare(tmp_path: Path) -> AsyncIterator[Furnished]:
    """Without our kinds and without KubeVirt."""
    async with small_cluster(tmp_path, with_kinds=False) as cluster:
        made = Furnished(cluster)
        await made.begin(kubevirt=False)
        yield made


async def make_web(furnished: Furnished) -> None:
    """A VM on n1, with a disk that any node could use."""
    await furnished.machine("web", claims=[some.claim("root")], volumes=[some.volume("pv-root")])


async def test_when_all_is_well_it_says_so_in_a_few_lines(furnished: Furnished) -> None:
    said = await furnished.cluster.run("viewer", "status")
    assert said.code == 0, said.err
    assert "2 nodes, 2 healthy" in said.out
    assert "Nothing is down." in said.out
    assert "NEXT" not in said.out


async def test_what_is_held_is_named_with_its_reason_and_the_way_on(furnished: Furnished) -> None:
    await furnished.node("n1", silent=100)
    await make_web(furnished)
    said = await furnished.cluster.run("viewer", "status")
    assert said.code == 2, said.err
    assert "HELD ON n1 (1)" in said.out
    assert "VM shop/web is held" in said.out
    assert "NEXT: make sure that n1 is off, then: backstay confirm-dead n1" in said.out
    assert max(map(len, said.out.splitlines())) <= 80


async def test_many_held_for_one_reason_do_not_hide_the_one_that_differs(
    furnished: Furnished,
) -> None:
    await furnished.node("n1", silent=100)
    for number in range(9):
        await furnished.stateful_pod(f"db{number}")
    await furnished.machine("web", devices={"gpus": [{"name": "g", "deviceName": "A100"}]})
    said = await furnished.cluster.run("viewer", "status")
    assert "HELD ON n1 (10)" in said.out
    assert said.out.count("is held") == 5
    assert "and 4 more for the same reason, ProofMissing" in said.out
    assert "VM shop/web cannot run on another node" in said.out
    assert "all of them: backstay explain node/n1" in said.out


async def test_where_nobody_acts_the_first_step_is_to_change_that(furnished: Furnished) -> None:
    await furnished.node("n1", silent=100)
    await make_web(furnished)
    said = await furnished.cluster.run("viewer", "status", "-o", "json")
    assert json.loads(said.out)["next"][0] == "kubectl get pods -n backstay-system"


async def test_a_confirmed_death_is_held_by_observing_only(furnished: Furnished) -> None:
    node = await furnished.node("n1", silent=100)
    await make_web(furnished)
    await furnished.confirmation(node)
    said = await furnished.cluster.run("viewer", "status", "-o", "json")
    assert said.code == 2
    [unwell] = json.loads(said.out)["unwell"]
    assert [held["code"] for held in unwell["held"]] == ["Observing"]
    assert json.loads(said.out)["next"][-1] == "backstay arm"


async def test_what_is_ready_to_go_is_not_held(furnished: Furnished) -> None:
    node = await furnished.node("n1", silent=100)
    await make_web(furnished)
    await furnished.confirmation(node)
    await furnished.config(mode="Armed")
    said = await furnished.cluster.run("viewer", "status")
    assert said.code == 0
    assert "1 moving" in said.out
    assert "Backstay is armed" in said.out


async def test_a_living_controllers_own_account_is_shown(furnished: Furnished) -> None:
    node = await furnished.node("n1", silent=100)
    await make_web(furnished)
    await furnished.leader("backstay-0")
    told = {
        "workload": "VirtualMachine/shop/web", "progress": "Held", "code": "ProofMissing",
        "sentence": "As the controller tells it.", "next": "do as it says",
    }  # fmt: skip
    await furnished.incident(
        node, state="Lost", code="NodeLost", sentence="n1 is lost, it says.", workloads=[told]
    )
    said = await furnished.cluster.run("viewer", "status")
    assert said.code == 2
    assert "backstay-0 leads" in said.out
    assert "As the controller tells it." in said.out
    assert "n1 is lost, it says." in said.out
    assert "NEXT: do as it says" in said.out


async def test_what_the_controller_has_trouble_with_is_shown_while_it_lives(
    furnished: Furnished,
) -> None:
    await furnished.node("n1")
    notes = {"backstay.dev/notes": '["LINSTOR\'s events are not heard."]'}
    await furnished.leader("backstay-0", annotations=notes)
    said = await furnished.cluster.run("viewer", "status")
    assert said.code == 0, "nothing is held because of it"
    assert "NOTE\n  - LINSTOR's events are not heard." in said.out
    past = {"spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}}
    path = "/apis/coordination.k8s.io/v1/namespaces/backstay-system/leases/backstay-controller"
    await furnished.cluster.change(path, past)
    said = await furnished.cluster.run("viewer", "status")
    assert "LINSTOR" not in said.out


BUDGET = {
    "pod": "shop/db-0", "code": "BudgetExhausted", "next": "kubectl describe pdb db -n shop",
    "sentence": "shop/db-0 may not go yet: its disruption budget shop/db allows none at present.",
}  # fmt: skip
EVACUATION = {
    "pod": "shop/virt-launcher-web-abcde", "code": "EvacuationSlow",
    "next": "kubectl get vmim -n shop",
    "sentence": "VM shop/web has been asked to leave n2 for 90 s: its migration is Scheduling.",
}  # fmt: skip
BLOCKED: Json = {
    "phase": "Running", "pendingPods": ["db-0", "virt-launcher-web-abcde"], "totalpods": 5,
    "code": "DrainBlocked", "next": "kubectl get nodemaintenance maintain-n2 -o yaml",
    "sentence": "2 of 5 pods still have to leave n2; 2 cannot yet: "
    + BUDGET["sentence"].rstrip(".") + ".",
    "blockers": [BUDGET, EVACUATION],
}  # fmt: skip


def words_of(out: str) -> str:
    """On one line, without how old a maintenance is, which depends on this machine's pace."""
    return re.sub(r"(Running|Waiting|Succeeded|Failed) \d+ s ", r"\1 ", " ".join(out.split()))


async def test_what_is_in_the_way_of_a_maintenance_is_told_with_the_way_on(
    furnished: Furnished,
) -> None:
    await furnished.leader("backstay-0")
    await furnished.maintenance("n2", **BLOCKED)
    await furnished.maintenance("n3", phase="Succeeded", code="Drained", sentence="It may go down.")
    said = await furnished.cluster.run("viewer", "status")
    assert said.code == 0, "nothing is held because of it"
    words = words_of(said.out)
    assert "n2 Running 2 of 5 pods still have to leave n2; 2 cannot yet: shop/db-0" in words
    assert "(new disks)" in words
    assert "n3 Succeeded It may go down." in words
    assert "IN THE WAY ON n2 (2) - shop/db-0 may not go yet" in words
    assert "- VM shop/web has been asked to leave n2 for 90 s" in words
    steps = [line for line in said.out.splitlines() if line.startswith("NEXT")]
    assert steps == [f"NEXT: {each['next']}" for each in (BUDGET, EVACUATION)]
    assert "Could not be read" not in said.out
    assert max(map(len, said.out.splitlines())) <= 80


async def test_one_thing_in_the_way_is_said_once(furnished: Furnished) -> None:
    notes = json.dumps([BLOCKED["sentence"], "Something else."])
    await furnished.leader("backstay-0", annotations={"backstay.dev/notes": notes})
    await furnished.maintenance("n2", **(BLOCKED | {"blockers": [BUDGET]}))
    said = await furnished.cluster.run("viewer", "status")
    assert words_of(said.out).count("shop/db-0 may not go yet") == 1
    assert "IN THE WAY" not in said.out
    assert "NOTE\n  - Something else." in said.out


async def test_a_maintenance_that_nobody_serves_has_somebody_look_for_the_controller(
    furnished: Furnished,
) -> None:
    await furnished.maintenance("n2")
    said = await furnished.cluster.run("viewer", "status")
    assert said.code == 0, said.err
    words = words_of(said.out)
    assert "n2 Waiting Nobody has taken it on yet: n2 takes new pods. (new disks)" in words
    assert "NEXT: kubectl get pods -n backstay-system" in said.out


async def test_a_maintenance_of_the_node_maintenance_operator_is_counted(
    furnished: Furnished,
) -> None:
    """It writes numbers and no sentences; and our controller is not to be looked for."""
    await furnished.config(mode="Armed", owners={"maintenance": "Foreign"})
    await furnished.maintenance("n2", phase="Running", pendingPods=["a", "b"], totalpods=7)
    await furnished.maintenance("n3", reason="", phase="Failed", lastError="no such node")
    said = await furnished.cluster.run("viewer", "status")
    words = words_of(said.out)
    assert "n2 Running 2 of 7 pods still have to leave n2. (new disks)" in words
    assert "n3 Failed no such node." in words
    assert "NEXT" not in said.out


async def test_a_dead_controllers_account_is_not_believed(furnished: Furnished) -> None:
    node = await furnished.node("n1", silent=100)
    await make_web(furnished)
    await furnished.leader("backstay-0", silent=300)
    await furnished.incident(node, state="Recovered", code="x", sentence="All is well.")
    said = await furnished.cluster.run("viewer", "status")
    assert said.code == 2
    assert "NO CONTROLLER: the last one, backstay-0, was heard of 5 min ago." in said.out
    assert "VM shop/web is held" in said.out
    assert "All is well." not in said.out


async def test_a_node_that_is_alive_but_not_ready_is_shown_and_nothing_is_held(
    furnished: Furnished,
) -> None:
    await furnished.node("n1", ready="False")
    await make_web(furnished)
    said = await furnished.cluster.run("viewer", "status")
    assert said.code == 0
    assert "NotReady" in said.out
    assert "NEXT: kubectl describe node n1" in said.out


async def test_most_nodes_silent_is_blindness(furnished: Furnished) -> None:
    for name in ("n1", "n4", "n5"):
        await furnished.node(name, silent=100)
    await make_web(furnished)
    said = await furnished.cluster.run("viewer", "status")
    assert said.code == 3
    assert "BLIND: 3 of 5 nodes seem silent." in said.out
    assert "NEXT: backstay doctor" in said.out


async def test_without_our_kinds_it_still_answers(bare: Furnished) -> None:
    await bare.node("n1", silent=100)
    await bare.node("n2")
    await bare.stateful_pod("db")
    said = await bare.cluster.run("admin", "status")
    assert said.code == 2, said.err
    assert "Backstay is not installed here" in said.out
    assert "NEXT: backstay manifests | kubectl apply -f -" in said.out
    assert "KubeVirt: not installed" in said.out


async def test_who_may_not_look_is_told_what_is_missing(furnished: Furnished) -> None:
    said = await furnished.cluster.run("stranger", "status")
    assert said.code == 1
    assert 'cannot list resource "nodes"' in said.err
    assert said.err.count("\n") == 1


async def test_an_api_out_of_reach_is_blindness_in_one_sentence(furnished: Furnished) -> None:
    config = furnished.cluster.kubeconfig("viewer")
    text = config.read_text().replace(furnished.cluster.url, "https://127.0.0.1:1")
    config.write_text(text)
    said = await run(config, "status")
    assert said.code == 3
    assert said.err.startswith("Error: ")
    assert "Traceback" not in said.err


async def test_what_others_wrote_cannot_command_the_terminal(furnished: Furnished) -> None:
    node = await furnished.node("n1", silent=100)
    await furnished.leader("backstay-0")
    await furnished.incident(node, state="Lost", code="x", sentence="\x1b[2Jnothing to see")
    said = await furnished.cluster.run("viewer", "status")
    assert "\x1b" not in said.out
    assert "nothing to see" in said.out

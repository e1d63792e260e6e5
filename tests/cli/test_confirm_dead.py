"""``backstay confirm-dead``: what it says, what it refuses, and what it writes."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from backstay.model.labels import HEARTBEAT
from tests.support.small_cluster import Json, SmallCluster, small_cluster

CONFIRMATIONS = "deathconfirmations.backstay.dev"
# The leases of these nodes last 4 s: a living kubelet renews within 1.2 s.
WATCH = ("--watch", "1.5")
RENEWED = "2030-01-01T00:00:00.000000Z"
QUESTION = "If n1 is off, type its name: "


def confirmations(cluster: SmallCluster) -> list[Json]:
    return [dict(each["spec"]) for each in cluster.storage(CONFIRMATIONS)]


def posted_at(time: str) -> Json:
    """What a kubelet changes in its node's status when nothing else has changed."""
    ready = {"type": "Ready", "status": "Unknown", "lastHeartbeatTime": time}
    return {"status": {"conditions": [ready]}}


async def confirmed(cluster: SmallCluster, node: Json, **spec: Any) -> None:
    name = node["metadata"]["name"]
    given = {
        "node": name, "nodeUID": node["metadata"]["uid"], "bootID": f"boot-of-{name}",
        "lastRenewal": RENEWED, "lastHeartbeat": "",
    }  # fmt: skip
    await cluster.put({
        "apiVersion": "backstay.dev/v1alpha1", "kind": "DeathConfirmation",
        "metadata": {"name": name}, "spec": given | {"by": "carla", "reason": "seen"} | spec,
    })  # fmt: skip


async def test_a_silent_node_is_confirmed_in_ones_own_name(cluster: SmallCluster) -> None:
    node = await cluster.node("n1")
    await cluster.node("n2", ready="True")
    async with cluster.alive("n2"):
        said = await cluster.run(
            "confirmer", "confirm-dead", "n1", *WATCH, "--yes=n1", "--reason", "pulled the plug"
        )
    assert said.code == 0, said.err
    assert confirmations(cluster) == [
        {
            "node": "n1", "nodeUID": node["metadata"]["uid"], "bootID": "boot-of-n1",
            "by": "carla", "reason": "pulled the plug",
            "lastRenewal": RENEWED, "lastHeartbeat": "", "lastStatus": "",
        }
    ]  # fmt: skip
    assert cluster.names(CONFIRMATIONS) == ["n1"]
    assert "Unreachable is not off" in said.err
    assert "1 of 1 renewed their lease" in said.err
    assert "not renewed within" in said.err
    assert "NEXT: backstay status" in said.err


async def test_the_result_for_programs_is_alone_on_standard_output(cluster: SmallCluster) -> None:
    await cluster.node("n1")
    arguments = ("confirm-dead", "n1", "--watch", "0", "--yes=n1", "-o", "json")
    said = await cluster.run("confirmer", *arguments)
    (outcome,) = json.loads(said.out)
    assert (outcome["node"], outcome["result"]) == ("n1", "confirmed dead")


async def test_a_kubelet_that_renews_its_lease_is_alive(cluster: SmallCluster) -> None:
    await cluster.node("n1")
    async with cluster.alive("n1"):
        said = await cluster.run("confirmer", "confirm-dead", "n1", *WATCH, "--yes=n1")
    assert said.code == 1
    assert "n1 is alive: its kubelet renewed its lease. Nothing was written." in said.err
    assert confirmations(cluster) == []


async def test_a_virt_handler_that_sends_a_heartbeat_is_alive(cluster: SmallCluster) -> None:
    await cluster.node("n1", annotations={HEARTBEAT: "2030-01-01T00:00:00Z"})

    async def beat() -> None:
        patch = {"metadata": {"annotations": {HEARTBEAT: "2030-01-01T00:01:00Z"}}}
        await cluster.change("/api/v1/nodes/n1", patch)

    # The first of these asks who we are, and comes after the first look at the node.
    cluster.just_before("POST", beat)
    said = await cluster.run("confirmer", "confirm-dead", "n1", *WATCH, "--yes=n1")
    assert said.code == 1
    assert "its virt-handler sent a heartbeat" in said.err
    assert confirmations(cluster) == []


async def test_a_kubelet_that_posts_its_status_is_alive(cluster: SmallCluster) -> None:
    await cluster.node("n1")

    async def post() -> None:
        await cluster.change("/api/v1/nodes/n1/status", posted_at("2030-01-01T00:01:00Z"))

    cluster.just_before("POST", post)
    said = await cluster.run("confirmer", "confirm-dead", "n1", *WATCH, "--yes=n1")
    assert said.code == 1
    assert "n1 is alive: its kubelet posted its status. Nothing was written." in said.err
    assert confirmations(cluster) == []


async def test_a_confirmation_names_the_last_signs_of_life(cluster: SmallCluster) -> None:
    await cluster.node("n1", annotations={HEARTBEAT: "2030-01-01T00:00:05Z"})
    await cluster.change("/api/v1/nodes/n1/status", posted_at("2030-01-01T00:00:09Z"))
    said = await cluster.run("confirmer", "confirm-dead", "n1", "--watch", "0", "--yes=n1")
    assert said.code == 0, said.err
    (spec,) = confirmations(cluster)
    signs = [spec[sign] for sign in ("lastRenewal", "lastHeartbeat", "lastStatus")]
    assert signs == [RENEWED, "2030-01-01T00:00:05Z", "2030-01-01T00:00:09Z"]


@pytest.mark.parametrize("ready", ["True", "False"])
async def test_a_node_that_was_heard_of_not_long_ago_must_be_watched(
    cluster: SmallCluster, ready: str
) -> None:
    await cluster.node("n1", ready=ready)
    said = await cluster.run("confirmer", "confirm-dead", "n1", "--watch", "0", "--yes=n1")
    assert said.code == 1
    assert f"(Ready is {ready})" in said.err
    assert "--watch 1 or more" in said.err
    assert confirmations(cluster) == []


async def test_a_node_that_was_ready_can_be_confirmed_after_a_missed_renewal(
    cluster: SmallCluster,
) -> None:
    await cluster.node("n1", ready="True")
    said = await cluster.run("confirmer", "confirm-dead", "n1", *WATCH, "--yes=n1")
    assert said.code == 0, said.err
    assert len(confirmations(cluster)) == 1


async def test_where_no_other_node_moves_our_view_is_not_trusted(cluster: SmallCluster) -> None:
    await cluster.node("n1")
    await cluster.node("n2")
    said = await cluster.run("confirmer", "confirm-dead", "n1", *WATCH, "--yes=n1")
    assert said.code == 3
    assert "No other node renewed its lease while we watched" in said.err
    assert confirmations(cluster) == []


async def test_nodes_that_are_confirmed_together_need_not_vouch_for_each_other(
    cluster: SmallCluster,
) -> None:
    await cluster.node("n1")
    await cluster.node("n2")
    said = await cluster.run(
        "confirmer", "confirm-dead", "n1", "n2", *WATCH, "--yes=n1", "--yes=n2"
    )
    assert said.code == 0, said.err
    assert cluster.names(CONFIRMATIONS) == ["n1", "n2"]


async def test_one_living_node_among_several_keeps_all_from_being_written(
    cluster: SmallCluster,
) -> None:
    await cluster.node("n1")
    await cluster.node("n2")
    async with cluster.alive("n2"):
        said = await cluster.run(
            "confirmer", "confirm-dead", "n1", "n2", *WATCH, "--yes=n1", "--yes=n2"
        )
    assert said.code == 1
    assert confirmations(cluster) == []


async def test_an_unknown_node_is_met_with_names_like_it(cluster: SmallCluster) -> None:
    await cluster.node("worker-1")
    said = await cluster.run("confirmer", "confirm-dead", "worker1", "--yes=worker1")
    assert said.code == 1
    assert "There is no node 'worker1' in this cluster. Did you mean worker-1?" in said.err


async def test_a_node_without_a_lease_must_be_known_to_be_silent(cluster: SmallCluster) -> None:
    await cluster.node("n1", ready="True")
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    await cluster.call("DELETE", f"{leases}/n1")
    said = await cluster.run("confirmer", "confirm-dead", "n1", *WATCH, "--yes=n1")
    assert said.code == 1
    assert "it has no lease that could be watched" in said.err


async def test_without_a_terminal_the_name_must_stand_on_the_command_line(
    cluster: SmallCluster,
) -> None:
    await cluster.node("n1")
    said = await cluster.run("confirmer", "confirm-dead", "n1")
    assert said.code == 1
    assert "NEXT: backstay confirm-dead n1 --yes=n1" in said.err


async def test_yes_for_another_node_is_no_yes(cluster: SmallCluster) -> None:
    await cluster.node("n1")
    said = await cluster.run("confirmer", "confirm-dead", "n1", "--yes=n2")
    assert said.code == 1
    assert "--yes must name what is confirmed (n1)" in said.err


@pytest.mark.parametrize("role", ["viewer", "operator"])
async def test_who_is_no_confirmer_is_told_what_is_missing_before_any_wait(
    cluster: SmallCluster, role: str
) -> None:
    await cluster.node("n1")
    said = await cluster.run(role, "confirm-dead", "n1", "--yes=n1")
    assert said.code == 1
    assert 'cannot create resource "deathconfirmations"' in said.err
    assert "Looking for signs of life" not in said.err
    assert said.err.count("Traceback") == 0
    assert confirmations(cluster) == []


async def test_on_a_cluster_without_our_kinds_it_says_how_to_install_them(tmp_path: Path) -> None:
    async with small_cluster(tmp_path, with_kinds=False) as cluster:
        await cluster.node("n1")
        said = await cluster.run("admin", "confirm-dead", "n1", "--watch", "0", "--yes=n1")
    assert said.code == 1
    assert "NEXT: backstay crds | kubectl apply -f -" in said.err


async def test_one_that_is_there_for_the_same_boot_is_fine(cluster: SmallCluster) -> None:
    await confirmed(cluster, await cluster.node("n1"), by="ann")
    said = await cluster.run("confirmer", "confirm-dead", "n1", "--watch", "0", "--yes=n1")
    assert said.code == 0
    assert "(not watched)" in said.err
    assert "already confirmed" in said.out
    assert "by ann" in said.out
    assert [spec["by"] for spec in confirmations(cluster)] == ["ann"]


@pytest.mark.parametrize(
    "status", [{"refuted": "its kubelet port answered"}, {"lapsedAt": "2026-11-16T12:00:00Z"}]
)
async def test_one_that_was_refuted_or_has_lapsed_is_replaced(
    cluster: SmallCluster, status: Json
) -> None:
    """It names the last renewal and the last heartbeat, and nothing but its status tells."""
    node = await cluster.node("n1")
    await confirmed(cluster, node, by="ann")
    told = {"status": status}
    await cluster.change("/apis/backstay.dev/v1alpha1/deathconfirmations/n1/status", told)
    said = await cluster.run("confirmer", "confirm-dead", "n1", "--watch", "0", "--yes=n1")
    assert said.code == 0, said.err
    assert "in place of one that no longer counted" in " ".join(said.out.split())
    assert [spec["by"] for spec in confirmations(cluster)] == ["carla"]


async def test_one_for_a_former_boot_is_replaced(cluster: SmallCluster) -> None:
    await confirmed(cluster, await cluster.node("n1"), bootID="an-older-one")
    said = await cluster.run("confirmer", "confirm-dead", "n1", "--watch", "0", "--yes=n1")
    assert said.code == 0, said.err
    assert "in place of one that no longer counted" in " ".join(said.out.split())
    assert [spec["bootID"] for spec in confirmations(cluster)] == ["boot-of-n1"]


# At a terminal


async def test_a_person_types_the_nodes_name(cluster: SmallCluster) -> None:
    await cluster.node("n1")
    said = await cluster.at_terminal(
        "confirmer", "confirm-dead", "n1", "--watch", "0", answers=[(QUESTION, "n1\n")]
    )
    assert said.code == 0, said.out
    assert len(confirmations(cluster)) == 1


@pytest.mark.parametrize("typed", ["yes\n", "\n", "n2\n"])
async def test_anything_else_than_the_name_writes_nothing(
    cluster: SmallCluster, typed: str
) -> None:
    await cluster.node("n1")
    said = await cluster.at_terminal(
        "confirmer", "confirm-dead", "n1", "--watch", "0", answers=[(QUESTION, typed)]
    )
    assert said.code == 1
    assert "That is not n1. Nothing was written." in said.out
    assert confirmations(cluster) == []


@pytest.mark.parametrize("at", ["Looking for signs of life", QUESTION])
async def test_an_interrupt_writes_nothing(cluster: SmallCluster, at: str) -> None:
    await cluster.node("n1")
    seconds = "0" if at == QUESTION else "30"

    async def a_moment_passes() -> None:
        # What is typed while readline takes over the terminal is lost.
        await asyncio.sleep(0.5)

    said = await cluster.at_terminal(
        "confirmer", "confirm-dead", "n1", "--watch", seconds,
        answers=[(at, "\x03")], meanwhile=a_moment_passes,
    )  # fmt: skip
    assert said.code == 130
    assert "Traceback" not in said.out
    assert confirmations(cluster) == []


LATER = {
    "lease": "its kubelet renewed its lease",
    "boot": "has rebooted or was replaced since we looked",
    "gone": "n1 is gone",
}


@pytest.mark.parametrize("what", LATER)
async def test_what_happens_while_the_person_thinks_is_noticed(
    cluster: SmallCluster, what: str
) -> None:
    await cluster.node("n1")

    async def happens() -> None:
        if what == "lease":
            await cluster.renew("n1")
        elif what == "boot":
            patch = {"status": {"nodeInfo": {"bootID": "the-next-one"}}}
            await cluster.change("/api/v1/nodes/n1/status", patch)
        else:
            await cluster.call("DELETE", "/api/v1/nodes/n1")

    said = await cluster.at_terminal(
        "confirmer", "confirm-dead", "n1", "--watch", "0",
        answers=[(QUESTION, "n1\n")], meanwhile=happens,
    )  # fmt: skip
    assert said.code == 1
    assert LATER[what] in said.out
    assert confirmations(cluster) == []


# Taking it back


async def test_withdrawing_deletes_it_and_says_what_stops(cluster: SmallCluster) -> None:
    await confirmed(cluster, await cluster.node("n1"))
    said = await cluster.run("confirmer", "confirm-dead", "n1", "--withdraw")
    assert said.code == 0, said.err
    assert "withdrawn" in said.out
    assert "no longer takes it for dead" in said.err
    assert confirmations(cluster) == []


async def test_to_withdraw_what_nobody_confirmed_is_no_error(cluster: SmallCluster) -> None:
    await cluster.node("n1")
    said = await cluster.run("confirmer", "confirm-dead", "n1", "--withdraw")
    assert said.code == 0
    assert "nothing to withdraw" in said.out


async def test_the_confirmation_of_a_node_that_is_gone_can_be_withdrawn(
    cluster: SmallCluster,
) -> None:
    await confirmed(cluster, await cluster.node("n1"))
    await cluster.call("DELETE", "/api/v1/nodes/n1")
    said = await cluster.run("confirmer", "confirm-dead", "n1", "--withdraw")
    assert said.code == 0, said.err
    assert confirmations(cluster) == []


async def test_another_word_that_was_given_meanwhile_is_not_withdrawn(
    cluster: SmallCluster,
) -> None:
    node = await cluster.node("n1")
    await confirmed(cluster, node)

    async def another() -> None:
        await cluster.call("DELETE", "/apis/backstay.dev/v1alpha1/deathconfirmations/n1")
        await confirmed(cluster, node, by="ann")

    cluster.just_before("DELETE", another)
    said = await cluster.run("confirmer", "confirm-dead", "n1", "--withdraw")
    assert said.code == 1
    assert "Traceback" not in said.err
    assert [spec["by"] for spec in confirmations(cluster)] == ["ann"]

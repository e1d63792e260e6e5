"""What can befall a node, in a world and on an ordinary loop alike."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.nodes.agents import AgentContext
from backstay.sim.nodes.machine import Cut
from backstay.sim.nodes.truth import What
from tests.sim.cluster.stages import Cast, deleting, play, play_on_a_loop, pod

Play = Callable[..., Any]


@pytest.fixture(params=["world", "loop"])
def played(request: pytest.FixtureRequest) -> Play:
    return {"world": play, "loop": play_on_a_loop}[request.param]


def test_a_killed_node_runs_nothing_and_after_a_reboot_what_the_api_wants(played: Play) -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.create(pod(nodeName="n1"))
        await cast.ready()
        node = cluster.nodes["n1"]
        before = node.boot_id
        node.kill()
        assert cast.copies() == []
        assert node.condition == "off"
        await cast.given_up("n1")
        node.reboot()
        await cast.runs(on="n1")
        assert node.boot_id not in (None, before)
        await cast.until(lambda: cast.node("n1")["status"]["nodeInfo"]["bootID"] == node.boot_id)

    played(scenario)


def test_containers_of_a_frozen_node_run_on_until_it_thaws(played: Play) -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.create(pod(nodeName="n1"))
        await cast.ready()
        cluster.nodes["n1"].freeze()
        await cast.delete("web")
        await cast.given_up("n1")
        assert cast.copies() == ["n1"]
        cluster.nodes["n1"].thaw()
        await cast.until(lambda: cast.get("pods", "web") is None)
        assert cast.copies() == []
        await cast.until(lambda: cast.node_says("n1") == "True")

    played(scenario)


def test_a_pod_that_is_force_deleted_on_a_cut_off_node_runs_there_until_the_cut_heals(
    played: Play,
) -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.create(pod(nodeName="n1"))
        await cast.ready()
        cluster.nodes["n1"].cut_off()
        await cast.delete("web", grace=0)
        await cast.create(pod(nodeName="n2"))
        await cast.until(lambda: cast.copies() == ["n1", "n2"])
        cluster.nodes["n1"].heal()
        await cast.until(lambda: cast.copies() == ["n2"])
        assert cluster.truth.most_copies("default", "web") == 2

    played(scenario)


def test_what_exits_on_a_cut_off_node_is_restarted_and_told_of_afterwards(played: Play) -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.create(pod(nodeName="n1"))
        await cast.ready()
        node = cluster.nodes["n1"]
        node.cut_off()
        node.exit("default", "web", code=1)
        assert cast.copies() == []
        await cast.runs(on="n1")
        node.heal()
        await cast.until(lambda: cast.pod()["status"]["containerStatuses"][0]["restartCount"] == 1)

    played(scenario)


def test_containers_do_not_notice_that_their_kubelet_dies_and_a_new_one_takes_them_over(
    played: Play,
) -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.create(pod("stays", nodeName="n1"))
        await cast.create(pod("goes", nodeName="n1"))
        await cast.create(pod("vanishes", nodeName="n1"))
        address = (await cast.ready("stays"))["status"]["podIP"]
        await cast.ready("goes")
        await cast.ready("vanishes")
        node = cluster.nodes["n1"]
        node.kill_kubelet()
        assert node.condition == "without kubelet"
        await cast.delete("goes")
        await cast.delete("vanishes", grace=0)
        await cast.given_up("n1")
        assert len(node.truth) == 3
        node.start_kubelet()
        await cast.until(lambda: [run.name for run in node.truth] == ["stays"])
        await cast.until(lambda: cast.get("pods", "goes") is None)
        after = await cast.ready("stays")
        assert after["status"]["podIP"] == address
        assert after["status"]["containerStatuses"][0]["restartCount"] == 0
        started = [e.name for e in cluster.truth.log if e.what is What.STARTED]
        assert sorted(started) == ["goes", "stays", "vanishes"]

    played(scenario)


class Diary:
    """An agent that notes what it lives through."""

    def __init__(self) -> None:
        self.boots: list[str] = []
        self.seen: list[list[str]] = []

    async def __call__(self, context: AgentContext) -> None:
        self.boots.append(context.boot_id)
        seen = context.runtime.changes
        while True:
            self.seen.append(sorted(run.pod.name for run in context.runtime.running.values()))
            seen = await context.runtime.changed(seen)


class Pulse:
    """An agent that needs no news to go on."""

    def __init__(self) -> None:
        self.beats = 0

    async def __call__(self, context: AgentContext) -> None:
        while True:
            self.beats += 1
            await asyncio.sleep(0.01)


def test_an_agent_is_told_when_containers_start_and_stop(played: Play) -> None:
    async def scenario(cluster: EmbeddedCluster) -> list[list[str]]:
        cast, diary = Cast(cluster), Diary()
        cluster.nodes["n1"].run("diary", diary)
        await cast.create(pod(nodeName="n1"))
        await cast.ready()
        await cast.delete("web")
        await cast.until(lambda: cast.get("pods", "web") is None)
        return diary.seen

    assert played(scenario) == [[], ["web"], []]


def test_an_agent_dies_with_its_node_and_begins_anew_with_the_next_boot(played: Play) -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast, diary, pulse = Cast(cluster), Diary(), Pulse()
        node = cluster.add_node("n4", agents={"diary": diary, "pulse": pulse})
        await cluster.settled()
        first = node.boot_id
        node.kill()
        beats = pulse.beats
        await asyncio.sleep(0.1)
        assert (pulse.beats, diary.boots) == (beats, [first])
        node.reboot()
        await cast.until(lambda: cast.get("nodes", "n4") is not None)
        await asyncio.sleep(0.1)
        assert pulse.beats > beats
        assert diary.boots == [first, node.boot_id]

    played(scenario)


def test_an_agent_stands_still_while_its_node_is_frozen_and_outlives_its_kubelet(
    played: Play,
) -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        pulse = Pulse()
        node = cluster.nodes["n1"]
        node.run("pulse", pulse)
        await asyncio.sleep(0.1)
        node.freeze()
        beats = pulse.beats
        assert beats > 0
        await asyncio.sleep(0.1)
        assert pulse.beats == beats
        node.thaw()
        node.kill_kubelet()
        await asyncio.sleep(0.1)
        assert pulse.beats > beats

    played(scenario)


@pytest.mark.parametrize(("what", "heard"), [(Cut.OUT, False), (Cut.IN, True)])
def test_a_cut_in_one_direction_lets_the_other_pass(what: Cut, *, heard: bool) -> None:
    """What leaves on a connection that was there arrives, if only the answer is lost."""

    async def scenario(cluster: EmbeddedCluster) -> bool:
        lease = ("leases.coordination.k8s.io", ("kube-node-lease", "n1"))
        await asyncio.sleep(15)
        cluster.nodes["n1"].cut_off(what)
        before = cluster.api.store.get(*lease)
        await asyncio.sleep(20)
        return cluster.api.store.get(*lease) is not before

    assert play(scenario) is heard


def test_a_node_that_was_cut_off_for_long_is_ready_again_when_it_heals() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        cluster.nodes["n1"].cut_off()
        await asyncio.sleep(2000)
        assert cast.node_says("n1") == "Unknown"
        cluster.nodes["n1"].heal()
        await cast.until(lambda: cast.node_says("n1") == "True" and not cast.taints("n1"))

    play(scenario)


def test_one_seed_gives_one_history() -> None:
    async def scenario(cluster: EmbeddedCluster) -> list[tuple[float, int, str]]:
        history: list[tuple[float, int, str]] = []
        cluster.api.store.follow(
            None,
            lambda commit: history.append(
                (cluster.ground.now(), commit.version, commit.after.key[1])
            ),
        )
        cast = Cast(cluster)
        for number in range(5):
            await cast.create(pod(f"web-{number}"))
        await cast.ready("web-4")
        cluster.nodes["n2"].kill()
        await asyncio.sleep(400)
        assert any(map(deleting, cast.all("pods")))
        return history

    one, again, other = (play(scenario, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one != other

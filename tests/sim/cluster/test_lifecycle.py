"""When nodes fall silent: what is said of them, and when."""

import asyncio
from collections.abc import Callable

import pytest

from backstay.kube.resource import NODES
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.cluster.timers import Timers
from tests.sim.cluster.node_death import Listener
from tests.sim.cluster.stages import Cast, deleting, patience, play, pod, said
from tests.sim.cluster.test_node_death import EXPELLING, OUT, UNREACHABLE, in_a_world

SOON = 0.15


@pytest.mark.parametrize("seed", range(5))
def test_the_steps_of_a_death_come_when_their_timers_say(seed: int) -> None:
    stage, told = in_a_world(seed)
    heard, first = told.listener, stage.first.name
    unknown = heard.when("nodes", first, ("Unknown", "NodeStatusUnknown", ()))
    # A lease is renewed every 10 s, looked at every 5 s, and given 50 s.
    assert 40 <= unknown - told.died_at <= 56

    not_ready = heard.when("pods", "db-0", (first, "Running", "False", "", ""))
    closed = heard.when("nodes", first, ("Unknown", "NodeStatusUnknown", (UNREACHABLE,)))
    expelling = heard.when(
        "nodes", first, ("Unknown", "NodeStatusUnknown", (UNREACHABLE, EXPELLING))
    )
    assert not_ready == pytest.approx(unknown, abs=0.02)
    assert closed == pytest.approx(unknown, abs=0.02)
    assert expelling == pytest.approx(unknown + 0.1, abs=0.02)

    going = (first, "Running", "False", "DeletionByTaintManager", "deleting")
    evicted = heard.when("pods", "db-0", going)
    assert evicted == pytest.approx(expelling + stage.patience, abs=SOON)

    out = ("Unknown", "NodeStatusUnknown", (UNREACHABLE, EXPELLING, OUT))
    failed = heard.when(
        "pods", "db-0", (first, "Failed", "False", "DeletionByTaintManager", "deleting")
    )
    assert heard.when("nodes", first, out) < failed <= heard.when("nodes", first, out) + 20.1
    gone = heard.when("pods", "db-0", ("gone",))
    assert gone == pytest.approx(failed, abs=0.02)
    _check_return(heard, first)


def _check_return(heard: Listener, first: str) -> None:
    back = heard.when("nodes", first, ("True", "KubeletReady", (UNREACHABLE, EXPELLING, OUT)))
    opened = heard.when("nodes", first, ("True", "KubeletReady", (EXPELLING, OUT)))
    calmed = heard.when("nodes", first, ("True", "KubeletReady", (OUT,)))
    assert opened == pytest.approx(back, abs=0.02)
    assert 0 < calmed - back <= 5.1


def test_nothing_in_the_api_tells_of_a_death_before_its_time_but_the_lease() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.create(pod(nodeName="n1"))
        await cast.ready()
        cluster.nodes["n1"].kill()
        before = cast.node("n1"), cast.pod()
        await asyncio.sleep(39)
        assert (cast.node("n1"), cast.pod()) == before

    play(scenario)


def test_taints_that_expel_are_given_to_one_node_every_ten_seconds() -> None:
    async def scenario(cluster: EmbeddedCluster) -> list[float]:
        cast = Cast(cluster)
        for name in ("n1", "n2"):
            cluster.nodes[name].kill()
        times = []
        for name in ("n1", "n2"):
            await cast.until(_expels(cast, name), 120)
            times.append(cast.now)
        return times

    first, second = play(scenario, nodes=5)
    assert second - first == pytest.approx(10, abs=0.2)


def _expels(cast: Cast, node: str) -> Callable[[], bool]:
    return lambda: EXPELLING in cast.taints(node)


def test_when_most_nodes_of_a_small_cluster_are_silent_no_more_are_expelled_from() -> None:
    async def scenario(cluster: EmbeddedCluster) -> list[list[str]]:
        cast = Cast(cluster)
        for name in ("n1", "n2", "n3"):
            cluster.nodes[name].kill()
        await asyncio.sleep(300)
        return [cast.taints(name) for name in ("n1", "n2", "n3")]

    assert play(scenario, nodes=5) == [[UNREACHABLE]] * 3


def test_when_all_nodes_are_silent_those_that_were_expelled_from_are_freed() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        cluster.nodes["n1"].kill()
        await cast.until(lambda: EXPELLING in cast.taints("n1"), 120)
        cluster.nodes["n2"].kill()
        await cast.until(lambda: cast.taints("n1") == [UNREACHABLE], 120)
        await asyncio.sleep(300)
        assert cast.taints("n2") == [UNREACHABLE]
        cluster.nodes["n2"].reboot()
        await cast.until(lambda: EXPELLING in cast.taints("n1"), 120)

    play(scenario, nodes=2)


def test_pods_that_say_nothing_of_it_are_evicted_after_five_minutes() -> None:
    async def scenario(cluster: EmbeddedCluster) -> float:
        cast = Cast(cluster)
        await cast.create(pod(nodeName="n1"))
        await cast.ready()
        cluster.nodes["n1"].kill()
        await cast.until(lambda: EXPELLING in cast.taints("n1"), 120)
        tainted = cast.now
        await cast.until(lambda: deleting(cast.pod()), 400)
        return cast.now - tainted

    assert play(scenario) == pytest.approx(300, abs=SOON)


def test_a_pod_that_tolerates_a_taint_for_ever_is_never_evicted_for_it() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.create(pod(nodeName="n1", tolerations=[{"operator": "Exists"}]))
        await cast.ready()
        cluster.nodes["n1"].kill()
        await asyncio.sleep(1000)
        assert not deleting(cast.pod())

    play(scenario)


def test_a_node_that_is_back_in_time_keeps_its_pods() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.create(pod(nodeName="n1", tolerations=patience(60)))
        uid = (await cast.ready())["metadata"]["uid"]
        cluster.nodes["n1"].cut_off()
        await cast.until(lambda: EXPELLING in cast.taints("n1"), 120)
        await asyncio.sleep(50)
        assert said(cast.pod(), "Ready") == "False"
        cluster.nodes["n1"].heal()
        await asyncio.sleep(60)
        assert said(cast.pod(), "Ready") == "True"
        assert cast.pod()["metadata"]["uid"] == uid
        assert not deleting(cast.pod())

    play(scenario)


def test_the_patience_of_a_pod_begins_anew_with_each_silence() -> None:
    async def scenario(cluster: EmbeddedCluster) -> float:
        cast = Cast(cluster)
        await cast.create(pod(nodeName="n1", tolerations=patience(60)))
        await cast.ready()
        node = cluster.nodes["n1"]
        node.cut_off()
        await cast.until(lambda: EXPELLING in cast.taints("n1"), 120)
        await asyncio.sleep(50)
        node.heal()
        await cast.until(lambda: not cast.taints("n1"), 120)
        node.cut_off()
        await cast.until(lambda: EXPELLING in cast.taints("n1"), 120)
        tainted = cast.now
        await cast.until(lambda: deleting(cast.pod()), 120)
        return cast.now - tainted

    assert play(scenario) == pytest.approx(60, abs=SOON)


def test_an_eviction_that_is_under_way_hits_a_successor_of_the_same_name() -> None:
    """As seen on the real one: it goes by name."""

    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.create(pod(nodeName="n1", tolerations=patience(0)))
        await cast.ready()
        cluster.nodes["n1"].kill()
        await cast.until(lambda: EXPELLING in cast.taints("n1"), 120)
        await asyncio.sleep(0.003)
        await cast.delete("web", grace=0)
        await cast.create(pod(nodeName="n2"))
        await cast.until(lambda: deleting(cast.pod()), 1)

    play(scenario)


def test_pods_of_a_node_that_is_gone_from_the_api_go_after_a_quarantine() -> None:
    async def scenario(cluster: EmbeddedCluster) -> float:
        cast = Cast(cluster)
        await cast.create(pod(nodeName="n1"))
        await cast.ready()
        cluster.nodes["n1"].kill()
        await cluster.client().delete(NODES, "n1")
        since = cast.now
        await cast.until(lambda: cast.get("pods", "web") is None, 120)
        return cast.now - since

    assert 40 <= play(scenario) <= 60.1


def test_a_pod_on_a_ready_node_is_its_kubelets_whatever_taint_the_node_has() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.create(pod(nodeName="n1", terminationGracePeriodSeconds=300))
        await cast.ready()
        taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
        await cast.client.merge_patch(NODES, "n1", {"spec": {"taints": [taint]}})
        await asyncio.sleep(100)
        assert deleting(cast.pod())
        assert cast.copies() == ["n1"]

    play(scenario, timers=Timers(stop=200.0))


def test_a_pod_on_a_silent_node_is_not_collected_without_that_taint() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.create(pod(nodeName="n1", tolerations=patience(15)))
        await cast.ready()
        cluster.nodes["n1"].kill()
        await asyncio.sleep(500)
        assert deleting(cast.pod())

    play(scenario)


def test_a_pod_that_is_deleted_before_it_has_a_node_is_gone_at_once() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.create(pod(nodeSelector={"no": "where"}))
        await cast.until(lambda: said(cast.pod(), "PodScheduled") == "False")
        await cast.delete("web")
        assert cast.get("pods", "web") is None

    play(scenario)


def test_a_cluster_at_another_speed_goes_through_the_same_times_scaled() -> None:
    async def scenario(cluster: EmbeddedCluster) -> float:
        cast = Cast(cluster)
        await cast.create(pod(nodeName="n1", tolerations=patience(100)))
        await cast.ready()
        cluster.nodes["n1"].kill()
        killed = cast.now
        await cast.until(lambda: deleting(cast.pod()), 100)
        return cast.now - killed

    assert 14 <= play(scenario, timers=Timers().scaled(0.1)) <= 15.8


def test_controllers_that_are_killed_go_on_when_they_are_started_again() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.create(pod(nodeName="n1", tolerations=patience(15)))
        await cast.ready()
        cluster.control_plane.kill("kube-controller-manager")
        cluster.nodes["n1"].kill()
        await asyncio.sleep(600)
        assert cast.node_says("n1") == "True"
        cluster.control_plane.start("kube-controller-manager")
        await cast.until(lambda: deleting(cast.pod()), 120)

    play(scenario)


def test_an_api_server_that_is_killed_comes_back_with_what_it_had_stored() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.create(pod(nodeName="n1"))
        await cast.ready()
        cluster.control_plane.kill("api")
        await asyncio.sleep(30)
        cluster.control_plane.start("api")
        await asyncio.sleep(30)
        await cast.delete("web")
        await cast.until(lambda: cast.get("pods", "web") is None)
        assert cast.copies() == []

    play(scenario)

"""What a controller costs while nothing happens: looks, requests, and memory for each node."""

import asyncio
import gc
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

from backstay import __file__ as package
from backstay.apis.backstay import CONFIG_NAME, CONFIGS
from backstay.app import build
from backstay.control.observe import Observer
from backstay.decide.failover import Snapshot
from backstay.kube.client import KubeClient
from backstay.kube.resource import LEASES, NODES
from backstay.model.labels import LEASE_NAMESPACE, TAINT
from backstay.model.node import Life
from backstay.seam import Seams
from backstay.settings import Settings
from backstay.sim.process import Process
from tests.control.rig import Scene, play

ROOMS = ("apis", "control", "decide", "kube", "model", "sources")
MOST_BYTES = 2_000
"""For a node, of which half is what its rows hold."""
_NOBODYS = 1_000_000
"""In one piece: so much is not asked for on behalf of the hundred nodes that are counted."""


class Counting(Observer):
    """Counts how often a node is thought about, and how often it is looked at."""

    def __init__(self, *args: Any, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.thoughts = 0
        self.looks: Counter[str] = Counter()

    def is_interesting(self, name: str) -> bool:
        self.thoughts += 1
        return super().is_interesting(name)

    def look(self, name: str) -> Snapshot | None:
        self.looks[name] += 1
        return super().look(name)

    def state(self, name: str) -> Life:
        return self.watched[name].life.state


def start(s: Scene, name: str, made: list[Counting]) -> Process:
    async def main(seams: Seams) -> None:
        client = KubeClient(seams.transport, s.cluster.access())
        app = build(Settings(identity=name), seams, client, observer=Counting)
        assert isinstance(app.observer, Counting)
        made.append(app.observer)
        await app.run()

    return s.world.start(name, main)


def test_nodes_that_live_are_not_thought_about_at_every_look() -> None:
    async def scene(s: Scene) -> None:
        await s.boot("n1", "n2", "n3")
        made: list[Counting] = []
        start(s, "backstay-1", made)
        start(s, "backstay-2", made)
        await asyncio.sleep(60)
        before = [observer.thoughts for observer in made]
        looked = [observer.looks.total() for observer in made]
        await asyncio.sleep(600)
        thoughts = [observer.thoughts - n for observer, n in zip(made, before, strict=True)]
        # A status that was posted is a reason to think; 240 looks at the leases are none.
        assert max(thoughts) < 100
        assert [observer.looks.total() for observer in made] == looked

    play(scene)


def test_a_node_that_was_left_alone_is_looked_at_again_for_each_reason_there_is() -> None:
    async def scene(s: Scene) -> None:
        await s.boot("n1", "n2", "n3", "n4", "n5")
        made: list[Counting] = []
        start(s, "backstay-1", made)
        await asyncio.sleep(120)
        [observer] = made
        looks = observer.looks.copy()
        s.cluster.nodes["n1"].cut_off()
        taint = {"key": TAINT, "effect": "NoSchedule"}
        await s.client.merge_patch(NODES, "n2", {"spec": {"taints": [taint]}})
        await s.confirm_dead("n3")
        s.cluster.nodes["n4"].reboot()
        await asyncio.sleep(1)
        assert {name for name in observer.looks if observer.looks[name] > looks[name]} >= {
            "n2", "n3",
        }  # fmt: skip
        await asyncio.sleep(34)
        assert observer.state("n1") is Life.SUSPECT
        assert observer.looks["n4"] > looks["n4"]
        assert observer.looks["n5"] == looks["n5"]

    play(scene)


def test_a_dead_node_of_which_nothing_is_left_to_do_is_looked_at_seldom() -> None:
    async def scene(s: Scene) -> None:
        await s.boot("n1", "n2", "n3")
        await s.start_vms("a")
        await s.arm()
        made: list[Counting] = []
        start(s, "backstay-1", made)
        await asyncio.sleep(10)
        start(s, "backstay-2", made)
        await asyncio.sleep(30)
        leader, standby = made
        s.cluster.nodes["n1"].kill()
        await asyncio.sleep(5)
        await s.confirm_dead("n1")
        await asyncio.sleep(200)
        assert leader.state("n1") is Life.RECOVERED
        looks = [observer.looks["n1"] for observer in made]
        await asyncio.sleep(600)
        during = [observer.looks["n1"] - n for observer, n in zip(made, looks, strict=True)]
        # A lap every 15 s for whoever leads; that Kubernetes writes to its node is heard by both.
        assert during[0] <= 600 / 15 + 5
        assert during[1] <= 5
        s.cluster.nodes["n1"].reboot()
        await asyncio.sleep(15)
        assert leader.state("n1") is not Life.RECOVERED
        assert standby.state("n1") is not Life.LOST

    play(scene)


def test_what_changes_for_all_nodes_wakes_one_that_was_at_rest() -> None:
    async def scene(s: Scene) -> None:
        await s.boot("n1", "n2", "n3")
        await s.start_vms("a")
        await s.arm()
        made: list[Counting] = []
        start(s, "backstay-1", made)
        await asyncio.sleep(40)
        s.cluster.nodes["n1"].kill()
        await asyncio.sleep(5)
        await s.confirm_dead("n1")
        await asyncio.sleep(200)
        [observer] = made
        looks = observer.looks["n1"]
        await s.until(lambda: observer.looks["n1"] > looks)
        after_a_lap = observer.looks["n1"]
        limits = {"spec": {"limits": {"attempts": 2}}}
        await s.client.merge_patch(CONFIGS, CONFIG_NAME, limits)
        await asyncio.sleep(0.5)
        assert observer.looks["n1"] > after_a_lap

    play(scene)


def _held() -> int:
    """Bytes that our code has asked for and holds; what it merely kept for later is dropped. Nor
    counts Python's own table of strings: it doubles whenever it is full, and whoever happens to
    come then seems to have asked for two megabytes."""
    gc.collect()
    here = Path(package).parent
    only = [tracemalloc.Filter(inclusive=True, filename_pattern=f"{here}/{r}/*") for r in ROOMS]
    snapshot = tracemalloc.take_snapshot().filter_traces(only)
    return sum(each.size for each in snapshot.traces if each.size < _NOBODYS)


def test_a_healthy_node_costs_a_few_kilobytes() -> None:
    async def add(s: Scene, first: int, last: int) -> None:
        for number in range(first, last):
            name = f"node-{number:04}"
            info = {"bootID": f"boot-{number}", "containerRuntimeVersion": "containerd://2.0.0"}
            address = {"type": "InternalIP", "address": f"10.1.{number // 250}.{number % 250}"}
            status = {
                "nodeInfo": info,
                "addresses": [address],
                "conditions": [{"type": "Ready", "status": "True"}],
            }
            await s.client.create(NODES, {"metadata": {"name": name}, "status": status})
            lease = {
                "metadata": {"name": name},
                "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"},
            }
            await s.client.create(LEASES, lease, namespace=LEASE_NAMESPACE)

    async def scene(s: Scene) -> None:
        await s.boot("n1")
        await add(s, 0, 20)
        tracemalloc.start()
        s.start_controller()
        await asyncio.sleep(8)
        before = _held()
        await add(s, 20, 120)
        await asyncio.sleep(8)
        assert len(s.apps["backstay-1"].observer.watched) == 121
        assert (_held() - before) / 100 < MOST_BYTES

    try:
        play(scene)
    finally:
        tracemalloc.stop()

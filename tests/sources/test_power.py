"""What the devices of nodes say, while a node is silent and before."""

import asyncio
from collections.abc import Awaitable, Callable

from backstay.drivers.power import PowerFailed, PowerReading
from backstay.kube.client import KubeClient
from backstay.kube.resource import NODES
from backstay.model.node import NodeFacts
from backstay.model.power import PowerMeans, PowerSight
from backstay.seam.tasks import Tasks
from backstay.sim.chance import Chance
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sources.nodes import NodeSource
from backstay.sources.power import PowerSource
from tests.sim.cluster.stages import play

INTERVAL = 60.0
SURVEY = 300.0


class Told:
    """Devices that say what they were told to say, and otherwise what is so (``names``)."""

    def __init__(self, names: Callable[[str], str]) -> None:
        self.asked: list[str] = []
        self.at_once = 0
        self.on: bool | None = True
        self.uuids: dict[str, str] = {}
        self.failing: set[str] = set()
        self.known = frozenset({"n1", "n2"})
        self.wrong: tuple[str, ...] = ()
        self.takes = 0.1
        self._names = names
        self._under_way = 0

    def nodes(self) -> frozenset[str]:
        return self.known

    async def refresh(self) -> tuple[str, ...]:
        return self.wrong

    async def sight(self, node: str) -> PowerReading:
        self.asked.append(node)
        self._under_way += 1
        self.at_once = max(self.at_once, self._under_way)
        on = self.on
        await asyncio.sleep(self.takes)
        self._under_way -= 1
        if node in self.failing:
            raise PowerFailed("it cannot be reached (TimedOut)")
        uuid = self.uuids.get(node) or self._names(node)
        return PowerReading(on=on, uuid=uuid, detail="its power is told")

    async def switch_off(self, node: str, *, not_after: float) -> None:
        raise AssertionError("a source switches nothing")

    async def switch_on(self, node: str, *, not_after: float) -> None:
        raise AssertionError("a source switches nothing")


class Watching:
    def __init__(self, client: KubeClient, tasks: Tasks) -> None:
        self.client = client
        self.devices = Told(self.machine)
        self.heard: list[str] = []
        self.nodes = NodeSource(
            client, rng=Chance(1, "nodes"), interval=2.0, window=22.0, on_look=lambda: None
        )
        self.source = PowerSource(self.devices, self.nodes, interval=INTERVAL, survey=SURVEY)
        self.source.subscribe(self.heard.append)
        self.tasks = tasks
        tasks.spawn(self.nodes.run(), name="nodes")

    def machine(self, node: str) -> str:
        """Which one its kubelet says that it is."""
        facts = self.nodes.facts(node)
        return "" if facts is None else facts.system_uuid

    def run(self) -> None:
        self.tasks.spawn(self.source.run(), name="power")

    @property
    def node(self) -> NodeFacts:
        facts = self.nodes.facts("n1")
        assert facts is not None
        return facts

    async def watch(self) -> None:
        self.source.watch([self.node])
        await asyncio.sleep(1)

    @property
    def said(self) -> PowerSight | None:
        return self.source.testimony(self.node).power


def watching(scene: Callable[[Watching], Awaitable[None]], *, surveyed: bool = True) -> None:
    """``surveyed``: all devices were tried once already."""

    async def scenario(cluster: EmbeddedCluster) -> None:
        async with Tasks("test") as tasks:
            seen = Watching(cluster.client(), tasks)
            await asyncio.sleep(5)
            if surveyed:
                seen.run()
                await asyncio.sleep(10)
                seen.devices.asked.clear()
            await scene(seen)

    play(scenario, nodes=2)


def test_the_device_of_a_silent_node_is_asked_at_once_and_then_at_its_pace() -> None:
    async def scene(seen: Watching) -> None:
        await seen.watch()
        assert seen.devices.asked == ["n1"]
        assert seen.said is not None
        assert (seen.said.on, seen.said.identified) == (True, True)
        await asyncio.sleep(INTERVAL)
        assert seen.devices.asked == ["n1", "n1"]

    watching(scene)


def test_what_was_said_is_known_for_as_long_as_the_node_is_watched() -> None:
    async def scene(seen: Watching) -> None:
        await seen.watch()
        sight = seen.said
        seen.source.watch([seen.node])
        assert seen.said is sight is not None
        seen.source.watch([])
        assert seen.said is None

    watching(scene)


def test_a_device_that_is_watched_is_left_out_of_the_rounds() -> None:
    async def scene(seen: Watching) -> None:
        await seen.watch()
        await asyncio.sleep(4 * SURVEY)
        assert seen.devices.asked.count("n1") <= 1 + 4 * SURVEY / INTERVAL
        assert "n2" in seen.devices.asked

    watching(scene)


def test_what_is_said_counts_from_when_it_was_asked_for() -> None:
    async def scene(seen: Watching) -> None:
        began = asyncio.get_running_loop().time()
        seen.devices.takes = 2.0
        seen.source.watch([seen.node])
        await asyncio.sleep(3)
        assert seen.said is not None
        assert seen.said.observed_at == began

    watching(scene)


def test_who_is_about_to_act_has_it_asked_anew() -> None:
    async def scene(seen: Watching) -> None:
        await seen.watch()
        seen.devices.on = False
        asked_at = asyncio.get_running_loop().time()
        sight = (await seen.source.ask(seen.node, ())).power
        assert sight is not None
        assert (sight.on, sight.observed_at) == (False, asked_at)
        assert seen.said == sight

    watching(scene)


def test_a_slow_answer_does_not_replace_one_to_a_later_question() -> None:
    async def scene(seen: Watching) -> None:
        seen.devices.takes = 5.0
        seen.source.watch([seen.node])
        await asyncio.sleep(1)
        seen.devices.takes, seen.devices.on = 0.1, False
        await seen.source.ask(seen.node, ())
        await asyncio.sleep(10)
        assert seen.said is not None
        assert seen.said.on is False

    watching(scene)


def test_that_the_power_has_changed_is_told() -> None:
    async def scene(seen: Watching) -> None:
        await seen.watch()
        seen.devices.on = False
        await seen.source.ask(seen.node, ())
        await seen.source.ask(seen.node, ())
        assert seen.heard == ["n1", "n1"]

    watching(scene)


def test_a_device_that_does_not_answer_has_nothing_to_say_and_takes_back_what_it_said() -> None:
    async def scene(seen: Watching) -> None:
        await seen.watch()
        seen.devices.failing = {"n1"}
        assert (await seen.source.ask(seen.node, ())).power is None
        assert seen.said is None
        assert seen.source.means(seen.node) == PowerMeans(
            device="the BMC of n1", failing="it cannot be reached (TimedOut)"
        )

    watching(scene)


def test_after_something_was_asked_of_a_device_it_is_looked_at_every_second() -> None:
    async def scene(seen: Watching) -> None:
        await seen.watch()
        seen.devices.asked.clear()
        seen.source.hurry("n1", seconds=5.0)
        await asyncio.sleep(30)
        assert 4 <= len(seen.devices.asked) <= 6

    watching(scene)


def test_a_node_without_a_device_is_not_asked_for() -> None:
    async def scene(seen: Watching) -> None:
        seen.devices.known = frozenset({"n2"})
        await seen.watch()
        assert (await seen.source.ask(seen.node, ())).power is None
        assert seen.devices.asked == []
        assert seen.source.means(seen.node) == PowerMeans()

    watching(scene)


def test_another_boot_has_nothing_said_of_it() -> None:
    async def scene(seen: Watching) -> None:
        await seen.watch()
        seen.source.watch([])
        seen.source.watch([seen.node])
        assert seen.said is None

    watching(scene)


# Whose device it is


def test_the_device_of_another_machine_is_not_taken_for_that_of_the_node() -> None:
    async def scene(seen: Watching) -> None:
        seen.devices.uuids = {"n1": seen.machine("n2")}
        await seen.watch()
        assert seen.said is not None
        assert not seen.said.identified
        assert [why.code for why in seen.source.notes()] == ["WrongDevice"]

    watching(scene)


def test_where_two_nodes_name_one_machine_its_device_is_that_of_neither() -> None:
    async def scene(seen: Watching) -> None:
        status = {"status": {"nodeInfo": {"systemUUID": seen.machine("n1")}}}
        await seen.client.merge_patch(NODES, "n2", status, subresource="status")
        await asyncio.sleep(1)
        await seen.watch()
        assert seen.said is not None
        assert not seen.said.identified
        [why] = seen.source.notes()
        assert why.code == "DeviceUnidentified"
        assert "another node names the same machine" in why.sentence

    watching(scene)


# Before anybody dies


def test_every_device_of_a_node_is_tried_soon_after_the_start() -> None:
    async def scene(seen: Watching) -> None:
        seen.devices.failing = {"n2"}
        seen.run()
        await asyncio.sleep(2)
        assert seen.devices.asked == ["n1", "n2"]
        assert seen.source.states["n1"].why is None
        [why] = seen.source.notes()
        assert why.code == "DeviceSilent"
        assert "n2" in why.sentence

    watching(scene, surveyed=False)


def test_then_they_are_tried_every_few_minutes() -> None:
    async def scene(seen: Watching) -> None:
        await asyncio.sleep(3 * SURVEY)
        assert seen.devices.asked.count("n1") == seen.devices.asked.count("n2") == 3

    watching(scene)


def test_a_device_that_works_again_is_no_longer_complained_of() -> None:
    async def scene(seen: Watching) -> None:
        seen.devices.failing = {"n2"}
        await asyncio.sleep(SURVEY + 10)
        assert len(list(seen.source.notes())) == 1
        seen.devices.failing = set()
        await asyncio.sleep(SURVEY + 10)
        assert list(seen.source.notes()) == []

    watching(scene)


def test_a_bad_file_is_said_and_no_longer_when_it_is_mended() -> None:
    async def scene(seen: Watching) -> None:
        seen.devices.wrong = ("/x/n5: address is no URL", "/x/n6 is too large")
        await asyncio.sleep(31)
        assert seen.source.trouble == "/x/n5: address is no URL; and 1 more of the kind"
        seen.devices.wrong = ()
        await asyncio.sleep(31)
        assert seen.source.trouble == ""

    watching(scene)


def test_a_device_that_no_node_has_is_said() -> None:
    async def scene(seen: Watching) -> None:
        seen.devices.known = frozenset({"n1", "n2", "m1"})
        await asyncio.sleep(31)
        said = "a BMC is described for m1, and there is no such node"
        assert seen.source.trouble == said
        assert "m1" not in seen.devices.asked

    watching(scene)


def test_of_a_device_that_is_no_longer_described_nothing_is_said() -> None:
    async def scene(seen: Watching) -> None:
        await asyncio.sleep(31)
        assert set(seen.source.states) == {"n1", "n2"}
        seen.devices.known = frozenset({"n1"})
        await asyncio.sleep(31)
        assert set(seen.source.states) == {"n1"}

    watching(scene)


def test_a_thousand_devices_are_tried_a_few_at_a_time_and_four_in_a_second() -> None:
    async def scene(seen: Watching) -> None:
        names = [f"m{n}" for n in range(998)]
        for name in names:
            await seen.client.create(NODES, {"metadata": {"name": name}})
        await asyncio.sleep(5)
        seen.devices.known = frozenset((*names, "n1", "n2"))
        await asyncio.sleep(2 * SURVEY)
        seen.devices.asked.clear()
        seen.devices.at_once = 0
        await asyncio.sleep(SURVEY)
        assert 700 <= len(seen.devices.asked) <= 1000
        assert seen.devices.at_once <= 4

    watching(scene)

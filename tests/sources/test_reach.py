"""Whether silent nodes answer at their port, as seen from several places at once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from backstay.kube.client import KubeClient
from backstay.kube.resource import LEASES, NAMESPACES, NODES
from backstay.model.evidence import Silence, Testimony
from backstay.model.labels import VIEW
from backstay.model.node import NodeFacts
from backstay.seam import Seams
from backstay.seam.serve import Answer, Inbound
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.cluster.ground import WorldGround
from backstay.sim.nodes.machine import Cut
from backstay.sim.process import Process
from backstay.sim.world import World
from backstay.sources.nodes import NodeSource
from backstay.sources.reach import ReachSource
from backstay.sources.views import Views, lease_name

SYSTEM = "backstay-system"
NODE_NAMES = ("n1", "n2", "n3", "n4")
PATIENCE = 150.0


class Seer:
    """A process that looks after nodes, on a machine of its own, as if it were on ``node``."""

    def __init__(self, world: World, cluster: EmbeddedCluster, node: str, name: str) -> None:
        self.nodes: NodeSource
        self.views: Views
        self.source: ReachSource
        self._cluster = cluster
        self._node = node
        self._ready = asyncio.Event()
        self.process: Process = world.start(name, self._main)

    async def _main(self, seams: Seams) -> None:
        client = KubeClient(seams.transport, self._cluster.access())
        self.nodes = NodeSource(
            client, rng=seams.rng, interval=2.5, window=22.0, on_look=lambda: None
        )
        self.views = Views(client, rng=seams.rng, namespace=SYSTEM, node=self._node)
        self.source = ReachSource(
            seams.transport, self.nodes, self.views, interval=5.0, deadline=3.0, patience=PATIENCE
        )
        self._ready.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.nodes.run())
            group.create_task(self.source.run())

    async def watch(self, *names: str) -> None:
        await self._ready.wait()
        self.source.watch([self.facts(name) for name in names])

    def facts(self, name: str) -> NodeFacts:
        facts = self.nodes.facts(name)
        assert facts is not None
        return facts

    def sees(self, name: str = "n2") -> Testimony:
        return self.source.testimony(self.facts(name))

    def silences(self, name: str = "n2") -> dict[str, Silence]:
        return {each.vantage: each for each in self.sees(name).silences}

    def channels(self, name: str = "n2") -> set[str]:
        return {each.channel for each in self.sees(name).answers}


class Place:
    """A cluster of four nodes, and those who look at it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster = EmbeddedCluster(WorldGround(world))
        self.client = self.cluster.client()
        self.seers: dict[str, Seer] = {}

    async def begin(self, *at: str) -> list[Seer]:
        for name in NODE_NAMES:
            self.cluster.add_node(name)
        await self.cluster.settled()
        await self.client.create(NAMESPACES, {"metadata": {"name": SYSTEM}})
        seers = [
            Seer(self.world, self.cluster, node, f"seer-{number}") for number, node in enumerate(at)
        ]
        # Until every lease was seen to be renewed.
        await asyncio.sleep(25)
        return seers

    def kill(self, name: str = "n2") -> None:
        self.cluster.nodes[name].kill()

    async def view(self, node: str) -> str | None:
        lease = (await self.client.get(LEASES, lease_name(node), namespace=SYSTEM)).json()
        text = (lease["metadata"].get("annotations") or {}).get(VIEW)
        return None if text is None else str(text)


def played(scenario: Callable[[Place], Awaitable[None]], *, seed: int = 3) -> World:
    with World(seed, level=logging.WARNING) as world:

        async def main() -> None:
            await scenario(Place(world))

        world.run(main())
        return world


def test_what_answers_at_a_node_is_a_sign_of_life_whatever_it_is() -> None:
    async def scenario(place: Place) -> None:
        (one,) = await place.begin("n1")
        node = place.cluster.nodes["n2"]
        node.cut_off(Cut.API)
        await one.watch("n2")
        await asyncio.sleep(7)
        assert one.channels() == {"kubelet port"}
        node.kill_kubelet()
        await asyncio.sleep(7)
        assert one.channels() == {"kernel"}
        node.reboot()
        node.freeze()
        await asyncio.sleep(12)
        assert one.channels() == {"kernel"}
        assert one.sees().silences == ()

    played(scenario)


def test_a_dead_node_is_silent_from_every_place_and_the_way_is_proven_towards_others() -> None:
    async def scenario(place: Place) -> None:
        one, three = await place.begin("n1", "n3")
        place.kill()
        began = place.world.now
        for seer in (one, three):
            await seer.watch("n2")
        await asyncio.sleep(40)
        for seer in (one, three):
            silences = seer.silences()
            assert silences.keys() == {"n1", "n3"}
            for vantage, silence in silences.items():
                assert silence.since >= began
                assert place.world.now - silence.since >= 25
                assert place.world.now - silence.asked_at < 20
                assert silence.proven_at is not None
                assert place.world.now - silence.proven_at < 25
                assert silence.proven_on in set(NODE_NAMES) - {vantage, "n2"}
            assert seer.sees().answers == ()
            assert seer.source.trouble == ""

    played(scenario)


def test_silence_begins_anew_with_every_answer() -> None:
    async def scenario(place: Place) -> None:
        (one,) = await place.begin("n1")
        node = place.cluster.nodes["n2"]
        await one.watch("n2")
        for _ in range(3):
            node.cut_off()
            await asyncio.sleep(25)
            assert place.world.now - one.silences()["n1"].since < 27
            node.heal()
            await asyncio.sleep(10)
            assert not one.silences()

    played(scenario)


def test_a_connection_from_before_is_no_sign_of_life_of_now() -> None:
    async def scenario(place: Place) -> None:
        (one,) = await place.begin("n1")
        place.cluster.nodes["n2"].cut_off(Cut.API)
        await one.watch("n2")
        await asyncio.sleep(7)
        place.kill()
        killed = place.world.now
        await asyncio.sleep(20)
        [answer] = one.sees().answers
        assert answer.at <= killed
        assert one.silences()["n1"].since - killed < 6

    played(scenario)


def test_a_sign_of_life_that_only_a_colleague_can_see_counts_for_all() -> None:
    async def scenario(place: Place) -> None:
        one, three = await place.begin("n1", "n3")
        place.cluster.nodes["n2"].cut_off(Cut.API)
        place.world.wires.part(["seer-0"], ["n2/kubelet"])
        for seer in (one, three):
            await seer.watch("n2")
        await asyncio.sleep(30)
        assert one.silences().keys() == {"n1"}
        assert one.channels() == {"kubelet port (seen from n3)"}

    played(scenario)


def test_two_controllers_on_one_node_are_one_place() -> None:
    async def scenario(place: Place) -> None:
        seers = await place.begin("n1", "n1")
        place.kill()
        for seer in seers:
            await seer.watch("n2")
        await asyncio.sleep(60)
        assert [list(seer.silences()) for seer in seers] == [["n1"], ["n1"]]

    played(scenario)


def test_a_controller_on_the_silent_node_itself_is_no_place() -> None:
    async def scenario(place: Place) -> None:
        one, two = await place.begin("n1", "n2")
        place.kill()
        for seer in (one, two):
            await seer.watch("n2")
        await asyncio.sleep(60)
        assert list(one.silences()) == ["n1"]
        assert list(two.silences()) == ["n1"]

    played(scenario)


def test_a_controller_that_does_not_know_its_node_says_so_and_counts_for_nothing() -> None:
    async def scenario(place: Place) -> None:
        lost, three = await place.begin("", "n3")
        place.kill()
        for seer in (lost, three):
            await seer.watch("n2")
        await asyncio.sleep(60)
        assert list(three.silences()) == ["n3"]
        assert "--node-name" in lost.source.trouble

    played(scenario)


def test_who_reaches_no_other_node_proves_nothing() -> None:
    async def scenario(place: Place) -> None:
        (one,) = await place.begin("n1")
        place.world.wires.part(["seer-0"], [f"{name}/kubelet" for name in NODE_NAMES])
        await one.watch("n2")
        await asyncio.sleep(60)
        assert one.silences()["n1"].proven_at is None
        assert "no kubelet of any node" in one.source.trouble

    played(scenario)


def test_who_cannot_reach_one_node_asks_another_in_its_turn() -> None:
    async def scenario(place: Place) -> None:
        (one,) = await place.begin("n1")
        place.world.wires.part(["seer-0"], ["n3/kubelet"])
        place.kill()
        await one.watch("n2")
        await asyncio.sleep(60)
        assert one.silences()["n1"].proven_on == "n4"

    played(scenario)


def test_a_refusal_proves_no_way_and_neither_does_our_own_node() -> None:
    async def scenario(place: Place) -> None:
        (one,) = await place.begin("n1")
        for name in ("n3", "n4"):
            place.cluster.nodes[name].kill_kubelet()
        place.kill()
        await one.watch("n2")
        await asyncio.sleep(15)
        assert one.silences()["n1"].proven_at is None

    played(scenario)


def test_what_was_seen_of_another_boot_is_not_told_of_this_one() -> None:
    async def scenario(place: Place) -> None:
        one, three = await place.begin("n1", "n3")
        place.kill()
        for seer in (one, three):
            await seer.watch("n2")
        await asyncio.sleep(30)
        other = msgspec.structs.replace(one.facts("n2"), boot_id="another")
        assert one.source.testimony(other) == Testimony()

    played(scenario)


def test_a_colleague_that_stands_still_ceases_to_count() -> None:
    async def scenario(place: Place) -> None:
        one, three = await place.begin("n1", "n3")
        place.kill()
        for seer in (one, three):
            await seer.watch("n2")
        await asyncio.sleep(30)
        three.process.pause()
        stopped = place.world.now
        await asyncio.sleep(60)
        assert one.silences()["n3"].asked_at <= stopped
        three.process.resume()
        await asyncio.sleep(20)
        assert place.world.now - one.silences()["n3"].asked_at < 20

    played(scenario)


@pytest.mark.parametrize("seed", range(4))
def test_a_colleague_never_asked_earlier_than_we_take_it_that_it_did(seed: int) -> None:
    """Whatever is held up: its process, the wires, our own watch."""

    async def scenario(place: Place) -> None:
        one, three = await place.begin("n1", "n3")
        place.kill()
        for seer in (one, three):
            await seer.watch("n2")
        chance, wires = place.world.chance, place.world.wires
        for _ in range(40):
            match int(chance.random() * 4):
                case 0:
                    three.process.pause()
                case 1:
                    wires.slow_down("seer-1", chance.random() * 4)
                case 2:
                    wires.slow_down("seer-0", chance.random() * 4)
                case _:
                    three.process.resume()
            await asyncio.sleep(chance.random() * 8)
            told = one.silences().get("n3")
            truth = three.source._watches["n2"]
            if told is not None and truth.asked_at is not None and truth.since is not None:
                assert told.asked_at <= truth.asked_at
                assert told.since >= truth.since - 1e-6

    played(scenario, seed=seed)


def test_a_last_look_is_one_that_the_colleague_had_after_it_was_asked_for() -> None:
    async def scenario(place: Place) -> None:
        one, three = await place.begin("n1", "n3")
        place.kill()
        for seer in (one, three):
            await seer.watch("n2")
        facts = one.facts("n2")
        # Nobody has been silent for long enough: there is nothing to wait for.
        await asyncio.sleep(60)
        began = place.world.now
        await one.source.ask(facts, ())
        assert place.world.now == began
        await asyncio.sleep(PATIENCE)
        began = place.world.now
        said = await one.source.ask(facts, ())
        assert {each.vantage for each in said.silences} == {"n1", "n3"}
        assert all(each.asked_at >= began for each in said.silences)
        assert place.world.now - began < 7
        three.process.pause()
        said = await one.source.ask(facts, ())
        assert {each.vantage for each in said.silences} == {"n1"}

    played(scenario)


def test_a_view_is_there_only_while_somebody_is_silent() -> None:
    async def scenario(place: Place) -> None:
        (one,) = await place.begin("n1")
        place.kill()
        await one.watch("n2")
        await asyncio.sleep(10)
        assert '"n2"' in (await place.view("n1") or "")
        await one.watch()
        await asyncio.sleep(10)
        assert await place.view("n1") is None

    played(scenario)


def test_a_node_that_says_no_address_is_not_silent() -> None:
    async def scenario(place: Place) -> None:
        (one,) = await place.begin("n1")
        place.kill()
        await one.watch("n2")
        await asyncio.sleep(20)
        assert one.silences()
        patch = {"status": {"addresses": [{"type": "Hostname", "address": "n2"}]}}
        await place.client.merge_patch(NODES, "n2", patch, subresource="status")
        await asyncio.sleep(10)
        assert not one.silences()

    played(scenario)


async def _take_everything(_: Inbound) -> Answer:
    return Answer(status=503)


def test_where_somebody_answers_for_everybody_nothing_means_anything() -> None:
    async def scenario(place: Place) -> None:
        (one,) = await place.begin("n1")
        place.cluster.nodes["n2"].cut_off(Cut.API)
        await one.watch("n2")
        await asyncio.sleep(7)
        assert one.channels() == {"kubelet port"}
        proxy = await place.world.network.serve.listen(
            _take_everything, host="192.0.2.1", port=10250
        )
        await asyncio.sleep(7)
        assert one.sees() == Testimony()
        assert "192.0.2.1" in one.source.trouble
        await proxy.close()
        await asyncio.sleep(7)
        assert one.channels() == {"kubelet port"}

    played(scenario)


def test_a_node_of_both_families_is_silent_only_where_both_are_proven() -> None:
    async def scenario(place: Place) -> None:
        (one,) = await place.begin("n1")
        place.kill()
        await one.watch("n2")
        await asyncio.sleep(20)
        assert one.silences()["n1"].proven_at is not None
        addresses = [
            {"type": "InternalIP", "address": "10.64.0.2"},
            {"type": "InternalIP", "address": "fd00::2"},
        ]
        patch = {"status": {"addresses": addresses}}
        await place.client.merge_patch(NODES, "n2", patch, subresource="status")
        # Nobody answers at the new address, not even with a refusal.
        link = place.world.network.link
        link("http://[fd00::2]:10250").lead_to(link("http://10.64.0.2:10250").host)
        await asyncio.sleep(15)
        assert one.silences()["n1"].proven_at is None

    played(scenario)


BAD = {
    "no JSON": "{",
    "a list": "[]",
    "another node's name": '{"by":"x","node":"n4","round":1}',
    "time before all time": (
        '{"by":"x","node":"n3","round":1,"nodes":[{"name":"n2","uid":"u","bootId":"b","silent":-5}]}'
    ),
    "too much": '{"by":"x","node":"n3","round":1,"heard":{"' + "y" * 70_000 + '":1}}',
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_what_is_no_view_is_said_once_and_ignored(text: str) -> None:
    async def scenario(place: Place) -> None:
        (one,) = await place.begin("n1")
        marks = {"labels": {VIEW: "true"}, "annotations": {VIEW: text}}
        lease = {"metadata": {"name": lease_name("n3"), **marks}}
        await place.client.create(LEASES, lease, namespace=SYSTEM)
        await asyncio.sleep(5)
        patch = {"metadata": {"annotations": {VIEW: text + " "}}}
        await place.client.merge_patch(LEASES, lease_name("n3"), patch, namespace=SYSTEM)
        place.kill()
        await one.watch("n2")
        await asyncio.sleep(20)
        assert list(one.silences()) == ["n1"]

    assert played(scenario).log.text.count(b"is no view of ours") == 1

"""Settings that all controllers of one cluster should share, and how it is noticed if not."""

import asyncio

import pytest

from backstay.app import App, build
from backstay.kube.client import KubeClient
from backstay.kube.lease import LeaseTimes
from backstay.model.policy import Times
from backstay.seam import Seams
from backstay.settings import Settings, disagreement, signed
from backstay.sim.world import World
from tests.control.rig import Scene

USUAL = Settings(identity="a", node_name="n1")
HASTY = Settings(identity="b", node_name="n2", times=Times(lost=30.0))


def test_controllers_with_the_same_settings_agree_wherever_they_listen() -> None:
    other = Settings(identity="b", host="0.0.0.0", port=9090, recorder="/var/lib")
    assert disagreement(signed(USUAL).identity, signed(other).identity) == ""


@pytest.mark.parametrize("host", ["", "localhost", "127.0.0.1", "127.0.0.2", "::1"])
def test_what_only_this_machine_can_reach_is_not_reachable(host: str) -> None:
    assert not Settings(identity="a", host=host).is_reachable


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "10.0.0.7", "fe80::1", "backstay", "127.0.0.1.example.org"]
)
def test_everything_else_is_reachable(host: str) -> None:
    assert Settings(identity="a", host=host).is_reachable


def test_other_times_are_named_as_a_disagreement() -> None:
    for other in (
        HASTY,
        Settings(identity="b", poll_leases=1.0),
        Settings(identity="b", lease_times=LeaseTimes(30.0, 20.0, 4.0)),
    ):
        sentence = disagreement(signed(USUAL).identity, signed(other).identity)
        assert sentence.startswith("b.")
        assert "same flags" in sentence


def test_nobody_is_accused_without_a_signature() -> None:
    assert disagreement(signed(USUAL).identity, "") == ""
    assert disagreement(signed(USUAL).identity, "somebody-else") == ""
    assert disagreement("unsigned", signed(HASTY).identity) == ""


def test_a_standby_with_other_settings_says_so_once_in_its_log_and_in_its_status() -> None:
    async def scenario(world: World) -> None:
        scene = Scene(world)
        await scene.boot("n1", "n2")
        apps: dict[str, App] = {}

        async def start(settings: Settings) -> None:
            async def main(seams: Seams) -> None:
                client = KubeClient(seams.transport, scene.cluster.access())
                apps[settings.identity] = app = build(settings, seams, client)
                await app.run()

            world.start(settings.identity, main)
            await asyncio.sleep(60.0)

        leader, standby = signed(USUAL), signed(HASTY)
        await start(leader)
        await start(standby)
        assert apps[leader.identity].leadership.term is not None
        (note,) = apps[standby.identity].status().notes
        assert note == disagreement(standby.identity, leader.identity)
        assert apps[leader.identity].status().notes == ()
        assert world.log.text.count(note.encode()) == 1

    with World(seed=1) as world:
        world.run(scenario(world))

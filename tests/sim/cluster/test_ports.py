"""What can be seen of a node at the port of its kubelet, whatever its lease says."""

import pytest

from backstay.seam.errors import ConnectFailed, Refused, TimedOut, TransportError
from backstay.seam.transport import Request
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.cluster.ground import WorldGround
from backstay.sim.nodes.machine import Cut
from backstay.sim.nodes.node import KUBELET_PORT
from tests.sim.cluster.stages import Cast, play, play_on_a_loop


async def _asked(cluster: EmbeddedCluster, node: str) -> int | type[TransportError]:
    """By a machine that is no node."""
    address = next(
        each["address"]
        for each in Cast(cluster).node(node)["status"]["addresses"]
        if each["type"] == "InternalIP"
    )
    request = Request(
        method="GET",
        url=f"http://{address}:{KUBELET_PORT}/healthz",
        timeout=3.0,
        headers={"Connection": "close"},
    )
    assert isinstance(cluster.ground, WorldGround)
    try:
        return (await cluster.ground.world.network.transport.request(request)).status
    except TransportError as error:
        return type(error)


def test_a_port_shows_what_befell_its_node() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        node = cluster.nodes["n1"]
        assert await _asked(cluster, "n1") == 400
        node.kill_kubelet()
        assert await _asked(cluster, "n1") is Refused
        node.kill()
        assert await _asked(cluster, "n1") is ConnectFailed
        node.reboot()
        await cluster.settled()
        assert await _asked(cluster, "n1") == 400
        # Its programs stand still, but somebody has taken the connection.
        node.freeze()
        assert await _asked(cluster, "n1") is TimedOut
        node.thaw()
        assert await _asked(cluster, "n1") == 400

    play(scenario)


@pytest.mark.parametrize("cut", [Cut.BOTH, Cut.OUT, Cut.IN])
def test_a_node_that_is_cut_off_in_any_direction_cannot_be_connected_to(cut: Cut) -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        assert isinstance(cluster.ground, WorldGround)
        world = cluster.ground.world
        seen = []

        async def look(_: object) -> None:
            seen.append(await _asked(cluster, "n1"))

        world.start("elsewhere", look)
        cluster.nodes["n1"].cut_off(cut)
        await world.processes["elsewhere"].wait()
        assert seen == [ConnectFailed]

    play(scenario)


def test_a_node_that_is_cut_off_from_the_api_alone_answers_everybody_else() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        cluster.nodes["n1"].cut_off(Cut.API)
        await cast.given_up("n1")
        assert await _asked(cluster, "n1") == 400
        cluster.nodes["n1"].heal()
        await cast.until(lambda: cast.node_says("n1") == "True")

    play(scenario)


def test_a_node_whose_ports_would_lie_has_none() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        endpoints = Cast(cluster).node("n1")["status"]["daemonEndpoints"]
        assert endpoints == {"kubeletEndpoint": {"Port": 0}}

    play_on_a_loop(scenario)

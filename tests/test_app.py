"""A whole controller in a simulated world: what it answers, and to whom."""

import asyncio

import msgspec

from backstay.app import build
from backstay.kube.client import KubeClient
from backstay.kube.resource import LEASES, Resource
from backstay.model.labels import NOTES
from backstay.record.endpoints import CLOSED, OPEN
from backstay.seam import Seams
from backstay.seam.transport import Request
from backstay.settings import Settings
from backstay.sim.fate import ALL_WELL, Fate
from backstay.sim.world import World
from tests.control.rig import Scene

ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")


def statuses(host: str, *, with_a_token: bool = False) -> dict[str, int]:
    """What each path is answered with by a controller that listens there, to somebody whom the
    cluster knows but has not allowed anything."""

    async def scenario(world: World) -> dict[str, int]:
        scene = Scene(world)
        await scene.boot("n1", "n2")

        async def main(seams: Seams) -> None:
            client = KubeClient(seams.transport, scene.cluster.access())
            await build(Settings(identity="a", host=host, port=8080), seams, client).run()

        world.start("controller", main)
        await asyncio.sleep(60.0)
        headers = {"authorization": f"Bearer {await token(scene)}"} if with_a_token else {}
        found = {}
        for path in (*OPEN, *CLOSED):
            url = f"http://{host}:8080{path}"
            request = Request(method="GET", url=url, headers=headers, timeout=5.0)
            found[path] = (await world.network.transport.request(request)).status
        return found

    with World(seed=1) as world:
        return world.run(scenario(world))


async def token(scene: Scene) -> str:
    account = {"metadata": {"name": "robot"}}
    await scene.client.create(ACCOUNTS, account, namespace="backstay-system")
    reply = await scene.client.create(
        ACCOUNTS, {}, namespace="backstay-system", name="robot", subresource="token"
    )
    said: str = reply.json()["status"]["token"]
    return said


def test_this_machine_may_read_everything() -> None:
    assert statuses("127.0.0.1") == dict.fromkeys((*OPEN, *CLOSED), 200)


def test_others_read_only_what_probes_need_unless_they_show_a_token() -> None:
    assert statuses("10.0.0.7") == dict.fromkeys(OPEN, 200) | dict.fromkeys(CLOSED, 401)


def test_a_token_alone_opens_nothing() -> None:
    found = statuses("10.0.0.7", with_a_token=True)
    assert found == dict.fromkeys(OPEN, 200) | dict.fromkeys(CLOSED, 403)


def test_a_leader_that_cannot_learn_what_others_have_seen_says_so_where_people_look() -> None:
    """On its own page, and on the lease, from which ``backstay status`` has it."""

    async def scenario(world: World) -> tuple[list[str], list[str], list[str]]:
        scene = Scene(world)
        await scene.boot("n1", "n2")
        world.network.fate = lambda each: Fate(refuse="labelSelector" in each.request.url)
        scene.start_controller()
        await asyncio.sleep(60.0)
        app = scene.apps["backstay-1"]
        page = list(app.status().notes)
        lease = await scene.client.get(LEASES, "backstay-controller", namespace="backstay-system")
        noted: list[str] = msgspec.json.decode(lease.json()["metadata"]["annotations"][NOTES])
        world.network.fate = lambda _: ALL_WELL
        await asyncio.sleep(60.0)
        return page, noted, [each for each in app.status().notes if "of the API" in each]

    with World(seed=1) as world:
        page, noted, later = world.run(scenario(world))
    assert page[0].startswith(
        "Nothing is done about any node: what others have seen of the API cannot be read (GET "
    )
    assert (noted, later) == (page, [])

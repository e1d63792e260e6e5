"""What controllers tell each other, on a real API server."""

import asyncio
from collections.abc import Callable

import pytest

from backstay.kube.client import KubeClient
from backstay.kube.resource import LEASES
from backstay.model.labels import VIEW
from backstay.model.node import NodeFacts
from backstay.seam.system import SystemRng
from backstay.seam.tasks import Tasks
from backstay.sources.views import Sight, Views, lease_name

pytestmark = pytest.mark.real

NODE = NodeFacts(name="n2", uid="u2", boot_id="b2")
SIGHT = Sight(name="n2", uid="u2", boot_id="b2", silent=160.0, proven=1.0, proven_on="n4")


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - views tell nobody what they have heard
            await asyncio.sleep(0.05)


async def test_two_controllers_hear_each_other_and_fall_silent_when_there_is_nothing_to_say(
    client: KubeClient, namespace: str
) -> None:
    one, three = (
        Views(client, rng=SystemRng(), namespace=namespace, node=name) for name in ("n1", "n3")
    )
    loop = asyncio.get_running_loop()
    async with Tasks("views") as tasks:
        for views in (one, three):
            tasks.spawn(views.run(), name=views.node)
        began = loop.time()
        await one.publish([SIGHT], heard=one.heard(), not_after=loop.time() + 10, hurry=True)
        await until(lambda: bool(three.heard()))
        assert three.hurried.is_set()
        assert list(three.told(NODE)) == [], "it has not heard of us yet"
        await three.publish([SIGHT], heard=three.heard(), not_after=loop.time() + 10)
        await until(lambda: bool(list(one.told(NODE))))
        [told] = one.told(NODE)
        assert (told.vantage, told.sight) == ("n3", SIGHT)
        assert began <= told.asked_at <= told.seen_at
        await three.withdraw()
        await until(lambda: not list(one.told(NODE)))
        assert (one.trouble, three.trouble) == (None, None)
    lease = (await client.get(LEASES, lease_name("n3"), namespace=namespace)).json()
    assert VIEW not in (lease["metadata"].get("annotations") or {})

"""The Events of the Piraeus HA controller, as whoever watches for them expects them."""

from typing import Any

from backstay.kube.access import GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.kube.events import EventRecorder
from backstay.kube.resource import EVENTS, NAMESPACES
from backstay.model.storage import Attachment
from backstay.model.workload import PodRef
from backstay.record.piraeus import COMPONENT, PiraeusHerald
from backstay.seam.system import SystemRng
from backstay.seam.tasks import Tasks
from backstay.sim.api.server import ApiServer
from backstay.sim.clock import LoopClock
from backstay.sim.network import Network
from tests.support.virtual import virtual_time


@virtual_time
async def test_their_words_are_those_of_the_piraeus_ha_controller() -> None:
    network, wall, rng = Network(), LoopClock(), SystemRng(1)
    server = ApiServer(wall=wall, rng=rng)
    await network.serve.listen(server.handle, host="api", port=80)
    client = KubeClient(network.transport, GivenAccess("http://api:80", Grant()))
    for namespace in ("shop", "default"):
        await client.create(NAMESPACES, {"metadata": {"name": namespace}})
    events = EventRecorder(client, component=COMPONENT, instance="a", wall=wall, rng=rng)
    async with Tasks("test") as tasks:
        tasks.spawn(events.run(), name="events")
        herald = PiraeusHerald(events)
        herald.deleted([PodRef("shop", "db-0", "pod-uid", "7")])
        herald.detached(
            [Attachment(name="csi-1", uid="va-uid", version="8", node="n1", pv="pvc-1")]
        )
        assert await events.flush(5.0)
    found: list[dict[str, Any]] = (await client.list(EVENTS)).json()["items"]
    pod, attachment = sorted(found, key=lambda event: event["reason"])
    assert pod["metadata"]["namespace"] == "shop"
    assert {key: pod["involvedObject"][key] for key in ("kind", "name", "uid")} == {
        "kind": "Pod", "name": "db-0", "uid": "pod-uid",
    }  # fmt: skip
    assert (pod["type"], pod["reason"], pod["message"]) == (
        "Warning", "ForceDeleted", "pod deleted because a used volume is marked as failing",
    )  # fmt: skip
    assert attachment["metadata"]["namespace"] == "default"
    assert attachment["involvedObject"]["kind"] == "VolumeAttachment"
    assert (attachment["type"], attachment["reason"], attachment["message"]) == (
        "Warning", "ForceDetached", "volume detached because it is marked as failing",
    )  # fmt: skip
    assert {event["source"]["component"] for event in found} == {"piraeus-ha-controller"}

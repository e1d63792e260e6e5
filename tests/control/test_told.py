"""One incident from its first silence to its end, as those see it who were not there: the webhook,
the Events, the decisions that are kept. And that none of them holds what is nobody's business."""

import asyncio
import base64
import json
import zlib
from typing import Any

from backstay.apis.backstay import CONFIG_NAME, CONFIGS
from backstay.app import build
from backstay.decide.failover import CHAIN
from backstay.kube.client import KubeClient
from backstay.kube.resource import CONFIG_MAPS, EVENTS, NODES
from backstay.record.blackbox import read_frames
from backstay.record.notify import Webhook
from backstay.record.replay import replay
from backstay.seam import Seams
from backstay.seam.serve import Answer, Inbound
from backstay.settings import Settings
from tests.control.rig import Scene, play
from tests.seam.worlds import server_tls

SECRET = "hunter2"
"""It stands in whatever a tenant could put a secret into."""

OURS = "backstay-system"


class Receiver:
    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    async def handle(self, inbound: Inbound) -> Answer:
        self.messages.append(json.loads(inbound.body))
        return Answer(status=204)

    def events(self) -> list[str]:
        return [message["event"] for message in self.messages]


async def start(s: Scene, receiver: Receiver) -> None:
    await s.world.network.serve.listen(
        receiver.handle, host="hooks.example", port=443, tls=server_tls()
    )

    async def main(seams: Seams) -> None:
        await seams.files.write("/url", b"https://hooks.example/x")
        client = KubeClient(seams.transport, s.cluster.access())
        webhook = Webhook(url_file="/url", cluster="lab")
        s.apps["a"] = build(Settings(identity="a", webhook=webhook), seams, client)
        await s.apps["a"].run()

    s.world.start("a", main)


async def until_dead_and_gone(s: Scene, receiver: Receiver) -> None:
    await s.boot("n1", "n2", "n3")
    await s.start_vms("a", "b", annotations={"password": SECRET})
    await s.client.merge_patch(NODES, "n1", {"metadata": {"annotations": {"token": SECRET}}})
    await s.arm()
    await start(s, receiver)
    await asyncio.sleep(30)
    s.cluster.nodes["n1"].kill()
    await s.until(lambda: "held" in receiver.events())
    await s.confirm_dead("n1")
    await s.until(lambda: "recovered" in receiver.events())
    await asyncio.sleep(20)
    await s.client.delete(NODES, "n1")
    await s.until(lambda: "closed" in receiver.events(), timeout=300)
    disarmed = {"until": "2999-01-01T00:00:00Z", "reason": "works", "by": "ann"}
    await s.client.merge_patch(CONFIGS, CONFIG_NAME, {"spec": {"disarmed": disarmed}})
    await s.until(lambda: "disarmed" in receiver.events())


def test_an_incident_can_be_followed_from_outside_and_decided_again() -> None:
    async def scene(s: Scene) -> None:
        receiver = Receiver()
        await until_dead_and_gone(s, receiver)
        assert receiver.events() == [
            "opened", "held", "released", "recovered", "closed", "disarmed",
        ]  # fmt: skip
        opened, held, *_, closed, disarmed = receiver.messages
        name = (await s.incident()).key
        assert {m["incident"] for m in receiver.messages} == {name, ""}
        assert opened["code"] == "NodeLost"
        assert held["sentence"].endswith("(1 more like it.)")
        assert closed["code"] == "NodeGone"
        assert (disarmed["code"], disarmed["incident"]) == ("NoLongerArmed", "")

        events = (await s.client.list(EVENTS)).json()["items"]
        told = {(e["involvedObject"]["kind"], e["reason"]) for e in events
                if e["source"].get("component") == "backstay"}  # fmt: skip
        assert told >= {
            ("Node", "NodeLost"), ("VirtualMachine", "ProofMissing"), ("Pod", "ProofMissing"),
            ("VirtualMachine", "Released"), ("Pod", "Released"), ("VirtualMachine", "Recovered"),
            ("VirtualMachine", "ReadyAgain"),
        }  # fmt: skip

        recording = await read_frames(s.client, namespace=OURS, incident=name)
        codes = [frame.outcome.why.code for frame in recording.frames]
        assert codes[:2] == ["NodeSuspect", "NodeLost"]
        made = replay(recording, CHAIN)
        assert (made.differences, made.rules) == ((), "")

        maps = (await s.client.list(CONFIG_MAPS, namespace=OURS)).json()["items"]
        kept = [
            zlib.decompress(base64.b64decode(packed), wbits=31)
            for each in maps
            for packed in (each.get("binaryData") or {}).values()
        ]
        assert len(kept) == len(recording.frames)
        everything = b"".join(kept).decode() + json.dumps([receiver.messages, events, maps])
        assert SECRET not in everything
        assert s.doubles == []

    play(scene)

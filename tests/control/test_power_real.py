"""A node that only stands still is switched off and on over Redfish, on a real control plane."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import yaml

from backstay.apis import core
from backstay.apis.backstay import CONFIG_NAME, CONFIGS
from backstay.kube.client import KubeClient
from backstay.kube.resource import NODES
from backstay.record.devices import read_devices
from backstay.seam.real import open_seams
from backstay.seam.serve import Answer
from tests.control.rig_real import RealScene, eventually, real_scene
from tests.drivers.bmc import PASSWORD, USER, Bmc
from tests.support.controller_program import TIMES
from tests.support.installed import Installed

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]


class Wired(Bmc):
    """A BMC that the power of a node really hangs on."""

    def __init__(self, scene: RealScene, uuid: str) -> None:
        super().__init__()
        self.uuid = uuid
        self._node = scene.victim

    def _reset(self, kind: str) -> Answer:
        answer = super()._reset(kind)
        if kind == "ForceOff":
            self._node.kill()
        else:
            self._node.reboot()
        return answer


@pytest.fixture
async def scene(
    client: KubeClient, installed: Installed, namespace: str
) -> AsyncIterator[RealScene]:
    async with real_scene(client, installed, namespace) as built:
        await built.boot(3)
        yield built


async def test_a_node_that_stands_still_is_switched_off_and_comes_back_clean(
    scene: RealScene, client: KubeClient, tmp_path: Path
) -> None:
    victim = scene.victim.name
    live = core.node_row((await client.get(NODES, victim)).into(core.Node))
    bmc = Wired(scene, live.system_uuid)
    async with open_seams() as seams:
        listener = await seams.serve.listen(bmc.handle, host="127.0.0.1", port=0)
        login = {"address": listener.url.rstrip("/"), "username": USER, "password": PASSWORD}
        (tmp_path / victim).write_text(yaml.safe_dump(login))
        pods = await scene.start_pods(3)
        # Its ports cannot be asked here, so virt-handler is given its time.
        times = msgspec.structs.replace(TIMES, heartbeat=5.0)
        await scene.start_controller(redfish=str(tmp_path), times=times, knock=0.5)
        await scene.arm()
        enabled = {"spec": {"fencing": {"power": {"enabled": True}}}}
        await client.merge_patch(CONFIGS, CONFIG_NAME, enabled)
        scene.victim.freeze()
        await eventually(lambda: bmc.asked == ["ForceOff"])
        await scene.until_elsewhere(pods)
        assert scene.most_copies(pods) == 1
        await eventually(lambda: bmc.asked == ["ForceOff", "On"], within=40)
        row = await scene.until_incident(lambda row: not row.open)
        assert row.status.code == "NodeRebooted"
        assert {each.kind for each in row.status.evidence} == {"PoweredOff"}
        assert not await scene.is_tainted(victim)
        told = await read_devices(client, namespace="backstay-system")
        assert told is not None
        assert told[victim].works
        await listener.close()

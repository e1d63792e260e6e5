"""How the devices of nodes are, told where commands can read it."""

import asyncio
from typing import cast

from backstay.kube.client import KubeClient
from backstay.kube.lease import Term
from backstay.kube.resource import LEASES, Resource
from backstay.model.power import DeviceReport
from backstay.record.devices import LEASE, DeviceBoard, read_devices, written_as
from backstay.seam.tasks import Tasks
from tests.record.rig import RecordScene
from tests.support.virtual import virtual_time

NAMESPACE = "backstay-system"
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SILENT = DeviceReport("DeviceSilent", "n2 cannot be switched off.", "look at it")


class Lasting:
    """A term without an end."""

    def require(self) -> float:
        return asyncio.get_running_loop().time() + 10


async def begun() -> tuple[RecordScene, KubeClient]:
    scene = RecordScene()
    await scene.begin()
    await scene.client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    return scene, scene.client


@virtual_time
async def test_what_is_told_can_be_read_and_is_written_when_it_changes() -> None:
    scene, client = await begun()
    reports = {"n1": DeviceReport(), "n2": SILENT}
    board = DeviceBoard(client, namespace=NAMESPACE, reports=lambda: dict(reports))
    assert await read_devices(client, namespace=NAMESPACE) is None
    async with Tasks("test") as tasks:
        tasks.spawn(board.run(cast(Term, Lasting())), name="board")
        await asyncio.sleep(1)
        assert await read_devices(client, namespace=NAMESPACE) == reports
        before = len(scene.writes())
        await asyncio.sleep(60)
        assert len(scene.writes()) == before
        reports["n2"] = DeviceReport()
        await asyncio.sleep(20)
        assert await read_devices(client, namespace=NAMESPACE) == reports
        assert len(scene.writes()) == before + 1


@virtual_time
async def test_what_is_no_report_is_none() -> None:
    _, client = await begun()
    lease = {"metadata": {"name": LEASE, "annotations": {"backstay.dev/devices": "[1]"}}}
    await client.create(LEASES, lease, namespace=NAMESPACE)
    assert await read_devices(client, namespace=NAMESPACE) is None


def test_what_is_wrong_is_not_what_is_left_out() -> None:
    many = {f"node-{n:05}.example.org": DeviceReport() for n in range(20_000)}
    broken = {"zz": DeviceReport("DeviceSilent", "x" * 10_000)}
    text = written_as(many | broken)
    assert len(text) < 256 * 1024
    assert '"zz"' in text

"""Switching a silent node off, and on again, on an embedded cluster under virtual time."""

import asyncio
from typing import Any

from backstay.app import build
from backstay.kube.client import KubeClient
from backstay.model.incident import Progress
from backstay.seam import Seams
from backstay.settings import Settings
from backstay.sim.process import Process
from tests.control.rig import Scene, play
from tests.support.bmcs import Bmcs


def start(s: Scene, bmcs: Bmcs, name: str = "backstay-1", **instead: Any) -> Process:
    async def main(seams: Seams) -> None:
        client = KubeClient(seams.transport, s.cluster.access())
        settings = Settings(identity=name, node_name="n3")
        s.apps[name] = build(settings, seams, client, devices=bmcs, **instead)
        await s.apps[name].run()

    return s.world.start(name, main)


async def set_up(s: Scene, *vms: str, **power: Any) -> Bmcs:
    """Three nodes with a BMC each, VMs on the first of them, and a controller that leads."""
    await s.boot("n1", "n2", "n3")
    await s.start_vms(*vms)
    bmcs = Bmcs(s.cluster)
    start(s, bmcs)
    await s.arm(fencing={"power": {"enabled": True, **power}})
    await asyncio.sleep(30)
    return bmcs


async def codes(s: Scene) -> list[str]:
    return [moment.code for moment in (await s.incident()).status.timeline]


def test_a_node_that_is_cut_off_is_switched_off_and_its_vms_run_elsewhere() -> None:
    async def scene(s: Scene) -> None:
        bmcs = await set_up(s, "a", "b")
        [victim] = set(s.copies("a"))
        s.cluster.nodes[victim].cut_off()
        cut_at = asyncio.get_running_loop().time()
        await s.until(lambda: bmcs.verbs == ["off"])
        await s.until(lambda: all(s.copies(vm) not in ([], [victim]) for vm in "ab"))
        assert asyncio.get_running_loop().time() - cut_at < 60
        said = await codes(s)
        assert said.index("SwitchingOff") < said.index("EvidenceFound") < said.index("ProofHolds")

    assert play(scene).doubles == []


def test_what_was_switched_off_is_switched_on_when_all_is_done_and_is_given_back() -> None:
    async def scene(s: Scene) -> None:
        bmcs = await set_up(s, "a")
        [victim] = s.copies("a")
        s.cluster.nodes[victim].cut_off()
        await s.until(lambda: bmcs.verbs == ["off", "on"], timeout=200)
        status = (await s.incident()).status
        assert {record.progress for record in status.workloads} == {Progress.RECOVERED}
        await s.eventually(lambda: is_closed(s), within=120)
        row = await s.incident()
        assert row.status.code == "NodeRebooted"
        assert "SwitchingOn" in await codes(s)
        assert row.status.power is not None
        assert (row.status.power.offs, row.status.power.ons) == (1, 1)
        assert not await s.is_tainted(victim)
        await asyncio.sleep(120)
        assert bmcs.verbs == ["off", "on"]

    assert play(scene).doubles == []


async def is_closed(s: Scene) -> bool:
    return not (await s.incident()).open

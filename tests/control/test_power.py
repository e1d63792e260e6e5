"""Switching a silent node off, and on again, on an embedded cluster under virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any, ClassVar

import pytest

from backstay.apis.backstay import CONFIG_NAME, CONFIGS
from backstay.app import build
from backstay.control.guard import Guard
from backstay.decide.power import MOST_OFFS, MOST_ONS
from backstay.drivers.power import DEADLINE
from backstay.kube.client import KubeClient
from backstay.kube.lease import LeaseTimes
from backstay.kube.resource import LEASES, NODES
from backstay.model.incident import IncidentStatus, Progress
from backstay.model.labels import DRAIN_TAINT, LEASE_NAMESPACE
from backstay.record.devices import read_devices
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


def record_of(status: IncidentStatus) -> tuple[int, int]:
    power = status.power
    return (0, 0) if power is None else (power.offs, power.ons)


async def silence_for(s: Scene, seconds: float, *vms: str) -> str:
    """The node of the VMs is cut off, and nothing else happens for so long."""
    [victim] = {node for vm in vms for node in s.copies(vm)}
    s.cluster.nodes[victim].cut_off()
    await asyncio.sleep(seconds)
    return victim


# What is no proof


def test_that_a_device_said_yes_is_no_proof() -> None:
    async def scene(s: Scene) -> None:
        bmcs = await set_up(s, "a")
        bmcs.stuck = {"n1"}
        victim = await silence_for(s, 300, "a")
        assert s.copies("a") == [victim]
        assert bmcs.verbs == ["off"] * MOST_OFFS
        assert (await codes(s)).count("PowerOffUnanswered") == 1
        status = (await s.incident()).status
        assert [record.code for record in status.workloads] == ["ProofMissing"]
        assert not await s.is_tainted(victim)

    play(scene)


def test_between_two_requests_the_first_has_lapsed() -> None:
    async def scene(s: Scene) -> None:
        bmcs = await set_up(s, "a")
        bmcs.stuck = {"n1"}
        await silence_for(s, 300, "a")
        power = (await s.incident()).status.power
        assert power is not None
        moments = [at for _, _, at in bmcs.asked]
        assert all(b - a > power.seconds for a, b in pairwise(moments))

    play(scene)


def test_a_device_that_does_not_answer_holds_everything_and_is_named_once() -> None:
    async def scene(s: Scene) -> None:
        bmcs = await set_up(s, "a")
        bmcs.silent = {"n1"}
        victim = await silence_for(s, 200, "a")
        assert s.copies("a") == [victim]
        assert bmcs.verbs == []
        assert (await codes(s)).count("DeviceSilent") == 1

    play(scene)


def test_a_device_that_cannot_be_asked_to_switch_is_named_and_asked_again() -> None:
    async def scene(s: Scene) -> None:
        bmcs = await set_up(s, "a")
        bmcs.refusing = {"n1"}
        await silence_for(s, 60, "a")
        said = await codes(s)
        assert said.count("PowerRefused") == 1
        assert "SwitchingOff" not in said
        bmcs.refusing = set()
        await s.until(lambda: s.copies("a") not in ([], ["n1"]), timeout=60)

    assert play(scene).doubles == []


def test_the_device_of_another_machine_is_used_for_nothing() -> None:
    """Neither to switch that one off, nor to believe that it is."""

    async def scene(s: Scene) -> None:
        bmcs = await set_up(s, "a")
        bmcs.uuids = {"n1": "n2"}
        s.cluster.nodes["n1"].kill()
        await asyncio.sleep(200)
        assert s.copies("a") == []
        assert bmcs.verbs == []
        assert (await codes(s)).count("WrongDevice") == 1

    play(scene)


def test_a_node_that_has_lost_its_power_is_proven_dead_without_switching_anything() -> None:
    async def scene(s: Scene) -> None:
        bmcs = await set_up(s, "a")
        s.cluster.nodes["n1"].kill()
        # As soon as it is suspect its BMC is asked, and the rest of the silence is not waited for.
        await s.until(lambda: bool(s.copies("a")), timeout=36)
        await asyncio.sleep(120)
        assert bmcs.verbs == []
        assert {each.kind for each in (await s.incident()).status.evidence} == {"PoweredOff"}

    assert play(scene).doubles == []


# Who says no


@pytest.mark.parametrize(
    ("taint", "says"), [(DRAIN_TAINT, "InMaintenance"), ("somebody/else", "SwitchingOff")]
)
def test_a_node_in_maintenance_is_not_switched_off(taint: str, says: str) -> None:
    async def scene(s: Scene) -> None:
        bmcs = await set_up(s, "a")
        taints = [{"key": taint, "effect": "NoSchedule"}]
        await s.client.merge_patch(NODES, "n1", {"spec": {"taints": taints}})
        await silence_for(s, 60, "a")
        assert says in await codes(s)
        assert bool(bmcs.verbs) is (says == "SwitchingOff")

    play(scene)


def test_without_leave_nothing_is_switched() -> None:
    async def scene(s: Scene) -> None:
        bmcs = await set_up(s, "a", enabled=False)
        await silence_for(s, 200, "a")
        assert bmcs.verbs == []

    play(scene)


def test_who_only_observes_switches_nothing() -> None:
    async def scene(s: Scene) -> None:
        bmcs = await set_up(s, "a")
        await s.client.merge_patch(CONFIGS, CONFIG_NAME, {"spec": {"mode": "Observe"}})
        await silence_for(s, 200, "a")
        assert bmcs.verbs == []

    play(scene)


def test_a_dead_kubelet_is_no_reason_to_kill_its_guests() -> None:
    async def scene(s: Scene) -> None:
        bmcs = await set_up(s, "a")
        s.cluster.nodes["n1"].kill_kubelet()
        await asyncio.sleep(400)
        assert bmcs.verbs == []
        assert s.copies("a") == ["n1"]

    play(scene)


# Power order


def test_it_is_switched_on_only_when_no_request_to_switch_it_off_can_still_arrive() -> None:
    async def scene(s: Scene) -> None:
        bmcs = await set_up(s, "a")
        await silence_for(s, 200, "a")
        [(_, _, off), (_, _, on)] = bmcs.asked
        power = (await s.incident()).status.power
        assert power is not None
        assert on - off > power.seconds > DEADLINE
        assert on - off < power.seconds + 8

    play(scene)


def test_who_takes_over_waits_for_the_claim_of_its_predecessor() -> None:
    """The first leader stops with its request in hand, which nobody could call back."""

    async def scene(s: Scene) -> None:
        await s.boot("n1", "n2", "n3")
        await s.start_vms("a")
        bmcs = Bmcs(s.cluster)
        first = start(s, bmcs)
        await s.arm(fencing={"power": {"enabled": True}})
        await asyncio.sleep(30)
        bmcs.after_off = first.die
        s.cluster.nodes["n1"].cut_off()
        await s.until(lambda: bmcs.verbs == ["off"])
        bmcs.after_off = None
        killed_at = bmcs.asked[0][2]
        start(s, bmcs, "backstay-2")
        await s.until(lambda: bmcs.verbs[-1:] == ["on"], timeout=300)
        power = (await s.incident()).status.power
        assert power is not None
        assert bmcs.asked[-1][2] - killed_at > power.seconds

    assert play(scene).doubles == []


def test_a_claim_that_was_never_carried_out_is_made_anew_by_the_successor() -> None:
    """It died between the claim and the request: what became of it is seen, not assumed."""

    async def scene(s: Scene) -> None:
        await s.boot("n1", "n2", "n3")
        await s.start_vms("a")
        bmcs = Bmcs(s.cluster)
        first = start(s, bmcs, guard=DiesWithTheClaim)
        await s.arm(fencing={"power": {"enabled": True}})
        await asyncio.sleep(30)
        DiesWithTheClaim.process = first
        s.cluster.nodes["n1"].cut_off()
        await s.eventually(lambda: has_claim(s))
        assert bmcs.verbs == []
        start(s, bmcs, "backstay-2")
        await s.until(lambda: s.copies("a") not in ([], ["n1"]), timeout=200)
        assert bmcs.verbs == ["off"]
        assert record_of((await s.incident()).status) == (2, 0)

    assert play(scene).doubles == []


class DiesWithTheClaim(Guard):
    process: ClassVar[Process]

    async def _claim(self, *args: Any, **more: Any) -> float:
        await super()._claim(*args, **more)
        await self.process.die()


async def has_claim(s: Scene) -> bool:
    return bool(await s.incidents()) and record_of((await s.incident()).status)[0] > 0


def test_what_people_switch_on_is_left_on() -> None:
    async def scene(s: Scene) -> None:
        bmcs = await set_up(s, "a", powerOn=False)
        await silence_for(s, 100, "a")
        assert bmcs.verbs == ["off"]
        assert (await codes(s)).count("StaysOff") == 1
        s.cluster.nodes["n1"].heal()
        s.cluster.nodes["n1"].reboot()
        await asyncio.sleep(120)
        assert bmcs.verbs == ["off"]
        assert await is_closed(s)

    play(scene)


def test_a_device_that_does_not_switch_on_is_asked_a_few_times_and_then_named_once() -> None:
    async def scene(s: Scene) -> None:
        bmcs = await set_up(s, "a")
        s.cluster.nodes["n1"].cut_off()
        await s.until(lambda: bmcs.verbs == ["off"])
        bmcs.stuck = {"n1"}
        await asyncio.sleep(400)
        assert bmcs.verbs == ["off"] + ["on"] * MOST_ONS
        [told] = [
            moment.sentence
            for moment in (await s.incident()).status.timeline
            if moment.code == "PowerOnUnanswered"
        ]
        assert "it was asked, and is off" in told

    play(scene)


def test_a_node_that_is_heard_of_again_is_not_given_back_while_it_may_still_be_switched_off() -> (
    None
):
    async def scene(s: Scene) -> None:
        bmcs = await set_up(s, "a")
        bmcs.stuck = {"n1"}
        s.cluster.nodes["n1"].cut_off()
        await s.until(lambda: bmcs.verbs == ["off"])
        s.cluster.nodes["n1"].heal()
        await asyncio.sleep(12)
        assert not await is_closed(s)
        await asyncio.sleep(30)
        assert await is_closed(s)

    play(scene)


# Between the claim and the request


class Interrupted(Guard):
    """Something happens right after the claim was written."""

    happens: ClassVar[Callable[[], Awaitable[None]]]

    async def _claim(self, *args: Any, **more: Any) -> float:
        not_after = await super()._claim(*args, **more)
        await type(self).happens()
        return not_after


async def interrupted(s: Scene, happens: Callable[[], Awaitable[None]]) -> Bmcs:
    await s.boot("n1", "n2", "n3")
    await s.start_vms("a")
    bmcs = Bmcs(s.cluster)
    start(s, bmcs, guard=Interrupted)
    await s.arm(fencing={"power": {"enabled": True}})
    await asyncio.sleep(30)
    Interrupted.happens = staticmethod(happens)
    s.cluster.nodes["n1"].cut_off()
    await s.eventually(lambda: has_claim(s))
    await asyncio.sleep(5)
    return bmcs


def test_a_node_that_is_heard_of_after_the_claim_is_not_switched_off() -> None:
    async def scene(s: Scene) -> None:
        async def renew() -> None:
            patch = {"spec": {"renewTime": "2031-01-01T00:00:00.000000Z"}}
            await s.client.merge_patch(LEASES, "n1", patch, namespace=LEASE_NAMESPACE)

        assert (await interrupted(s, renew)).verbs == []

    play(scene)


def test_who_is_disarmed_after_the_claim_switches_nothing_off() -> None:
    async def scene(s: Scene) -> None:
        async def disarm() -> None:
            await s.client.merge_patch(CONFIGS, CONFIG_NAME, {"spec": {"mode": "Observe"}})
            await asyncio.sleep(1)

        assert (await interrupted(s, disarm)).verbs == []

    play(scene)


def test_who_is_held_up_after_the_claim_sends_nothing_that_the_claim_does_not_cover() -> None:
    """Its term goes on, and what was claimed does not."""

    async def scene(s: Scene) -> None:
        claimed_at: list[float] = []

        async def wait() -> None:
            claimed_at.append(asyncio.get_running_loop().time())
            await asyncio.sleep(12)

        bmcs = await interrupted(s, wait)
        await asyncio.sleep(12)
        assert claimed_at
        assert bmcs.until[0] <= claimed_at[0] + LeaseTimes().hold

    play(scene)


# What is told of it


def test_which_devices_have_trouble_is_in_the_status_and_counted() -> None:
    async def scene(s: Scene) -> None:
        await s.boot("n1", "n2", "n3")
        bmcs = Bmcs(s.cluster)
        bmcs.uuids, bmcs.silent = {"n2": "n3"}, {"n3"}
        start(s, bmcs)
        await asyncio.sleep(60)
        app = s.apps["backstay-1"]
        notes = " ".join(app.status().notes)
        assert "the BMC of n2 is that of another machine" in notes
        assert "the BMC of n3 does not answer" in notes
        counted = app.metrics().decode()
        assert 'backstay_power_devices{code="Works"} 1' in counted
        assert 'backstay_power_devices{code="WrongDevice"} 1' in counted
        told = await read_devices(s.client, namespace="backstay-system")
        assert told is not None
        codes = {node: report.code for node, report in told.items()}
        assert codes == {"n1": "", "n2": "WrongDevice", "n3": "DeviceSilent"}

    play(scene)

"""What a living virt-handler says of its guests, and when that is believed."""

import asyncio
from typing import Any

import msgspec
import pytest

from backstay.apis.kubevirt import INSTANCES
from backstay.apis.machines import MIGRATIONS
from backstay.model.evidence import Testimony
from backstay.model.guest import Guest
from backstay.model.labels import LAUNCHER_UID
from backstay.model.node import NodeFacts
from backstay.model.workload import PodRef, Workload, WorkloadKind
from backstay.seam.system import SystemRng
from backstay.sources.guests import GuestSource
from backstay.sources.nodes import NodeSource
from tests.sources.conftest import CountingApi
from tests.support import objects as some

LAUNCHER = "uid-launcher"
GUEST = Workload(
    kind=WorkloadKind.VIRTUAL_MACHINE,
    namespace="shop",
    name="web",
    node="n1",
    pods=(PodRef("shop", "virt-launcher-web-x", LAUNCHER, "1"),),
    guest=Guest(),
)


class Ward:
    """A source that looks after n1, whose kubelet is silent."""

    def __init__(self, api: CountingApi) -> None:
        self.client = api.client
        nodes = NodeSource(
            api.client, rng=SystemRng(1), interval=2.0, window=22.0, on_look=lambda: None
        )
        self.source = GuestSource(api.client, nodes, interval=2.0)
        self.facts = NodeFacts(
            name="n1", uid="u1", boot_id="b1", ready="Unknown", looked_at=0.0, lease_changed_at=0.0
        )
        self.beat()
        self.source.watch([self.facts])

    def beat(self) -> None:
        """virt-handler is heard of, this very moment."""
        now = asyncio.get_running_loop().time()
        self.facts = msgspec.structs.replace(self.facts, heartbeat_changed_at=now)

    async def ask(self) -> Testimony:
        return await self.source.ask(self.facts, [GUEST])

    async def set(self, **status: Any) -> None:
        body = {"status": status}
        await self.client.merge_patch(
            INSTANCES, "web", body, namespace="shop", manager="virt-handler"
        )


@pytest.fixture
async def ward(kubevirt: CountingApi) -> Ward:
    guest = some.instance("web", labels={"kubevirt.io/nodeName": "n1"})
    guest["metadata"]["finalizers"] = ["kubevirt.io/foregroundDeleteVirtualMachine"]
    guest["status"]["activePods"] = {LAUNCHER: "n1"}
    await kubevirt.put(guest)
    return Ward(kubevirt)


async def test_a_guest_that_runs_gives_nothing_to_say(ward: Ward) -> None:
    assert await ward.ask() == Testimony()


async def test_a_guest_whose_instance_is_being_deleted_is_being_stopped(ward: Ward) -> None:
    await ward.client.delete(INSTANCES, "web", namespace="shop")
    said = await ward.ask()
    assert (said.stopping, said.stops) == ((LAUNCHER,), ())


async def test_that_it_has_stopped_is_believed_only_after_the_next_heartbeat(ward: Ward) -> None:
    await ward.set(phase="Succeeded")
    assert (await ward.ask()).stops == ()
    await asyncio.sleep(0.001)
    ward.beat()
    [stop] = (await ward.ask()).stops
    assert stop.launcher == LAUNCHER
    assert "shop/web" in stop.detail


async def test_a_heartbeat_while_it_was_being_stopped_is_enough(ward: Ward) -> None:
    await ward.client.delete(INSTANCES, "web", namespace="shop")
    await ward.ask()
    await asyncio.sleep(0.001)
    ward.beat()
    await ward.set(phase="Failed")
    assert [stop.launcher for stop in (await ward.ask()).stops] == [LAUNCHER]


async def test_a_launcher_on_another_node_is_none_of_it(ward: Ward) -> None:
    await ward.set(phase="Failed", activePods={LAUNCHER: "n2"})
    await ward.ask()
    await asyncio.sleep(0.001)
    ward.beat()
    assert (await ward.ask()).stops == ()


async def test_where_the_kubelet_was_heard_of_last_nobody_is_asked(
    ward: Ward, kubevirt: CountingApi
) -> None:
    now = asyncio.get_running_loop().time()
    ward.facts = msgspec.structs.replace(ward.facts, lease_changed_at=now + 1)
    with kubevirt.counting() as asked:
        assert await ward.ask() == Testimony()
    assert asked == []


async def test_what_cannot_be_looked_at_is_not_believed_any_more(
    ward: Ward, kubevirt: CountingApi
) -> None:
    await ward.set(phase="Failed")
    await ward.ask()
    await asyncio.sleep(0.001)
    ward.beat()
    assert (await ward.ask()).stops
    kubevirt.refused = ("/virtualmachineinstances",)
    assert (await ward.ask()).stops == ()
    assert "n1" in ward.source.trouble
    kubevirt.refused = ()
    await ward.ask()
    assert ward.source.trouble == ""


async def test_another_boot_of_the_node_has_nothing_to_do_with_it(ward: Ward) -> None:
    await ward.set(phase="Failed")
    await ward.ask()
    await asyncio.sleep(0.001)
    ward.beat()
    ward.facts = msgspec.structs.replace(ward.facts, boot_id="b2")
    assert await ward.ask() == Testimony()


async def test_our_migrations_are_followed_and_others_are_not(ward: Ward) -> None:
    ours = {
        "metadata": {"name": "backstay-x", "labels": {LAUNCHER_UID: LAUNCHER}},
        "spec": {"vmiName": "web"},
    }
    theirs = {"metadata": {"name": "by-hand"}, "spec": {"vmiName": "web"}}
    for body in (ours, theirs):
        await ward.client.create(MIGRATIONS, body, namespace="shop")
    [move] = (await ward.ask()).moves
    assert (move.guest, move.launcher, move.phase) == ("shop/web", LAUNCHER, "")
    state = {"phase": "Succeeded", "migrationState": {"targetNode": "n2"}}
    await ward.client.merge_patch(
        MIGRATIONS, "backstay-x", {"status": state}, namespace="shop", subresource="status"
    )
    [move] = (await ward.ask()).moves
    assert (move.succeeded, move.target) == (True, "n2")


async def test_a_migration_that_somebody_has_cancelled_has_failed(ward: Ward) -> None:
    ours = {
        "metadata": {"name": "backstay-x", "labels": {LAUNCHER_UID: LAUNCHER}},
        "spec": {"vmiName": "web"},
    }
    await ward.client.create(MIGRATIONS, ours, namespace="shop")
    await ward.ask()
    await ward.client.delete(MIGRATIONS, "backstay-x", namespace="shop")
    [move] = (await ward.ask()).moves
    assert move.failed
    assert "deleted" in move.because

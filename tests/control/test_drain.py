"""The drain itself: whom it asks, when, and what it says is in the way."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from backstay.apis.drains import BUDGETS
from backstay.apis.storage import CLAIMS
from backstay.control.drain import Drain, Leave
from backstay.kube.calls import Preconditions, Reply
from backstay.kube.client import KubeClient
from backstay.kube.errors import TooLate
from backstay.kube.resource import NODES, PODS
from backstay.model.drain import MAINTENANCE_OPTIONS, DrainOptions, DrainState
from backstay.model.drain_reasons import DrainReason
from backstay.model.reasons import Why
from backstay.seam.system import SystemRng
from backstay.sim.clock import LoopClock
from tests.control.rig import Scene, play
from tests.control.rig_maintenance import budget, claim, start_deployment

NO = DrainReason.MaintenanceNotOurs.because(owner="Off")


class Watched(KubeClient):
    """Keeps what it asks for, and takes a second for each."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.asked: list[tuple[str, Preconditions]] = []
        self.at_once = self.most_at_once = 0

    async def evict(self, name: str, **how: Any) -> Reply:
        self.asked.append((name, how["conditions"]))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(1)
            return await super().evict(name, **how)
        finally:
            self.at_once -= 1


def watched(s: Scene) -> Watched:
    return Watched(s.client._transport, s.cluster.access())


def drain(s: Scene, node: str, options: DrainOptions = MAINTENANCE_OPTIONS, **more: Any) -> Drain:
    client = more.pop("client", s.client)
    return Drain(client, node, options, rng=SystemRng(), wall=LoopClock(), **more)


async def cordon(s: Scene, *nodes: str, cordoned: bool = True) -> None:
    for node in nodes:
        patch = {"spec": {"unschedulable": True if cordoned else None}}
        await s.client.merge_patch(NODES, node, patch)


async def all_on_n1(s: Scene, app: str, replicas: int) -> None:
    await s.boot("n1", "n2", "n3")
    await cordon(s, "n2", "n3")
    await start_deployment(s, app, replicas)
    await cordon(s, "n2", "n3", cordoned=False)
    await cordon(s, "n1")


async def until(going: Drain, holds: Callable[[DrainState], bool], *, within: float = 300) -> None:
    async with asyncio.timeout(within):
        while not holds(going.state):  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(0.5)


def codes(going: Drain) -> list[str]:
    return [blocker.why.code for blocker in going.state.blockers]


def test_each_is_asked_once_by_its_uid_and_only_a_few_at_a_time() -> None:
    async def scene(s: Scene) -> None:
        await all_on_n1(s, "web", 20)
        reply = await s.client.list(PODS, fields="spec.nodeName=n1")
        uids = {each["metadata"]["uid"] for each in reply.json()["items"]}
        client = watched(s)
        state = await drain(s, "n1", client=client).run()
        assert state.drained
        assert {conditions["uid"] for _, conditions in client.asked} == uids
        assert len(client.asked) == 20
        assert client.most_at_once == 8

    play(scene)


def test_another_pod_of_the_same_name_is_not_touched() -> None:
    async def scene(s: Scene) -> None:
        await s.boot("n1", "n2", "n3")
        await s.start_stateful_set("db", 1)
        (node,) = s.truth.copies("default", "db-0")
        await cordon(s, node)
        client = watched(s)
        meanwhile: list[str] = []

        async def replace(conditions: Preconditions) -> None:
            """Between the look and the request somebody deletes it, and it is made anew."""
            await s.client.delete(PODS, "db-0", namespace="default", conditions={"grace": 0})

            async def anew() -> bool:
                reply = await s.client.list(PODS, namespace="default")
                found = [each["metadata"]["uid"] for each in reply.json()["items"]]
                meanwhile[:] = found
                return bool(found) and conditions["uid"] not in found

            await s.eventually(anew)

        class Beaten(Drain):
            async def request(self, pod: Any, not_after: float | None) -> None:
                if not meanwhile:
                    await replace({"uid": pod.uid})
                await super().request(pod, not_after)

        going = Beaten(client, node, MAINTENANCE_OPTIONS, rng=SystemRng(), wall=LoopClock())
        running = asyncio.get_running_loop().create_task(going.run())
        await asyncio.sleep(30)
        assert going.requests == 1
        reply = await s.client.list(PODS, namespace="default")
        (pod,) = reply.json()["items"]
        assert pod["metadata"]["uid"] == meanwhile[0]
        assert running.done(), "that one is on another node"

    play(scene)


def test_whoever_may_not_asks_nobody_and_says_why() -> None:
    async def scene(s: Scene) -> None:
        await all_on_n1(s, "web", 3)
        allowed: list[bool] = []

        async def permit() -> Leave | Why:
            return (lambda: None) if allowed else NO

        going = drain(s, "n1", permit=permit)
        running = asyncio.get_running_loop().create_task(going.run())
        await asyncio.sleep(120)
        assert going.requests == 0
        assert going.state.held == NO
        allowed.append(True)
        going.poke()
        state = await running
        assert state.drained

    play(scene)


def test_what_people_say_meanwhile_is_heeded_between_two_requests() -> None:
    async def scene(s: Scene) -> None:
        await all_on_n1(s, "web", 12)
        said: list[str] = []

        async def permit() -> Leave | Why:
            if said:
                return NO

            def leave() -> None:
                if going.requests >= 3:
                    said.append("stop")
                    raise TooLate("somebody has said something else")

            return leave

        going = drain(s, "n1", permit=permit)
        running = asyncio.get_running_loop().create_task(going.run())
        await asyncio.sleep(120)
        assert going.requests == 3
        assert going.state.held == NO
        running.cancel()

    play(scene)


def test_two_budgets_are_named_and_the_others_go_on() -> None:
    async def scene(s: Scene) -> None:
        await all_on_n1(s, "web", 2)
        await cordon(s, "n1", cordoned=False)
        await cordon(s, "n2", "n3")
        await start_deployment(s, "free", 2)
        await cordon(s, "n2", "n3", cordoned=False)
        await cordon(s, "n1")
        await budget(s, "web", minAvailable=0)
        more = {
            "metadata": {"name": "more"},
            "spec": {"minAvailable": 0, "selector": {"matchLabels": {"app": "web"}}},
        }
        await s.client.create(BUDGETS, more, namespace="default")
        await asyncio.sleep(5)
        going = drain(s, "n1")
        running = asyncio.get_running_loop().create_task(going.run())
        await until(going, lambda state: len(state.pending) == 2)
        assert codes(going) == ["TwoBudgets", "TwoBudgets"]
        assert "default/more, default/web" in going.state.blockers[0].why.sentence
        before = going.requests
        await asyncio.sleep(300)
        assert going.requests - before <= 10, "once a minute for each"
        await s.client.delete(BUDGETS, "more", namespace="default")
        state = await running
        assert state.drained

    play(scene)


def test_a_guest_that_finds_no_room_is_looked_into_after_a_while() -> None:
    async def scene(s: Scene) -> None:
        await s.boot("n1", "n2", "n3")
        await s.start_vms("a", eviction_strategy="LiveMigrate")
        (node,) = s.copies("a")
        await cordon(s, "n1", "n2", "n3")
        going = drain(s, node)
        running = asyncio.get_running_loop().create_task(going.run())
        await asyncio.sleep(50)
        assert codes(going) == [], "to be on the way is no trouble"
        assert going.state.evacuated == ("default/a",)
        await until(going, lambda state: bool(state.blockers))
        (blocker,) = going.state.blockers
        assert blocker.why.code == "EvacuationSlow"
        assert "its last migration is" in blocker.why.sentence
        before = going.requests
        await asyncio.sleep(120)
        assert going.requests - before <= 5
        others = [each for each in ("n1", "n2", "n3") if each != node]
        await cordon(s, *others, cordoned=False)
        state = await running
        assert state.drained
        assert s.copies("a") not in ([], [node])

    play(scene)


def test_a_guest_that_somebody_else_is_to_move_is_said_to_be_that() -> None:
    async def scene(s: Scene) -> None:
        await s.boot("n1", "n2", "n3")
        await s.start_vms("a", eviction_strategy="External")
        (node,) = s.copies("a")
        going = drain(s, node)
        running = asyncio.get_running_loop().create_task(going.run())
        await until(going, lambda state: bool(state.blockers))
        assert "evictionStrategy External" in going.state.blockers[0].why.sentence
        running.cancel()

    play(scene)


def test_a_guest_that_may_be_shut_down_starts_elsewhere() -> None:
    async def scene(s: Scene) -> None:
        await s.boot("n1", "n2", "n3")
        await s.client.create(CLAIMS, claim("disk"), namespace="default")
        await s.start_vms("a", eviction_strategy="LiveMigrateIfPossible", claims=["disk"])
        (node,) = s.copies("a")
        await cordon(s, node)
        state = await drain(s, node).run()
        assert state.drained
        await s.until(lambda: s.copies("a") not in ([], [node]))
        assert s.doubles == []

    play(scene)


def test_what_does_not_end_because_its_node_is_down_is_named() -> None:
    async def scene(s: Scene) -> None:
        await all_on_n1(s, "web", 1)
        s.cluster.nodes["n1"].kill()
        going = drain(s, "n1")
        running = asyncio.get_running_loop().create_task(going.run())
        await asyncio.sleep(50)
        assert codes(going) == []
        await until(going, lambda state: bool(state.blockers))
        assert codes(going) == ["StillTerminating"]
        assert not running.done()
        running.cancel()

    play(scene)


def test_who_ends_already_is_on_its_way_though_nobody_here_has_asked_it() -> None:
    async def scene(s: Scene) -> None:
        await all_on_n1(s, "web", 1)
        s.cluster.nodes["n1"].kill()
        [pod] = [name for name in await s.pods_on("n1") if name.startswith("web-")]
        await s.client.delete(PODS, pod, namespace="default")
        going = drain(s, "n1")
        running = asyncio.get_running_loop().create_task(going.run())
        await until(going, lambda state: bool(state.pending))
        assert (going.state.moving, going.requests) == ((f"default/{pod}",), 0)
        running.cancel()

    play(scene)


def test_who_is_not_waited_for_is_left_behind() -> None:
    async def scene(s: Scene) -> None:
        await all_on_n1(s, "web", 1)
        s.cluster.nodes["n1"].kill()
        options = DrainOptions(
            force=True, ignore_daemonsets=True, delete_emptydir=True, skip_wait_after=20
        )
        going = Drain(s.client, "n1", options, rng=SystemRng(), wall=LoopClock())
        state = await going.run()
        assert state.drained
        assert await s.pods_on("n1")

    play(scene)


def test_a_drain_of_no_node_is_refused() -> None:
    async def scene(s: Scene) -> None:
        with pytest.raises(ValueError, match="needs the name of a node"):
            drain(s, "")

    play(scene)

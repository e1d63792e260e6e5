"""Evictions, and the controller that keeps their budgets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from backstay.seam.tasks import Tasks
from backstay.sim.api.disruption import DisruptionController
from backstay.sim.clock import LoopClock
from tests.support.both_apis import MERGE, BothApis, Embedded, Json, Reply
from tests.support.virtual import virtual_time

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
SETTLED = 0.1


def pod(name: str, *, node: str = "n", owner: Json | None = None) -> Json:
    meta: Json = {"name": name, "labels": {"app": "web"}}
    if owner is not None:
        meta["ownerReferences"] = [owner]
    # All of them, or the server adds its own, for as long as its flags say.
    tolerations = [{"operator": "Exists"}]
    spec = {"nodeName": node, "schedulerName": "none", "tolerations": tolerations,
            "containers": [{"name": "c", "image": "i"}]}  # fmt: skip
    return {"metadata": meta, "spec": spec}


def budget(name: str = "b", **spec: Any) -> Json:
    selector = {"matchLabels": {"app": "web"}}
    return {"metadata": {"name": name}, "spec": {"selector": selector, **spec}}


def running(*, ready: bool = True) -> Json:
    condition = {"type": "Ready", "status": "True" if ready else "False",
                 "lastProbeTime": "2030-01-01T00:00:00Z",
                 "lastTransitionTime": "2030-01-01T00:00:00Z"}  # fmt: skip
    return {"status": {"phase": "Running", "conditions": [condition]}}


def eviction(name: str, **options: Any) -> Json:
    made: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return {**made, "deleteOptions": options} if options else made


async def evict(api: Embedded, name: str, query: str = "", **options: Any) -> Reply:
    return await api.call("POST", f"{PODS}/{name}/eviction{query}", eviction(name, **options))


def reasons(refused: Reply) -> list[str]:
    """Why a budget says no."""
    assert refused.status == 429
    assert {reason for reason, _, _ in refused.causes} == {"DisruptionBudget"}
    return [message for _, _, message in refused.causes]


async def run_pods(api: Embedded, *names: str, ready: bool = True) -> None:
    for name in names:
        assert (await api.call("POST", PODS, pod(name))).status == 201
        await api.call("PATCH", f"{PODS}/{name}/status", running(ready=ready), content=MERGE)


async def status_of(api: Embedded, name: str = "b") -> Json:
    status: Json = (await api.call("GET", f"{BUDGETS}/{name}")).body["status"]
    return status


@asynccontextmanager
async def guarded() -> AsyncIterator[Embedded]:
    """An embedded API with the controller beside it."""
    api = Embedded(wall=LoopClock())
    await api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}})
    async with Tasks("controllers") as tasks:
        tasks.spawn(DisruptionController(api.server.operations).run(), name="disruption")
        yield api


# What an eviction answers


async def test_a_pod_without_a_budget_just_goes(api: Embedded) -> None:
    await run_pods(api, "a")
    answer = await evict(api, "a")
    assert (answer.status, answer.body["status"]) == (201, "Success")
    left = (await api.call("GET", f"{PODS}/a")).body
    assert left["metadata"]["deletionGracePeriodSeconds"] == 30
    assert [c["reason"] for c in left["status"]["conditions"] if "reason" in c] == [
        "EvictionByEvictionAPI"
    ]


async def test_a_budget_that_nobody_has_counted_yet_makes_one_wait(api: Embedded) -> None:
    await run_pods(api, "a")
    await api.call("POST", BUDGETS, budget(minAvailable=0))
    refused = await evict(api, "a")
    assert (refused.status, refused.headers["retry-after"]) == (429, "10")
    assert reasons(refused) == ["The disruption budget b is still being processed by the server."]


async def test_two_budgets_are_too_many(api: Embedded) -> None:
    await run_pods(api, "a")
    for name in "bc":
        await api.call("POST", BUDGETS, budget(name, minAvailable=0))
    refused = await evict(api, "a")
    assert (refused.status, "reason" in refused.body) == (500, False)


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
async def test_a_pod_that_serves_nobody_needs_no_permission(api: Embedded, phase: str) -> None:
    await api.call("POST", PODS, pod("a"))
    await api.call("PATCH", f"{PODS}/a/status", {"status": {"phase": phase}}, content=MERGE)
    await api.call("POST", BUDGETS, budget(minAvailable=9))
    assert (await evict(api, "a")).status == 201


async def test_a_pod_that_goes_already_needs_no_permission(api: Embedded) -> None:
    await run_pods(api, "a")
    await api.call("POST", BUDGETS, budget(minAvailable=9))
    await api.call("DELETE", f"{PODS}/a")
    assert (await evict(api, "a", gracePeriodSeconds=1)).status == 201
    left = (await api.call("GET", f"{PODS}/a")).body["metadata"]
    assert left["deletionGracePeriodSeconds"] == 1


async def test_a_dry_run_changes_nothing(api: Embedded) -> None:
    await run_pods(api, "a")
    before = (await api.call("GET", f"{PODS}/a")).body
    assert (await evict(api, "a", "?dryRun=All")).status == 201
    assert (await evict(api, "a", dryRun=["All"])).status == 201
    assert (await api.call("GET", f"{PODS}/a")).body == before


async def test_a_precondition_is_about_the_pod_that_is_there(api: Embedded) -> None:
    await run_pods(api, "a")
    meta = (await api.call("GET", f"{PODS}/a")).body["metadata"]
    for wrong in ({"uid": "other"}, {"resourceVersion": "1"}):
        assert (await evict(api, "a", preconditions=wrong)).status == 409
    right = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    assert (await evict(api, "a", preconditions=right)).status == 201


# What the controller counts


@virtual_time
async def test_an_eviction_spends_what_the_budget_allows() -> None:
    async with guarded() as api:
        await run_pods(api, "a", "b", "c")
        await api.call("POST", BUDGETS, budget(minAvailable=2))
        await asyncio.sleep(SETTLED)
        assert (await status_of(api))["disruptionsAllowed"] == 1
        assert (await evict(api, "a")).status == 201
        # Before anybody counts again, the permission is spent already.
        assert (await status_of(api))["disruptedPods"].keys() == {"a"}
        refused = await evict(api, "b")
        assert reasons(refused) == [
            "The disruption budget b does not allow evicting pods currently"
        ]
        await asyncio.sleep(SETTLED)
        status = await status_of(api)
        assert (status["currentHealthy"], "disruptedPods" in status) == (2, False)
        refused = await evict(api, "b")
        assert reasons(refused) == [
            "The disruption budget b needs 2 healthy pods and has 2 currently"
        ]


@virtual_time
async def test_a_dry_run_spends_nothing() -> None:
    async with guarded() as api:
        await run_pods(api, "a", "b")
        await api.call("POST", BUDGETS, budget(minAvailable=1))
        await asyncio.sleep(SETTLED)
        before = await status_of(api)
        assert (await evict(api, "a", "?dryRun=All")).status == 201
        assert await status_of(api) == before


@virtual_time
async def test_a_spent_permission_that_nobody_used_comes_back() -> None:
    async with guarded() as api:
        await run_pods(api, "a", "b")
        await api.call("POST", BUDGETS, budget(minAvailable=1))
        await asyncio.sleep(SETTLED)
        await evict(api, "a", preconditions={"uid": "other"})
        await asyncio.sleep(SETTLED)
        assert (await status_of(api))["disruptionsAllowed"] == 0
        await asyncio.sleep(125)
        assert (await status_of(api))["disruptionsAllowed"] == 1


@virtual_time
async def test_a_pod_that_is_not_ready_may_go_when_enough_others_are() -> None:
    async with guarded() as api:
        await run_pods(api, "a")
        await run_pods(api, "sick", ready=False)
        await api.call("POST", BUDGETS, budget(minAvailable=1))
        await asyncio.sleep(SETTLED)
        assert (await evict(api, "sick")).status == 201
        assert (await evict(api, "a")).status == 429


@virtual_time
async def test_a_policy_may_let_every_unready_pod_go() -> None:
    async with guarded() as api:
        await run_pods(api, "sick", ready=False)
        await api.call("POST", BUDGETS, budget(minAvailable=1))
        await asyncio.sleep(SETTLED)
        assert (await evict(api, "sick")).status == 429
        policy = {"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}}
        await api.call("PATCH", f"{BUDGETS}/b", policy, content=MERGE)
        assert (await evict(api, "sick")).status == 201


async def owned_pods(api: Embedded, replicas: int, *names: str) -> None:
    sets = "/apis/apps/v1/namespaces/default/replicasets"
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod("x")["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    made = (await api.call("POST", sets, {"metadata": {"name": "rs"}, "spec": spec})).body
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "controller": True,
             "uid": made["metadata"]["uid"]}  # fmt: skip
    for name in names:
        await api.call("POST", PODS, pod(name, owner=owner))
        await api.call("PATCH", f"{PODS}/{name}/status", running(), content=MERGE)


@pytest.mark.parametrize(
    ("spec", "desired", "allowed"),
    [
        ({"maxUnavailable": 1}, 4, 0),
        ({"maxUnavailable": "50%"}, 2, 1),
        ({"maxUnavailable": 9}, 0, 3),
        ({"minAvailable": "30%"}, 2, 1),
        ({"minAvailable": "100%"}, 5, 0),
    ],
)
def test_shares_are_of_what_the_controller_wants(spec: Json, desired: int, allowed: int) -> None:
    @virtual_time
    async def run() -> None:
        async with guarded() as api:
            await owned_pods(api, 5, "a", "b", "c")
            await api.call("POST", BUDGETS, budget(**spec))
            await asyncio.sleep(SETTLED)
            status = await status_of(api)
            assert (status["expectedPods"], status["desiredHealthy"]) == (5, desired)
            assert status["disruptionsAllowed"] == allowed

    run()


@virtual_time
async def test_pods_of_an_unknown_controller_may_not_be_disrupted() -> None:
    async with guarded() as api:
        lost = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "no", "uid": "no",
                "controller": True}  # fmt: skip
        await api.call("POST", PODS, pod("a", owner=lost))
        await api.call("PATCH", f"{PODS}/a/status", running(), content=MERGE)
        await api.call("POST", BUDGETS, budget(maxUnavailable=1))
        await asyncio.sleep(SETTLED)
        status = await status_of(api)
        assert [c["reason"] for c in status["conditions"]] == ["SyncFailed"]
        assert status["disruptionsAllowed"] == 0


@virtual_time
async def test_a_change_of_the_budget_is_counted_anew() -> None:
    async with guarded() as api:
        await run_pods(api, "a", "b")
        await api.call("POST", BUDGETS, budget(minAvailable=2))
        await asyncio.sleep(SETTLED)
        await api.call("PATCH", f"{BUDGETS}/b", {"spec": {"minAvailable": 1}}, content=MERGE)
        assert reasons(await evict(api, "a")) == [
            "The disruption budget b is still being processed by the server."
        ]
        await asyncio.sleep(SETTLED)
        assert (await status_of(api))["observedGeneration"] == 2
        assert (await evict(api, "a")).status == 201


# Beside a real server


async def settled(compare: Callable[[], Awaitable[object]]) -> None:
    """A real controller goes on writing for a moment after it has counted."""
    for _ in range(20):
        try:
            await compare()
        except AssertionError:
            await asyncio.sleep(0.2)
        else:
            return
    await compare()


@pytest.mark.real
async def test_evictions_are_answered_as_by_a_real_server(both: BothApis) -> None:
    pods = f"/api/v1/namespaces/{both.namespace}/pods"
    budgets = f"/apis/policy/v1/namespaces/{both.namespace}/poddisruptionbudgets"
    operations = both.embedded.server.operations

    async def counted(name: str, **expected: Any) -> None:
        """Waits until the real controller has counted, and the embedded one too."""

        def done(reply: Reply) -> bool:
            status: Json = reply.body["status"]
            return expected.items() <= status.items()

        await both.until_real(f"{budgets}/{name}", done)
        async with asyncio.timeout(10):
            while not done(await both.embedded.call("GET", f"{budgets}/{name}")):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await settled(lambda: both.same("GET", f"{budgets}/{name}"))

    async def evicted(name: str, **options: Any) -> Reply:
        return await both.same("POST", f"{pods}/{name}/eviction", eviction(name, **options))

    async with Tasks("controllers") as tasks:
        tasks.spawn(DisruptionController(operations).run(), name="disruption")
        for name in "xyz":
            await both.same("POST", pods, pod(name, node=f"no-{both.namespace}"))
            await both.same("PATCH", f"{pods}/{name}/status", running(), content=MERGE)
        await both.same("POST", f"{pods}/x/eviction", eviction("y"))
        await both.same("POST", f"{pods}/none/eviction", eviction("none"))
        await both.same("POST", f"{pods}/x/eviction?dryRun=All", eviction("x"))
        await both.same("GET", f"{pods}/x/eviction")
        await both.same("POST", budgets, budget(minAvailable=2))
        await counted("b", currentHealthy=3, disruptionsAllowed=1)
        assert (await evicted("x", preconditions={"uid": "other"})).status == 409
        await both.same("DELETE", f"{budgets}/b")
        await both.same("POST", budgets, budget("c", minAvailable=2))
        await counted("c", currentHealthy=3, disruptionsAllowed=1)
        assert (await evicted("x")).status == 201
        await counted("c", currentHealthy=2, disruptionsAllowed=0)
        await both.same("GET", f"{pods}/x")
        assert (await evicted("y")).status == 429
        sick = running(ready=False)
        await both.same("PATCH", f"{pods}/z/status", sick, content=MERGE)
        await counted("c", currentHealthy=1)
        assert (await evicted("z")).status == 429
        policy = {"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}}
        await both.same("PATCH", f"{budgets}/c", policy, content=MERGE)
        await counted("c", observedGeneration=2)
        assert (await evicted("z")).status == 201
        await both.same("POST", budgets, budget("d", maxUnavailable=1))
        await counted("d", observedGeneration=1)
        assert (await evicted("y")).status == 500
        await both.same("DELETE", f"{budgets}/c")
        assert (await evicted("y")).status == 429

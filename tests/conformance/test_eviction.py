"""Evictions, and the budgets that forbid them (one target: pytest.mark.real)."""

import asyncio

from tests.conformance.objects import named, pod
from tests.conformance.targets import TIMEOUT, Api, Json

POLICY = "policy/v1"
FORBIDDEN = "Cannot evict pod as it would violate the pod's disruption budget."


def eviction(name: str, **more: object) -> Json:
    return {"apiVersion": POLICY, "kind": "Eviction", "metadata": {"name": name}, **more}


async def running(api: Api, *names: str) -> None:
    ready = [{"type": "Ready", "status": "True"}]
    for name in names:
        await api.make(api.at("pods"), pod(name))
        status = {"phase": "Running", "conditions": ready}
        await api.change(api.at("pods", name, "status"), {"status": status})


async def budget(api: Api, *, healthy: int) -> str:
    """One that wants one pod, in the state that its controller brings it to."""
    selector = {"matchLabels": {"app": "web"}}
    spec = {"minAvailable": 1, "selector": selector}
    await api.make(api.at("poddisruptionbudgets", group=POLICY), {**named("b"), "spec": spec})
    path = api.at("poddisruptionbudgets", "b", group=POLICY)
    status = {
        "observedGeneration": 1,
        "disruptionsAllowed": healthy - 1,
        "currentHealthy": healthy,
        "desiredHealthy": 1,
        "expectedPods": healthy,
    }
    async with asyncio.timeout(TIMEOUT):
        while True:
            found = (await api.read(path))["status"]
            if {k: found.get(k, 0) for k in status} == status:
                return path
            await api.patch(path + "/status", {"status": status})


async def test_an_eviction_that_a_budget_forbids_names_the_budget(api: Api) -> None:
    await running(api, "a")
    await budget(api, healthy=1)
    got = await api.post(api.at("pods", "a", "eviction"), eviction("a"))
    assert got.refusal == (429, "TooManyRequests", FORBIDDEN)
    why = "The disruption budget b needs 1 healthy pods and has 1 currently"
    assert got.details == {"causes": [{"reason": "DisruptionBudget", "message": why}]}
    assert "deletionTimestamp" not in (await api.read(api.at("pods", "a")))["metadata"]


async def test_an_eviction_that_a_budget_allows_deletes_gracefully(api: Api) -> None:
    await running(api, "a", "b")
    await budget(api, healthy=2)
    got = await api.post(api.at("pods", "a", "eviction"), eviction("a"))
    assert got.status == 201
    assert got.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": 201,
    }
    evicted = await api.read(api.at("pods", "a"))
    assert evicted["metadata"]["deletionGracePeriodSeconds"] == 30


async def test_an_eviction_uses_up_what_a_budget_allows(api: Api) -> None:
    await running(api, "a", "b")
    path = await budget(api, healthy=2)
    await api.post(api.at("pods", "a", "eviction"), eviction("a"))
    got = await api.post(api.at("pods", "b", "eviction"), eviction("b"))
    assert got.refusal == (429, "TooManyRequests", FORBIDDEN)
    assert (await api.read(path))["status"]["disruptionsAllowed"] == 0


async def test_an_evicted_pod_says_why(api: Api) -> None:
    await running(api, "a")
    await api.post(api.at("pods", "a", "eviction"), eviction("a"))
    conditions = (await api.read(api.at("pods", "a")))["status"]["conditions"]
    (target,) = [c for c in conditions if c["type"] == "DisruptionTarget"]
    assert (target["status"], target["reason"]) == ("True", "EvictionByEvictionAPI")
    assert target["message"] == "Eviction API: evicting"


async def test_a_pod_without_a_budget_is_evicted(api: Api) -> None:
    await running(api, "a")
    options = {"deleteOptions": {"gracePeriodSeconds": 3}}
    got = await api.post(api.at("pods", "a", "eviction"), eviction("a", **options))
    assert got.status == 201
    found = await api.read(api.at("pods", "a"))
    assert found["metadata"]["deletionGracePeriodSeconds"] == 3


async def test_a_dry_eviction_evicts_nothing(api: Api) -> None:
    await running(api, "a")
    got = await api.post(api.at("pods", "a", "eviction") + "?dryRun=All", eviction("a"))
    assert got.status == 201
    assert "deletionTimestamp" not in (await api.read(api.at("pods", "a")))["metadata"]


async def test_a_pod_that_is_not_there_cannot_be_evicted(api: Api) -> None:
    got = await api.post(api.at("pods", "nope", "eviction"), eviction("nope"))
    assert got.refusal == (404, "NotFound", 'pods "nope" not found')


async def test_an_eviction_of_another_pod_is_refused(api: Api) -> None:
    await running(api, "a")
    got = await api.post(api.at("pods", "a", "eviction"), eviction("b"))
    words = "name in URL does not match name in Eviction object"
    assert got.refusal == (400, "BadRequest", words)


async def test_a_pod_of_two_budgets_cannot_be_evicted(api: Api) -> None:
    await running(api, "a", "b")
    await budget(api, healthy=2)
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    await api.make(api.at("poddisruptionbudgets", group=POLICY), {**named("c"), "spec": spec})
    got = await api.post(api.at("pods", "a", "eviction"), eviction("a"))
    words = (
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not "
        "support."
    )
    assert got.refusal == (500, "", words)


async def test_an_eviction_of_another_uid_is_a_conflict(api: Api) -> None:
    await running(api, "a")
    options = {"deleteOptions": {"preconditions": {"uid": "x"}}}
    got = await api.post(api.at("pods", "a", "eviction"), eviction("a", **options))
    assert got.refusal[:2] == (409, "Conflict")
    assert "deletionTimestamp" not in (await api.read(api.at("pods", "a")))["metadata"]

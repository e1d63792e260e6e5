"""The garbage collector and the end of namespaces, in virtual time and beside a real cluster."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from backstay.seam.tasks import Tasks
from backstay.sim.api.garbage import (
    DEFAULT_NAMESPACES,
    GarbageCollector,
    NamespaceController,
    create_default_namespaces,
)
from backstay.sim.api.store import Commit
from backstay.sim.clock import LoopClock
from tests.support.both_apis import MERGE, BothApis, Embedded, Json, Real, Reply
from tests.support.virtual import virtual_time

SPACES = "/api/v1/namespaces"
SETTLED = 1.0


def maps(namespace: str = "default") -> str:
    return f"{SPACES}/{namespace}/configmaps"


def thing(name: str, *owners: Json, finalizers: list[str] | None = None) -> Json:
    meta: Json = {"name": name}
    if owners:
        meta["ownerReferences"] = list(owners)
    if finalizers:
        meta["finalizers"] = finalizers
    return {"metadata": meta}


def owned_by(obj: Json, *, blocking: bool = False) -> Json:
    meta = obj["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": meta["name"], "uid": meta["uid"]}
    return {**reference, "blockOwnerDeletion": True} if blocking else reference


@asynccontextmanager
async def cluster() -> AsyncIterator[Embedded]:
    """An embedded API with both controllers."""
    api = Embedded(wall=LoopClock())
    create_default_namespaces(api.server.operations)
    async with Tasks("controllers") as tasks:
        tasks.spawn(GarbageCollector(api.server.operations).run(), name="garbage")
        tasks.spawn(NamespaceController(api.server.operations).run(), name="namespaces")
        yield api


async def make(api: Embedded | Real, obj: Json, path: str = "") -> Json:
    reply = await api.call("POST", path or maps(), obj)
    assert reply.status == 201, reply.body
    made: Json = reply.body
    return made


async def names(api: Embedded | Real, path: str = "") -> list[str]:
    items = (await api.call("GET", path or maps())).body["items"]
    return [item["metadata"]["name"] for item in items]


async def delete(api: Embedded | Real, name: str, policy: str, path: str = "") -> None:
    reply = await api.call("DELETE", f"{path or maps()}/{name}?propagationPolicy={policy}")
    assert reply.status == 200, reply.body


def steps(api: Embedded) -> list[tuple[str, str]]:
    """Fills with every change of a ConfigMap from now on, as types and names."""
    seen: list[tuple[str, str]] = []

    def note(commit: Commit) -> None:
        changed = "MODIFIED" if commit.before is not None else "ADDED"
        seen.append(("DELETED" if commit.deleted else changed, commit.after.key[1]))

    api.server.store.follow("configmaps", note)
    return seen


# Owners


@virtual_time
async def test_what_is_owned_goes_after_its_owner() -> None:
    async with cluster() as api:
        owner = await make(api, thing("owner"))
        await make(api, thing("a", owned_by(owner)))
        await make(api, thing("b", owned_by(owner)))
        seen = steps(api)
        await delete(api, "owner", "Background")
        assert await names(api) == ["a", "b"]
        await asyncio.sleep(SETTLED)
        assert seen == [("DELETED", "owner"), ("DELETED", "a"), ("DELETED", "b")]


@virtual_time
async def test_garbage_of_garbage_goes_too() -> None:
    async with cluster() as api:
        owner = await make(api, thing("owner"))
        middle = await make(api, thing("middle", owned_by(owner)))
        await make(api, thing("leaf", owned_by(middle)))
        await delete(api, "owner", "Background")
        await asyncio.sleep(SETTLED)
        assert await names(api) == []


@virtual_time
async def test_another_object_of_the_same_name_is_no_owner() -> None:
    async with cluster() as api:
        owner = await make(api, thing("owner"))
        await make(api, thing("a", owned_by(owner)))
        await delete(api, "owner", "Background")
        await make(api, thing("owner"))
        await asyncio.sleep(SETTLED)
        assert await names(api) == ["owner"]


@virtual_time
async def test_an_owner_that_never_was_is_gone_already() -> None:
    async with cluster() as api:
        never = {"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "never"}
        await make(api, thing("a", never))
        await asyncio.sleep(SETTLED)
        assert await names(api) == []


@virtual_time
async def test_one_owner_of_two_is_enough_to_stay() -> None:
    async with cluster() as api:
        first, second = await make(api, thing("first")), await make(api, thing("second"))
        await make(api, thing("a", owned_by(first), owned_by(second)))
        await delete(api, "first", "Background")
        await asyncio.sleep(SETTLED)
        left = (await api.call("GET", f"{maps()}/a")).body["metadata"]["ownerReferences"]
        assert [owner["name"] for owner in left] == ["second"]


@virtual_time
async def test_an_owner_of_a_kind_that_nobody_serves_is_left_alone() -> None:
    async with cluster() as api:
        unknown = {"apiVersion": "example.com/v1", "kind": "Foo", "name": "f", "uid": "u"}
        await make(api, thing("a", unknown))
        await asyncio.sleep(SETTLED)
        assert await names(api) == ["a"]


@virtual_time
async def test_an_owner_waits_in_the_foreground_for_what_blocks_it() -> None:
    async with cluster() as api:
        owner = await make(api, thing("owner"))
        await make(api, thing("a", owned_by(owner, blocking=True), finalizers=["x.y/z"]))
        await make(api, thing("b", owned_by(owner)))
        seen = steps(api)
        await delete(api, "owner", "Foreground")
        await asyncio.sleep(SETTLED)
        waiting = (await api.call("GET", f"{maps()}/owner")).body["metadata"]
        assert waiting["finalizers"] == ["foregroundDeletion"]
        assert await names(api) == ["a", "owner"]
        await api.call("PATCH", f"{maps()}/a", {"metadata": {"finalizers": None}}, content=MERGE)
        await asyncio.sleep(SETTLED)
        assert seen == [
            ("MODIFIED", "owner"), ("MODIFIED", "a"), ("DELETED", "b"), ("DELETED", "a"),
            ("DELETED", "owner"),
        ]  # fmt: skip


@virtual_time
async def test_orphans_lose_their_owner_and_stay() -> None:
    async with cluster() as api:
        owner = await make(api, thing("owner"))
        await make(api, thing("a", owned_by(owner)))
        await delete(api, "owner", "Orphan")
        await asyncio.sleep(SETTLED)
        assert await names(api) == ["a"]
        assert "ownerReferences" not in (await api.call("GET", f"{maps()}/a")).body["metadata"]


@virtual_time
async def test_a_collector_that_starts_late_finds_what_was_left() -> None:
    api = Embedded(wall=LoopClock())
    create_default_namespaces(api.server.operations)
    owner = await make(api, thing("owner"))
    await make(api, thing("a", owned_by(owner)))
    await delete(api, "owner", "Background")
    async with Tasks("controllers") as tasks:
        tasks.spawn(GarbageCollector(api.server.operations).run(), name="garbage")
        await asyncio.sleep(SETTLED)
    assert await names(api) == []


# Namespaces


@virtual_time
async def test_the_namespaces_of_every_cluster_are_there() -> None:
    async with cluster() as api:
        assert sorted(await names(api, SPACES)) == sorted(DEFAULT_NAMESPACES)
        create_default_namespaces(api.server.operations)


@virtual_time
async def test_a_namespace_takes_its_content_with_it() -> None:
    async with cluster() as api:
        await make(api, {"metadata": {"name": "s"}}, SPACES)
        await make(api, thing("a"), maps("s"))
        await api.call("DELETE", f"{SPACES}/s")
        refused = await api.call("POST", maps("s"), thing("late"))
        assert (refused.status, refused.causes[0][0]) == (403, "NamespaceTerminating")
        await asyncio.sleep(SETTLED)
        assert (await api.call("GET", f"{SPACES}/s")).status == 404
        assert await names(api, maps("s")) == []


@virtual_time
async def test_a_namespace_says_what_it_waits_for() -> None:
    async with cluster() as api:
        await make(api, {"metadata": {"name": "s"}}, SPACES)
        await make(api, thing("a", finalizers=["x.y/z"]), maps("s"))
        await api.call("DELETE", f"{SPACES}/s")
        await asyncio.sleep(SETTLED)
        conditions = (await api.call("GET", f"{SPACES}/s")).body["status"]["conditions"]
        assert [c["message"] for c in conditions if c["status"] == "True"] == [
            "Some resources are remaining: configmaps. has 1 resource instances",
            "Some content in the namespace has finalizers remaining: x.y/z in 1 resource instances",
        ]
        path = f"{maps('s')}/a"
        await api.call("PATCH", path, {"metadata": {"finalizers": None}}, content=MERGE)
        await asyncio.sleep(SETTLED)
        assert (await api.call("GET", f"{SPACES}/s")).status == 404


@virtual_time
async def test_nothing_goes_before_the_pods_of_its_namespace() -> None:
    async with cluster() as api:
        await make(api, {"metadata": {"name": "s"}}, SPACES)
        await make(api, thing("a"), maps("s"))
        containers = [{"name": "c", "image": "i"}]
        pods = f"{SPACES}/s/pods"
        spec = {"nodeName": "n", "containers": containers}
        await make(api, {"metadata": {"name": "p"}, "spec": spec}, pods)
        await api.call("DELETE", f"{SPACES}/s")
        await asyncio.sleep(10)
        assert await names(api, maps("s")) == ["a"]
        await api.call("DELETE", f"{pods}/p?gracePeriodSeconds=0")
        await asyncio.sleep(SETTLED)
        assert (await api.call("GET", f"{SPACES}/s")).status == 404


# Beside a real cluster


@pytest.mark.real
async def test_garbage_is_what_it_is_to_a_real_collector(both: BothApis) -> None:
    path = maps(both.namespace)

    async def story(api: Embedded | Real) -> None:
        for kind in ("background", "foreground", "orphan"):
            owner = await make(api, thing(f"{kind}-owner"), path)
            await make(api, thing(f"{kind}-a", owned_by(owner, blocking=True)), path)
            other = await make(api, thing(f"{kind}-other"), path)
            both_own = (owned_by(owner), owned_by(other))
            await make(api, thing(f"{kind}-b", *both_own), path)
            await heard(api, kind, path)
            await delete(api, f"{kind}-owner", kind.capitalize(), path)
        gone = {"apiVersion": "v1", "kind": "ConfigMap", "name": "background-b", "uid": "x"}
        await make(api, thing("wrong-uid", gone), path)
        unknown = {"apiVersion": "example.com/v1", "kind": "Foo", "name": "f", "uid": "u"}
        await make(api, thing("unknown-kind", unknown), path)

    def settled(reply: Reply) -> bool:
        left = {item["metadata"]["name"]: item["metadata"] for item in reply.body["items"]}
        one = ("background-b", "foreground-b", "orphan-b")
        return (
            not {"background-a", "foreground-owner", "orphan-owner", "wrong-uid"} & set(left)
            and all(len(left[name].get("ownerReferences", ())) == 1 for name in one)
        )  # fmt: skip

    async def heard(api: Embedded | Real, kind: str, path: str) -> None:
        """The collector has heard of all that was made so far.

        A real one hears of an owner's end before it hears of what the owner owns, where both come
        in one batch, and then collects what should have been orphaned. Whatever is made with an
        owner that never was is collected, and is heard of after all that was made before it.
        """
        never = {"apiVersion": "v1", "kind": "ConfigMap", "name": f"{kind}-never", "uid": kind}
        await make(api, thing(f"{kind}-canary", never), path)
        async with asyncio.timeout(30):
            while f"{kind}-canary" in await names(api, path):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async with Tasks("controllers") as tasks:
        tasks.spawn(GarbageCollector(both.embedded.server.operations).run(), name="garbage")
        await story(both.real)
        await story(both.embedded)
        await both.until_real(path, settled)
        async with asyncio.timeout(10):
            while not settled(await both.embedded.call("GET", path)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    real = await both.real.call("GET", path)
    ours = await both.embedded.call("GET", path)
    assert summary(ours.body) == summary(real.body)


def summary(listed: Json) -> dict[str, Any]:
    """Who is left, and who owns it."""
    return {
        item["metadata"]["name"]: [
            owner["name"] for owner in item["metadata"].get("ownerReferences", ())
        ]
        for item in listed["items"]
        if item["metadata"]["name"] != "kube-root-ca.crt"
    }


@pytest.mark.real
async def test_a_namespace_ends_as_in_a_real_cluster(both: BothApis) -> None:
    name = f"{both.namespace}-ends"
    path = f"{SPACES}/{name}"
    async with Tasks("controllers") as tasks:
        operations = both.embedded.server.operations
        create_default_namespaces(operations)
        tasks.spawn(NamespaceController(operations).run(), name="namespaces")
        await both.same("POST", SPACES, {"metadata": {"name": name}})
        await both.same("POST", maps(name), thing("a", finalizers=["x.y/z"]))
        await both.same("DELETE", path)

        def waiting(reply: Reply) -> bool:
            conditions = reply.body["status"].get("conditions") or ()
            return [c["status"] for c in conditions] == ["False"] * 3 + ["True"] * 2

        await both.until_real(path, waiting)
        async with asyncio.timeout(10):
            while not waiting(await both.embedded.call("GET", path)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await both.same("GET", path)
        await both.same("DELETE", path)
        await both.same("POST", maps(name), thing("late"))
        freed = {"metadata": {"finalizers": None}}
        await both.same("PATCH", f"{maps(name)}/a", freed, content=MERGE)
        async with asyncio.timeout(10):
            while (await both.embedded.call("GET", path)).status != 404:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await both.same("DELETE", f"{SPACES}/default")

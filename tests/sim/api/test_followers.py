"""Who hears of commits, and for how long."""

import asyncio

from backstay.seam import Seams
from backstay.sim.api.store import Store
from backstay.sim.world import World


def put(store: Store, name: str) -> None:
    meta = {"name": name, "resourceVersion": str(store.next_version())}
    store.put("nodes", ("", name), {"metadata": meta})


def test_a_killed_process_hears_of_nothing_more() -> None:
    store, heard = Store(), list[str]()

    async def main(_: Seams) -> None:
        release = store.follow(None, lambda commit: heard.append(commit.after.key[1]))
        try:
            await asyncio.Event().wait()
        finally:
            release()

    async def scenario(world: World) -> None:
        process = world.start("controller", main)
        await asyncio.sleep(1)
        put(store, "before")
        process.kill()
        put(store, "after")
        assert heard == ["before"]
        process.start()
        await asyncio.sleep(1)
        put(store, "again")
        assert heard == ["before", "again"]

    with World(1) as world:
        world.run(scenario(world))


def test_who_lets_go_twice_does_no_harm() -> None:
    store, heard = Store(), list[str]()
    release = store.follow("nodes", lambda commit: heard.append(commit.after.key[1]))
    put(store, "n1")
    release()
    release()
    put(store, "n2")
    assert heard == ["n1"]


def test_only_the_living_hear_that_a_kind_has_ended() -> None:
    store, ended = Store(), list[str]()

    async def main(_: Seams) -> None:
        store.follow("nodes", lambda _: None, ended=lambda: ended.append("process"))
        await asyncio.Event().wait()

    async def scenario(world: World) -> None:
        process = world.start("watcher", main)
        store.follow("nodes", lambda _: None, ended=lambda: ended.append("outside"))
        await asyncio.sleep(1)
        process.kill()
        store.end("nodes")
        assert ended == ["outside"]

    with World(1) as world:
        world.run(scenario(world))

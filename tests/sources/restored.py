"""An API with our kinds, and somebody who arms and restores it."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec

from backstay.apis.backstay import CONFIG_NAME, CONFIGS
from backstay.apis.definitions import definitions
from backstay.kube.resource import NODES, Resource
from backstay.model.labels import ARMED
from backstay.sim.api.store import Snapshot
from backstay.sim.cluster.embedded import URL, EmbeddedCluster
from backstay.sim.cluster.ground import WorldGround
from backstay.sim.files import MemoryFiles
from backstay.sim.world import World
from backstay.sources.past import Past

DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
    namespaced=False,
)  # fmt: skip


class Api:
    """See the module."""

    def __init__(self, world: World, cluster: EmbeddedCluster) -> None:
        self._world = world
        self.cluster = cluster
        self.client = cluster.client()

    async def arm(self, stamp: str) -> None:
        body: dict[str, Any] = {"metadata": {"name": CONFIG_NAME, "annotations": {ARMED: stamp}}}
        if self.cluster.api.store.get(CONFIGS.label, ("", CONFIG_NAME)) is None:
            await self.client.create(CONFIGS, body | {"spec": {"mode": "Armed"}})
        else:
            await self.client.merge_patch(CONFIGS, CONFIG_NAME, body)

    async def grow(self) -> Snapshot:
        """A backup, after which ten things happen."""
        backup = self.cluster.api.store.snapshot()
        for number in range(10):
            await self.arm(f"monday {number}")
        return backup

    async def write(self, what: str) -> None:
        """Whatever: it has nothing to do with us."""
        patch = {"metadata": {"annotations": {"example.com/note": what}}}
        await self.client.merge_patch(NODES, "n1", patch)

    async def roll_back(self, backup: Snapshot, *, raised: int = 0) -> None:
        self.cluster.roll_back(backup, raised=raised)
        await asyncio.sleep(1)

    def delay(self, seconds: float) -> None:
        """Each request, and each answer."""
        self._world.network.link(URL).delay = seconds

    def past(self, files: MemoryFiles | None = None) -> Past:
        """Kept in these files, if any."""
        directory = "" if files is None else "flights"
        return Past(self.client, files or MemoryFiles(), directory, rng=self.cluster.ground.rng)


P = ParamSpec("P")


def restored(test: Callable[Concatenate[Api, P], Awaitable[None]]) -> Callable[P, None]:
    """``@restored``: a test that is given such an API, under virtual time."""

    @functools.wraps(test)
    def run_it(*args: P.args, **kwargs: P.kwargs) -> None:
        _play(lambda api: test(api, *args, **kwargs))

    # Spelled out for pytest, which takes every parameter for a fixture of its own.
    first, *others = inspect.signature(test).parameters.values()
    assert first.name == "api", first
    run_it.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
    return run_it


def _play(story: Callable[[Api], Awaitable[None]]) -> None:
    async def scenario(world: World) -> None:
        cluster = EmbeddedCluster(WorldGround(world))
        cluster.add_node("n1")
        await cluster.settled()
        for definition in definitions():
            await cluster.client().create(DEFINITIONS, definition)
        api = Api(world, cluster)
        await api.arm("sunday")
        await story(api)

    with World(1) as world:
        world.run(scenario(world))

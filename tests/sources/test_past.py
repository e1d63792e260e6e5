"""An API that goes back in time is noticed, and accepted by nobody but a person."""

import asyncio
from typing import Any

import msgspec
import pytest

from backstay.apis.backstay import CONFIG_NAME, CONFIGS
from backstay.apis.definitions import definitions
from backstay.kube.resource import Resource
from backstay.model.labels import ARMED
from backstay.seam.tasks import Tasks
from backstay.sim.api.store import Snapshot
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.cluster.ground import WorldGround
from backstay.sim.files import MemoryFiles
from backstay.sim.world import World
from backstay.sources.past import Memory, Past, RolledBack, rolled_back, step

DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
    namespaced=False,
)  # fmt: skip

WENT_BACK = Memory("900", RolledBack("900", "100", "monday"))


# The rule


@pytest.mark.parametrize(
    ("memory", "before", "version", "after"),
    [
        (Memory(), "", "5", Memory("5")),
        (Memory("900"), "900", "900", Memory("900")),
        (Memory("900"), "900", "1000", Memory("1000")),
        (Memory("900"), "900", "100", WENT_BACK),
        (Memory("900"), "900", "99999999999999999999999", Memory("99999999999999999999999")),
    ],
)
def test_a_lower_version_than_was_seen_is_a_way_back(
    memory: Memory, before: str, version: str, after: Memory
) -> None:
    assert step(memory, before=before, version=version, armed="monday") == after


def test_a_read_that_began_before_a_higher_one_was_seen_says_nothing() -> None:
    assert step(Memory("905"), before="900", version="902", armed="") == Memory("905")


def test_a_version_that_is_no_number_says_nothing() -> None:
    assert step(Memory("900"), before="900", version="abc", armed="") == Memory("900")


def test_it_is_not_forgotten_when_the_version_grows_again() -> None:
    assert step(WENT_BACK, before="900", version="5000", armed="monday") == WENT_BACK


def test_whoever_arms_anew_accepts_it() -> None:
    assert step(WENT_BACK, before="900", version="120", armed="tuesday") == Memory("120")


def test_a_configuration_that_is_gone_accepts_nothing() -> None:
    assert step(WENT_BACK, before="900", version="120", armed="") == WENT_BACK


@pytest.mark.parametrize("text", ["", "yes", "{}", "[1]", '{"highest": 5}'])
def test_what_somebody_else_wrote_on_the_lease_is_no_way_back(text: str) -> None:
    assert rolled_back(text) is None


# Looking


class Api:
    """An API with our kinds, and somebody who arms and restores."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
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

    async def roll_back(self, backup: Snapshot) -> None:
        self.cluster.roll_back(backup)
        await asyncio.sleep(1)

    def past(self, files: MemoryFiles, directory: str = "flights") -> Past:
        return Past(self.client, files, directory, rng=self.cluster.ground.rng)


def play(story: Any) -> None:
    async def scenario(world: World) -> None:
        cluster = EmbeddedCluster(WorldGround(world))
        cluster.add_node("n1")
        await cluster.settled()
        for definition in definitions():
            await cluster.client().create(DEFINITIONS, definition)
        api = Api(cluster)
        await api.arm("sunday")
        await story(api)

    with World(1) as world:
        world.run(scenario(world))


def test_an_api_that_was_restored_is_noticed_until_somebody_arms() -> None:
    async def story(api: Api) -> None:
        past = api.past(MemoryFiles(), directory="")
        backup = await api.grow()
        await past.look()
        assert past.words == ""
        await api.roll_back(backup)
        await past.look()
        assert "before, and then" in past.words
        await api.grow()
        await past.look()
        assert past.words == "", "somebody has armed"

    play(story)


def test_an_api_that_was_away_is_looked_at_as_soon_as_it_is_back() -> None:
    """Before it has outgrown what was seen."""

    async def story(api: Api) -> None:
        past = api.past(MemoryFiles(), directory="")
        backup = await api.grow()
        async with Tasks("test") as tasks:
            tasks.spawn(past.run(), name="past")
            await asyncio.sleep(5)
            api.cluster.control_plane.kill("api")
            await asyncio.sleep(60)
            await api.roll_back(backup)
            api.cluster.control_plane.start("api")
            await asyncio.sleep(2)
            assert past.words

    play(story)


def test_what_another_read_has_shown_counts_at_the_next_look() -> None:
    async def story(api: Api) -> None:
        past = api.past(MemoryFiles(), directory="")
        await past.look()
        past.compare()("900")
        past.compare()("899")
        assert past.words == ""
        await past.look()
        assert past.words == "its version was 900 before, and then 899"

    play(story)


def test_a_read_that_began_before_a_higher_version_was_seen_shows_nothing() -> None:
    async def story(api: Api) -> None:
        past = api.past(MemoryFiles(), directory="")
        await past.look()
        slow = past.compare()
        backup = await api.grow()
        await past.look()
        slow(str(backup.version))
        await past.look()
        assert past.words == ""

    play(story)


def test_a_controller_that_was_not_there_knows_it_from_its_disk() -> None:
    async def story(api: Api) -> None:
        files = MemoryFiles()
        task = asyncio.create_task(api.past(files).run())
        backup = await api.grow()
        await asyncio.sleep(90)
        task.cancel()
        await api.roll_back(backup)
        heir = api.past(files)
        await heir.look()
        assert heir.words

    play(story)


def test_a_controller_without_a_disk_knows_it_from_the_lease() -> None:
    async def story(api: Api) -> None:
        past, heir = api.past(MemoryFiles(), ""), api.past(MemoryFiles(), "")
        backup = await api.grow()
        await past.look()
        await api.roll_back(backup)
        await past.look()
        await heir.look()
        assert (heir.words, heir.remark) == ("", None)
        heir.inherit(past.remark or "")
        await heir.look()
        assert heir.words == past.words
        await api.arm("tuesday")
        await heir.look()
        assert heir.words == ""

    play(story)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"highest": 7}'])
def test_a_file_that_cannot_be_read_is_said_and_stops_nothing(content: bytes) -> None:
    async def story(api: Api) -> None:
        files = MemoryFiles()
        await files.write("flights/past.json", content)
        past = api.past(files)
        await past.look()
        assert past.words == ""
        assert past.trouble.startswith("flights/past.json: ")

    play(story)


def test_what_is_kept_can_be_read_by_people() -> None:
    assert msgspec.json.encode(WENT_BACK) == (
        b'{"highest":"900","rolledBack":{"highest":"900","found":"100","armed":"monday"}}'
    )

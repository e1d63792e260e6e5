"""An API that goes back in time is noticed, and accepted by nobody but a person."""

import asyncio

import msgspec
import pytest

from backstay.kube.resource import LEASES
from backstay.kube.versions import is_older
from backstay.seam.tasks import Tasks
from backstay.sim.files import MemoryFiles
from backstay.sources.past import (
    ApiWentBack,
    Memory,
    Past,
    RolledBack,
    rolled_back,
)
from tests.sources.restored import Api, restored

RAISED = 1_000_000_000
RAISED_A_LITTLE = 1_000_000
SEEN_BY_ANOTHER = RolledBack("900", "10", "sunday")
WENT_BACK = Memory("900", RolledBack("900", "100", "monday"))


# Looking


@restored
async def test_an_api_that_was_restored_is_noticed_until_somebody_arms(api: Api) -> None:
    past = api.past()
    backup = await api.grow()
    await past.look()
    assert past.words == ""
    await api.roll_back(backup)
    await past.look()
    assert "before, and then" in past.words
    await api.arm("tuesday")
    await past.look()
    assert past.words == "", "somebody has armed"


@restored
async def test_who_restores_twice_has_not_armed_by_that(api: Api) -> None:
    past = api.past()
    oldest = api.cluster.api.store.snapshot()
    await api.arm("sunday")
    older = await api.grow()
    await past.look()
    await api.roll_back(older)
    await past.look()
    await api.grow()
    await past.look()
    assert past.words, "its last arming was seen before"
    await api.roll_back(oldest)
    await api.arm("by whom nobody knows")
    await past.look()
    assert past.words, "that may be of the backup as well"
    await api.arm("tuesday")
    await past.look()
    assert past.words == ""


@restored
async def test_of_a_stamp_no_more_is_kept_than_anybody_needs(api: Api) -> None:
    files = MemoryFiles()
    past = api.past(files)
    await api.arm("x" * 100_000)
    await past.look()
    backup = await api.grow()
    await past.look()
    await api.roll_back(backup)
    await past.look()
    assert past.words
    assert len(await files.read("flights/past.json")) < 1_000


@restored
async def test_an_api_that_was_away_is_looked_at_as_soon_as_it_is_back(api: Api) -> None:
    """Before it has outgrown what was seen."""

    past = api.past()
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


@restored
async def test_who_restores_twice_is_noticed_though_the_second_backup_is_but_seconds_old(
    api: Api,
) -> None:
    """It has soon outgrown what was seen a look ago."""

    past = api.past()
    async with Tasks("test") as tasks:
        tasks.spawn(past.run(), name="past")
        backup = await api.grow()
        await asyncio.sleep(12)
        await api.roll_back(backup)
        await asyncio.sleep(20)
        first, younger = past.restored, api.cluster.api.store.snapshot()
        for number in range(3):
            await api.write(f"before {number}")
            await asyncio.sleep(1)
        await api.roll_back(younger)
        for number in range(20):
            await api.write(f"after {number}")
            await asyncio.sleep(1)
        assert first
        assert is_older(first, past.restored)


@restored
async def test_what_another_read_has_shown_counts_at_the_next_look(api: Api) -> None:
    past = api.past()
    await past.look()
    past.compare()("900")
    past.compare()("899")
    past.lease.stood_at("790", before="811")
    assert past.words == ""
    await past.look()
    assert past.words == "its version was 900 before, and then 899"


@restored
async def test_a_lease_that_went_back_counts_at_the_next_look(api: Api) -> None:
    """Where versions count on from one that is a little higher, nothing else shows it."""

    past = api.past()
    await past.look()
    backup = await api.grow()
    await api.roll_back(backup, raised=RAISED_A_LITTLE)
    found = str(api.cluster.api.store.version)
    await past.look()
    assert past.words == ""
    past.lease.stood_at("790", before="811")
    await past.look()
    assert past.words == "the version of our lease was 811 before, and then 790"
    assert past.restored == found
    assert rolled_back(past.remark or "") == past.rolled_back
    await api.arm("tuesday")
    await past.look()
    assert (past.words, past.restored) == ("", found)


@restored
async def test_versions_that_nobody_has_written_show_a_way_back(api: Api) -> None:
    """Whoever restores by the book has them leap by a billion."""
    past = api.past()
    await past.look()
    backup, found = await api.grow(), ""
    await past.look()
    for _ in range(2):
        before = str(api.cluster.api.store.version)
        await api.roll_back(backup, raised=RAISED)
        found = str(api.cluster.api.store.version)
        await past.look()
        await past.look()
        assert past.words == f"its version was {before} before, and leapt to {found}"
        backup = api.cluster.api.store.snapshot()
    await api.arm("tuesday")
    await past.look()
    assert (past.words, past.restored) == ("", found)
    await past.look()
    assert past.words == ""


@restored
async def test_a_leap_that_another_read_or_a_cache_has_shown_counts_at_the_next_look(
    api: Api,
) -> None:
    for cached in (True, False):
        past = api.past()
        past.saw(LEASES, "811")
        if cached:
            past.saw(LEASES, "1000000811")
        else:
            past.compare(LEASES)("1000000811")
        await past.look()
        assert past.words == "its version was 811 before, and leapt to 1000000811"


@restored
async def test_what_is_known_of_an_earlier_life_shows_no_leap(api: Api) -> None:
    """The API has had all the time in the world."""
    files = MemoryFiles()
    await files.write("flights/past.json", msgspec.json.encode(Memory("1")))
    api.cluster.roll_back(api.cluster.api.store.snapshot(), raised=RAISED)
    past = api.past(files)
    await past.look()
    assert past.words == ""


@restored
async def test_one_that_only_looks_on_looks_more_often_than_one_that_sees_versions_anyway(
    api: Api,
) -> None:
    looked = 0

    class Counted(Past):
        async def look(self) -> None:
            nonlocal looked
            looked += 1
            await super().look()

    past = Counted(api.client, MemoryFiles(), "", rng=api.cluster.ground.rng)
    async with Tasks("test") as tasks:
        tasks.spawn(past.run(), name="past")
        await asyncio.sleep(60)
        alone, looked = looked, 0
        for _ in range(60):
            past.compare(LEASES)("811")
            await asyncio.sleep(1)
        assert 28 <= alone <= 32
        assert 5 <= looked <= 7


@restored
async def test_a_lease_that_was_found_while_a_look_was_under_way_counts_at_the_next(
    api: Api,
) -> None:
    """What that look finds may be from before the restore."""

    past = api.past()
    async with Tasks("test") as tasks:
        look = tasks.spawn(past.look(), name="look")
        await asyncio.sleep(0)
        past.lease.stood_at("790", before="811")
        await look
    assert past.words == ""
    await past.look()
    assert past.words != ""


@restored
async def test_two_looks_at_once_count_one_way_back_once(api: Api) -> None:
    """An arming that the later one finds would otherwise be taken for one of a second backup."""
    api.delay(1)
    past = api.past()
    past.lease.stood_at("790", before="811")
    async with Tasks("test") as tasks:
        first = tasks.spawn(past.look(), name="before it is armed")
        await asyncio.sleep(0.1)
        tasks.spawn(api.arm("tuesday"), name="arming")
        await asyncio.sleep(0.1)
        second = tasks.spawn(past.look(), name="after it")
        await first
        assert past.words
        await second
        assert past.words == ""


@restored
async def test_whoever_is_about_to_begin_anew_has_no_say_about_the_lease_any_more(api: Api) -> None:
    """It compares with what it knew before."""

    past = api.past()
    of_before = past.lease
    of_before.stood_at("790", before="811")
    await past.look()
    known = past.restored
    await api.grow()
    of_before.stood_at("795", before="811")
    await past.look()
    assert past.restored == known
    past.lease.stood_at("792", before="795")
    await past.look()
    assert is_older(known, past.restored)


@restored
async def test_each_way_back_lets_the_lease_of_before_be_forgotten(api: Api) -> None:
    """Or the same restore would be found once more."""

    past = api.past()
    backup = await api.grow()
    for _ in range(2):
        past.lease.saw("811")
        await past.look()
        await api.roll_back(backup)
        await past.look()
        assert past.lease.highest == ""
        await past.look()
        await api.grow()


@restored
async def test_an_arming_that_is_found_as_the_lease_goes_back_once_more_accepts_nothing(
    api: Api,
) -> None:
    past = api.past()
    past.lease.stood_at("790", before="811")
    await past.look()
    past.lease.stood_at("799", before="800")
    await api.arm("back from the second backup")
    for _ in range(2):
        await past.look()
        assert past.words == "the version of our lease was 800 before, and then 799"
    await api.arm("tuesday")
    await past.look()
    assert past.words == ""


@restored
async def test_a_read_that_began_before_a_higher_version_was_seen_shows_nothing(api: Api) -> None:
    past = api.past()
    await past.look()
    slow = past.compare()
    backup = await api.grow()
    await past.look()
    slow(str(backup.version))
    await past.look()
    assert past.words == ""


@restored
async def test_what_a_cache_has_shown_was_there_and_a_write_that_comes_later_shows_more(
    api: Api,
) -> None:
    past = api.past()
    await past.look()
    past.saw(LEASES, "900")
    past.saw(LEASES, "890")
    past.compare(LEASES)("899")
    await past.look()
    assert past.words == "its version was 900 before, and then 899"


@restored
async def test_kinds_that_are_kept_in_another_store_have_versions_of_their_own(api: Api) -> None:
    past = api.past()
    past.saw(LEASES, "900000")
    await past.look()
    past.compare(LEASES)("900001")
    await past.look()
    assert past.words == ""


@restored
async def test_what_was_seen_before_somebody_armed_anew_counts_no_more(api: Api) -> None:
    past = api.past()
    await past.look()
    past.saw(LEASES, "900")
    slow = past.compare(LEASES)
    past.compare(LEASES)("100")
    await past.look()
    assert past.words
    await api.arm("tuesday")
    await past.look()
    slow("101")
    past.compare(LEASES)("102")
    await past.look()
    assert past.words == ""


# On disk


@restored
async def test_a_controller_that_was_not_there_knows_it_from_its_disk(api: Api) -> None:
    files = MemoryFiles()
    task = asyncio.create_task(api.past(files).run())
    await asyncio.sleep(30)
    backup = await api.grow()
    await asyncio.sleep(11)
    task.cancel()
    await api.roll_back(backup)
    heir = api.past(files)
    await heir.look()
    assert heir.words


@pytest.mark.parametrize("is_first", ["the disk", "the lease"])
@restored
async def test_a_controller_that_was_not_there_knows_from_its_disk_that_the_lease_is_older(
    api: Api,
    is_first: str,
) -> None:
    files = MemoryFiles()
    past = api.past(files)
    past.lease.saw("811")
    task = asyncio.create_task(past.run())
    await asyncio.sleep(30)
    task.cancel()
    heir = api.past(files)
    if is_first == "the disk":
        await heir.look()
        assert heir.words == ""
    heir.lease.stood_at("790", before=heir.lease.highest)
    heir.lease.saw("790")
    await heir.look()
    assert heir.words == "the version of our lease was 811 before, and then 790"


@restored
async def test_a_watch_that_lags_behind_the_disk_shows_no_way_back(api: Api) -> None:
    files = MemoryFiles()
    past = api.past(files)
    past.lease.saw("811")
    task = asyncio.create_task(past.run())
    await asyncio.sleep(30)
    task.cancel()
    heir = api.past(files)
    heir.lease.saw("790")
    await heir.look()
    heir.lease.stood_at("812", before=heir.lease.highest)
    await heir.look()
    assert heir.words == ""


@restored
async def test_of_an_api_that_went_back_no_older_lease_is_kept(api: Api) -> None:
    """Whoever is started next would take what it finds for yet another restore."""

    files = MemoryFiles()
    past = api.past(files)
    past.lease.saw("811")
    backup = await api.grow()
    await past.look()
    await api.roll_back(backup)
    await past.look()
    heir = api.past(files)
    await heir.look()
    assert heir.words == past.words != ""
    assert heir.lease.highest == ""


@restored
async def test_a_controller_without_a_disk_knows_it_from_the_lease(api: Api) -> None:
    past, heir = api.past(), api.past()
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


@restored
async def test_what_is_known_of_a_history_that_is_over_does_not_lie_ahead(api: Api) -> None:
    files = MemoryFiles()
    await files.write("flights/past.json", msgspec.json.encode(Memory("10", restored="800")))
    past = api.past(files)
    await past.look()
    await past.look()
    assert past.restored == str(api.cluster.api.store.version)


@restored
async def test_a_lease_from_a_backup_tells_no_more_than_the_disk(api: Api) -> None:
    """The API went back twice, and the lease is of between that."""
    files, lease = MemoryFiles(), msgspec.json.encode(SEEN_BY_ANOTHER).decode()
    held = Memory("900", RolledBack("14", "12", "sunday", ("friday",)), restored="12")
    await files.write("flights/past.json", msgspec.json.encode(held))
    past = api.past(files)
    past.inherit(lease)
    await past.look()
    assert (past.words, past.restored) == ("its version was 14 before, and then 12", "12")
    past.lease.followed = True
    await api.arm("tuesday")
    await past.look()
    with pytest.raises(ApiWentBack):
        await past.unless_it_goes_back(asyncio.sleep(1000))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"highest": 7}'])
@restored
async def test_a_file_that_cannot_be_read_is_said_and_stops_nothing(
    api: Api, content: bytes
) -> None:
    files = MemoryFiles()
    await files.write("flights/past.json", content)
    past = api.past(files)
    await past.look()
    assert past.words == ""
    assert past.trouble.startswith("flights/past.json: ")


def test_what_is_kept_can_be_read_by_people() -> None:
    assert msgspec.json.encode(WENT_BACK) == (
        b'{"highest":"900","rolledBack":{"highest":"900","found":"100","armed":"monday"}}'
    )

"""What others have seen of an API that went back in time counts as if we had seen it."""

import asyncio

import msgspec
import pytest

from backstay.kube.resource import LEASES
from backstay.seam.tasks import Tasks
from backstay.sources.past import (
    ApiWentBack,
    RolledBack,
)
from tests.sources.restored import Api, restored

SEEN_BY_ANOTHER = RolledBack("900", "10", "sunday")


@restored
async def test_what_another_has_seen_holds_from_the_next_look_on(api: Api) -> None:
    past = api.past()
    await past.look()
    past.hear(SEEN_BY_ANOTHER)
    before = past.is_in_doubt
    await past.look()
    assert past.rolled_back == SEEN_BY_ANOTHER
    assert (before, past.is_in_doubt) == (True, False)
    await api.arm("tuesday")
    await past.look()
    assert past.words == ""


@restored
async def test_who_has_missed_that_it_went_back_once_more_begins_anew_once_somebody_has_armed(
    api: Api,
) -> None:
    """What it knows may be of a time that has not been, though it noticed the first way back."""
    past, seen = api.past(), SEEN_BY_ANOTHER
    past.hear(seen)
    async with Tasks("test") as tasks:
        tasks.spawn(past.run(), name="past")
        with pytest.raises(ApiWentBack):
            await past.unless_it_goes_back(asyncio.sleep(1000))
        past.hear(msgspec.structs.replace(seen, highest="14", found="12"))
        await past.unless_it_goes_back(asyncio.sleep(1000))
        assert past.words == "its version was 14 before, and then 12"
        await api.arm("tuesday")
        with pytest.raises(ApiWentBack):
            await past.unless_it_goes_back(asyncio.sleep(1000))
        await past.unless_it_goes_back(asyncio.sleep(1000))
        assert (past.words, past.restored) == ("", "12")


@restored
async def test_what_was_accepted_is_no_reason_not_to_hear_of_another_way_back(api: Api) -> None:
    """Its backup may have been an older one."""
    past = api.past()
    past.hear(msgspec.structs.replace(SEEN_BY_ANOTHER, found="12"))
    await past.look()
    await api.arm("tuesday")
    await past.look()
    assert (past.words, past.restored) == ("", "12")
    past.hear(msgspec.structs.replace(SEEN_BY_ANOTHER, armed="tuesday"))
    await past.look()
    assert (past.words != "", past.restored) == (True, "12")


@pytest.mark.parametrize("told", [True, False])
@restored
async def test_what_whoever_leads_is_told_or_sees_is_judged_at_once(api: Api, told: bool) -> None:
    """Also while it sees versions anyway, and has nothing to do."""
    past = api.past()
    async with Tasks("test") as tasks:
        tasks.spawn(past.run(), name="past")
        for second in range(25):
            past.compare(LEASES)(str(811 + second))
            await asyncio.sleep(1)
        if told:
            past.hear(SEEN_BY_ANOTHER)
        else:
            past.compare(LEASES)("700")
        await asyncio.sleep(2.2)
        assert past.words != ""


@restored
async def test_what_a_leader_has_seen_since_is_taken_over_from_it_as_well(api: Api) -> None:
    past, later = api.past(), msgspec.structs.replace(SEEN_BY_ANOTHER, found="12")
    past.hear(SEEN_BY_ANOTHER)
    await past.look()
    past.inherit(msgspec.json.encode(later).decode())
    await past.look()
    assert past.restored == "12"


@restored
async def test_nothing_is_taken_for_older_than_a_backup_that_was_said_since(api: Api) -> None:
    """Another may tell of a way back of a history that is over: of versions that are to come."""
    past = api.past()
    past.hear(msgspec.structs.replace(SEEN_BY_ANOTHER, found="800"))
    await past.look()
    stands, known = api.cluster.api.store.version, past.restored
    await api.write("something")
    await past.look()
    assert past.restored == known == str(stands)  # and not 800


@restored
async def test_what_another_has_seen_before_somebody_armed_holds_nothing(api: Api) -> None:
    past = api.past()
    await api.arm("tuesday")
    past.hear(SEEN_BY_ANOTHER)
    await past.look()
    assert past.words == ""
    assert not past.is_in_doubt


@restored
async def test_whoever_is_told_of_it_begins_anew(api: Api) -> None:
    """What it knows may be of the time that has not been."""

    past = api.past()
    past.hear(SEEN_BY_ANOTHER)
    async with Tasks("test") as tasks:
        tasks.spawn(past.run(), name="past")
        with pytest.raises(ApiWentBack):
            await past.unless_it_goes_back(asyncio.sleep(1000))


@pytest.mark.parametrize("another_led", [True, False])
@restored
async def test_whoever_has_not_led_all_the_while_begins_anew_once_somebody_has_armed(
    api: Api,
    another_led: bool,
) -> None:
    """It may have gone back again meanwhile, and only another have noticed."""

    past = api.past()
    past.hear(SEEN_BY_ANOTHER)
    async with Tasks("test") as tasks:
        tasks.spawn(past.run(), name="past")
        with pytest.raises(ApiWentBack):
            await past.unless_it_goes_back(asyncio.sleep(1000))
        past.lease.followed = another_led
        await api.arm("tuesday")
        if another_led:
            with pytest.raises(ApiWentBack):
                await past.unless_it_goes_back(asyncio.sleep(1000))
        await past.unless_it_goes_back(asyncio.sleep(1000))
        assert past.words == ""


@restored
async def test_what_was_left_on_the_lease_and_is_accepted_long_ago_lets_nobody_begin_anew(
    api: Api,
) -> None:
    """It would be found there time and again."""
    await api.arm("tuesday")
    past = api.past()
    past.inherit(msgspec.json.encode(SEEN_BY_ANOTHER).decode())
    past.lease.followed = True
    async with Tasks("test") as tasks:
        tasks.spawn(past.run(), name="past")
        await past.unless_it_goes_back(asyncio.sleep(1000))
        assert past.words == ""
        # One that is not is another matter.
        past.hear(msgspec.structs.replace(SEEN_BY_ANOTHER, armed="tuesday"))
        with pytest.raises(ApiWentBack):
            await past.unless_it_goes_back(asyncio.sleep(1000))
        past.lease.followed = True
        await api.arm("wednesday")
        with pytest.raises(ApiWentBack):
            await past.unless_it_goes_back(asyncio.sleep(1000))


@restored
async def test_a_way_back_that_is_seen_before_anything_is_begun_is_not_forgotten(api: Api) -> None:
    past = api.past()
    past.hear(SEEN_BY_ANOTHER)
    await past.look()
    with pytest.raises(ApiWentBack):
        await past.unless_it_goes_back(asyncio.sleep(1000))
    async with asyncio.timeout(2000):
        await past.unless_it_goes_back(asyncio.sleep(1000))

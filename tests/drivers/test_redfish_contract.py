"""What holds for a Redfish service, be it our double or one that nobody here wrote."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backstay.drivers.power import PowerFailed
from backstay.seam.real import open_seams
from tests.drivers.bmc import PASSWORD, UUID
from tests.drivers.redfish_targets import TARGETS, Target


@pytest.fixture(params=sorted(TARGETS))
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Target]:
    async with open_seams() as seams, TARGETS[request.param](seams, tmp_path) as made:
        yield made


def soon() -> float:
    return asyncio.get_running_loop().time() + 10


async def test_a_machine_is_seen_to_be_on_and_who_it_is(target: Target) -> None:
    reading = await target.driver.sight("n1")
    assert (reading.on, reading.uuid.lower()) == (True, UUID)


async def test_a_machine_goes_off_and_on_and_is_seen_to(target: Target) -> None:
    await target.driver.switch_off("n1", not_after=soon())
    await target.until(False)
    await target.driver.switch_off("n1", not_after=soon())
    assert (await target.driver.sight("n1")).on is False
    await target.driver.switch_on("n1", not_after=soon())
    await target.until(True)


async def test_a_wrong_password_is_told_from_a_service_that_is_not_there(target: Target) -> None:
    target.log_in_with("another")
    with pytest.raises(PowerFailed, match=r"it does not accept the login \(401\)"):
        await target.driver.sight("n1")
    target.log_in_with(PASSWORD)
    assert (await target.driver.sight("n1")).on


async def test_nothing_is_switched_after_the_last_moment(target: Target) -> None:
    with pytest.raises(PowerFailed, match="TooLate"):
        await target.driver.switch_off("n1", not_after=asyncio.get_running_loop().time())
    assert (await target.driver.sight("n1")).on

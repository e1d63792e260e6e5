"""How late it is by the API server's clock, as its answers tell."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from backstay.kube.resource import NODES
from tests.support.scripted import json, world
from tests.support.virtual import virtual_time

DATE = "Wed, 18 Nov 2026 12:00:00 GMT"
NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


@virtual_time
async def test_nobody_knows_before_there_is_an_answer() -> None:
    api = await world()
    assert api.client.api_now() is None


@virtual_time
async def test_it_is_counted_on_from_the_last_answer() -> None:
    api = await world()
    api.server().script = [json({}, date=DATE)]
    await api.client.get(NODES, "n1")
    at_once = api.client.api_now()
    assert at_once is not None
    assert timedelta() <= at_once - NOON < timedelta(seconds=1)
    await asyncio.sleep(90)
    assert api.client.api_now() == at_once + timedelta(seconds=90)


@virtual_time
async def test_an_answer_that_does_not_tell_leaves_it_as_it_was() -> None:
    api = await world()
    api.server().script = [json({}, date=DATE), json({})]
    await api.client.get(NODES, "n1")
    await api.client.get(NODES, "n1")
    assert api.client.api_now() is not None


@pytest.mark.parametrize("date", ["soon", "18", "Fri, 31 Dec 9999 23:59:59 GMT"])
@virtual_time
async def test_what_is_no_time_of_day_says_nothing(date: str) -> None:
    api = await world()
    api.server().script = [json({}, date=date)]
    await api.client.get(NODES, "n1")
    await asyncio.sleep(90)
    assert api.client.api_now() is None

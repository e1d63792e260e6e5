"""Every implementation of ``Transport``, held to the contract."""

from collections.abc import AsyncIterator

import pytest

from tests.seam.transport_contract import StreamContract, TransportContract
from tests.seam.worlds import WORLDS, World


@pytest.fixture(params=WORLDS)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with WORLDS[request.param]() as made:
        yield made


class TestTransport(TransportContract):
    """Requests."""


class TestStreams(StreamContract):
    """Streams."""

"""``cluster``: a small embedded cluster for commands to run against."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.small_cluster import SmallCluster, small_cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    async with small_cluster(tmp_path) as ready:
        yield ready

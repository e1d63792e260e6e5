"""``world``: one that begins alike for each test. (The contracts are not test modules by name, but
their asserts should explain themselves too.)"""

from collections.abc import Iterator

import pytest

from backstay.sim.world import World

for contract in ("transport", "serve", "files", "exec"):
    pytest.register_assert_rewrite(f"tests.seam.{contract}_contract")


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=1) as made:
        yield made

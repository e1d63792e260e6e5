"""``api``: the same tests on each target. See ``targets.py`` for what the targets are."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.accounting import MARK
from harness.cluster import ControlPlane
from tests.conformance.differences import DIFFERENCES
from tests.conformance.targets import Api, in_memory, on_real, over_http

REAL = pytest.param("real", marks=getattr(pytest.mark, MARK))
TARGETS = ["memory", "http", REAL]
WITH_KUBECTL = ["http", REAL]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "kubectl: needs a target that kubectl can reach")
    config.addinivalue_line("markers", "differs(id): shows a known difference of the embedded API")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" in metafunc.fixturenames:
        marked = metafunc.definition.get_closest_marker
        metafunc.parametrize("target", WITH_KUBECTL if marked("kubectl") else TARGETS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test of a known difference must fail on the embedded API, and pass on the real one."""
    for item in items:
        marker = item.get_closest_marker("differs")
        if marker is not None and item.get_closest_marker(MARK) is None:
            why = DIFFERENCES[marker.args[0]]
            item.add_marker(pytest.mark.xfail(reason=f"{marker.args[0]}: {why}", strict=True))


@pytest.fixture
def plane(target: str, request: pytest.FixtureRequest) -> ControlPlane | None:
    """The real control plane, started only for those that need it."""
    if target != "real":
        return None
    found: ControlPlane = request.getfixturevalue("control_plane")
    return found


@pytest.fixture
async def api(target: str, plane: ControlPlane | None, tmp_path: Path) -> AsyncIterator[Api]:
    if plane is not None:
        context = on_real(plane)
    else:
        context = in_memory() if target == "memory" else over_http(tmp_path)
    async with context as api:
        yield api

"""The embedded API on its own, and beside a real one."""

import pytest

from harness.cluster import ControlPlane
from tests.support.both_apis import BothApis, Embedded, Real


@pytest.fixture
async def api() -> Embedded:
    """An embedded API with the namespace ``default``."""
    embedded = Embedded()
    await embedded.call("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}})
    return embedded


@pytest.fixture
async def both(control_plane: ControlPlane, namespace: str) -> BothApis:
    embedded = Embedded()
    await embedded.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    return BothApis(Real(control_plane), embedded, namespace)

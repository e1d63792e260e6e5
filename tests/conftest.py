"""One real control plane for all tests marked ``real``, from the first that needs it to the last.

Such a test is never skipped because something is missing: it fails with the sentence that says
what to do. See ``harness/accounting.py`` for how a run answers for them.
"""

import asyncio
import gc
import signal
from collections.abc import AsyncIterator, Iterator
from functools import cache

import pytest
import pytest_asyncio
from hypothesis import settings

from backstay.kube.client import KubeClient
from harness.accounting import MARK, RealTests
from harness.build import Binaries, BuildError, ensure_binaries
from harness.cluster import FAST, ControlPlane
from harness.connect import connect
from tests.support.installed import Installed, install

# The same examples on every machine and in every run, however slow it is: a search that finds
# something new today belongs into a run that was started to search.
settings.register_profile("backstay", deadline=None, derandomize=True, database=None)
settings.load_profile("backstay")

# These are not test modules by name, and other rooms' tests use them too, but their asserts should
# explain themselves as well.
for module in ("rig", "scenarios", "timeline"):
    pytest.register_assert_rewrite(f"tests.sim.kubevirt.{module}")

_BINARIES = pytest.StashKey[Binaries | BuildError]()
_PLANE = pytest.StashKey[ControlPlane]()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(RealTests(config), "real-tests")
    # A shell has what runs in its background ignore ^C, and so would all that we start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds before the first test, because the first build takes longer than a test may. What
    was imported and collected until here stays, and need not be looked through for garbage."""
    gc.collect()
    gc.freeze()
    config = session.config
    if config.option.collectonly or not any(i.get_closest_marker(MARK) for i in session.items):
        return
    with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        try:
            config.stash[_BINARIES] = ensure_binaries()
        except BuildError as error:
            config.stash[_BINARIES] = error


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def control_plane(pytestconfig: pytest.Config) -> AsyncIterator[ControlPlane]:
    """The session's control plane; it gives up on silent nodes within seconds (``FAST``)."""
    binaries = pytestconfig.stash.get(_BINARIES, None) or ensure_binaries()
    if isinstance(binaries, BuildError):
        pytest.fail(str(binaries), pytrace=False)
    async with ControlPlane(binaries, timers=FAST) as plane:
        pytestconfig.stash[_PLANE] = plane
        yield plane


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Stops the control plane after the last test that can need it: it is never quite idle, and
    as large as all the rest."""
    yield
    plane = item.config.stash.get(_PLANE, None)
    if plane is not None and item is _last_that_needs_it(item.session):
        # This leaves alone which loop the tests take for theirs.
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(plane.stop())


@cache
def _last_that_needs_it(session: pytest.Session) -> pytest.Item:
    return [each for each in session.items if _may_need_it(each)][-1]


def _may_need_it(item: pytest.Item) -> bool:
    asked_for: list[str] = getattr(item, "fixturenames", [])
    return "control_plane" in asked_for or item.get_closest_marker(MARK) is not None


@pytest.fixture
async def namespace(control_plane: ControlPlane) -> AsyncIterator[str]:
    """A namespace that nobody else uses. It goes away after the test, without being waited for, if
    something runs in it; to empty one takes the control plane longer than most tests."""
    created = await control_plane.call(
        "POST", "/api/v1/namespaces", {"metadata": {"generateName": "test-"}}
    )
    name: str = created["metadata"]["name"]
    yield name
    pods = await control_plane.call("GET", f"/api/v1/namespaces/{name}/pods?limit=1")
    if pods["items"]:
        await control_plane.call("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[KubeClient]:
    """Backstay's client, as admin."""
    async with connect(control_plane) as connected:
        yield connected


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def installed(control_plane: ControlPlane) -> Installed:
    """The session's control plane with our kinds and roles (tests/support/installed.py)."""
    return await install(control_plane, running=False)

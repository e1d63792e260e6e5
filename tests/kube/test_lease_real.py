"""Leadership on a real API server, and the contract that its double is held to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from backstay.kube.client import KubeClient
from backstay.kube.errors import Json
from backstay.kube.lease import Leadership, LeaseTimes, Term
from backstay.kube.resource import LEASES
from backstay.seam.system import SystemClock, SystemRng
from backstay.seam.tasks import Tasks
from harness import pki
from harness.cluster import ControlPlane
from harness.connect import connect, until
from tests.support.lease_contract import Api, LeaseContract

pytestmark = pytest.mark.real

SHORT = LeaseTimes(duration=3.0, hold=2.0, renew=0.5)
LONG = LeaseTimes(duration=300.0, hold=200.0, renew=0.5)
"""With these nobody takes over within a test, unless the lease was released."""

PATIENCE = 30.0


@pytest.fixture
async def api(
    control_plane: ControlPlane, client: KubeClient, namespace: str
) -> AsyncIterator[Api]:
    async with connect(control_plane, pki.ORDINARY) as powerless:
        yield Api(client, powerless, namespace)


class TestApiServer(LeaseContract):
    pass


class Candidate:
    """One candidate; ``begun`` and ``ended`` hold the epochs of its terms."""

    def __init__(self, client: KubeClient, namespace: str, name: str, times: LeaseTimes) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self._news = asyncio.Event()
        self.leadership = Leadership(
            client, namespace=namespace, name="backstay", identity=name,
            wall=SystemClock(), rng=SystemRng(), floor=self._floor, times=times,
        )  # fmt: skip

    async def work(self, term: Term) -> None:
        self._note(self.begun, term)
        try:
            await asyncio.sleep(1e6)
        finally:
            self._note(self.ended, term)

    async def until(self, *, begun: int = 0, ended: int = 0) -> None:
        """Until that many of its terms have begun and ended."""
        async with asyncio.timeout(PATIENCE):
            while len(self.begun) < begun or len(self.ended) < ended:
                self._news.clear()
                await self._news.wait()

    def _note(self, where: list[int], term: Term) -> None:
        where.append(term.epoch)
        self._news.set()

    async def _floor(self) -> int:
        return max(self.begun, default=0)


class Election:
    """Candidates for one lease, each with connections of its own, and kubectl."""

    def __init__(self, plane: ControlPlane, namespace: str, stack: AsyncExitStack) -> None:
        self._plane = plane
        self._namespace = namespace
        self._stack = stack
        self._runs: dict[Candidate, asyncio.Task[None]] = {}

    async def start(self, name: str, times: LeaseTimes = SHORT) -> Candidate:
        client = await self._stack.enter_async_context(connect(self._plane))
        tasks = await self._stack.enter_async_context(Tasks(name))
        born = Candidate(client, self._namespace, name, times)
        self._runs[born] = tasks.spawn(born.leadership.run(born.work), name="run")
        return born

    async def stop(self, candidate: Candidate) -> None:
        self._runs[candidate].cancel()
        await asyncio.wait({self._runs[candidate]})

    async def until_renewed(self) -> None:
        """Until its holder has renewed it twice: once could have been under way."""
        seen: set[str] = set()

        def thrice(leases: list[Json]) -> bool:
            seen.update(lease["spec"]["renewTime"] for lease in leases)
            return len(seen) == 3

        async with connect(self._plane) as client:
            await until(client, LEASES, thrice, namespace=self._namespace, name="backstay")

    async def kubectl(self, *arguments: str) -> str:
        return await self._plane.kubectl("-n", self._namespace, *arguments)

    async def lease(self) -> str:
        """Holder and transitions, as a person sees them."""
        fields = "{.spec.holderIdentity} {.spec.leaseTransitions} {.metadata.labels}"
        return await self.kubectl("get", "lease", "backstay", "-o", f"jsonpath={fields}")


@pytest.fixture
async def election(control_plane: ControlPlane, namespace: str) -> AsyncIterator[Election]:
    async with AsyncExitStack() as stack:
        yield Election(control_plane, namespace, stack)


async def test_the_first_leads_and_a_person_can_see_it(election: Election) -> None:
    a = await election.start("a")
    await a.until(begun=1)
    b = await election.start("b")
    assert await election.lease() == "a 1 "
    assert (await election.kubectl("get", "lease", "backstay")).split()[:4] == [
        "NAME", "HOLDER", "AGE", "backstay",
    ]  # fmt: skip
    assert (a.begun, b.begun) == ([1], [])


async def test_a_release_is_taken_up_without_waiting(election: Election) -> None:
    a = await election.start("a", LONG)
    await a.until(begun=1)
    b = await election.start("b", LONG)
    await election.until_renewed()
    await election.stop(a)
    assert a.ended == [1]
    await b.until(begun=1)
    assert await election.lease() == "b 2 "


async def test_a_leader_whose_api_server_is_paused_stops_by_itself(
    control_plane: ControlPlane, election: Election
) -> None:
    a = await election.start("a")
    await a.until(begun=1)
    control_plane.pause()
    try:
        await a.until(ended=1)
        assert a.leadership.term is None or a.leadership.term.over
    finally:
        control_plane.resume()
    await a.until(begun=2)
    assert a.begun == [1, 2]


async def test_a_label_of_a_person_stays_and_disturbs_nobody(election: Election) -> None:
    a = await election.start("a", LONG)
    await a.until(begun=1)
    await election.kubectl("label", "lease", "backstay", "some=label")
    await election.until_renewed()
    assert await election.lease() == 'a 1 {"some":"label"}'
    assert a.ended == []


async def test_a_lease_that_a_person_deletes_is_made_anew_under_a_higher_epoch(
    election: Election,
) -> None:
    a = await election.start("a")
    await a.until(begun=1)
    await election.kubectl("delete", "lease", "backstay")
    await a.until(begun=2, ended=1)
    assert await election.lease() == "a 2 "

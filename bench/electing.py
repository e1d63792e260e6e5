"""Electing: how long a leader believes in itself after its deadline, when the API goes silent.

Electors lead and renew; then the server accepts their requests and answers no more. An elector's
deadline is the arrival of the last renewal that was answered, plus its renew deadline. The work
that it runs notes every few milliseconds that it is still allowed to act; the figure is its last
note, in seconds past the deadline. Nobody is watched for longer than ``LOOK`` seconds past it.

Several electors are watched at once, and the server goes silent at different points of their
renewals. The figure is the worst of them: where safety is at stake, a median would hide it.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp

from backstay.kube.lease import Leadership, LeaseTimes, Term
from backstay.seam.tasks import Tasks
from bench.connect import bare_session, our_client
from bench.worker import Job, Measure, in_loop

DURATION, DEADLINE = 5, 3
# The most that each allows: ours wants room for four attempts, the peer no less than a second.
_OUR_RENEWAL, _PEER_RENEWAL = 0.75, 1.0
LOOK = 20.0

_NAMESPACE = "bench"
_NOTE_EVERY = 0.005
_GONE_AFTER = 1.0
_SILENT_AFTER = 2.5


class _Belief:
    """When an elector last believed that it leads."""

    def __init__(self) -> None:
        self.noted_at = 0.0

    def note(self) -> None:
        self.noted_at = time.monotonic()


_Elect = Callable[[str, _Belief], Coroutine[Any, Any, None]]


def ours(job: Job) -> Measure:
    async def work() -> float:
        async with our_client(job) as (seams, client):

            async def elect(name: str, belief: _Belief) -> None:
                loop = asyncio.get_running_loop()

                async def act(term: Term) -> None:
                    while loop.time() < term.not_after:
                        belief.note()
                        await asyncio.sleep(_NOTE_EVERY)
                    await asyncio.Event().wait()

                await Leadership(
                    client,
                    namespace=_NAMESPACE,
                    name=name,
                    identity=name,
                    wall=seams.wall,
                    rng=seams.rng,
                    floor=_no_floor,
                    times=LeaseTimes(duration=DURATION, hold=DEADLINE, renew=_OUR_RENEWAL),
                ).run(act)

            return await _watched(job, "ours", elect)

    return in_loop(work)


def kubernetes_asyncio(job: Job) -> Measure:
    from kubernetes_asyncio import client, config
    from kubernetes_asyncio.leaderelection import leaderelection
    from kubernetes_asyncio.leaderelection.electionconfig import Config
    from kubernetes_asyncio.leaderelection.resourcelock.leaselock import LeaseLock

    async def work() -> float:
        await config.load_kube_config(config_file=job.kubeconfig)
        async with client.ApiClient() as api:

            async def elect(name: str, belief: _Belief) -> None:
                async def act() -> None:
                    while True:
                        belief.note()
                        await asyncio.sleep(_NOTE_EVERY)

                settings = Config(
                    LeaseLock(name, _NAMESPACE, name, api),
                    lease_duration=DURATION,
                    renew_deadline=DEADLINE,
                    retry_period=_PEER_RENEWAL,
                    onstarted_leading=act,
                    onstopped_leading=_nothing,
                )
                await leaderelection.LeaderElection(settings).run()

            return await _watched(job, "peer", elect)

    return in_loop(work)


async def _no_floor() -> int:
    return 0


async def _nothing() -> None:
    pass


async def _watched(job: Job, prefix: str, elect: _Elect) -> float:
    async with bare_session(job) as session, Tasks("bench") as tasks:
        watches = [
            tasks.spawn(_watch(f"{prefix}-{n}", n / job.amount, elect, session, tasks), name=str(n))
            for n in range(job.amount)
        ]
        return max(await asyncio.gather(*watches))


async def _watch(
    name: str, phase: float, elect: _Elect, session: aiohttp.ClientSession, tasks: Tasks
) -> float:
    """Seconds for which one elector believed past its deadline."""
    belief = _Belief()
    electing = tasks.spawn(elect(name, belief), name=f"elect {name}")
    while not belief.noted_at:
        assert not electing.done()
        await asyncio.sleep(_NOTE_EVERY)
    await asyncio.sleep(_SILENT_AFTER + phase * _PEER_RENEWAL)
    async with session.post(f"/silence/{name}") as answer:
        deadline: float = await answer.json() + DEADLINE
    await _until_gone(belief, stop_at=deadline + LOOK)
    return min(max(belief.noted_at - deadline, 0.0), LOOK)


async def _until_gone(belief: _Belief, *, stop_at: float) -> None:
    """Until an elector has not believed for a while, or nobody looks any more."""
    while (now := time.monotonic()) < stop_at:
        if now > belief.noted_at + _GONE_AFTER:
            return
        await asyncio.sleep(_NOTE_EVERY)

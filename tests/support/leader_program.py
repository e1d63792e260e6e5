"""A candidate as a process of its own, which can be stopped, continued and killed.

``leader_program.py NAME LEASES WRITES [--careless]``: two kubeconfigs, one for the lease and one
for what the leader writes, so that a test can hold up one without the other.

While it leads it never stops writing, and each write says until when it was allowed, in seconds
since the machine started: that is this program's ``loop.time()``, and a clock that all processes
share. When its work is stopped it waits for the writes that are under way, so that nothing but
the deadline keeps them from leaving. With ``--careless`` they carry none.
"""

import asyncio
import logging
import sys

from backstay.kube.client import KubeClient
from backstay.kube.errors import KubeError
from backstay.kube.find_access import find_access
from backstay.kube.lease import Leadership, LeaseTimes, Term
from backstay.kube.resource import LEASES
from backstay.seam import Seams
from backstay.seam.real import open_seams
from backstay.seam.system import SuspendAwareLoop

LEASE = "backstay"
PAPER = "paper"
TIMES = LeaseTimes(duration=3.0, hold=2.0, renew=0.5)

_WRITERS = 4
_PAUSE = 0.02
_WRITE_WITHIN = 60.0


async def main(name: str, leases: str, writes: str, *, careless: bool) -> None:
    async with open_seams() as seams:
        client = await _client(seams, leases, name)
        paper = await _client(seams, writes, name)

        async def floor() -> int:
            return 0

        async def work(term: Term) -> None:
            writers = [_write_for_ever(paper, name, term, careless) for _ in range(_WRITERS)]
            await asyncio.gather(*writers)

        leadership = Leadership(
            client, namespace="default", name=LEASE, identity=name,
            wall=seams.wall, rng=seams.rng, floor=floor, times=TIMES,
        )  # fmt: skip
        await leadership.run(work)


async def _client(seams: Seams, kubeconfig: str, name: str) -> KubeClient:
    access = await find_access(seams, environ={}, kubeconfig=kubeconfig)
    return KubeClient(seams.transport, access, user_agent=name)


async def _write_for_ever(client: KubeClient, name: str, term: Term, careless: bool) -> None:
    loop = asyncio.get_running_loop()
    while True:
        write = loop.create_task(_write(client, name, term, careless))
        try:
            await asyncio.shield(write)
        except KubeError as error:
            logging.info("%s", error)
        finally:
            await asyncio.wait({write})
        await asyncio.sleep(_PAUSE)


async def _write(client: KubeClient, name: str, term: Term, careless: bool) -> None:
    not_after = term.require()
    note = {"by": name, "epoch": str(term.epoch), "not-after": str(not_after)}
    await client.merge_patch(
        LEASES, PAPER, {"metadata": {"annotations": note}}, namespace="default",
        timeout=_WRITE_WITHIN, not_after=None if careless else not_after,
    )  # fmt: skip


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    _, who, for_leases, for_writes, *options = sys.argv
    with asyncio.Runner(loop_factory=SuspendAwareLoop) as runner:
        runner.run(main(who, for_leases, for_writes, careless="--careless" in options))

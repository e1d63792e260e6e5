"""A busy history, written to standard output: ``python -m tests.sim.history SEED``.

Thirty clients in five processes, with task groups that fail, timeouts, sets, streams, kills and
pauses; everything that happens is in the log. For ``test_determinism``, which runs it again and
again, here and in processes of its own.
"""

import asyncio
import sys
from collections.abc import AsyncIterator

from backstay.seam import Seams
from backstay.seam.errors import TransportError
from backstay.seam.serve import Answer, Inbound
from backstay.seam.transport import Request
from backstay.sim.clock import Oscillator
from backstay.sim.fate import Weather
from backstay.sim.hash_seed import reexec_with_fixed_hash_seed
from backstay.sim.world import World

PROCESSES = 5
CLIENTS = 6
WEATHER = Weather(
    refuse=0.02, late=0.02, slow=0.05, lose_request=0.05, lose_answer=0.05, cut=0.1, drip=0.05,
    seconds=1.0,
)  # fmt: skip


class Api:
    """Counts what it is asked, and tells the count to whoever watches."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._counted = 0
        # Not a set: queues hash by their addresses, and those are another in every run.
        self._watchers: dict[asyncio.Queue[int], None] = {}

    async def run(self, seams: Seams) -> None:
        await seams.serve.listen(self._answer, host="api", port=80)
        await asyncio.Event().wait()

    async def _answer(self, inbound: Inbound) -> Answer:
        self._world.log.note(f"{inbound.method} {inbound.path} from {inbound.peer}")
        if inbound.path == "/watch":
            return Answer(body=self._watch())
        self._counted += 1
        for watcher in list(self._watchers):
            watcher.put_nowait(self._counted)
        return Answer(body=b"%d" % self._counted)

    async def _watch(self) -> AsyncIterator[bytes]:
        mine: asyncio.Queue[int] = asyncio.Queue()
        self._watchers[mine] = None
        try:
            while True:
                yield b"%d\n" % await mine.get()
        finally:
            del self._watchers[mine]


class Clients:
    """One process with several clients, some of which give up and take the others with them."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def run(self, seams: Seams) -> None:
        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._watch(seams), name="watch")
                    for number in range(CLIENTS - 1):
                        group.create_task(self._count(seams, f"/{number}"), name=f"count{number}")
            except* TransportError as failed:
                # In whatever order the set has them: the hash seed decides it.
                self._world.log.note(f"failed: {' '.join(_kinds(failed))}")
            await asyncio.sleep(seams.rng.random())

    async def _watch(self, seams: Seams) -> None:
        request = Request(method="GET", url="http://api/watch", timeout=3.0)
        try:
            async with seams.transport.stream(request) as stream:
                while piece := await stream.read(3.0):
                    self._world.log.note(f"told {piece!r}")
        finally:
            self._world.log.note("watch ended")

    async def _count(self, seams: Seams, path: str) -> None:
        request = Request(method="POST", url=f"http://api{path}", timeout=2.0)
        try:
            while True:
                async with asyncio.TaskGroup() as group:
                    asked = {group.create_task(seams.transport.request(request)) for _ in range(3)}
                    done, pending = await asyncio.wait(asked, timeout=1.0)
                    for task in pending:
                        task.cancel()
                self._world.log.note(f"{path}: {[task.result().body for task in done]}")
                await asyncio.sleep(seams.rng.random())
        finally:
            self._world.log.note(f"{path} ended")


def _kinds(failed: BaseExceptionGroup[BaseException]) -> set[str]:
    return {
        kind
        for error in failed.exceptions
        for kind in (
            _kinds(error) if isinstance(error, BaseExceptionGroup) else {type(error).__name__}
        )
    }


async def scenario(world: World) -> None:
    world.network.fate = WEATHER.fates(world.faults)
    world.start("api", Api(world).run)
    chance = world.chance
    for number in range(PROCESSES):
        clock = Oscillator(ahead=chance.between(0, 1e6), rate=chance.between(0.9, 1.1))
        world.start(f"p{number}", Clients(world).run, clock=clock)
    for _ in range(5):
        await asyncio.sleep(chance.exponential(0.5))
        process = world.processes[f"p{chance.below(PROCESSES)}"]
        trouble = chance.pick(["pause", "resume", "restart", "part", "heal"])
        world.log.note(f"{trouble} {process.name}")
        if trouble == "part":
            world.wires.part([process.name], ["api"])
        elif trouble == "heal":
            world.wires.heal()
        else:
            getattr(process, trouble)()


def history(seed: int) -> bytes:
    with World(seed) as world:
        world.run(scenario(world))
        return world.log.text


if __name__ == "__main__":
    reexec_with_fixed_hash_seed()
    sys.stdout.buffer.write(history(int(sys.argv[1])))

"""LINSTOR's burst: seconds of CPU for the state of ``amount`` replicas, told as events.

Ours is what runs in production, from the socket to the listener. Whoever sends is in the same
process and counts too, but has all of it ready and hands it to the kernel at once. The events are
framed as LINSTOR frames them, in a chunk of HTTP each. The floor has their lines in memory, and
decodes the JSON.
"""

import asyncio
import json
import time

from backstay.drivers.linstor.access import Access
from backstay.drivers.linstor.client import Linstor
from backstay.drivers.linstor.stream import Promotions
from backstay.drivers.linstor.wire import Promotion
from backstay.seam.real import open_seams
from backstay.seam.tasks import Tasks
from bench.worker import Job, Measure, in_loop

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_PATIENCE = 60.0


def _lines(amount: int) -> list[bytes]:
    return [
        b'{"resource_name":"pvc-%08x-5d1c-4ed4-9c0e-0123456789ab","node_name":"node-%d",'
        b'"may_promote":%s}' % (number // 3, number % 3, b"false" if number % 7 else b"true")
        for number in range(amount)
    ]


def _burst(amount: int) -> bytes:
    events = [b"event: may-promote-change\ndata: " + line + b"\n\n" for line in _lines(amount)]
    return _HEAD + b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events)


def ours(job: Job) -> Measure:
    burst = _burst(job.amount)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(burst)
        # It stays open, as LINSTOR's does, until the other side has had enough.
        await reader.read()
        writer.close()

    async def measure() -> float:
        heard: list[Promotion] = []
        complete = asyncio.Event()

        def hear(promotion: Promotion) -> None:
            heard.append(promotion)
            if len(heard) == job.amount:
                complete.set()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, open_seams() as seams, Tasks("bench") as tasks:
            access = Access(controllers=(f"http://127.0.0.1:{port}",))
            promotions = Promotions(Linstor(seams.transport, seams.files, access), rng=seams.rng)
            began = time.process_time()
            tasks.spawn(promotions.run(hear, lambda: None), name="listen")
            async with asyncio.timeout(_PATIENCE):
                await complete.wait()
            return time.process_time() - began

    return in_loop(measure)


def bare_json(job: Job) -> Measure:
    lines = _lines(job.amount)

    def measure() -> float:
        began = time.process_time()
        decoded = [json.loads(line) for line in lines]
        took = time.process_time() - began
        assert len(decoded) == job.amount
        return took

    return measure

"""The measuring server: an API server as seen from the outside, at next to no cost.

Every byte that it sends is prepared before the first round, framed as kube-apiserver frames it
(seen on 1.36: a LIST comes in two chunks per item, a watch in one chunk per event, an object in
one chunk). It is a process of its own, so that its work is in nobody's figure.

It understands as much HTTP as the contenders speak, and nothing else: ``python -m bench.server``
with a ``Setup`` as JSON, answered by one line with the port. It ends when its stdin does.
"""

import asyncio
import ssl
import sys
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

import msgspec

from bench import pods
from bench.lease_store import LeaseStore, failure

PAGE = 500
_CYCLE = 2_000
"""How many pods the events of a watch are about, one after the other and over again."""

_FIRST_CHUNK = 2048
_WRITE_AT_ONCE = 16

_HEAD = (
    b"HTTP/1.1 %d %b\r\n"
    b"Audit-Id: 5f1a3c1e-8d0b-4b4e-9a55-0f2a3c9f7e11\r\n"
    b"Cache-Control: no-cache, private\r\n"
    b"Content-Type: application/json\r\n"
    b"X-Kubernetes-Pf-Flowschema-Uid: 7d6c2f0a-9c43-4d8c-8f0f-3f6f0e4b1c55\r\n"
    b"X-Kubernetes-Pf-Prioritylevel-Uid: c1a7be3c-2f2c-4a61-8e0c-8c4b3c1d9a02\r\n"
    b"Date: Mon, 16 Nov 2026 05:15:00 GMT\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
_REASONS = {200: b"OK", 201: b"Created", 400: b"Bad Request", 404: b"Not Found"}
_END = b"0\r\n\r\n"


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """``certificate`` is a file with the key and the chain; the numbers say what to prepare."""

    certificate: str
    pods: int = 0
    events: int = 0
    nodes: int = 0
    guests: int = 0


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes


class Server:
    """The answers, by what is asked."""

    def __init__(self, setup: Setup) -> None:
        self._pages = {
            str(first): _answer(200, _list_chunks(pods.page(first, PAGE, setup.pods)))
            for first in range(0, max(setup.pods, 1), PAGE)
        }
        self._events = [
            _chunk(pods.event(n % _CYCLE, pods.FIRST_VERSION + n, known=n >= _CYCLE))
            for n in range(setup.events)
        ]
        self._pod = _answer(200, _chunk(pods.pod(0, pods.FIRST_VERSION)))
        self._leases = LeaseStore()

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its first request to its end."""
        try:
            while await self._respond(await _read(reader), writer):
                await writer.drain()
            # Nothing more will come from here; the contender leaves when it has seen enough.
            await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _respond(self, asked: Asked, writer: asyncio.StreamWriter) -> bool:
        """False when this was the last answer, or the beginning of an endless one."""
        if asked.query.get("sendInitialEvents"):
            # As a server without the streaming list does; the reflector asks for pages then.
            writer.write(_answer(400, _chunk(failure(400, "BadRequest"))))
        elif asked.query.get("watch"):
            writer.write(_HEAD % (200, b"OK"))
            if asked.path == "/api/v1/pods":
                await self._send_events(writer)
            else:
                self._leases.watch(asked.query, lambda line: writer.write(_chunk(line)))
            return False
        elif asked.path == "/api/v1/pods":
            writer.write(self._pages[asked.query.get("continue", "0")])
        elif asked.path.startswith("/api/v1/"):
            writer.write(self._pod)
        else:
            answer = self._leases.answer(asked.method, asked.path, asked.query, asked.body)
            if answer is None:
                return False
            writer.write(_answer(answer[0], _chunk(answer[1])))
        return True

    async def _send_events(self, writer: asyncio.StreamWriter) -> None:
        for start in range(0, len(self._events), _WRITE_AT_ONCE):
            writer.write(b"".join(self._events[start : start + _WRITE_AT_ONCE]))
            await writer.drain()


def _list_chunks(pieces: list[bytes]) -> bytes:
    halves = (half for p in pieces for half in (p[:_FIRST_CHUNK], p[_FIRST_CHUNK:]) if half)
    return b"".join(map(_chunk, halves))


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _answer(status: int, chunks: bytes) -> bytes:
    return _HEAD % (status, _REASONS[status]) + chunks + _END


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = await reader.readuntil(b"\r\n\r\n")
    request, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = request.split(" ")
    url = urlsplit(target)
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    query = {name: values[0] for name, values in parse_qs(url.query).items()}
    return Asked(method, url.path, query, body)


async def _serve(setup: Setup) -> None:
    server = Server(setup)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(setup.certificate)
    context.set_alpn_protocols(["http/1.1"])
    listener = await asyncio.start_server(server.converse, "127.0.0.1", 0, ssl=context)
    print(listener.sockets[0].getsockname()[1], flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()
    listener.close()


if __name__ == "__main__":
    asyncio.run(_serve(msgspec.json.decode(sys.argv[1], type=Setup)))

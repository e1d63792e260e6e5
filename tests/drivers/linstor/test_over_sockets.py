"""LINSTOR over real sockets: TLS on both sides, gzip, and streams that break as real ones do."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trustme

from backstay.drivers.linstor.access import access_from
from backstay.drivers.linstor.client import Linstor
from backstay.drivers.linstor.errors import Misconfigured, Refused, Unreachable
from backstay.drivers.linstor.stream import Promotions
from backstay.drivers.linstor.wire import Promotion
from backstay.seam import Seams
from backstay.seam.real import open_seams
from backstay.seam.serve import Answer, Handler, Inbound, ServerTls
from backstay.seam.tasks import Tasks
from tests.drivers.linstor.controllers import event
from tests.seam.hostile import Script, Wire, answering, hostile
from tests.support.dice import LOWEST

SERVERS, CLIENTS = trustme.CA(), trustme.CA()


def pem(cert: trustme.LeafCert) -> tuple[bytes, bytes]:
    chain = b"".join(blob.bytes() for blob in cert.cert_chain_pems)
    return chain, cert.private_key_pem.bytes()


def identity(authority: trustme.CA, *, client_ca: bytes | None = None) -> ServerTls:
    cert, key = pem(authority.issue_cert("127.0.0.1"))
    return ServerTls(cert=cert, key=key, client_ca=client_ca)


async def version(_: Inbound) -> Answer:
    return Answer(body=b'{"version":"1.33.3"}')


@asynccontextmanager
async def served(
    handler: Handler, *, tls: ServerTls | None = None
) -> AsyncIterator[tuple[Seams, str]]:
    async with open_seams() as seams:
        listener = await seams.serve.listen(handler, tls=tls)
        try:
            yield seams, listener.url
        finally:
            await listener.close()


def client(seams: Seams, url: str, **environment: str) -> Linstor:
    access = access_from({"LS_CONTROLLERS": url, **environment})
    return Linstor(seams.transport, seams.files, access)


# TLS


async def test_both_sides_prove_who_they_are_with_what_is_in_variables() -> None:
    cert, key = pem(CLIENTS.issue_cert("backstay"))
    ours = {
        "LS_ROOT_CA": SERVERS.cert_pem.bytes().decode(),
        "LS_USER_CERTIFICATE": cert.decode(),
        "LS_USER_KEY": key.decode(),
    }
    tls = identity(SERVERS, client_ca=CLIENTS.cert_pem.bytes())
    async with served(version, tls=tls) as (seams, url):
        # Without a scheme: that there is a certificate makes it https.
        place = url.removeprefix("https://").rstrip("/")
        assert await client(seams, place, **ours).version() == "1.33.3"


async def test_without_a_certificate_that_it_asks_for_a_controller_lets_nobody_in() -> None:
    tls = identity(SERVERS, client_ca=CLIENTS.cert_pem.bytes())
    ours = {"LS_ROOT_CA": SERVERS.cert_pem.bytes().decode()}
    async with served(version, tls=tls) as (seams, url):
        with pytest.raises(Unreachable, match=r"LINSTOR: .*https://127\.0\.0\.1"):
            await client(seams, url, **ours).version()


async def test_whoever_cannot_prove_to_be_the_controller_learns_no_login() -> None:
    seen: list[Inbound] = []

    async def handler(inbound: Inbound) -> Answer:
        seen.append(inbound)
        return await version(inbound)

    ours = {
        "LS_ROOT_CA": CLIENTS.cert_pem.bytes().decode(),
        "LS_USERNAME": "backstay",
        "LS_PASSWORD": "s3cret",
    }
    async with served(handler, tls=identity(SERVERS)) as (seams, url):
        with pytest.raises(Unreachable, match="cannot be trusted") as failed:
            await client(seams, url, **ours).version()
    assert seen == []
    assert "s3cret" not in repr(failed.value)


async def test_files_that_are_replaced_are_used_within_the_call_that_meets_it(
    tmp_path: Path,
) -> None:
    files = {
        "LS_ROOT_CA_FILE": tmp_path / "ca.crt",
        "LS_USER_CERTIFICATE_FILE": tmp_path / "tls.crt",
        "LS_USER_KEY_FILE": tmp_path / "tls.key",
    }
    ours = {name: str(path) for name, path in files.items()}
    old = trustme.CA()

    def write(authority: trustme.CA, clients: trustme.CA) -> None:
        cert, key = pem(clients.issue_cert("backstay"))
        for path, data in zip(files.values(), (authority.cert_pem.bytes(), cert, key), strict=True):
            path.write_bytes(data)

    tls = identity(SERVERS, client_ca=CLIENTS.cert_pem.bytes())
    async with served(version, tls=tls) as (seams, url):
        linstor = client(seams, url, **ours)
        with pytest.raises(Misconfigured, match="LS_ROOT_CA_FILE cannot be used: there is no file"):
            await linstor.version()
        write(old, CLIENTS)
        with pytest.raises(Unreachable, match="cannot be trusted"):
            await linstor.version()
        write(SERVERS, CLIENTS)
        assert await linstor.version() == "1.33.3"


# Answers


async def test_a_compressed_answer_is_read() -> None:
    nodes = msgspec.json.encode(
        [{"name": f"node-{number}", "connection_status": "ONLINE"} for number in range(500)]
    )

    async def handler(inbound: Inbound) -> Answer:
        assert inbound.headers["accept-encoding"] == "gzip"
        return Answer(headers={"Content-Encoding": "gzip"}, body=gzip.compress(nodes))

    async with served(handler) as (seams, url):
        assert len(await client(seams, url).satellites()) == 500


async def test_a_redirect_to_tls_is_said_and_no_login_follows_it() -> None:
    where = b"Location: https://127.0.0.1:3371/v1/controller/version\r\n"
    answer = b"HTTP/1.1 302 Found\r\n" + where + b"Content-Length: 0\r\n\r\n"
    ours = {"LS_USERNAME": "backstay", "LS_PASSWORD": "s3cret"}
    async with open_seams() as seams, hostile(answering(answer)) as server:
        with pytest.raises(Refused, match=r"set LS_CONTROLLERS to https://127\.0\.0\.1:3371"):
            await client(seams, server.url, **ours).version()
        assert len(server.wires) == 1


@pytest.mark.parametrize(
    "script",
    [
        answering(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[{", then=Wire.close),
        answering(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[{", then=Wire.reset),
        answering(b"SSH-2.0-OpenSSH_9.9\r\n", then=Wire.close),
        answering(b"", then=Wire.reset),
    ],
)
async def test_half_an_answer_is_none(script: Script) -> None:
    async with open_seams() as seams, hostile(script) as server:
        with pytest.raises(Unreachable, match=server.url):
            await client(seams, server.url).satellites()


# Streams

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


async def test_a_stream_is_taken_up_again_however_it_breaks() -> None:
    first, second = event("pvc-1", "node-a"), event("pvc-2", "node-b")
    endings: list[tuple[list[bytes | float], Callable[[Wire], None] | None]] = [
        ([HEAD, chunk(first), chunk(second[:20])], Wire.reset),
        ([HEAD, chunk(first), chunk(second[:20]), b"0\r\n\r\n"], Wire.close),
        ([b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"], Wire.close),
        # The head comes late, with the first event, and that in pieces.
        ([0.1, HEAD, chunk(second[:7]), 0.01, chunk(second[7:30]), 0.01, chunk(second[30:])], None),
    ]

    async def script(wire: Wire) -> None:
        await wire.request()
        pieces, then = endings.pop(0)
        await wire.send(*pieces)
        if HEAD in pieces:
            # A reset takes away what was not read yet.
            await told.wait()
            told.clear()
        if then is not None:
            then(wire)
        await wire.until_closed()

    heard: list[Promotion] = []
    told, complete = asyncio.Event(), asyncio.Event()

    def hear(promotion: Promotion) -> None:
        heard.append(promotion)
        told.set()
        if promotion.resource == "pvc-2":
            complete.set()

    async with open_seams() as seams, hostile(script) as server, Tasks("test") as tasks:
        promotions = Promotions(client(seams, server.url), rng=LOWEST)
        tasks.spawn(promotions.run(hear, lambda: None), name="run")
        async with asyncio.timeout(20.0):
            await complete.wait()
    assert [each.resource for each in heard] == ["pvc-1", "pvc-1", "pvc-2"]
    assert promotions.connects == 3

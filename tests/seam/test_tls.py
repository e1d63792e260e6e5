"""TLS with real certificates: whom we trust, who we are, and how both change while we run."""

import asyncio
import gc
import socket
import ssl
from asyncio import sslproto
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from backstay.seam.aiohttp_serve import AiohttpServe
from backstay.seam.aiohttp_transport import AiohttpTransport
from backstay.seam.errors import ConnectFailed, ConnectionLost, TlsFailed
from backstay.seam.serve import Answer, Inbound, Listener, ServerTls
from backstay.seam.tls import file_in_memory, file_on_disk, server_context
from backstay.seam.transport import Request, Tls
from tests.seam.hostile import Wire, hostile
from tests.seam.worlds import GRACE, authority, server_tls, trust

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
async def transport() -> AsyncIterator[AiohttpTransport]:
    made = AiohttpTransport()
    yield made
    await made.close()


class Doors:
    """Listeners that count what reaches them, and are closed in the end."""

    def __init__(self) -> None:
        self.seen = 0
        self.opened: list[Listener] = []

    async def open(self, tls: ServerTls, *, port: int = 0) -> str:
        listener = await AiohttpServe(grace=GRACE).listen(self._handle, tls=tls, port=port)
        self.opened.append(listener)
        return listener.url

    async def _handle(self, _: Inbound) -> Answer:
        self.seen += 1
        return Answer(body=b"welcome")


@pytest.fixture
async def doors() -> AsyncIterator[Doors]:
    made = Doors()
    yield made
    for listener in made.opened:
        await listener.close()


def get(url: str, tls: Tls | None) -> Request:
    return Request(method="GET", url=url, timeout=5.0, tls=tls)


def identity(ca: trustme.CA) -> tuple[bytes, bytes]:
    issued = ca.issue_cert(common_name="backstay")
    return issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()


class TestWhomWeTrust:
    async def test_a_server_of_another_authority_is_refused(
        self, transport: AiohttpTransport, doors: Doors
    ) -> None:
        url = await doors.open(server_tls())
        with pytest.raises(
            TlsFailed, match=f"the certificate of {url} cannot be trusted: .*issuer"
        ):
            await transport.request(get(url, trust(trustme.CA())))
        assert doors.seen == 0

    async def test_without_an_authority_the_trust_of_the_system_applies(
        self, transport: AiohttpTransport, doors: Doors
    ) -> None:
        url = await doors.open(server_tls())
        for tls in (None, Tls()):
            with pytest.raises(TlsFailed, match="cannot be trusted"):
                await transport.request(get(url, tls))

    async def test_a_certificate_for_another_name_is_refused(
        self, transport: AiohttpTransport, doors: Doors
    ) -> None:
        url = await doors.open(server_tls("api.example"))
        with pytest.raises(TlsFailed, match=r"not valid for '127\.0\.0\.1'"):
            await transport.request(get(url, trust()))

    async def test_an_expired_certificate_is_refused_in_words(
        self, transport: AiohttpTransport, doors: Doors
    ) -> None:
        issued = authority().issue_cert("127.0.0.1", not_before=LONG_AGO, not_after=LONG_AGO)
        cert = issued.cert_chain_pems[0].bytes()
        url = await doors.open(ServerTls(cert=cert, key=issued.private_key_pem.bytes()))
        with pytest.raises(TlsFailed, match="certificate has expired"):
            await transport.request(get(url, trust()))

    async def test_the_expected_name_can_be_given(
        self, transport: AiohttpTransport, doors: Doors
    ) -> None:
        url = await doors.open(server_tls("api.example"))
        ca = trust().ca
        named = Tls(ca=ca, server_name="api.example")
        assert (await transport.request(get(url, named))).body == b"welcome"
        with pytest.raises(TlsFailed, match=r"not valid for 'other\.example'"):
            await transport.request(get(url, Tls(ca=ca, server_name="other.example")))

    async def test_an_intermediate_may_be_the_anchor_as_with_kubectl(
        self, transport: AiohttpTransport, doors: Doors
    ) -> None:
        intermediate = trustme.CA().create_child_ca()
        url = await doors.open(server_tls(ca=intermediate))
        assert (await transport.request(get(url, trust(intermediate)))).status == 200

    async def test_a_bundle_may_have_comments_in_any_encoding(
        self, transport: AiohttpTransport, doors: Doors
    ) -> None:
        url = await doors.open(server_tls())
        bundle = "# Zürich\n".encode("latin-1") + trustme.CA().cert_pem.bytes()
        bundle += "# Genève\n".encode() + (trust().ca or b"")
        assert (await transport.request(get(url, Tls(ca=bundle)))).status == 200

    async def test_who_says_so_gets_no_verification(
        self, transport: AiohttpTransport, doors: Doors
    ) -> None:
        url = await doors.open(server_tls("api.example"))
        assert (await transport.request(get(url, Tls(verify=False)))).status == 200

    @pytest.mark.parametrize("ca", [b"", b"not PEM", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
    async def test_an_authority_that_is_not_pem_is_said_so(
        self, transport: AiohttpTransport, ca: bytes
    ) -> None:
        request = get("https://127.0.0.1:1", Tls(ca=ca))
        with pytest.raises(TlsFailed, match="the CA certificate is not usable PEM"):
            await transport.request(request)


class TestWhoWeAre:
    async def test_a_client_certificate_opens_the_door(
        self, transport: AiohttpTransport, doors: Doors
    ) -> None:
        clients = trustme.CA()
        url = await doors.open(_demanding(clients))
        cert, key = identity(clients)
        tls = Tls(ca=trust().ca, cert=cert, key=key)
        assert (await transport.request(get(url, tls))).body == b"welcome"

    @pytest.mark.parametrize("kind", ["none", "of-another-authority"])
    async def test_without_the_right_one_no_request_gets_through(
        self, transport: AiohttpTransport, doors: Doors, kind: str
    ) -> None:
        url = await doors.open(_demanding(trustme.CA()))
        cert, key = (None, None) if kind == "none" else identity(trustme.CA())
        # The server's verdict may be overtaken by the end of the connection.
        with pytest.raises((TlsFailed, ConnectionLost)) as caught:
            await transport.request(get(url, Tls(ca=trust().ca, cert=cert, key=key)))
        if isinstance(caught.value, TlsFailed):
            assert "refused our client certificate" in str(caught.value)
        assert doors.seen == 0

    async def test_a_verdict_that_arrives_is_not_sent(self, transport: AiohttpTransport) -> None:
        """It arrives for sure if the server goes on reading after the handshake has failed."""
        context = server_context(_demanding(trustme.CA()))
        with socket.create_server(("127.0.0.1", 0)) as door:
            refusing = asyncio.create_task(asyncio.to_thread(_refuse_and_read_on, door, context))
            url = f"https://127.0.0.1:{door.getsockname()[1]}"
            with pytest.raises(TlsFailed, match=f"{url} refused our client certificate: .*alert"):
                await transport.request(get(url, trust()))
            await refusing

    async def test_a_key_that_does_not_belong_to_the_certificate_is_said_so(
        self, transport: AiohttpTransport
    ) -> None:
        (cert, _), (_, other_key) = identity(authority()), identity(authority())
        request = get("https://127.0.0.1:1", Tls(cert=cert, key=other_key))
        with pytest.raises(TlsFailed, match="not usable PEM: key values mismatch"):
            await transport.request(request)

    async def test_a_key_without_certificate_is_said_so(self, transport: AiohttpTransport) -> None:
        _, key = identity(authority())
        with pytest.raises(TlsFailed, match="there is a key but no certificate"):
            await transport.request(get("https://127.0.0.1:1", Tls(key=key)))

    async def test_an_encrypted_key_fails_instead_of_asking_at_the_terminal(
        self, transport: AiohttpTransport
    ) -> None:
        cert, key = identity(authority())
        locked = load_pem_private_key(key, None).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")
        )
        with pytest.raises(TlsFailed, match="not usable PEM"):
            await transport.request(get("https://127.0.0.1:1", Tls(cert=cert, key=locked)))

    async def test_the_key_is_in_no_error(self, transport: AiohttpTransport) -> None:
        cert, key = identity(authority())
        tls = Tls(cert=cert, key=key.replace(b"A", b"B"))
        with pytest.raises(TlsFailed) as caught:
            await transport.request(get("https://127.0.0.1:1", tls))
        assert "BEGIN" not in str(caught.value) + repr(tls)


class TestRotation:
    async def test_a_new_authority_works_without_a_new_transport(
        self, transport: AiohttpTransport, doors: Doors
    ) -> None:
        old, new = trustme.CA(), trustme.CA()
        url = await doors.open(server_tls(ca=old))
        await transport.request(get(url, trust(old)))
        await doors.opened[0].close()
        await doors.open(server_tls(ca=new), port=int(url.rpartition(":")[2]))
        with pytest.raises(TlsFailed):
            await transport.request(get(url, trust(old)))
        assert (await transport.request(get(url, trust(new)))).status == 200

    async def test_a_connection_made_with_the_old_trust_is_not_used_with_the_new(
        self, transport: AiohttpTransport, doors: Doors
    ) -> None:
        url = await doors.open(server_tls())
        await transport.request(get(url, trust()))
        with pytest.raises(TlsFailed):
            await transport.request(get(url, trust(trustme.CA())))

    async def test_a_connection_made_as_someone_is_not_used_as_someone_else(
        self, transport: AiohttpTransport, doors: Doors
    ) -> None:
        clients = trustme.CA()
        url = await doors.open(_demanding(clients))
        cert, key = identity(clients)
        await transport.request(get(url, Tls(ca=trust().ca, cert=cert, key=key)))
        with pytest.raises((TlsFailed, ConnectionLost)):
            await transport.request(get(url, trust()))
        assert doors.seen == 1

    async def test_the_same_value_shares_connections(self, transport: AiohttpTransport) -> None:
        async def script(wire: Wire) -> None:
            while True:
                await wire.request()
                await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        async with hostile(script, tls=server_context(server_tls())) as server:
            for _ in range(3):
                await transport.request(get(server.url, trust()))
            assert len(server.wires) == 1


class TestHandshakesThatFail:
    async def test_a_server_without_tls_is_tls_failed(self, transport: AiohttpTransport) -> None:
        async def script(wire: Wire) -> None:
            await wire.read(1)
            await wire.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        async with hostile(script) as server:
            url = server.url.replace("http:", "https:")
            with pytest.raises(TlsFailed, match=f"no TLS with {url}: wrong version number"):
                await transport.request(get(url, trust()))

    async def test_a_server_with_trouble_of_its_own_can_be_tried_again(
        self, transport: AiohttpTransport
    ) -> None:
        async def script(wire: Wire) -> None:
            await wire.read(1)
            await wire.send(bytes([21, 3, 3, 0, 2, 2, 80]))
            await wire.until_closed()

        async with hostile(script) as server:
            url = server.url.replace("http:", "https:")
            with pytest.raises(ConnectFailed, match="alert internal error"):
                await transport.request(get(url, trust()))

    @pytest.mark.parametrize("end", [Wire.close, Wire.reset], ids=["closed", "reset"])
    async def test_a_server_that_hangs_up_can_be_tried_again(
        self, transport: AiohttpTransport, end: object
    ) -> None:
        async def script(wire: Wire) -> None:
            await wire.read(1)
            wire.close() if end is Wire.close else wire.reset()

        async with hostile(script) as server:
            url = server.url.replace("http:", "https:")
            with pytest.raises(ConnectFailed):
                await transport.request(get(url, trust()))

    @pytest.mark.parametrize(("timeout", "connect_timeout"), [(5.0, 0.2), (0.2, None)])
    async def test_a_server_that_is_silent_in_the_handshake_was_sent_nothing(
        self, transport: AiohttpTransport, timeout: float, connect_timeout: float | None
    ) -> None:
        async def script(wire: Wire) -> None:
            await wire.until_closed()

        async with hostile(script) as server:
            url = server.url.replace("http:", "https:")
            request = Request(
                method="GET", url=url, timeout=timeout, connect_timeout=connect_timeout, tls=trust()
            )
            with pytest.raises(ConnectFailed, match="gave no connection in time"):
                await transport.request(request)


class TestFiles:
    def test_a_file_in_memory_is_on_no_disk(self) -> None:
        with file_in_memory(b"key") as path:
            assert Path(path).read_bytes() == b"key"
            assert Path(path).readlink().name.startswith("memfd:")
        assert not Path(path).exists()

    def test_a_file_on_disk_is_private_and_short_lived(self) -> None:
        with file_on_disk(b"key") as path:
            assert Path(path).read_bytes() == b"key"
            assert Path(path).stat().st_mode & 0o777 == 0o600
        assert not Path(path).exists()


def _demanding(clients: trustme.CA) -> ServerTls:
    own = server_tls()
    return ServerTls(cert=own.cert, key=own.key, client_ca=clients.cert_pem.bytes())


def _refuse_and_read_on(door: socket.socket, context: ssl.SSLContext) -> None:
    accepted, _ = door.accept()
    wrapped = context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
    with pytest.raises(ssl.SSLError):
        wrapped.do_handshake()
    with socket.socket(fileno=wrapped.detach()) as plain:
        while plain.recv(2**16):
            pass


class TestWhatAConnectionHolds:
    """asyncio keeps a buffer for each connection with TLS, filled or not."""

    @staticmethod
    async def buffer_after(transport: AiohttpTransport, *, amount: int) -> int:
        async def answer(_: Inbound) -> Answer:
            return Answer(body=bytes(amount))

        listener = await AiohttpServe(grace=GRACE).listen(answer, tls=server_tls())
        async with transport.stream(get(listener.url, trust())) as stream:
            while await stream.read(5.0):
                pass
        await transport.request(get(listener.url, trust()))
        ours: Any = [each for each in gc.get_objects() if isinstance(each, sslproto.SSLProtocol)]
        here = asyncio.get_running_loop()
        largest = max(
            len(each._ssl_buffer) for each in ours if each._loop is here and not each._server_side
        )
        await listener.close()
        return largest

    async def test_little_where_little_comes(self, transport: AiohttpTransport) -> None:
        assert await self.buffer_after(transport, amount=1000) == 2**18

    async def test_more_where_much_comes_at_once(self, transport: AiohttpTransport) -> None:
        assert await self.buffer_after(transport, amount=2**23) == 2**20

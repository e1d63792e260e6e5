"""A cluster whose authority is replaced under us: real TLS, real files, no restart."""

from pathlib import Path

import pytest
import trustme

from backstay.kube.client import KubeClient
from backstay.kube.configured_access import ConfiguredAccess
from backstay.kube.credentials import InFile, Kept, KeptLogin
from backstay.kube.errors import Untrusted
from backstay.kube.pem import trusted_authorities
from backstay.kube.resource import NODES
from backstay.seam.real import open_seams
from backstay.seam.serve import Answer, Inbound, ServerTls


class Counting:
    """An API server that counts."""

    def __init__(self) -> None:
        self.served = 0

    async def __call__(self, _inbound: Inbound) -> Answer:
        self.served += 1
        return Answer(body=b"{}")


def identity(authority: trustme.CA) -> ServerTls:
    cert = authority.issue_cert("127.0.0.1")
    chain = b"".join(blob.bytes() for blob in cert.cert_chain_pems)
    return ServerTls(cert=chain, key=cert.private_key_pem.bytes())


async def test_a_replaced_authority_is_read_again_within_the_call_that_meets_it(
    tmp_path: Path,
) -> None:
    old, new = trustme.CA(), trustme.CA()
    ca = tmp_path / "ca.crt"
    ca.write_bytes(old.cert_pem.bytes())
    server = Counting()
    async with open_seams() as seams:
        listener = await seams.serve.listen(server, tls=identity(new))
        authorities = Kept(
            seams.files, [InFile(str(ca))], trusted_authorities, what="The authority"
        )
        access = ConfiguredAccess(
            server=listener.url, namespace="default", origin="a test",
            login=KeptLogin(), authorities=authorities,
        )  # fmt: skip
        client = KubeClient(seams.transport, access)
        with pytest.raises(Untrusted):
            await client.get(NODES, "n1")
        assert server.served == 0
        ca.write_bytes(new.cert_pem.bytes())
        await client.get(NODES, "n1")
        assert server.served == 1
        await listener.close()

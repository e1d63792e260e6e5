"""Who is who in a throw-away cluster: certificates, tokens and the kubeconfig.

``admin`` may do everything, with a client certificate or with a token; ``ordinary`` is somebody
whom RBAC has given nothing. Each is a user and a context of the kubeconfig.
"""

import base64
import secrets
from dataclasses import dataclass
from pathlib import Path

import trustme
import yaml

ADMIN = "admin"
ADMIN_TOKEN = "admin-token"
ORDINARY = "ordinary"


@dataclass(frozen=True, repr=False)
class Identities:
    """Key material in memory, and as the files that the servers read."""

    directory: Path
    ca: bytes
    admin_cert: bytes
    admin_key: bytes
    admin_token: str
    ordinary_token: str

    def file(self, name: str) -> str:
        return str(self.directory / name)


def issue(directory: Path) -> Identities:
    """Everything that one cluster needs, freshly made."""
    directory.mkdir(mode=0o700)
    authority = trustme.CA()
    server = authority.issue_cert(
        "127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"
    )
    # The name among the identities means nothing, but Go refuses a certificate that has none.
    admin = authority.issue_cert(ADMIN, common_name=ADMIN, organization_name="system:masters")
    identities = Identities(
        directory=directory,
        ca=authority.cert_pem.bytes(),
        admin_cert=admin.cert_chain_pems[0].bytes(),
        admin_key=admin.private_key_pem.bytes(),
        admin_token=secrets.token_hex(16),
        ordinary_token=secrets.token_hex(16),
    )
    tokens = (
        f'{identities.admin_token},{ADMIN_TOKEN},1,"system:masters"\n'
        f"{identities.ordinary_token},{ORDINARY},2\n"
    )
    files = {
        "ca.pem": identities.ca,
        "server.pem": server.cert_chain_pems[0].bytes(),
        "server-key.pem": server.private_key_pem.bytes(),
        # Any key serves: it signs the tokens of service accounts.
        "service-accounts.pem": authority.issue_cert(
            common_name="service-accounts"
        ).private_key_pem.bytes(),
        "tokens.csv": tokens.encode(),
    }
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return identities


def write_kubeconfig(path: Path, identities: Identities, *, server: str) -> None:
    """All credentials inline, so that the file can be copied anywhere."""
    users: dict[str, dict[str, str]] = {
        ADMIN: {
            "client-certificate-data": _inline(identities.admin_cert),
            "client-key-data": _inline(identities.admin_key),
        },
        ADMIN_TOKEN: {"token": identities.admin_token},
        ORDINARY: {"token": identities.ordinary_token},
    }
    cluster = {"server": server, "certificate-authority-data": _inline(identities.ca)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "harness", "cluster": cluster}],
        "users": [{"name": name, "user": user} for name, user in users.items()],
        "contexts": [
            {"name": name, "context": {"cluster": "harness", "user": name}} for name in users
        ],
        "current-context": ADMIN,
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config, sort_keys=False))


def _inline(data: bytes) -> str:
    return base64.b64encode(data).decode()

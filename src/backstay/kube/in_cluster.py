"""In-cluster access: the service account of the pod that we run in.

The kubelet mounts a token that it replaces well before it expires, and the authority that signed
the API server's certificate; both are re-read. The server is the ``kubernetes`` service at its
address, which the certificate names, so nothing here depends on cluster DNS.
"""

from collections.abc import Mapping

from backstay.kube.configured_access import ConfiguredAccess
from backstay.kube.credentials import InFile, Kept, KeptLogin, bearer
from backstay.kube.errors import ConfigError
from backstay.kube.pem import trusted_authorities
from backstay.seam.files import Files

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def in_a_pod(environ: Mapping[str, str]) -> bool:
    """The kubelet sets this variable in every container."""
    return bool(environ.get("KUBERNETES_SERVICE_HOST"))


async def in_cluster_access(files: Files, environ: Mapping[str, str]) -> ConfiguredAccess:
    """Raises ``ConfigError`` if the pod lacks a part of what it needs."""
    token, authority = f"{SERVICE_ACCOUNT}/token", f"{SERVICE_ACCOUNT}/ca.crt"
    return ConfiguredAccess(
        server=_server(environ),
        namespace=await _namespace(files),
        origin="the service account of this pod",
        login=KeptLogin(
            authorization=Kept(files, [InFile(token)], bearer, what="The service account's token")
        ),
        authorities=Kept(
            files, [InFile(authority)], trusted_authorities, what="The cluster's authority"
        ),
    )


def _server(environ: Mapping[str, str]) -> str:
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port.isdecimal():
        raise ConfigError(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT do not name the API server: "
            "leave both as the kubelet sets them."
        )
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


async def _namespace(files: Files) -> str:
    try:
        namespace = (await files.read(f"{SERVICE_ACCOUNT}/namespace")).decode().strip()
    except (OSError, UnicodeDecodeError):
        namespace = ""
    if not namespace:
        raise ConfigError(
            f"This pod has no service account in {SERVICE_ACCOUNT}: set "
            "automountServiceAccountToken: true, or give a kubeconfig."
        )
    return namespace

"""From a kubeconfig context to an ``Access``: every entry is checked before anything is used.

What kubectl refuses is refused here, and where two fields say the same thing the same one wins:
inline data over a file, a token file over a token, and any credential in the file over a plugin.
Each refusal names the entry, the file that it stands in, and what to change.
"""

import base64
import binascii
import difflib
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from backstay.kube.configured_access import ConfiguredAccess
from backstay.kube.credentials import InFile, Inline, Kept, KeptLogin, Login, Source, basic, bearer
from backstay.kube.errors import ConfigError
from backstay.kube.exec_plugin import ClusterInfo, ExecPlugin
from backstay.kube.impersonation import impersonation
from backstay.kube.kubeconfig import Cluster, Context, Entry, Kubeconfig, User
from backstay.kube.pem import KeyPair, key_pair, trusted_authorities
from backstay.seam import Seams
from backstay.seam.files import Files

_EXEC_EXTENSION = "client.authentication.k8s.io/exec"
_NAMES_AT_MOST = 20

_logger = logging.getLogger(__name__)


def context_access(
    config: Kubeconfig,
    name: str | None,
    *,
    seams: Seams,
    environ: Mapping[str, str],
    terminal: bool,
) -> ConfiguredAccess:
    """The access that context ``name`` (or else the current one) stands for."""
    name = name or config.current_context
    context = _context(config, name)
    cluster, cluster_label = _cluster(config, name, context)
    user, user_label = _user(config, name, context)
    server = _server(cluster, cluster_label)
    proxy = _proxy(cluster, cluster_label)
    authorities = _authorities(cluster, cluster_label, seams.files)

    async def cluster_info() -> ClusterInfo:
        return ClusterInfo(
            server=server,
            tls_server_name=cluster.tls_server_name or None,
            insecure_skip_tls_verify=cluster.insecure_skip_tls_verify,
            certificate_authority_data=await authorities.value() if authorities else None,
            proxy_url=proxy,
            config=_exec_extension(cluster),
        )

    login: Login | None = _kept_login(user, user_label, seams.files)
    if login is None and user.exec is not None:
        login = ExecPlugin(
            user.exec,
            seams=seams,
            environ=environ,
            terminal=terminal,
            cluster=cluster_info,
            who=_inside(user_label),
        )
    if login is not None and server.startswith("http:"):
        _logger.warning("%s is reached over plain HTTP: no credentials are sent", cluster_label)
    return ConfiguredAccess(
        server=server,
        namespace=context.value.namespace or "default",
        origin=f"context {name!r} of {_from_home(context.file, environ)}",
        login=login or KeptLogin(),
        authorities=authorities,
        server_name=cluster.tls_server_name or None,
        verify=not cluster.insecure_skip_tls_verify,
        proxy=proxy,
        impersonation=impersonation(user, user_label),
    )


def _context(config: Kubeconfig, name: str) -> Entry[Context]:
    if name and name in config.contexts:
        return config.contexts[name]
    known = sorted(filter(None, config.contexts))
    if not known:
        raise ConfigError(
            "The kubeconfig has no contexts: add one with kubectl config set-context."
        )
    listed = ", ".join(known[:_NAMES_AT_MOST])
    if len(known) > _NAMES_AT_MOST:
        listed += f" and {len(known) - _NAMES_AT_MOST} more"
    if not name:
        raise ConfigError(
            f"The kubeconfig has no current-context: name one with --context, or set it with "
            f"kubectl config use-context (it has {listed})."
        )
    close = difflib.get_close_matches(name, known, n=1)
    guess = f", did you mean {close[0]!r}? It" if close else ": it"
    raise ConfigError(f"The kubeconfig has no context {name!r}{guess} has {listed}.")


def _cluster(config: Kubeconfig, name: str, context: Entry[Context]) -> tuple[Cluster, str]:
    wanted = context.value.cluster
    if not wanted:
        raise ConfigError(f"Context {name!r} in {context.file} names no cluster: set one.")
    if wanted not in config.clusters:
        raise ConfigError(
            f"Context {name!r} in {context.file} names the cluster {wanted!r}, which is not in "
            "the kubeconfig: add it, or correct the name."
        )
    entry = config.clusters[wanted]
    return entry.value, f"Cluster {wanted!r} in {entry.file}"


def _user(config: Kubeconfig, name: str, context: Entry[Context]) -> tuple[User, str]:
    wanted = context.value.user
    if not wanted:
        return User(), f"Context {name!r} in {context.file}"
    if wanted not in config.users:
        raise ConfigError(
            f"Context {name!r} in {context.file} names the user {wanted!r}, which is not in the "
            "kubeconfig: add it, or correct the name."
        )
    entry = config.users[wanted]
    return entry.value, f"User {wanted!r} in {entry.file}"


def _server(cluster: Cluster, label: str) -> str:
    if not cluster.server:
        raise ConfigError(f"{label} has no server: set its URL.")
    url = _http_url(cluster.server)
    if url is None:
        raise ConfigError(
            f"{label} has a server that is not a URL of the form https://host:port: correct it."
        )
    if url.username is not None or url.query or url.fragment:
        raise ConfigError(
            f"{label} has a server URL with a user name, query or fragment: remove it, "
            "credentials belong to a user."
        )
    return f"{url.scheme}://{url.netloc}{url.path.rstrip('/')}"


def _proxy(cluster: Cluster, label: str) -> str | None:
    if not cluster.proxy_url:
        return None
    if _http_url(cluster.proxy_url) is None:
        raise ConfigError(
            f"{label} has a proxy-url that is not http:// or https:// (SOCKS is not supported): "
            "use an HTTP proxy."
        )
    return cluster.proxy_url


def _http_url(text: str) -> SplitResult | None:
    if not text.isprintable() or " " in text:
        return None
    try:
        url = urlsplit(text)
        valid = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        return None
    return url if valid else None


def _authorities(cluster: Cluster, label: str, files: Files) -> Kept[bytes] | None:
    source = _source(
        cluster.certificate_authority_data, cluster.certificate_authority,
        field="certificate-authority-data", label=label,
    )  # fmt: skip
    if source is None:
        return None
    if cluster.insecure_skip_tls_verify:
        raise ConfigError(
            f"{label} has a certificate authority and insecure-skip-tls-verify: remove one."
        )
    what = f"The certificate authority of {_inside(label)}"
    return Kept(files, [source], trusted_authorities, what=what)


def _kept_login(user: User, label: str, files: Files) -> KeptLogin | None:
    if user.auth_provider is not None:
        raise ConfigError(
            f"{label} uses an auth-provider, which Kubernetes no longer has: use an exec plugin."
        )
    authorization = _authorization(user, label, files)
    pair = _pair(user, label, files)
    if authorization is None and pair is None:
        return None
    return KeptLogin(authorization=authorization, pair=pair)


def _authorization(user: User, label: str, files: Files) -> Kept[str] | None:
    has_token = bool(user.token or user.token_file)
    has_password = bool(user.username or user.password)
    if has_token and has_password:
        raise ConfigError(f"{label} has both a token and a password: remove one of them.")
    if has_password:
        header = basic(user.username, user.password)
        return Kept(files, [], lambda: header, what=f"The password of {_inside(label)}")
    if has_token:
        source = InFile(user.token_file) if user.token_file else Inline(user.token.encode())
        return Kept(files, [source], bearer, what=f"The token of {_inside(label)}")
    return None


def _pair(user: User, label: str, files: Files) -> Kept[KeyPair] | None:
    cert = _source(
        user.client_certificate_data, user.client_certificate,
        field="client-certificate-data", label=label,
    )  # fmt: skip
    key = _source(
        user.client_key_data, user.client_key, field="client-key-data", label=label
    )  # fmt: skip
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        has, lacks = ("key", "certificate") if cert is None else ("certificate", "key")
        raise ConfigError(
            f"{label} has a client {has} but no client {lacks}: set client-{lacks} or "
            f"client-{lacks}-data."
        )
    what = f"The client certificate of {_inside(label)}"
    return Kept(files, [cert, key], key_pair, what=what)


def _source(data: str, path: str, *, field: str, label: str) -> Source | None:
    if not data:
        return InFile(path) if path else None
    try:
        return Inline(base64.b64decode("".join(data.split()), validate=True))
    except (binascii.Error, ValueError):
        raise ConfigError(f"{label} has {field} that is not base64: write it again.") from None


def _exec_extension(cluster: Cluster) -> Any:
    found = (item.extension for item in cluster.extensions if item.name == _EXEC_EXTENSION)
    return next(found, None)


def _inside(label: str) -> str:
    """A label within a sentence instead of at its beginning."""
    return label[0].lower() + label[1:]


def _from_home(path: str, environ: Mapping[str, str]) -> str:
    home = environ.get("HOME", "").rstrip("/")
    return f"~{path.removeprefix(home)}" if home and path.startswith(f"{home}/") else path

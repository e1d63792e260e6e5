"""Access: where LINSTOR's controllers are and how they know us, from the ``LS_`` variables.

These are the variables that every LINSTOR client knows, and they mean here what they mean there:

* ``LS_CONTROLLERS``: a list with commas, all of which are used. ``host``, ``host:port``, with
  ``http://``, ``https://``, ``linstor://`` (plain or TLS, see below) or ``linstor+ssl://`` in
  front; IPv6 in brackets; ``localhost`` if it is not there. Ports: 3370, with TLS 3371.
* ``LS_ROOT_CA``, ``LS_USER_CERTIFICATE``, ``LS_USER_KEY``: PEM, or with ``_FILE`` at the end the
  path of a file, which is re-read when it changes. If any is set, even to nothing, TLS is the rule.
* ``LS_USERNAME``, ``LS_PASSWORD``: a login by password. ``LS_BEARER_TOKEN_FILE``: a file with a
  token, as it is or as ``{"token": ...}``; where there is one it is used instead of a password.

What cannot work is said at once, in a sentence that names the variable and never its secret.
"""

import re
from collections.abc import Mapping
from ipaddress import AddressValueError, IPv6Address

import msgspec

from backstay.drivers.linstor.errors import Misconfigured
from backstay.kube.credentials import InFile, Inline, Source
from backstay.kube.pem import Unusable, key_pair, trusted_authorities

CONTROLLERS = "LS_CONTROLLERS"
ROOT_CA = "LS_ROOT_CA"
CERTIFICATE = "LS_USER_CERTIFICATE"
KEY = "LS_USER_KEY"
USERNAME = "LS_USERNAME"
PASSWORD = "LS_PASSWORD"  # noqa: S105 - the name of a variable
TOKEN_FILE = "LS_BEARER_TOKEN_FILE"  # noqa: S105 - the name of a variable

_TLS = tuple(f"{name}{end}" for name in (ROOT_CA, CERTIFICATE, KEY) for end in ("", "_FILE"))
VARIABLES = (CONTROLLERS, USERNAME, PASSWORD, TOKEN_FILE, *_TLS)
"""All that are looked at."""

_DEFAULT_PORT = {"http": 3370, "https": 3371}
_SCHEMES = {"http": "http", "https": "https", "linstor+ssl": "https"}
_PLACE = re.compile(r"(?P<host>\[[^\[\]]*\]|[^\[\]:]*)(:(?P<port>[0-9]{1,5}))?")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,252}[A-Za-z0-9_.])?")


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """``controllers`` are base URLs without a slash at the end, in the order to try them."""

    controllers: tuple[str, ...]
    authority: Source | None = None
    certificate: Source | None = None
    key: Source | None = None
    username: str = ""
    password: Inline = Inline(b"")
    token: InFile | None = None

    def __repr__(self) -> str:
        return f"Access({', '.join(self.controllers)})"

    @property
    def exposed(self) -> tuple[str, ...]:
        """The controllers to which a password or a token goes without TLS."""
        secret = self.username or self.token
        return tuple(url for url in self.controllers if secret and url.startswith("http:"))


def access_from(environment: Mapping[str, str]) -> Access:
    """See the module. Raises ``Misconfigured``."""
    _check_text(environment)
    tls = any(name in environment for name in _TLS)
    token = environment.get(TOKEN_FILE, "").strip()
    access = Access(
        controllers=_controllers(environment.get(CONTROLLERS, ""), "https" if tls else "http"),
        authority=_source(environment, ROOT_CA),
        certificate=_source(environment, CERTIFICATE),
        key=_source(environment, KEY),
        username=environment.get(USERNAME, ""),
        password=Inline(environment.get(PASSWORD, "").encode()),
        token=InFile(token) if token else None,
    )
    _check(access)
    return access


def _check_text(environment: Mapping[str, str]) -> None:
    for name in VARIABLES:
        try:
            environment.get(name, "").encode()
        except UnicodeEncodeError:
            raise Misconfigured(f"{name} contains bytes that are no text in UTF-8.") from None


def _source(environment: Mapping[str, str], name: str) -> Source | None:
    text, path = environment.get(name, ""), environment.get(f"{name}_FILE", "")
    if text.strip() and path:
        raise Misconfigured(f"{name} and {name}_FILE are both set: keep the one that is meant.")
    if path:
        return InFile(path)
    return Inline(text.encode()) if text.strip() else None


def _check(access: Access) -> None:
    for given, name, missing, other in (
        (access.certificate, CERTIFICATE, access.key, KEY),
        (access.key, KEY, access.certificate, CERTIFICATE),
    ):
        if given and not missing:
            raise Misconfigured(
                f"{name} is set without {other}: a client certificate and its key come together."
            )
    if ":" in access.username:
        raise Misconfigured(f"{USERNAME} contains a colon, which no login can carry.")
    _check_pem(access)


def _check_pem(access: Access) -> None:
    """What is in the variables themselves; files are looked at when they are used."""
    name = ROOT_CA
    try:
        if isinstance(access.authority, Inline):
            trusted_authorities(access.authority.data)
        if isinstance(access.certificate, Inline) and isinstance(access.key, Inline):
            name = f"{CERTIFICATE} with {KEY}"
            key_pair(access.certificate.data, access.key.data)
    except Unusable as error:
        raise Misconfigured(f"{name} contains {error}: put the PEM text itself there.") from None


def _controllers(listed: str, scheme: str) -> tuple[str, ...]:
    entries = [entry.strip() for entry in listed.split(",") if entry.strip()]
    return tuple(dict.fromkeys(_url(entry, scheme) for entry in entries or ["localhost"]))


def _url(entry: str, default_scheme: str) -> str:
    if "@" in entry:
        # Not quoted: what stands before it is a password, as a rule.
        raise Misconfigured(
            f"{CONTROLLERS} contains a login: name it in {USERNAME} and {PASSWORD} instead."
        )
    name, separator, rest = entry.rpartition("://")
    scheme = _SCHEMES.get(name.lower()) if separator else default_scheme
    if name.lower() == "linstor":
        scheme = default_scheme
    if scheme is None:
        raise _unusable(entry, "use http://, https://, linstor:// or linstor+ssl:// before a host")
    place = _PLACE.fullmatch(rest.removesuffix("/"))
    if place is None:
        raise _unusable(entry, "use host, host:port or, for IPv6, [address]:port")
    port = int(place["port"]) if place["port"] else _DEFAULT_PORT[scheme]
    if not 0 < port < 65536:
        raise _unusable(entry, "a port is a number from 1 to 65535")
    return f"{scheme}://{_host(place['host'], entry)}:{port}"


def _host(host: str, entry: str) -> str:
    if host.startswith("["):
        try:
            return f"[{IPv6Address(host[1:-1]).compressed}]"
        except AddressValueError:
            raise _unusable(entry, "what is in brackets is no IPv6 address") from None
    if not _HOST.fullmatch(host):
        raise _unusable(entry, "use host, host:port or, for IPv6, [address]:port")
    return host.lower()


def _unusable(entry: str, remedy: str) -> Misconfigured:
    return Misconfigured(f"{CONTROLLERS} contains {entry[:200]!r}, which is no address: {remedy}.")

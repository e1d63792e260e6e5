"""Redfish: asks BMCs whether machines are on, and has them switched off and on.

There is one file for each node in one directory, named like the node, as a mounted Secret has them:

    address: https://10.0.0.12        where the BMC is
    username: backstay                an account that may switch the power, and nothing else
    password: ...
    system: /redfish/v1/Systems/1     which machine, where the BMC has several
    ca: |                             whom its certificate must come from, or the certificate itself
      -----BEGIN CERTIFICATE-----
    serverName: bmc-12                what the certificate calls it, if not by its address
    insecure: true                    no TLS, or a certificate that nobody vouches for

* A file is read again when it has changed, so that passwords can be rotated. A login that was
  refused is not tried again for a minute, unless its file has changed: BMCs lock accounts.
* Neither a password nor what a BMC answers in the body of a refusal is ever in a message.
* Passwords leave over TLS alone, unless a file says ``insecure`` or the BMC is on this machine.
  A path that a BMC names is asked for at the address of the file, and nowhere else.
* Only ``ForceOff`` and ``On`` are ever asked for. What is to be proven off must not start again by
  itself, and what hangs does not shut down when it is told to.
"""

import asyncio
import base64
import ipaddress
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from backstay.drivers.power import DEADLINE, PowerFailed, PowerReading
from backstay.kube.pem import Unusable, trusted_authorities
from backstay.kube.plain_yaml import NotPlainYaml, read_plain_yaml
from backstay.seam.errors import TlsFailed, TransportError
from backstay.seam.files import FileInfo, Files
from backstay.seam.transport import Request, Response, Tls, Transport

_TIMEOUT = 4.0
_CONNECT = 2.0
_MOST_BYTES = 1024 * 1024
_LARGEST_FILE = 256 * 1024
_SYSTEMS = "/redfish/v1/Systems"
_RESET = "#ComputerSystem.Reset"
_OFF, _ON = "ForceOff", "On"
_STATES = {"On": True, "Off": False}
_LONGEST_WORD = 64
_LOCKED = 60.0
_REFUSED = "it does not accept the login (401)"

S = TypeVar("S", bound=msgspec.Struct)


class _Login(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    address: str
    username: str
    password: str
    system: str = ""
    ca: str = ""
    server_name: str = ""
    insecure: bool = False

    def __repr__(self) -> str:
        return f"_Login({self.address})"


class _Known(msgspec.Struct):
    """What a file said when it was last read. ``system`` is which machine the BMC has, if it was
    asked, and ``refused_at`` when it has not accepted this login."""

    info: FileInfo
    login: _Login
    system: str = ""
    refused_at: float | None = None


class _Action(msgspec.Struct, frozen=True):
    target: str = ""
    allowed: list[str] | None = msgspec.field(
        default=None, name="ResetType@Redfish.AllowableValues"
    )


class _Actions(msgspec.Struct, frozen=True):
    reset: _Action = msgspec.field(default=_Action(), name=_RESET)


class _System(msgspec.Struct, frozen=True, rename="pascal"):
    power_state: str | None = None
    uuid: str | None = msgspec.field(default=None, name="UUID")
    actions: _Actions = _Actions()


class _Member(msgspec.Struct, frozen=True):
    path: str = msgspec.field(default="", name="@odata.id")


class _Collection(msgspec.Struct, frozen=True, rename="pascal"):
    members: list[_Member] = []


class Redfish:
    """See the module; ``PowerDevices``. ``directory`` has the files."""

    def __init__(self, transport: Transport, files: Files, directory: str) -> None:
        self._transport = transport
        self._files = files
        self._directory = directory.rstrip("/")
        self._nodes: frozenset[str] = frozenset()
        self._known: dict[str, _Known] = {}

    def nodes(self) -> frozenset[str]:
        return self._nodes

    async def refresh(self) -> tuple[str, ...]:
        try:
            names = await self._files.names(self._directory)
        except OSError:
            self._nodes = frozenset()
            return (f"there is no {self._directory}, or it cannot be read",)
        # A mounted Secret keeps its versions beside the files, behind a dot.
        self._nodes = frozenset(name for name in names if not name.startswith("."))
        self._known = {name: kept for name, kept in self._known.items() if name in self._nodes}
        wrong = []
        for name in sorted(self._nodes):
            try:
                await self._read(name)
            except PowerFailed as error:
                wrong.append(str(error))
        return tuple(wrong)

    async def sight(self, node: str) -> PowerReading:
        known = await self._read(node)
        system = await self._system(known)
        state = system.power_state or ""
        return PowerReading(
            on=_STATES.get(state),
            uuid=(system.uuid or "")[:_LONGEST_WORD],
            detail=f"its power is {_word(state)}",
        )

    async def switch_off(self, node: str, *, not_after: float) -> None:
        await self._switch(node, wanted=False, not_after=not_after)

    async def switch_on(self, node: str, *, not_after: float) -> None:
        await self._switch(node, wanted=True, not_after=not_after)

    async def _switch(self, node: str, *, wanted: bool, not_after: float) -> None:
        known = await self._read(node)
        system = await self._system(known)
        if _STATES.get(system.power_state or "") is wanted:
            return
        action = system.actions.reset
        kind = _ON if wanted else _OFF
        # One that does not say what it offers is believed to.
        if action.allowed is not None and kind not in action.allowed:
            raise PowerFailed(f"it does not offer {kind}")
        path = action.target or f"{known.system}/Actions/ComputerSystem.Reset"
        body = msgspec.json.encode({"ResetType": kind})
        answer = await self._send(known, "POST", path, body, not_after=not_after)
        if answer.status < 300:
            return
        # Many refuse to switch off what is off. Whether that is so is seen, not read from a number.
        after = await self._system(known)
        if _STATES.get(after.power_state or "") is not wanted:
            raise PowerFailed(f"it has refused {kind} ({answer.status})")

    # What a BMC says

    async def _system(self, known: _Known) -> _System:
        if not known.system:
            known.system = known.login.system or await self._only_member(known)
        answer = await self._send(known, "GET", known.system)
        if answer.status == 404 and not known.login.system:
            known.system = ""
        return _decoded(answer, _System)

    async def _only_member(self, known: _Known) -> str:
        members = _decoded(await self._send(known, "GET", _SYSTEMS), _Collection).members
        if len(members) != 1:
            several = "names in its file which one is the node's (system)"
            raise PowerFailed(f"it has {len(members)} systems, and nobody {several}")
        return members[0].path

    async def _send(
        self,
        known: _Known,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        not_after: float | None = None,
    ) -> Response:
        if not path.startswith("/") or path.startswith("//"):
            raise PowerFailed("it names a path that is none of its own")
        login, now = known.login, asyncio.get_running_loop().time()
        if known.refused_at is not None and now - known.refused_at < _LOCKED:
            raise PowerFailed(_REFUSED)
        token = base64.b64encode(f"{login.username}:{login.password}".encode()).decode()
        headers = {
            "Authorization": f"Basic {token}",
            "Accept": "application/json",
            # There may be a thousand of them, each asked now and then.
            "Connection": "close",
        }
        if body:
            headers |= {"Content-Type": "application/json"}
        request = Request(
            method=method, url=login.address.rstrip("/") + path, headers=headers, body=body,
            timeout=DEADLINE if body else _TIMEOUT, connect_timeout=_CONNECT, not_after=not_after,
            tls=_tls(login), max_body=_MOST_BYTES,
        )  # fmt: skip
        try:
            answer = await self._transport.request(request)
        except TlsFailed as error:
            raise PowerFailed(f"its certificate is not accepted: {error}") from None
        except TransportError as error:
            raise PowerFailed(f"it cannot be reached ({type(error).__name__})") from None
        known.refused_at = now if answer.status == 401 else None
        if answer.status == 401:
            raise PowerFailed(_REFUSED)
        return answer

    # The files

    async def _read(self, node: str) -> _Known:
        """What the file of a node says now."""
        path = f"{self._directory}/{node}"
        try:
            info = await self._files.info(path)
            known = self._known.get(node)
            if known is not None and known.info == info:
                return known
            if info.size > _LARGEST_FILE:
                raise PowerFailed(f"{path} is too large")
            data = await self._files.read(path)
        except FileNotFoundError:
            self._known.pop(node, None)
            raise PowerFailed(f"there is no {path}") from None
        except OSError:
            raise PowerFailed(f"{path} cannot be read") from None
        self._known[node] = _Known(info, _login(path, data))
        return self._known[node]


def _login(path: str, data: bytes) -> _Login:
    try:
        said = read_plain_yaml(data)
    except NotPlainYaml as error:
        raise PowerFailed(f"{path} is not YAML ({error})") from None
    if not isinstance(said, dict):
        raise PowerFailed(f"{path} has no fields")
    try:
        login = msgspec.convert(_as_text(said), _Login)
    except msgspec.ValidationError as error:
        raise PowerFailed(f"{path}: {_without_values(error)}") from None
    because = _unsafe(login)
    if because:
        raise PowerFailed(f"{path}: {because}")
    return login


def _as_text(said: dict[str, Any]) -> dict[str, Any]:
    """A password may consist of digits, which nobody takes for a number but YAML."""
    text = ("username", "password")
    return {
        key: str(value) if key in text and isinstance(value, int | float) else value
        for key, value in said.items()
    }


def _without_values(error: msgspec.ValidationError) -> str:
    """It names the field and what is expected of it, and quotes nothing but names of fields."""
    said = str(error)
    return f"{said[:1].lower()}{said[1:]}"


def _unsafe(login: _Login) -> str:
    """What is wrong with where it leads, in words; empty if nothing is."""
    try:
        parts = urlsplit(login.address)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return "address is no URL"
    if parts.scheme not in ("http", "https") or not host:
        return "address is not https://HOST"
    if parts.path not in ("", "/") or parts.query or parts.fragment or parts.username is not None:
        return "address is more than https://HOST:PORT"
    if parts.scheme == "http" and not (login.insecure or _is_loopback(host)):
        return "address has no TLS, by which its password would be read (insecure: true allows it)"
    if login.system and not login.system.startswith(f"{_SYSTEMS}/"):
        return f"system does not begin with {_SYSTEMS}/"
    if not login.username:
        return "username is empty"
    return _untrusted(login.ca) if login.ca else ""


def _untrusted(ca: str) -> str:
    try:
        trusted_authorities(ca.encode())
    except Unusable as error:
        return f"ca has {error}"
    return ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _tls(login: _Login) -> Tls | None:
    if not login.address.startswith("https://"):
        return None
    ca = login.ca.encode() or None
    name = login.server_name or None
    return Tls(ca=ca, server_name=name, verify=not login.insecure)


def _word(state: str) -> str:
    return state[:_LONGEST_WORD] if state else "not told"


def _decoded(answer: Response, kind: type[S]) -> S:
    if answer.status != 200:
        raise PowerFailed(f"it answered with {answer.status}")
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except msgspec.MsgspecError:
        raise PowerFailed("its answer cannot be read") from None

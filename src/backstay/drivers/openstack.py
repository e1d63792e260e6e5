"""OpenStack: asks Nova whether an instance is off, with an application credential of Keystone.

The credential is three files in one directory, as a mounted Secret has them: ``auth_url``,
``application_credential_id`` and ``application_credential_secret``; ``region`` and ``ca.crt`` may
be there too. They are read whenever a token is needed, so that they can be rotated. Neither they
nor a token is ever in a message, and neither leaves over anything but TLS.

An instance is off if Nova says SHUTOFF, its hypervisor has reported the power state 4 (shut down),
and no task is under way with it; or if Nova says that it was deleted.
"""

import asyncio
from typing import Any
from urllib.parse import quote

import msgspec

from backstay.drivers.provider import InstanceState, ProviderFailed
from backstay.seam.errors import TransportError
from backstay.seam.files import Files
from backstay.seam.transport import Request, Response, Tls, Transport

_TIMEOUT = 5.0
_MOST_BYTES = 4 * 1024 * 1024
_SCHEME = "openstack://"
_SHUT_DOWN = 4
_LIFETIME = 600.0
"""Seconds for which a token is used; it lives longer, and Keystone's clock is not ours."""

_POWER = {0: "no state", 1: "running", 3: "paused", 4: "shut down", 6: "crashed", 7: "suspended"}


class _Server(msgspec.Struct, frozen=True):
    status: str = ""
    power_state: int | None = msgspec.field(default=None, name="OS-EXT-STS:power_state")
    task_state: str | None = msgspec.field(default=None, name="OS-EXT-STS:task_state")


class _ServerAnswer(msgspec.Struct, frozen=True):
    server: _Server


class _Endpoint(msgspec.Struct, frozen=True):
    interface: str = ""
    region: str | None = None
    url: str = ""


class _Service(msgspec.Struct, frozen=True):
    type: str = ""
    endpoints: list[_Endpoint] = []


class _Token(msgspec.Struct, frozen=True):
    catalog: list[_Service] = []


class _TokenAnswer(msgspec.Struct, frozen=True):
    token: _Token


class _Session(msgspec.Struct, frozen=True):
    compute: str
    token: str
    tls: Tls | None
    until: float

    def __repr__(self) -> str:
        return f"_Session({self.compute})"


class OpenStack:
    """See the module; a ``Provider``. ``directory`` has the credential."""

    name = "OpenStack"

    def __init__(self, transport: Transport, files: Files, directory: str) -> None:
        self._transport = transport
        self._files = files
        self._directory = directory
        self._session: _Session | None = None

    def knows(self, provider_id: str) -> bool:
        return provider_id.startswith(_SCHEME) and bool(_instance(provider_id))

    async def state(self, provider_id: str) -> InstanceState:
        session = await self._log_in()
        answer = await self._ask(session, provider_id)
        if answer.status == 401:
            # The token was revoked, or the credential has been rotated.
            self._session = None
            answer = await self._ask(await self._log_in(), provider_id)
        if answer.status == 404:
            return InstanceState(False, "Nova knows no such instance")
        if answer.status != 200:
            raise ProviderFailed(f"Nova answered with {answer.status}")
        try:
            return _judged(msgspec.json.decode(answer.body, type=_ServerAnswer).server)
        except msgspec.MsgspecError:
            raise ProviderFailed("Nova's answer cannot be read") from None

    async def _ask(self, session: _Session, provider_id: str) -> Response:
        name = quote(_instance(provider_id), safe="")
        headers = {"X-Auth-Token": session.token, "Accept": "application/json"}
        url = f"{session.compute.rstrip('/')}/servers/{name}"
        return await self._send("Nova", "GET", url, headers, b"", session.tls)

    # Keystone

    async def _log_in(self) -> _Session:
        now = asyncio.get_running_loop().time()
        if self._session is not None and now < self._session.until:
            return self._session
        url, identity, secret = [
            await self._read(each)
            for each in ("auth_url", "application_credential_id", "application_credential_secret")
        ]
        ca = await self._read("ca.crt", needed=False)
        tls = Tls(ca=ca.encode()) if ca else None
        credential = {"id": identity, "secret": secret}
        body: dict[str, Any] = {
            "auth": {
                "identity": {
                    "methods": ["application_credential"],
                    "application_credential": credential,
                }
            }
        }
        base = url.rstrip("/").removesuffix("/v3")
        answer = await self._send(
            "Keystone",
            "POST",
            f"{base}/v3/auth/tokens",
            {"Content-Type": "application/json"},
            msgspec.json.encode(body),
            tls,
        )
        token = answer.headers.get("x-subject-token", "")
        if answer.status != 201 or not token:
            raise ProviderFailed(f"Keystone did not accept the credential ({answer.status})")
        region = await self._read("region", needed=False)
        compute = _compute(answer.body, region)
        self._session = _Session(compute, token, tls, now + _LIFETIME)
        return self._session

    async def _read(self, name: str, *, needed: bool = True) -> str:
        path = f"{self._directory.rstrip('/')}/{name}"
        try:
            return (await self._files.read(path)).decode().strip()
        except FileNotFoundError:
            if not needed:
                return ""
            raise ProviderFailed(f"there is no {path}") from None
        except (OSError, UnicodeDecodeError):
            raise ProviderFailed(f"{path} cannot be read") from None

    async def _send(
        self,
        who: str,
        method: str,
        url: str,
        headers: dict[str, str],
        body: bytes,
        tls: Tls | None,
    ) -> Response:
        if not url.startswith("https://"):
            raise ProviderFailed(f"{who} is at no https:// address, and a secret would be read")
        request = Request(
            method=method, url=url, headers=headers, body=body, timeout=_TIMEOUT, tls=tls,
            max_body=_MOST_BYTES,
        )  # fmt: skip
        try:
            return await self._transport.request(request)
        except TransportError as error:
            raise ProviderFailed(f"{who} cannot be reached ({type(error).__name__})") from None


def _instance(provider_id: str) -> str:
    """The last part of ``openstack:///id`` or ``openstack://region/id``."""
    return provider_id.rpartition("/")[2]


def _compute(body: bytes, region: str) -> str:
    try:
        catalog = msgspec.json.decode(body, type=_TokenAnswer).token.catalog
    except msgspec.MsgspecError:
        raise ProviderFailed("Keystone's answer cannot be read") from None
    for service in catalog:
        for each in service.endpoints if service.type == "compute" else ():
            if each.interface == "public" and region in ("", each.region):
                return each.url
    where = f" in the region {region}" if region else ""
    raise ProviderFailed(f"Keystone knows no public endpoint of Nova{where}")


def _judged(server: _Server) -> InstanceState:
    state = server.power_state
    power = _POWER.get(state, "unknown") if state is not None else "unknown"
    busy = f", {server.task_state}" if server.task_state else ""
    detail = f"the instance is {server.status or 'of no known status'} (power: {power}{busy})"
    if server.status in ("DELETED", "SOFT_DELETED"):
        return InstanceState(server.status == "DELETED", detail)
    stopped = server.status == "SHUTOFF" and server.power_state == _SHUT_DOWN
    return InstanceState(stopped and not server.task_state, detail)

"""Front: LINSTOR's REST interface as a ``Handler``, and all that can be wrong with it.

The same handler answers on a socket and in a world. ``Trouble`` is what is wrong with answers;
``on`` limits it to the paths that begin so. What is wrong with the stream alone is in
``promotions.py``, and what the controller does not hear in ``controller.py``.
"""

import asyncio
import gzip
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from backstay.seam.errors import ConnectionLost
from backstay.seam.serve import Answer, Inbound
from backstay.sim.linstor import rest
from backstay.sim.linstor.controller import Controller
from backstay.sim.linstor.promotions import refusal
from backstay.sim.linstor.rest import Rest

STREAM = "/v1/events/drbd/promotion"

_COMPRESSES_FROM = 1000
_TOO_LARGE = 18_446_744_073_709_551_608
_JSON = {"Content-Type": "application/json"}
_PAGE = b"<!doctype html><html><body><h1>Welcome to the ingress</h1></body></html>"


class Trouble(StrEnum):
    """What becomes of a request."""

    HTML = "html"
    """A page for people, with status 200, as a proxy serves it."""
    REDIRECT = "redirect"
    """As where TLS is on: to https, without the query."""
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    BROKEN = "broken"
    UNAVAILABLE = "unavailable"
    """From a proxy, in front of a controller that is not there."""
    SILENT = "silent"
    """The connection is taken, and nothing ever comes."""
    BREAKS_OFF = "breaks-off"
    GARBLED = "garbled"
    """Not JSON any more from the middle on."""
    EMPTY = "empty"
    """Lists without anything in them."""
    HUGE_NUMBERS = "huge-numbers"
    """As DRBD's counters have had."""
    ERROR_EVENT = "error-event"
    """The stream answers that there is none."""
    LATE_HEAD = "late-head"
    """The head of the stream leaves with its first event: until there is one, nothing comes."""


@dataclass
class Faults:
    """They outlive the controller. ``seconds`` is how long every answer takes; ``wants`` is the
    value that the header ``Authorization`` has to have."""

    trouble: Trouble | None = None
    on: str = "/v1/"
    seconds: float = 0.0
    wants: str = ""


class Front:
    """See the module."""

    def __init__(self, controller: Controller, faults: Faults | None = None) -> None:
        self.asked: list[str] = []
        """The paths that were asked for, in order."""
        self._controller = controller
        self._rest = Rest(controller)
        self._faults = faults or Faults()

    async def handle(self, inbound: Inbound) -> Answer:
        self.asked.append(inbound.path)
        if inbound.path == "/health":
            return Answer()
        faults = self._faults
        if faults.seconds:
            await asyncio.sleep(faults.seconds)
        if faults.wants and inbound.headers.get("authorization") != faults.wants:
            return _unauthorized(faults.wants)
        trouble = faults.trouble if inbound.path.startswith(faults.on) else None
        if trouble is not None and (answer := await _instead(trouble, inbound)) is not None:
            return answer
        if inbound.path == STREAM:
            if trouble is Trouble.ERROR_EVENT:
                data = msgspec.json.encode(rest.refused(rest.UNKNOWN_ERROR, "cannot register"))
                headers = {"Content-Type": "text/event-stream"}
                return Answer(headers=headers, body=refusal(data))
            current = inbound.headers.get("last-event-id") == "current"
            late = trouble is Trouble.LATE_HEAD
            return await self._controller.promotions.subscribe(current=current, late=late)
        return self._found(inbound, trouble)

    def _found(self, inbound: Inbound, trouble: Trouble | None) -> Answer:
        if inbound.method != "GET":
            message = f"Method '{inbound.method}' not allowed on path '{inbound.path}'."
            return _error(405, rest.UNKNOWN_ERROR, message)
        status, value = self._rest.get(inbound.path, inbound.query)
        if trouble is Trouble.EMPTY and isinstance(value, list):
            value = []
        body = msgspec.json.encode(value)
        if trouble is Trouble.HUGE_NUMBERS:
            body = body.replace(b"%d" % rest.CREATED, b"%d" % _TOO_LARGE)
        headers = dict(_JSON)
        if trouble is Trouble.GARBLED:
            body = body[: len(body) // 2] + b"\xff\x00"
        elif trouble is Trouble.BREAKS_OFF:
            return Answer(status=status, headers=headers, body=_breaks_off(body))
        if len(body) > _COMPRESSES_FROM and "gzip" in inbound.headers.get("accept-encoding", ""):
            body, headers["Content-Encoding"] = gzip.compress(body, mtime=0), "gzip"
        return Answer(status=status, headers=headers, body=body)


async def _instead(trouble: Trouble, inbound: Inbound) -> Answer | None:
    """What is answered without a look at what was asked; None for the other kinds of trouble."""
    match trouble:
        case Trouble.HTML:
            return Answer(headers={"Content-Type": "text/html"}, body=_PAGE)
        case Trouble.REDIRECT:
            host = inbound.headers.get("host", "").partition(":")[0]
            return Answer(status=302, headers={"Location": f"https://{host}:3371{inbound.path}"})
        case Trouble.UNAUTHORIZED:
            return _unauthorized("Basic")
        case Trouble.FORBIDDEN:
            return _error(403, rest.SIGN_IN_FAILED, "Sign-in failed")
        case Trouble.BROKEN:
            return _error(500, rest.UNKNOWN_ERROR, "An unknown error occurred")
        case Trouble.UNAVAILABLE:
            return Answer(status=503, headers={"Content-Type": "text/html"}, body=_PAGE)
        case Trouble.SILENT:
            await asyncio.Event().wait()
    return None


def _unauthorized(wants: str) -> Answer:
    scheme = wants.partition(" ")[0]
    bearer = scheme == "Bearer"
    realm = "linstor-controller" if bearer else "Linstor"
    code = rest.ACCESS_DENIED if bearer else rest.CREDENTIALS_MISSING
    answer = _error(401, code, "Credentials are missing")
    headers = {**answer.headers, "WWW-Authenticate": f'{scheme} realm="{realm}"'}
    return Answer(status=401, headers=headers, body=answer.body)


def _error(status: int, code: int, message: str) -> Answer:
    body = msgspec.json.encode(rest.refused(code, message))
    return Answer(status=status, headers=_JSON, body=body)


async def _breaks_off(body: bytes) -> AsyncIterator[bytes]:
    yield body[: len(body) // 2]
    raise ConnectionLost("the answer breaks off")

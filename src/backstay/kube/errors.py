"""What went wrong with the API, as types, by what the caller may do about it.

::

    KubeError
    ├── ConfigError                 what the user gave us cannot work: a sentence with the remedy
    ├── Retryable                   the same call may succeed later
    │   ├── Unreachable             nothing was sent: no address of the API answered
    │   ├── OutcomeUnknown          it may have been carried out: read before repeating a write
    │   ├── TooManyRequests (429)   ``retry_after`` says when; an eviction says which budget
    │   ├── ServerTimeout           the server gave up (also 504): it may have been carried out
    │   ├── InternalError (5xx)     something broke: it may have been carried out
    │   └── ServiceUnavailable (503)
    └── Terminal                    repeating it unchanged cannot help
        ├── BadRequest (400)   ├── Unauthorized (401)    ├── Forbidden (403)
        ├── NotFound (404)     ├── MethodNotAllowed (405)├── NotAcceptable (406)
        ├── AlreadyExists (409)├── Conflict (409)        ├── Gone (410, reason Expired or Gone)
        ├── TooLarge (413)     ├── UnsupportedMedia (415)├── Invalid (422)
        ├── UnexpectedStatus   any other refusal
        ├── Undecodable        the server answered with something that is not what was asked for
        ├── Untrusted          TLS: the server could not prove who it is
        └── TooLate            nothing was sent: the moment until which it was allowed had passed

``str()`` of each is one sentence that names the call. Credentials never appear in it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import msgspec


class KubeError(Exception):
    """The root of everything that this package raises on purpose.

    ``retry_after`` is how many seconds the server asked us to wait, if it did.
    """

    retry_after: float | None = None


class ConfigError(KubeError):
    """The configuration cannot work; the sentence names the thing and the remedy."""


class Retryable(KubeError):
    """The same call may succeed later."""


class Terminal(KubeError):
    """Repeating the call unchanged cannot succeed."""


class Unreachable(Retryable):
    """Not one byte reached the API server."""


class OutcomeUnknown(Retryable):
    """The connection failed after the request may have left: a write may have happened."""


class Undecodable(Terminal):
    """The server's answer is not what this call expects."""


class Untrusted(Terminal):
    """TLS could not verify the server, or the server refused our certificate."""


class TooLate(Terminal):
    """The call was not sent, because the moment until which it was allowed had passed."""


class Cause(msgspec.Struct, frozen=True):
    """One entry of ``Status.details.causes``."""

    reason: str = ""
    message: str = ""
    field: str = ""


class Details(msgspec.Struct, frozen=True, rename={"retry_after_seconds": "retryAfterSeconds"}):
    """``Status.details``, as far as we use it."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[Cause, ...] | None = None
    retry_after_seconds: int = 0


class Status(msgspec.Struct, frozen=True):
    """The body of every refusal by an API server (and the object of a watch's ERROR event)."""

    reason: str = ""
    message: str = ""
    code: int = 0
    details: Details | None = None


class ApiError(KubeError):
    """An answer of the API server that is not success."""

    code: ClassVar[int] = 0

    def __init__(
        self, status: Status, *, call: str, retry_after: float | None = None, remedy: str = ""
    ) -> None:
        self.status = status
        self.call = call
        self.retry_after = retry_after
        said = status.message or status.reason or f"HTTP {status.code}, no reason given"
        # An eviction names the budget that forbids it in a cause only.
        unsaid = describe_causes(c for c in self.causes if c.message not in said)
        parts = (f"{call}: {_one_line(said).rstrip('.')}", _one_line(unsaid), remedy)
        super().__init__("; ".join(filter(None, parts)))

    @property
    def reason(self) -> str:
        return self.status.reason

    @property
    def causes(self) -> tuple[Cause, ...]:
        details = self.status.details
        return (details.causes or ()) if details else ()


class BadRequest(ApiError, Terminal):
    code = 400


class Unauthorized(ApiError, Terminal):
    code = 401


class Forbidden(ApiError, Terminal):
    code = 403


class NotFound(ApiError, Terminal):
    code = 404


class MethodNotAllowed(ApiError, Terminal):
    code = 405


class NotAcceptable(ApiError, Terminal):
    code = 406


class AlreadyExists(ApiError, Terminal):
    code = 409


class Conflict(ApiError, Terminal):
    """The object changed, or a precondition (uid, resourceVersion) no longer holds."""

    code = 409


class Gone(ApiError, Terminal):
    """The resourceVersion or continue token is too old: list again."""

    code = 410


class TooLarge(ApiError, Terminal):
    code = 413


class UnsupportedMedia(ApiError, Terminal):
    code = 415


class Invalid(ApiError, Terminal):
    code = 422


class UnexpectedStatus(ApiError, Terminal):
    """A refusal that has no type of its own; ``status.code`` tells."""


class TooManyRequests(ApiError, Retryable):
    code = 429


class InternalError(ApiError, Retryable):
    code = 500


class ServiceUnavailable(ApiError, Retryable):
    code = 503


class ServerTimeout(ApiError, Retryable):
    """The server gave up waiting; what it began may still complete."""

    code = 504


_BY_CODE: Mapping[int, type[ApiError]] = {
    kind.code: kind
    for kind in (
        BadRequest, Unauthorized, Forbidden, NotFound, MethodNotAllowed, NotAcceptable, Conflict,
        Gone, TooLarge, UnsupportedMedia, Invalid, TooManyRequests, InternalError,
        ServiceUnavailable, ServerTimeout,
    )
}  # fmt: skip

# Where the reason says more than the code. A 409 is a conflict unless the name is taken; the
# server says "try again" with a 500 and reason ServerTimeout as well as with a 504.
_BY_REASON: Mapping[str, type[ApiError]] = {
    "AlreadyExists": AlreadyExists,
    "Expired": Gone,
    "Gone": Gone,
    "ServerTimeout": ServerTimeout,
    "Timeout": ServerTimeout,
    "TooManyRequests": TooManyRequests,
}

_decode_status = msgspec.json.Decoder(Status)

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What a JSON decoder raises: not JSON or not this type, not UTF-8, nested without end."""

_LONGEST_WAIT = 300.0
_LONGEST_SENTENCE = 1000


def from_status(
    status: Status, *, call: str, retry_after: float | None = None, remedy: str = ""
) -> ApiError:
    """The error for a Status object, by its reason first and its code second."""
    kind = _BY_REASON.get(status.reason) or _BY_CODE.get(status.code)
    if kind is None:
        kind = InternalError if status.code >= 500 else UnexpectedStatus
    if retry_after is None and status.details:
        retry_after = _bounded(status.details.retry_after_seconds)
    return kind(status, call=call, retry_after=retry_after, remedy=remedy)


def from_answer(
    code: int, headers: Mapping[str, str], body: bytes, *, call: str, remedy: str = ""
) -> ApiError:
    """The error for an HTTP answer outside 2xx, whatever its body is.

    Proxies and load balancers answer with HTML, JSON of their own or nothing at all. So the
    answer's code counts, and one in the body does not.
    """
    try:
        status = _decode_status.decode(body)
    except UNREADABLE:
        status = Status()
    message = status.message or _plain(code, body)
    status = msgspec.structs.replace(status, code=code, message=message)
    return from_status(status, call=call, retry_after=_retry_after(headers), remedy=remedy)


def _plain(code: int, body: bytes) -> str:
    text = _one_line(body[:200].decode("utf-8", "replace"))
    return f"HTTP {code} without a Kubernetes status" + (f": {text!r}" if text else "")


def _one_line(text: str) -> str:
    """Webhooks write paragraphs, and a refused object may be quoted in full."""
    line = " ".join(text[:_LONGEST_SENTENCE].split())
    return line if len(text) <= _LONGEST_SENTENCE else f"{line} …"


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Kubernetes sends whole seconds; the header's date form is not used by any API server."""
    value = headers.get("retry-after", "")
    return _bounded(float(value)) if value.isdecimal() else None


def _bounded(seconds: float) -> float | None:
    """No wait at all would be a busy loop, and a very long one would leave us deaf."""
    return min(float(seconds), _LONGEST_WAIT) if seconds > 0 else None


def describe_causes(causes: Iterable[Cause]) -> str:
    """The causes of a refusal in one line, for people."""
    return "; ".join(c.message for c in causes if c.message)


Json = dict[str, Any]
"""A Kubernetes object as it is on the wire, for the few places that must keep every field."""

"""An answer that is not what was asked for, as an error in one sentence.

LINSTOR explains itself in a list of return codes; a proxy in front of it, in HTML. Whatever they
say is somebody else's text: it is cut short and kept on one line. Where a redirect leads is told by
scheme, host and port alone.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from backstay.drivers.linstor.errors import Garbled, LinstorError, NotThere, Refused
from backstay.drivers.linstor.wire import refusals_from

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_LONGEST = 200


def refusal(controller: str, status: int, headers: Mapping[str, str], body: bytes) -> LinstorError:
    """``controller`` is its URL."""
    said = [each.message for each in refusals_from(body)]
    why = f": {one_line(said[0])}" if said and said[0] else ""
    if status in _REDIRECTS:
        return Refused(_redirected(controller, headers.get("location", "")))
    if status == 401:
        return Refused(
            f"LINSTOR at {controller} asks for another login (HTTP 401){why}: check LS_USERNAME "
            "and LS_PASSWORD, or LS_BEARER_TOKEN_FILE"
        )
    if status == 403:
        return Refused(f"LINSTOR at {controller} forbids it to this login (HTTP 403){why}")
    if status == 404 and said:
        return NotThere(f"LINSTOR at {controller} knows no such thing (HTTP 404){why}")
    if status == 404 or status < 400:
        return Garbled(f"{controller} does not answer as LINSTOR does (HTTP {status})")
    return Refused(f"LINSTOR at {controller} failed (HTTP {status}){why}")


def one_line(text: str) -> str:
    """Somebody else's text, in a form that fits into a sentence of ours."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return plain.rstrip(".") if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}..."


def _redirected(controller: str, location: str) -> str:
    here = urlsplit(controller)
    try:
        there = urlsplit(location)
        host, port = there.hostname, there.port or 443
    except ValueError:
        return f"{controller} redirects to an address that is none: check LS_CONTROLLERS"
    if there.scheme != "https" or not host:
        return f"{controller} redirects elsewhere, and is not followed: check LS_CONTROLLERS"
    name = one_line(f"[{host}]" if ":" in host else host)
    if host == here.hostname and here.scheme == "http":
        return (
            f"LINSTOR at {controller} accepts nothing but TLS: "
            f"set LS_CONTROLLERS to https://{name}:{port}"
        )
    return (
        f"{controller} redirects to https://{name}:{port}, and is not followed: "
        "name that address in LS_CONTROLLERS if it is LINSTOR's"
    )

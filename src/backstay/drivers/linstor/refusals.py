"""An answer that is not what was asked for, as an error in one sentence.

LINSTOR explains itself in a list of return codes; a proxy in front of it, in HTML. Whatever they
say is somebody else's text: it is cut short and kept on one line. Where a redirect leads is told by
scheme, host and port alone.

LINSTOR says "not found" of a path that it does not serve, too; that is about us, and not about what
was asked for. A name that none of its resources can have it calls a failure; that is no more than
that there is no such resource.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from backstay.drivers.linstor.errors import Garbled, LinstorError, NotServed, NotThere, Refused
from backstay.drivers.linstor.wire import refusals_from

_IMPOSSIBLE_NAME, _UNKNOWN_ERROR = 202, 998
_CODE = 0x7FFF
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_LONGEST = 200


def refusal(controller: str, status: int, headers: Mapping[str, str], body: bytes) -> LinstorError:
    """``controller`` is its URL."""
    said = refusals_from(body)
    why = f": {one_line(said[0].message)}" if said and said[0].message else ""
    codes = {each.ret_code & _CODE for each in said}
    if status in _REDIRECTS:
        return Refused(_redirected(controller, headers.get("location", "")))
    if status == 401:
        return Refused(
            f"LINSTOR at {controller} asks for another login (HTTP 401){why}: check LS_USERNAME "
            "and LS_PASSWORD, or LS_BEARER_TOKEN_FILE"
        )
    if status == 403:
        return Refused(f"LINSTOR at {controller} forbids it to this login (HTTP 403){why}")
    if (status == 404 and codes - {_UNKNOWN_ERROR}) or _IMPOSSIBLE_NAME in codes:
        return NotThere(f"LINSTOR at {controller} knows no such thing (HTTP {status}){why}")
    if status == 404 and codes:
        return NotServed(f"LINSTOR at {controller} does not know the question (HTTP 404){why}")
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

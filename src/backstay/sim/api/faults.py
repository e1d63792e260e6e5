"""What can be wrong with an API server: only such faults as a real one can show.

What can be wrong with the way to it (delay, silence, a cut, an answer that is lost after the work
was done) is the network's; see ``sim/fate.py``. Here are those in which the server itself answers,
but not with what was asked for:

* ``Busy``: 429, 500 or 503 before anything was done;
* ``GaveUp``: 504 after everything was done;
* ``Behind``: a reader that accepts any version gets one that is so many commits old;
* ``Forgot``: a watch or a page that continues is told that its version is too old;
* ``Again``: a watch that resumes is told once more of so many commits that it has seen.

Reads that demand the latest state are never stale, a write is never half done, and no watch
loses or reorders an event: a server that did that would have no place in a test of ours.
"""

from collections.abc import Callable
from urllib.parse import parse_qsl, urlencode

import msgspec

from backstay.seam.serve import Answer, Inbound
from backstay.sim.api import status
from backstay.sim.api.requests import Target, route
from backstay.sim.api.server import ApiServer, refused
from backstay.sim.api.status import Refusal
from backstay.sim.api.store import Expired
from backstay.sim.doorkeeper import prompt

_JSON = {"content-type": "application/json"}

_WORDS = {
    429: ("TooManyRequests", "the server has received too many requests and has asked us to try "
          "again later"),
    500: ("InternalError", "Internal error occurred: etcdserver: leader changed"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "request did not complete within the allotted timeout"),
}  # fmt: skip


class Busy(msgspec.Struct, frozen=True):
    """Refused before anything was done; ``code`` is 429, 500 or 503."""

    code: int = 429
    retry_after: int | None = 1


class GaveUp(msgspec.Struct, frozen=True):
    """Done, but the answer says that it took too long."""


class Behind(msgspec.Struct, frozen=True):
    """A cache that lags: only for those who said that any version will do."""

    commits: int


class Forgot(msgspec.Struct, frozen=True):
    """Compaction was faster."""


class Again(msgspec.Struct, frozen=True):
    """A watch that resumes hears of the last commits before its version again."""

    commits: int


Fault = Busy | GaveUp | Behind | Forgot | Again
Faults = Callable[[Inbound], Fault | None]


class FaultyServer:
    """A ``Handler`` around an API server; ``faults`` decides what befalls each request."""

    def __init__(self, server: ApiServer, faults: Faults) -> None:
        self._server = server
        self._faults = faults

    @prompt
    async def handle(self, inbound: Inbound) -> Answer:
        match self._faults(inbound):
            case Busy(code, retry_after):
                return _refusal(code, retry_after)
            case GaveUp() if inbound.method != "GET":
                await self._server.handle(inbound)
                return _refusal(504, None)
            case Behind(commits) if _accepts_any(inbound):
                return await self._stale(inbound, commits)
            case Forgot() if _continues(inbound):
                return _forgotten(inbound)
            case Again(commits) if _resumes(inbound):
                return await self._server.handle(_earlier(inbound, commits))
            case _:
                return await self._server.handle(inbound)

    async def _stale(self, inbound: Inbound, commits: int) -> Answer:
        version = max(1, self._server.store.version - commits)
        target = route(self._server.kinds, inbound.path)
        if target.name:
            return self._stale_object(target, version)
        exact = _with(inbound, resourceVersion=str(version), resourceVersionMatch="Exact")
        answer = await self._server.handle(exact)
        # Older than the history: a cache would have been refreshed by now.
        return answer if answer.status == 200 else await self._server.handle(inbound)

    def _stale_object(self, target: Target, version: int) -> Answer:
        store = self._server.store
        try:
            then = {s.key: s for s in store.as_of(target.info.storage, version)}.get(target.key)
        except Expired:
            then = store.get(target.info.storage, target.key)
        if then is None:
            return refused(status.not_found(target.info, target.name))
        return Answer(headers=_JSON, body=then.encoded(target.info.head))


def _query(inbound: Inbound) -> dict[str, str]:
    return dict(parse_qsl(inbound.query, keep_blank_values=True))


def _is_watch(inbound: Inbound) -> bool:
    return inbound.method == "GET" and _query(inbound).get("watch") in ("1", "true")


def _accepts_any(inbound: Inbound) -> bool:
    if inbound.method != "GET" or _is_watch(inbound):
        return False
    return _query(inbound).get("resourceVersion") == "0"


def _resumes(inbound: Inbound) -> bool:
    version = _query(inbound).get("resourceVersion", "")
    return _is_watch(inbound) and version not in ("", "0")


def _continues(inbound: Inbound) -> bool:
    return _resumes(inbound) or bool(_query(inbound).get("continue"))


def _earlier(inbound: Inbound, commits: int) -> Inbound:
    version = int(_query(inbound)["resourceVersion"])
    return _with(inbound, resourceVersion=str(max(1, version - commits)))


def _with(inbound: Inbound, **changes: str) -> Inbound:
    return msgspec.structs.replace(inbound, query=urlencode({**_query(inbound), **changes}))


def _forgotten(inbound: Inbound) -> Answer:
    if not _is_watch(inbound):
        return refused(status.expired("The provided continue parameter is too old"))
    asked = _query(inbound)["resourceVersion"]
    error = status.expired(f"too old resource version: {asked} ({asked})")
    line = b'{"type":"ERROR","object":%s}\n' % msgspec.json.encode(error.body())
    return Answer(headers=_JSON, body=line)


def _refusal(code: int, retry_after: int | None) -> Answer:
    reason, message = _WORDS[code]
    return refused(Refusal(code, reason, message, details={}, retry_after=retry_after))

"""Callers: who may read what a controller says of itself.

Its numbers and its status name nodes and workloads, so from outside its own machine they are for
those whom the cluster lets in. A caller shows a bearer token; the API server says whose it is
(TokenReview) and whether that one may get the path (SubjectAccessReview). Access is then granted
and taken as everywhere else on the cluster, by RBAC.

* What the API server said holds for a while: a yes for 60 s, a no for 10 s. Many who ask the same
  at the same time are answered by one review. If it cannot be asked, nobody is let in.
* A token is kept nowhere and never logged. What is remembered is a hash of it.
* Whoever can reach the port can make us ask. So strangers have few reviews for all of them, far
  fewer than the client can send, which a failover needs; who was known lately does not wait in
  that line.
"""

import asyncio
import hashlib
import logging
import re
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from backstay.kube import errors
from backstay.kube.client import KubeClient
from backstay.kube.limits import TokenBucket
from backstay.kube.resource import Resource
from backstay.seam.tasks import Tasks

TOKEN_REVIEWS = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False
)
ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)

YES_SECONDS = 60.0
NO_SECONDS = 10.0
_KNOWN_SECONDS = 3600.0

STRANGERS_PER_SECOND = 8.0
STRANGERS_AT_ONCE = 16

MOST_KEPT = 512
"""Answers. Strangers cannot fill that: they are too few a second, and forgotten too soon."""

# Both reviews fit into the ten seconds that Prometheus gives a scrape.
_TIMEOUT = 4.0

_BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/-]{1,16384}=*)", re.IGNORECASE)

_log = logging.getLogger("backstay.callers")

K = TypeVar("K")
V = TypeVar("V")


# Pure: what is said and what is remembered


class Caller(msgspec.Struct, frozen=True):
    """Somebody as the API server knows it, with all that it may base a decision on."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class Refusal(msgspec.Struct, frozen=True):
    """Why somebody is not answered: an HTTP status, one sentence, and headers that belong to it."""

    status: int
    sentence: str
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)


NO_TOKEN = Refusal(
    401,
    "This needs a bearer token that the cluster knows.",
    {"www-authenticate": "Bearer"},
)
UNKNOWN = Refusal(
    401,
    "The cluster does not know this token, or no longer.",
    {"www-authenticate": 'Bearer error="invalid_token"'},
)
CROWD = Refusal(429, "Too many tokens are being tried: ask again later.", {"retry-after": "1"})
CANNOT_ASK = Refusal(503, "The API server cannot be asked about this token: ask again later.")


def may_not(caller: Caller, path: str) -> Refusal:
    return Refusal(
        403,
        f"{caller.username} may not get {path}: "
        "that takes a role such as the ClusterRole backstay-metrics-reader.",
    )


def bearer(header: str) -> str | None:
    """The token of an Authorization header, if it has one."""
    found = _BEARER.fullmatch(header)
    return found[1] if found else None


class Memory(Generic[K, V]):
    """Values that count until a moment. Of more than ``most`` the first to end go first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[K, tuple[float, V]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def recall(self, key: K, *, now: float) -> V | None:
        until, value = self._kept.get(key, (now, None))
        return value if now < until else None

    def keep(self, key: K, value: V, *, until: float, now: float) -> None:
        self._kept = {k: kept for k, kept in self._kept.items() if now < kept[0]}
        self._kept[key] = (until, value)
        if len(self._kept) > self._most:
            del self._kept[min(self._kept, key=lambda each: self._kept[each][0])]


# Asking the API server

Verdict = Caller | Refusal

_Question = tuple[bytes, str]
"""A token's hash, and the path that it wants; without a path the question is whose it is."""

_Lasting = tuple[Verdict, float]
"""A verdict, and for how many seconds it counts."""


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: Caller = Caller()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


class Callers:
    """Asks through ``client``, which must be allowed to create both kinds of review."""

    def __init__(self, client: KubeClient, tasks: Tasks) -> None:
        self._client = client
        self._tasks = tasks
        self._verdicts: Memory[_Question, Verdict] = Memory(MOST_KEPT)
        self._known: Memory[bytes, bool] = Memory(MOST_KEPT)
        self._strangers = TokenBucket(STRANGERS_PER_SECOND, STRANGERS_AT_ONCE)
        self._under_way: dict[_Question, asyncio.Task[Verdict]] = {}
        self._said = ""

    async def refuse(self, authorization: str, path: str) -> Refusal | None:
        """Why whoever sent this Authorization header may not get the path; None if it may."""
        token = bearer(authorization)
        if token is None:
            return NO_TOKEN
        digest = hashlib.sha256(token.encode()).digest()
        caller = await self._verdict((digest, ""), partial(self._identify, digest, token))
        if isinstance(caller, Refusal):
            return caller
        verdict = await self._verdict((digest, path), partial(self._authorize, caller, path))
        return verdict if isinstance(verdict, Refusal) else None

    async def _verdict(
        self, question: _Question, ask: Callable[[], Coroutine[Any, Any, _Lasting]]
    ) -> Verdict:
        """As it was given lately, as it is being given to somebody else, or anew."""
        kept = self._verdicts.recall(question, now=_now())
        if kept is not None:
            return kept
        task = self._under_way.get(question)
        if task is None:
            task = self._tasks.spawn(self._ask(question, ask), name="caller")
            self._under_way[question] = task
        # One who goes away must not take the answer from the others.
        return await asyncio.shield(task)

    async def _ask(
        self, question: _Question, ask: Callable[[], Coroutine[Any, Any, _Lasting]]
    ) -> Verdict:
        began = _now()
        try:
            verdict, seconds = await ask()
        except errors.KubeError as error:
            self._say(_without_contents(error))
            return CANNOT_ASK
        finally:
            del self._under_way[question]
        if seconds:
            self._say("")
            self._verdicts.keep(question, verdict, until=began + seconds, now=_now())
        return verdict

    async def _identify(self, digest: bytes, token: str) -> _Lasting:
        now = _now()
        if self._known.recall(digest, now=now) is None and not self._strangers.take(now):
            return CROWD, 0.0
        body = _review(TOKEN_REVIEWS, {"token": token})
        reply = await self._client.create(TOKEN_REVIEWS, body, timeout=_TIMEOUT)
        status = reply.into(_TokenReview).status
        if not (status.authenticated and status.user.username):
            return UNKNOWN, NO_SECONDS
        self._known.keep(digest, True, until=now + _KNOWN_SECONDS, now=now)
        return status.user, YES_SECONDS

    async def _authorize(self, caller: Caller, path: str) -> _Lasting:
        wanted = {
            "user": caller.username, "uid": caller.uid, "groups": caller.groups,
            "extra": caller.extra, "nonResourceAttributes": {"path": path, "verb": "get"},
        }  # fmt: skip
        body = _review(ACCESS_REVIEWS, wanted)
        reply = await self._client.create(ACCESS_REVIEWS, body, timeout=_TIMEOUT)
        if reply.into(_AccessReview).status.allowed:
            return caller, YES_SECONDS
        return may_not(caller, path), NO_SECONDS

    def _say(self, trouble: str) -> None:
        """Once for as long as it stays the same: callers come again and again."""
        if trouble and trouble != self._said:
            _log.warning("callers cannot be let in: %s", trouble)
        self._said = trouble


def _review(resource: Resource, spec: Mapping[str, object]) -> Mapping[str, object]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}


def _without_contents(error: errors.KubeError) -> str:
    """A server's own words may quote what it was sent, and that was a token."""
    if isinstance(error, errors.ApiError):
        return f"{error.call}: {error.status.code} {error.reason}".rstrip()
    return str(error)


def _now() -> float:
    return asyncio.get_running_loop().time()

"""The verbs of the Kubernetes API.

Rules:

* Every call has a deadline, counted from the moment it is made, and ends within it.
* What may be repeated without harm (GET) is repeated: on another address when one fails or
  answers with 5xx, and after ``Retry-After`` when that fits the deadline. A write is sent again
  only when it is certain that it was not carried out: not one byte left, or the server said
  401. Everything else is the caller's decision, because only the caller knows what it meant.
* ``not_after`` travels to the transport, which checks it once it has a connection: a deposed
  leader's last write stays unsent.
* Every answer tells how late it is where it was given. That is another clock than this machine's,
  for whoever must not rely on one alone (``api_now``).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from typing import Any, TypeVar, Unpack
from urllib.parse import urlencode, urlsplit

import msgspec

from backstay.kube import errors
from backstay.kube.access import Access, Grant
from backstay.kube.addresses import Addresses, Turn, Turns
from backstay.kube.calls import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    TIMEOUT,
    Call,
    Preconditions,
    Reply,
    WriteOptions,
    delete_options,
    query,
    write,
)
from backstay.kube.errors import KubeError
from backstay.kube.limits import RateLimit, VerbLimits
from backstay.kube.lines import Lines
from backstay.kube.resource import PODS, Resource
from backstay.seam import errors as seam_errors
from backstay.seam import waiting
from backstay.seam.transport import Request, Response, Stream, Tls, Transport

T = TypeVar("T", bound=Response | Lines)

_REFUSAL_AT_MOST = 64 * 1024
"""How much of a refusal's body is read when a stream was asked for."""


class _Attempt(msgspec.Struct, frozen=True):
    """A call on its way to one address."""

    call: Call
    base: str
    request: Request
    deadline: float


_Exchange = Callable[[_Attempt], Awaitable[T]]
"""Sends one attempt; ends with a ``TransportError`` if it is not answered."""


_Answer = Coroutine[Any, Any, Reply]


class KubeClient:
    """One cluster, as one user. Safe to share between tasks.

    A verb makes a call of what it is asked for, and ``send`` carries it out, once it is awaited.
    """

    def __init__(
        self,
        transport: Transport,
        access: Access,
        *,
        user_agent: str = "backstay",
        limits: VerbLimits | None = None,
    ) -> None:
        self.access = access
        self.addresses = Addresses(access.server)
        self._transport = transport
        self._user_agent = user_agent
        self._limits = limits or VerbLimits(RateLimit(200, 400), RateLimit(200, 500))
        self._dated: tuple[str, float] | None = None

    def api_now(self) -> datetime | None:
        """The time of day by the clock of whichever API server was the last to answer, counted on
        since then; None if none has told."""
        if self._dated is None:
            return None
        text, heard_at = self._dated
        since = timedelta(seconds=asyncio.get_running_loop().time() - heard_at)
        try:
            return parsedate_to_datetime(text).replace(tzinfo=UTC) + since
        except (ValueError, OverflowError):
            # Whoever stands in between may write anything there.
            return None

    # Reading

    def get(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        resource_version: str | None = None,
        timeout: float = TIMEOUT,
    ) -> _Answer:
        """Without ``resource_version`` this is a quorum read; ``"0"`` accepts any cached state."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        parameters = query(resourceVersion=resource_version) if resource_version else ()
        return self.send(_read(resource, path, parameters, timeout))

    def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        limit: int | None = None,
        token: str | None = None,
        resource_version: str | None = None,
        timeout: float = 30.0,
    ) -> _Answer:
        """One page, or everything without a ``limit``; ``token`` goes on where a page ended."""
        parameters = query(
            labelSelector=labels,
            fieldSelector=fields,
            limit=limit,
            _continue=token or None,
            # A token carries its version; a server refuses to be told it twice.
            resourceVersion=None if token else resource_version,
        )
        path = resource.path(namespace=namespace)
        return self.send(_read(resource, path, parameters, timeout))

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        resource_version: str | None = None,
        initial_events: bool = False,
        seconds: int = 300,
        timeout: float = TIMEOUT,
    ) -> AsyncIterator[Lines]:
        """The events after ``resource_version``, or with ``initial_events`` a streaming list.

        The server ends it after ``seconds``; ``timeout`` bounds the wait for it to begin.
        """
        parameters = query(
            watch="true",
            allowWatchBookmarks="true",
            labelSelector=labels,
            fieldSelector=fields,
            resourceVersion=resource_version,
            timeoutSeconds=seconds,
            sendInitialEvents="true" if initial_events else None,
            resourceVersionMatch="NotOlderThan" if initial_events else None,
        )
        path = resource.path(namespace=namespace)
        call = _read(resource, path, parameters, timeout)
        async with AsyncExitStack() as stack:
            yield await self._open(call, stack)

    # Writing

    def create(
        self,
        resource: Resource,
        body: object,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str | None = None,
        **options: Unpack[WriteOptions],
    ) -> _Answer:
        """POSTs an object; with ``name`` and ``subresource``, to a subresource of one."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return self.send(write("POST", resource, path, body, **options))

    def replace(
        self,
        resource: Resource,
        name: str,
        body: object,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        **options: Unpack[WriteOptions],
    ) -> _Answer:
        """PUTs a whole object; a ``resourceVersion`` in it makes this a compare-and-swap."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return self.send(write("PUT", resource, path, body, **options))

    def merge_patch(
        self,
        resource: Resource,
        name: str,
        patch: Mapping[str, object],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        **options: Unpack[WriteOptions],
    ) -> _Answer:
        """A ``resourceVersion`` in the patch's metadata makes this a compare-and-swap."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return self.send(write("PATCH", resource, path, patch, content_type=MERGE_PATCH, **options))

    def json_patch(
        self,
        resource: Resource,
        name: str,
        operations: Sequence[Mapping[str, object]],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        **options: Unpack[WriteOptions],
    ) -> _Answer:
        """Operations in order, all or none; a ``test`` operation guards the rest."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return self.send(
            write("PATCH", resource, path, operations, content_type=JSON_PATCH, **options)
        )

    def strategic_patch(
        self,
        resource: Resource,
        name: str,
        patch: Mapping[str, object],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        **options: Unpack[WriteOptions],
    ) -> _Answer:
        """Lists are merged by their keys. Built-in kinds only: custom resources refuse it."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return self.send(
            write("PATCH", resource, path, patch, content_type=STRATEGIC_PATCH, **options)
        )

    def apply(
        self,
        resource: Resource,
        name: str,
        body: object,
        *,
        force: bool = False,
        namespace: str | None = None,
        subresource: str | None = None,
        **options: Unpack[WriteOptions],
    ) -> _Answer:
        """Server-side apply: the ``manager`` owns what it names; ``force`` takes it from others."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        extra = query(force="true" if force else "false")
        return self.send(
            write("PATCH", resource, path, body, content_type=APPLY_PATCH, extra=extra, **options)
        )

    def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        conditions: Preconditions | None = None,
        **options: Unpack[WriteOptions],
    ) -> _Answer:
        """Ends with ``Conflict`` when a precondition (uid, resourceVersion) does not hold."""
        path = resource.path(namespace=namespace, name=name)
        body = delete_options(conditions, dry_run=options.get("dry_run", False))
        return self.send(write("DELETE", resource, path, body, **options))

    def delete_collection(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        conditions: Preconditions | None = None,
        **options: Unpack[WriteOptions],
    ) -> _Answer:
        """Deletes what the selectors match; preconditions hold for every one of them."""
        path = resource.path(namespace=namespace)
        extra = query(labelSelector=labels, fieldSelector=fields)
        body = delete_options(conditions, dry_run=options.get("dry_run", False))
        return self.send(write("DELETE", resource, path, body, extra=extra, **options))

    def evict(
        self,
        name: str,
        *,
        namespace: str,
        conditions: Preconditions | None = None,
        **options: Unpack[WriteOptions],
    ) -> _Answer:
        """Deletes a pod if its disruption budgets allow; else ``TooManyRequests`` with causes."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": delete_options(conditions),
        }
        path = PODS.path(namespace=namespace, name=name, subresource="eviction")
        return self.send(write("POST", PODS, path, body, **options))

    # The way there

    async def send(self, call: Call) -> Reply:
        """Carries out any call; the verbs above are ways to build one."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        deadline = now + call.timeout
        if not self._limits.admit_at_once(call.method, call.resource, now):
            await self._admit(call, deadline)
            now = loop.time()
        while True:
            try:
                answer = await self._carry_out(call, deadline, self._whole, began=now)
            except errors.Retryable as error:
                wait = error.retry_after
                if not call.repeatable or wait is None or loop.time() + wait >= deadline:
                    raise
                await asyncio.sleep(wait)
                now = loop.time()
            else:
                if date := answer.headers.get("date"):
                    self._dated = (date, loop.time())
                return Reply(answer.body, call)

    async def _open(self, call: Call, stack: AsyncExitStack) -> Lines:
        """Like ``send``, for an answer that is read as it comes."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        deadline = now + call.timeout
        if not self._limits.admit_at_once(call.method, call.resource, now):
            await self._admit(call, deadline)
            now = loop.time()
        return await self._carry_out(call, deadline, partial(self._lines, stack), began=now)

    async def _admit(self, call: Call, deadline: float) -> None:
        """Waits for the client's own rate limit, but never beyond the call's end."""
        admitted = self._limits.admit(call.method, call.resource, not_after=call.not_after)
        try:
            await waiting.by(deadline, admitted)
        except TimeoutError:
            raise errors.Unreachable(
                f"{call.name}: not sent within {call.timeout:g} s, because of our own rate limit"
            ) from None
        except errors.TooLate:
            raise errors.TooLate(
                f"{call.name}: not sent, because our own rate limit has no room for it before "
                "the moment until which it is allowed"
            ) from None

    async def _carry_out(
        self,
        call: Call,
        deadline: float,
        exchange: _Exchange[T],
        *,
        began: float,
        refused: tuple[Grant, KubeError] | None = None,
    ) -> T:
        """One answer of the API. Gives every address its chance, as far as the call may be sent
        again; each is judged by what comes of it. ``began`` is now.

        Credentials that do not serve are fetched anew, once: a token that the API refuses may have
        been replaced, and so may the authority that signed the certificate which we do not trust.
        In both cases nothing was carried out.
        """
        grant = self.access.standing
        if grant is None:
            grant = await self._grant(call, deadline)
            began = asyncio.get_running_loop().time()
        if refused is not None and grant == refused[0]:
            raise refused[1]
        turns = Turns(self.addresses, began)
        failures: list[KubeError] = []
        while (turn := turns.next(deadline - began)) is not None:
            attempt = self._attempt(call, turn, grant, deadline, now=began)
            try:
                answer = await exchange(attempt)
                if isinstance(answer, Response) and not 200 <= answer.status < 300:
                    raise self._refusal(attempt, answer)
                self.addresses.worked(turn.base)
                return answer
            except (seam_errors.TransportError, errors.ApiError) as error:
                failure = self._unserved(attempt, error)
            if not _may_go_on(call, failure):
                failures = [failure]
                break
            failures.append(failure)
            now = asyncio.get_running_loop().time()
            if isinstance(failure, errors.Unreachable):
                turns.unreached(turn, now - began)
            began = now
        failure = _summed_up(call, failures)
        if isinstance(failure, errors.Unauthorized | errors.Untrusted):
            self.access.refused(grant)
            if refused is None:
                now = asyncio.get_running_loop().time()
                return await self._carry_out(
                    call, deadline, exchange, began=now, refused=(grant, failure)
                )
        raise failure

    async def _grant(self, call: Call, deadline: float) -> Grant:
        try:
            return await waiting.by(deadline, self.access.grant())
        except TimeoutError:
            raise errors.Unreachable(
                f"{call.name}: no credentials within {call.timeout:g} s from {self.access.origin}"
            ) from None

    def _unserved(
        self, attempt: _Attempt, error: seam_errors.TransportError | errors.ApiError
    ) -> KubeError:
        if isinstance(error, seam_errors.TransportError):
            failure = self._failed(attempt, error)
            failure.__cause__ = error
            return failure
        # With 5xx an API server speaks of itself: its etcd is gone, or it is shutting down.
        if error.status.code >= 500:
            self._avoid(attempt.base)
        else:
            self.addresses.worked(attempt.base)
        return error

    def _whole(self, attempt: _Attempt) -> Awaitable[Response]:
        """An answer that is read to its end."""
        return self._transport.request(attempt.request)

    async def _lines(self, stack: AsyncExitStack, attempt: _Attempt) -> Lines:
        """An answer that is read as it comes, and open until ``stack`` is closed."""
        stream = await stack.enter_async_context(self._transport.stream(attempt.request))
        if stream.status != 200:
            body = await _read_refusal(stream, attempt.deadline)
            await stack.aclose()
            raise self._refusal(attempt, Response(stream.status, stream.headers, body))
        return Lines(stream, call=attempt.call.name, failed=partial(self._failed, attempt))

    def _refusal(self, attempt: _Attempt, answer: Response) -> errors.ApiError:
        remedy = ""
        if answer.status == 401:
            remedy = f"the credentials are those of {self.access.origin}: renew or correct them"
        return errors.from_answer(
            answer.status, answer.headers, answer.body, call=attempt.call.name, remedy=remedy
        )

    def _failed(self, attempt: _Attempt, error: seam_errors.TransportError) -> KubeError:
        """What a transport's failure means for a call; the address is avoided for a while."""
        call = attempt.call.name
        if isinstance(error, seam_errors.TooLate):
            return errors.TooLate(
                f"{call}: not sent, because the moment until which it was allowed had passed"
            )
        self._avoid(attempt.base)
        # The transport names a request by its URL, whose query may be very long.
        request = f"{attempt.request.method} {attempt.request.url}"
        there = f"the request to {urlsplit(attempt.base).netloc}"
        said = f"{call}: {str(error).replace(request, there)}"
        if isinstance(error, seam_errors.TlsFailed):
            return errors.Untrusted(
                f"{said}; check the certificate authority, the server name and the client "
                f"certificate of {self.access.origin}"
            )
        if isinstance(error, seam_errors.NotSent):
            return errors.Unreachable(said)
        return errors.OutcomeUnknown(said)

    def _avoid(self, base: str) -> None:
        self.addresses.failed(base, asyncio.get_running_loop().time())

    def _attempt(
        self, call: Call, turn: Turn, grant: Grant, deadline: float, *, now: float
    ) -> _Attempt:
        left = deadline - now
        headers = {"accept": call.accept, "user-agent": self._user_agent, **grant.headers}
        if call.body:
            headers["content-type"] = call.content_type
        request = Request(
            method=call.method,
            url=turn.base + call.path + (_encoded(call.query) if call.query else ""),
            headers=headers,
            body=call.body,
            # With another address to turn to, a silent one may not eat up the whole deadline.
            timeout=left if turn.last or not call.repeatable else left / 2,
            connect_timeout=turn.patience,
            not_after=call.not_after,
            tls=grant.tls if turn.base == self.addresses.configured else self._named(grant.tls),
            proxy=grant.proxy,
        )
        return _Attempt(call, turn.base, request, deadline)

    def _named(self, tls: Tls | None) -> Tls:
        """An API server reached at its own address still proves that it is the configured one."""
        tls = tls or Tls()
        return msgspec.structs.replace(tls, server_name=tls.server_name or self.addresses.host)


def _read(
    resource: Resource, path: str, parameters: tuple[tuple[str, str], ...], timeout: float
) -> Call:
    return Call(method="GET", resource=resource, path=path, query=parameters, timeout=timeout)


# Whoever polls asks for the same again and again.
@lru_cache(maxsize=1024)
def _encoded(query: tuple[tuple[str, str], ...]) -> str:
    return f"?{urlencode(query)}"


def _may_go_on(call: Call, error: KubeError) -> bool:
    """Whether the call may be sent to another address after this.

    What certainly did not reach an API server may; what may have reached one, and what one
    could not do, only where doing it twice is harmless. Any other answer is the answer.
    """
    if isinstance(error, errors.Unreachable | errors.Untrusted):
        return True
    unserved = isinstance(error, errors.ApiError) and error.status.code >= 500
    return call.repeatable and (unserved or isinstance(error, errors.OutcomeUnknown))


def _summed_up(call: Call, failures: Sequence[KubeError]) -> KubeError:
    """One error for a call that no address served. An answer says more than silence; and as
    long as one address may recover, so may the call."""
    if not failures:
        return errors.Unreachable(f"{call.name}: not sent, its {call.timeout:g} s were over")
    best = min(failures, key=_rank)
    if isinstance(best, errors.ApiError):
        return best
    prefix = f"{call.name}: "
    said = dict.fromkeys(str(each).removeprefix(prefix) for each in (best, *failures))
    summary = type(best)(prefix + "; ".join(said))
    summary.__cause__ = best.__cause__
    return summary


def _rank(error: KubeError) -> int:
    order = (errors.ApiError, errors.OutcomeUnknown, errors.Unreachable)
    return next((rank for rank, kind in enumerate(order) if isinstance(error, kind)), len(order))


async def _read_refusal(stream: Stream, deadline: float) -> bytes:
    """The body of a refusal, as far as it comes: its status code is known already."""
    body = b""
    try:
        async with asyncio.timeout_at(deadline):
            while len(body) < _REFUSAL_AT_MOST and (chunk := await stream.read(TIMEOUT)):
                body += chunk
    except (seam_errors.TransportError, TimeoutError):
        pass
    return body

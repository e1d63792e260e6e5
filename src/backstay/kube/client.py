"""The verbs of the Kubernetes API.

Rules:

* Every call has a deadline, counted from the moment it is made, and ends within it.
* What may be repeated without harm (GET) is repeated: on another address when one fails, and
  after ``Retry-After`` when that fits the deadline. A write is sent again only when it is
  certain that it was not carried out: not one byte left, or the server said 401. Everything
  else is the caller's decision, because only the caller knows what it meant.
* ``not_after`` travels to the transport, which checks it once it has a connection: a deposed
  leader's last write stays unsent.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Unpack
from urllib.parse import urlencode, urlsplit

import msgspec

from backstay.kube import errors
from backstay.kube.access import Access, Grant
from backstay.kube.addresses import Addresses
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
from backstay.seam.transport import Request, Response, Stream, Tls, Transport

_READ_AT_MOST = 64 * 1024
"""How much of a refusal's body is read when a stream was asked for."""


class KubeClient:
    """One cluster, as one user. Safe to share between tasks."""

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

    # Reading

    async def get(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        resource_version: str | None = None,
        timeout: float = TIMEOUT,
    ) -> Reply:
        """Without ``resource_version`` this is a quorum read; ``"0"`` accepts any cached state."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        parameters = query(resourceVersion=resource_version)
        return await self.send(_read(resource, path, parameters, timeout))

    async def list(
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
    ) -> Reply:
        """One page, or everything without a ``limit``; ``token`` goes on where a page ended."""
        parameters = query(
            labelSelector=labels,
            fieldSelector=fields,
            limit=limit,
            _continue=token,
            # A token carries its version; a server refuses to be told it twice.
            resourceVersion=None if token else resource_version,
        )
        path = resource.path(namespace=namespace)
        return await self.send(_read(resource, path, parameters, timeout))

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

    async def create(
        self,
        resource: Resource,
        body: object,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str | None = None,
        **options: Unpack[WriteOptions],
    ) -> Reply:
        """POSTs an object; with ``name`` and ``subresource``, to a subresource of one."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return await self.send(write("POST", resource, path, body, options))

    async def replace(
        self,
        resource: Resource,
        name: str,
        body: object,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        **options: Unpack[WriteOptions],
    ) -> Reply:
        """PUTs a whole object; a ``resourceVersion`` in it makes this a compare-and-swap."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return await self.send(write("PUT", resource, path, body, options))

    async def merge_patch(
        self,
        resource: Resource,
        name: str,
        patch: Mapping[str, object],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        **options: Unpack[WriteOptions],
    ) -> Reply:
        """A ``resourceVersion`` in the patch's metadata makes this a compare-and-swap."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return await self.send(
            write("PATCH", resource, path, patch, options, content_type=MERGE_PATCH)
        )

    async def json_patch(
        self,
        resource: Resource,
        name: str,
        operations: Sequence[Mapping[str, object]],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        **options: Unpack[WriteOptions],
    ) -> Reply:
        """Operations in order, all or none; a ``test`` operation guards the rest."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return await self.send(
            write("PATCH", resource, path, operations, options, content_type=JSON_PATCH)
        )

    async def strategic_patch(
        self,
        resource: Resource,
        name: str,
        patch: Mapping[str, object],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        **options: Unpack[WriteOptions],
    ) -> Reply:
        """Lists are merged by their keys. Built-in kinds only: custom resources refuse it."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return await self.send(
            write("PATCH", resource, path, patch, options, content_type=STRATEGIC_PATCH)
        )

    async def apply(
        self,
        resource: Resource,
        name: str,
        body: object,
        *,
        force: bool = False,
        namespace: str | None = None,
        subresource: str | None = None,
        **options: Unpack[WriteOptions],
    ) -> Reply:
        """Server-side apply: the ``manager`` owns what it names; ``force`` takes it from others."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        extra = query(force="true" if force else "false")
        return await self.send(
            write("PATCH", resource, path, body, options, content_type=APPLY_PATCH, extra=extra)
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        conditions: Preconditions | None = None,
        **options: Unpack[WriteOptions],
    ) -> Reply:
        """Ends with ``Conflict`` when a precondition (uid, resourceVersion) does not hold."""
        path = resource.path(namespace=namespace, name=name)
        return await self.send(
            write("DELETE", resource, path, delete_options(conditions or {}), options)
        )

    async def delete_collection(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        conditions: Preconditions | None = None,
        **options: Unpack[WriteOptions],
    ) -> Reply:
        """Deletes what the selectors match; preconditions hold for every one of them."""
        path = resource.path(namespace=namespace)
        extra = query(labelSelector=labels, fieldSelector=fields)
        body = delete_options(conditions or {})
        return await self.send(write("DELETE", resource, path, body, options, extra=extra))

    async def evict(
        self,
        name: str,
        *,
        namespace: str,
        conditions: Preconditions | None = None,
        **options: Unpack[WriteOptions],
    ) -> Reply:
        """Deletes a pod if its disruption budgets allow; else ``TooManyRequests`` with causes."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": delete_options(conditions or {}),
        }
        path = PODS.path(namespace=namespace, name=name, subresource="eviction")
        return await self.send(write("POST", PODS, path, body, options))

    # The way there

    async def send(self, call: Call) -> Reply:
        """Carries out any call; the verbs above are ways to build one."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + call.timeout
        await self._admit(call, deadline)
        while True:
            try:
                answer = await self._answer(call, deadline)
            except (errors.TooManyRequests, errors.ServiceUnavailable) as error:
                wait = error.retry_after
                if not call.repeatable or wait is None or loop.time() + wait >= deadline:
                    raise
                await asyncio.sleep(wait)
            else:
                return Reply(body=answer.body, call=call.name)

    async def _answer(self, call: Call, deadline: float) -> Response:
        """One answer of the API; an identity that it refuses is fetched anew, once."""
        grant, answer = await self._reach(call, deadline)
        if answer.status == 401:
            self.access.refused(grant)
            if await self._grant(call, deadline) != grant:
                grant, answer = await self._reach(call, deadline)
        if not 200 <= answer.status < 300:
            raise errors.from_answer(answer.status, answer.headers, answer.body, call=call.name)
        return answer

    async def _reach(self, call: Call, deadline: float) -> tuple[Grant, Response]:
        """Gives every address its chance, as far as the call may be sent again."""
        loop = asyncio.get_running_loop()
        candidates = self.addresses.order(loop.time())
        while True:
            base = candidates.pop(0)
            grant = await self._grant(call, deadline)
            request = self._request(call, base, grant, deadline, others=bool(candidates))
            try:
                answer = await self._transport.request(request)
            except seam_errors.TransportError as error:
                failure = self._failed(call, base, error)
                if not candidates or not _may_repeat(call, error) or loop.time() >= deadline:
                    raise failure from error
            else:
                self.addresses.worked(base)
                return grant, answer

    async def _open(self, call: Call, stack: AsyncExitStack) -> Lines:
        """Like ``_reach``, for an answer that is read as it comes."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + call.timeout
        await self._admit(call, deadline)
        candidates = self.addresses.order(loop.time())
        while True:
            base = candidates.pop(0)
            grant = await self._grant(call, deadline)
            request = self._request(call, base, grant, deadline, others=bool(candidates))
            try:
                stream = await stack.enter_async_context(self._transport.stream(request))
            except seam_errors.TransportError as error:
                failure = self._failed(call, base, error)
                if not candidates or loop.time() >= deadline:
                    raise failure from error
                continue
            self.addresses.worked(base)
            if stream.status != 200:
                if stream.status == 401:
                    self.access.refused(grant)
                raise errors.from_answer(
                    stream.status, stream.headers, await _refusal(stream), call=call.name
                )
            return Lines(stream, call=call.name, failed=partial(self._failed, call, base))

    async def _admit(self, call: Call, deadline: float) -> None:
        """Waits for the client's own rate limit, but never beyond the call's end."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._limits.admit(call.method, call.resource, not_after=call.not_after)
        except TimeoutError:
            raise errors.Unreachable(
                f"{call.name}: not sent within {call.timeout:g} s, because of our own rate limit"
            ) from None

    async def _grant(self, call: Call, deadline: float) -> Grant:
        try:
            async with asyncio.timeout_at(deadline):
                return await self.access.grant()
        except TimeoutError:
            raise errors.Unreachable(
                f"{call.name}: no credentials within {call.timeout:g} s from {self.access.origin}"
            ) from None

    def _request(
        self, call: Call, base: str, grant: Grant, deadline: float, *, others: bool
    ) -> Request:
        left = max(0.0, deadline - asyncio.get_running_loop().time())
        headers = {"accept": call.accept, "user-agent": self._user_agent, **grant.headers}
        if call.body:
            headers["content-type"] = call.content_type
        return Request(
            method=call.method,
            url=base + call.path + (f"?{urlencode(call.query)}" if call.query else ""),
            headers=headers,
            body=call.body,
            # With another address to turn to, a silent one may not eat up the whole deadline.
            timeout=left / 2 if others and call.repeatable else left,
            connect_timeout=min(left, self.addresses.connect_timeout),
            not_after=call.not_after,
            tls=self._tls(base, grant.tls),
            proxy=grant.proxy,
        )

    def _tls(self, base: str, tls: Tls | None) -> Tls | None:
        """An API server reached at its own address still proves that it is the configured one."""
        if base == self.addresses.configured or not base.startswith("https:"):
            return tls
        tls = tls or Tls()
        return msgspec.structs.replace(tls, server_name=tls.server_name or self.addresses.host)

    def _failed(self, call: Call, base: str, error: seam_errors.TransportError) -> KubeError:
        """What a transport's failure means for a call; the address is avoided for a while."""
        if isinstance(error, seam_errors.TooLate):
            return errors.TooLate(f"{call.name}: not sent, the time until which it may was over")
        self.addresses.failed(base, asyncio.get_running_loop().time())
        where = f"{call.name} at {urlsplit(base).netloc}"
        if isinstance(error, seam_errors.TlsFailed):
            return errors.Untrusted(f"{where}: {error}")
        if isinstance(error, seam_errors.NotSent):
            return errors.Unreachable(f"{where}: {error}")
        return errors.OutcomeUnknown(f"{where}: {error}")


def _read(
    resource: Resource, path: str, parameters: tuple[tuple[str, str], ...], timeout: float
) -> Call:
    return Call(method="GET", resource=resource, path=path, query=parameters, timeout=timeout)


def _may_repeat(call: Call, error: seam_errors.TransportError) -> bool:
    if isinstance(error, seam_errors.TooLate):
        return False
    return call.repeatable or isinstance(error, seam_errors.NotSent)


async def _refusal(stream: Stream) -> bytes:
    """The body of a refusal, as far as it comes: its status code is known already."""
    body = b""
    try:
        while len(body) < _READ_AT_MOST and (chunk := await stream.read(TIMEOUT)):
            body += chunk
    except seam_errors.TransportError:
        pass
    return body

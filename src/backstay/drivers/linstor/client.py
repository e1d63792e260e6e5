"""Linstor: questions to LINSTOR's controllers, asked of whichever answers.

* Every call has a deadline and ends within it. Each controller has its share of the time that is
  left; the one that answered last is asked first.
* Whoever cannot be reached, fails, redirects or answers with something that is not LINSTOR's is
  left for the next one. Only what LINSTOR itself says is not there is final.
* A question whose connection was lost is asked once more: nothing that we ask changes anything.
* Nothing is remembered but who answered: what is read is read anew each time, because decisions
  rest on it. Within one call, what many resources have in common is read once.
* A redirect is not followed: it would carry our credentials to where nobody sent them.
"""

import asyncio
import logging
import re
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from backstay.drivers.linstor import wire
from backstay.drivers.linstor.access import Access
from backstay.drivers.linstor.credentials import Credentials
from backstay.drivers.linstor.disks import disks_from
from backstay.drivers.linstor.errors import (
    Garbled,
    LinstorError,
    Misconfigured,
    NotServed,
    NotThere,
    Unreachable,
    joined,
)
from backstay.drivers.linstor.refusals import refusal
from backstay.drivers.linstor.wire import (
    QUORUM,
    TWO_PRIMARIES,
    Definition,
    Options,
    Replica,
    Satellite,
)
from backstay.kube.access import Grant
from backstay.model.drbd import DiskSight
from backstay.seam import waiting
from backstay.seam.errors import ConnectionLost, TlsFailed, TransportError
from backstay.seam.files import Files
from backstay.seam.tasks import side_by_side
from backstay.seam.transport import Request, Response, Stream, Transport

TIMEOUT = 6.0

_CONNECT = 2.0
_MOST_BYTES = 64 * 1024 * 1024
_REFUSAL_TIMEOUT = 2.0

# So that the request line stays below the 8 KiB that servers commonly accept.
_DEFINITIONS_AT_ONCE = 64

# How many questions of one call are under way at once.
_SIDE_BY_SIDE = 32

_ASKS_FOR_JSON = {"Accept": "application/json", "Accept-Encoding": "gzip"}

# What LINSTOR can have as a name is less than this; what is not even this is no part of a URL.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")

# Where the props of the controller are kept beside those of groups, none of which has no name.
_CONTROLLER = ""

# Where the settings of connections between nodes are kept beside those of resources.
_NODES = ""

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

_log = logging.getLogger("backstay.linstor")


class Linstor:
    """See the module. Every method raises ``LinstorError``. Safe to share between tasks."""

    def __init__(self, transport: Transport, files: Files, access: Access) -> None:
        self.controllers = access.controllers
        self._transport = transport
        self._credentials = Credentials(files, access)
        self._first = access.controllers[0]
        for controller in access.exposed:
            _log.warning(
                "the login for LINSTOR goes to %s without TLS, for everybody on the way to read: "
                "use https there", controller,
            )  # fmt: skip

    # Questions

    async def replicas(self, resource: str, *, timeout: float = TIMEOUT) -> tuple[Replica, ...]:
        """All of them, as the controller knows them; it asks no satellite for this."""
        name = _known(resource)
        path = f"/v1/resource-definitions/{name}/resources"
        read = partial(wire.replicas_from, resource=name)
        return await self._ask(path, read, deadline=_in(timeout))

    async def definition(self, resource: str, *, timeout: float = TIMEOUT) -> Definition:
        return await self._definition(_known(resource), _in(timeout))

    async def options(self, resource: str, *, timeout: float = TIMEOUT) -> Options:
        """What is in effect for one resource."""
        found = (await self.options_of([resource], timeout=timeout))[resource.lower()]
        if isinstance(found, LinstorError):
            raise found
        return found

    async def options_of(
        self, resources: Iterable[str], *, timeout: float = TIMEOUT
    ) -> dict[str, Options | LinstorError]:
        """The same for many, by their names in lower case, and for each that has none, why."""
        deadline = _in(timeout)
        names = {name.lower() for name in resources}
        async with asyncio.TaskGroup() as group:
            settings = group.create_task(self._settings(names, deadline))
            connections = group.create_task(self._connections(names, deadline))
        pairs = connections.result()
        return {
            name: _with_pairs(found, pairs[name], pairs[_NODES])
            if isinstance(found, Options)
            else found
            for name, found in settings.result().items()
        }

    async def satellites(self, *, timeout: float = TIMEOUT) -> tuple[Satellite, ...]:
        """All nodes, with or without replicas."""
        return await self._ask("/v1/nodes", wire.satellites_from, deadline=_in(timeout))

    async def disks(
        self, *, nodes: Iterable[str] = (), resources: Iterable[str] = (), timeout: float = TIMEOUT
    ) -> tuple[DiskSight, ...]:
        """Which replicas have the data: those of these nodes, or of these resources."""
        asked = [*(("nodes", name) for name in nodes), *(("resources", name) for name in resources)]
        path = f"/v1/view/resources?{urlencode(asked)}"
        return await self._ask(path, disks_from, deadline=_in(timeout))

    async def version(self, *, of: str | None = None, timeout: float = TIMEOUT) -> str:
        """Of whichever controller answers, or of this one."""
        return await self._ask(
            "/v1/controller/version", wire.version_from, deadline=_in(timeout), only=of
        )

    async def _definition(self, name: str, deadline: float) -> Definition:
        read = partial(wire.definition_from, resource=name)
        return await self._ask(f"/v1/resource-definitions/{name}", read, deadline=deadline)

    async def _definitions(
        self, names: set[str], deadline: float
    ) -> dict[str, Definition | LinstorError]:
        """Of each, or why not. What a list does not settle is asked one by one: it is refused as a
        whole for one name that LINSTOR finds impossible, and each should answer for itself."""
        found: dict[str, Definition | LinstorError] = {
            name: _no_such(name) for name in names if not _NAME.fullmatch(name)
        }
        asked = sorted(names - found.keys())
        starts = range(0, len(asked), _DEFINITIONS_AT_ONCE) if len(asked) > 1 else ()
        batches = [tuple(asked[start : start + _DEFINITIONS_AT_ONCE]) for start in starts]
        answers = await _side_by_side(
            {batch: partial(self._listed, batch, deadline) for batch in batches}
        )
        for batch, answer in answers.items():
            if isinstance(answer, Unreachable | Misconfigured):
                found |= dict.fromkeys(batch, answer)
            elif not isinstance(answer, LinstorError):
                found |= answer
        left = [name for name in asked if name not in found]
        return found | await _side_by_side(
            {name: partial(self._definition, name, deadline) for name in left}
        )

    async def _listed(self, names: Sequence[str], deadline: float) -> dict[str, Definition]:
        query = urlencode([("resource_definitions", name) for name in names])
        path = f"/v1/resource-definitions?{query}"
        listed = await self._ask(path, wire.definitions_from, deadline=deadline)
        return {name: listed[name] for name in names if name in listed}

    async def _group_props(self, group: str, deadline: float) -> Mapping[str, str]:
        read = partial(wire.group_props_from, group=group)
        try:
            return await self._ask(
                f"/v1/resource-groups/{quote(group, safe='')}", read, deadline=deadline
            )
        except NotThere as error:
            # The resource is there; it is what LINSTOR says of it that does not fit together.
            raise Garbled(f"the resource group {group!r}: {error}") from None

    async def _settings(
        self, names: set[str], deadline: float
    ) -> dict[str, Options | LinstorError]:
        """What is in effect for each, but for what its connections have for themselves."""
        definitions = await self._definitions(names, deadline)
        readable = [each for each in definitions.values() if isinstance(each, Definition)]
        questions = {
            group: partial(self._group_props, group, deadline)
            for group in sorted({each.group for each in readable if each.group})
        }
        if readable:
            questions[_CONTROLLER] = partial(self._controller_props, deadline)
        props = await _side_by_side(questions)
        return {name: _resolved(found, props) for name, found in definitions.items()}

    async def _connections(
        self, names: set[str], deadline: float
    ) -> dict[str, wire.Pairs | LinstorError]:
        """What is set for the connections of each, and for those between nodes."""
        possible = sorted(name for name in names if _NAME.fullmatch(name))
        paths = {name: f"/v1/resource-definitions/{name}/resource-connections" for name in possible}
        if possible:
            paths[_NODES] = "/v1/node-connections"
        return await _side_by_side(
            {of: partial(self._pairs, path, deadline) for of, path in paths.items()}
        )

    async def _pairs(self, path: str, deadline: float) -> wire.Pairs:
        try:
            return await self._ask(path, wire.pairs_from, deadline=deadline)
        except NotServed:
            # From before there were settings of connections between nodes.
            return {}

    async def _controller_props(self, deadline: float) -> Mapping[str, str]:
        return await self._ask("/v1/controller/properties", wire.properties_from, deadline=deadline)

    # Controllers

    def order(self) -> list[str]:
        """The controllers as they should be tried now."""
        return [self._first, *(each for each in self.controllers if each != self._first)]

    def answered(self, controller: str) -> None:
        """It is the one to ask first from now on."""
        self._first = controller

    @asynccontextmanager
    async def stream(
        self, controller: str, path: str, *, headers: Mapping[str, str], timeout: float
    ) -> AsyncIterator[Stream]:
        """An answer of this controller that is read as it comes; ``timeout`` bounds the wait for
        its head. What goes wrong with it later is the transport's to say."""
        grant = await self._credentials.grant()
        request = _request(controller, path, grant, timeout=timeout, headers=headers)
        async with AsyncExitStack() as stack:
            try:
                stream = await stack.enter_async_context(self._transport.stream(request))
            except TransportError as error:
                if isinstance(error, TlsFailed):
                    await self._credentials.others_than(grant)
                raise Unreachable(f"LINSTOR: {error}") from None
            if stream.status == 401:
                await self._credentials.others_than(grant)
            if stream.status != 200:
                raise await _refused(controller, stream)
            yield stream

    async def _ask(
        self,
        path: str,
        read: Callable[[bytes], T],
        *,
        deadline: float,
        only: str | None = None,
    ) -> T:
        loop = asyncio.get_running_loop()
        order = self.order() if only is None else [only]
        failures: list[LinstorError] = []
        for number, controller in enumerate(order):
            share = (deadline - loop.time()) / (len(order) - number)
            if share <= 0:
                failures.append(Unreachable(f"LINSTOR: there was no time left to ask {controller}"))
                break
            try:
                body = await self._get(controller, path, loop.time() + share)
                answer = _read(controller, body, read)
            except (NotThere, NotServed):
                self.answered(controller)
                raise
            except LinstorError as error:
                failures.append(error)
            else:
                self.answered(controller)
                return answer
        raise joined(failures)

    async def _get(self, controller: str, path: str, deadline: float) -> bytes:
        """The body of a good answer. If our credentials were replaced meanwhile, with the new."""
        grant = await _by(deadline, self._credentials.grant())
        try:
            return await self._send(controller, path, grant, deadline)
        except _CredentialsRefused as refused:
            newer = await _by(deadline, self._credentials.others_than(grant))
            if newer is None:
                raise refused.error from None
        try:
            return await self._send(controller, path, newer, deadline)
        except _CredentialsRefused as refused:
            raise refused.error from None

    async def _send(self, controller: str, path: str, grant: Grant, deadline: float) -> bytes:
        try:
            answer = await self._request(controller, path, grant, deadline)
        except TlsFailed as error:
            raise _CredentialsRefused(Unreachable(f"LINSTOR: {error}")) from None
        except TransportError as error:
            raise Unreachable(f"LINSTOR: {error}") from None
        if answer.status == 200:
            return answer.body
        refused = refusal(controller, answer.status, answer.headers, answer.body)
        raise _CredentialsRefused(refused) if answer.status == 401 else refused

    async def _request(self, controller: str, path: str, grant: Grant, deadline: float) -> Response:
        """Once more if its connection is lost: that was kept from before, as a rule, and its other
        end has gone since."""

        def request() -> Request:
            timeout = max(0.0, deadline - asyncio.get_running_loop().time())
            return _request(controller, path, grant, timeout=timeout, headers=_ASKS_FOR_JSON)

        try:
            return await self._transport.request(request())
        except ConnectionLost:
            return await self._transport.request(request())


class _CredentialsRefused(Exception):
    """By what we take for a controller, or by us: ``error`` is what to say if we have no others."""

    def __init__(self, error: LinstorError) -> None:
        super().__init__(str(error))
        self.error = error


def _request(
    controller: str, path: str, grant: Grant, *, timeout: float, headers: Mapping[str, str]
) -> Request:
    return Request(
        method="GET",
        url=f"{controller}{path}",
        headers={**headers, **grant.headers},
        timeout=timeout,
        connect_timeout=_CONNECT,
        tls=grant.tls if controller.startswith("https:") else None,
        max_body=_MOST_BYTES,
    )


def _read(controller: str, body: bytes, read: Callable[[bytes], T]) -> T:
    try:
        return read(body)
    except wire.Unreadable as error:
        raise Garbled(f"{error}: {controller} does not answer as LINSTOR does") from None


async def _refused(controller: str, stream: Stream) -> LinstorError:
    """Why there is no stream, in LINSTOR's own words if they come soon."""
    try:
        body = await stream.read(_REFUSAL_TIMEOUT)
    except TransportError:
        body = b""
    return refusal(controller, stream.status, stream.headers, body)


async def _side_by_side(
    questions: Mapping[K, Callable[[], Awaitable[T]]],
) -> dict[K, T | LinstorError]:
    """The answer to each question, or why there is none."""

    async def settled(question: Callable[[], Awaitable[T]]) -> T | LinstorError:
        try:
            return await question()
        except LinstorError as error:
            return error

    answers = await side_by_side(questions.values(), settled, at_once=_SIDE_BY_SIDE)
    return dict(zip(questions, answers, strict=True))


def _resolved(
    definition: Definition | LinstorError, props: Mapping[str, Mapping[str, str] | LinstorError]
) -> Options | LinstorError:
    """What is set nearest counts; what cannot be read matters only if it could still count."""
    if isinstance(definition, LinstorError):
        return definition
    layers = [definition.props]
    for place in (definition.group, _CONTROLLER) if definition.group else (_CONTROLLER,):
        if all(any(key in layer for layer in layers) for key in (QUORUM, TWO_PRIMARIES)):
            break
        layer = props[place]
        if isinstance(layer, LinstorError):
            return layer
        layers.append(layer)
    return wire.options_from(layers)


def _with_pairs(
    options: Options, of_resource: wire.Pairs | LinstorError, of_nodes: wire.Pairs | LinstorError
) -> Options | LinstorError:
    if isinstance(of_resource, LinstorError):
        return of_resource
    if isinstance(of_nodes, LinstorError):
        return of_nodes
    return wire.with_pairs(options, of_resource, of_nodes)


async def _by(deadline: float, credentials: Coroutine[Any, Any, T]) -> T:
    try:
        return await waiting.by(deadline, credentials)
    except TimeoutError:
        raise Misconfigured("the credentials for LINSTOR could not be read in time") from None


def _known(resource: str) -> str:
    """Its name as we write it. Raises ``NotThere`` for what cannot be the name of a resource."""
    if not _NAME.fullmatch(resource):
        raise _no_such(resource)
    return resource.lower()


def _no_such(name: str) -> NotThere:
    return NotThere(f"LINSTOR can have no resource with the name {name[:100]!r}")


def _in(timeout: float) -> float:
    return asyncio.get_running_loop().time() + timeout

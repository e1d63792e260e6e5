"""Events have two groups: the same objects are ``v1`` and ``events.k8s.io/v1``, in other words.

They are kept as ``v1``. A request for the other group is answered as if it were for that one, with
the names of fields exchanged on the way in and on the way out. Who owns which field is told in the
names of ``v1``.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec

from backstay.seam.serve import Answer, Inbound
from backstay.sim.api.kinds import Object
from backstay.sim.api.reading import Watcher

GROUP = "events.k8s.io"
_VERSION = "events.k8s.io/v1"
_CORE, _GROUP = "/api/v1/", "/apis/events.k8s.io/v1/"
_TO_CORE = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_FROM_CORE = {core: name for name, core in _TO_CORE.items()}
_encode = msgspec.json.Encoder().encode


def as_core(inbound: Inbound) -> Inbound:
    """The same request in the words of ``v1``."""
    query = inbound.query
    for name, core in _TO_CORE.items():
        query = query.replace(f"{name}.", f"{core}.").replace(f"={name}%3D", f"={core}%3D")
    return msgspec.structs.replace(
        inbound,
        path=_CORE + inbound.path.removeprefix(_GROUP),
        query=query,
        body=_core_body(inbound.body),
    )


def _core_body(body: bytes) -> bytes:
    try:
        sent = msgspec.json.decode(body)
    except msgspec.MsgspecError:
        # Whoever answers says what is wrong with it.
        return body
    if isinstance(sent, list):
        return _encode([_core_operation(each) for each in sent])
    if not isinstance(sent, dict):
        return body
    renamed = {_TO_CORE.get(name, name): value for name, value in sent.items()}
    if renamed.get("apiVersion") == _VERSION:
        renamed["apiVersion"] = "v1"
    return _encode(renamed)


def _core_operation(operation: Any) -> Any:
    """One step of a JSON patch, which names fields in its paths."""
    if not isinstance(operation, dict):
        return operation
    made = dict(operation)
    for field in ("path", "from"):
        path = made.get(field)
        if isinstance(path, str) and path.startswith("/"):
            first, slash, rest = path[1:].partition("/")
            made[field] = f"/{_TO_CORE.get(first, first)}{slash}{rest}"
    return made


def from_core(answer: Answer) -> Answer:
    """The answer to it, in the words of the other group."""
    if isinstance(answer.body, bytes):
        made = _encode(_renamed(msgspec.json.decode(answer.body)))
        return msgspec.structs.replace(answer, body=made)
    assert isinstance(answer.body, Watcher | AsyncGenerator)
    return msgspec.structs.replace(answer, body=_lines(answer.body))


async def _lines(body: Watcher | AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(body) as chunks:
        async for chunk in chunks:
            events = (msgspec.json.decode(line) for line in chunk.splitlines())
            changed = ({**event, "object": _renamed(event["object"])} for event in events)
            yield b"".join(_encode(event) + b"\n" for event in changed)


def _renamed(obj: Object) -> Object:
    kind = obj.get("kind")
    if kind == "EventList":
        items = [_exchanged(item) for item in obj["items"]]
        return {**obj, "apiVersion": _VERSION, "items": items}
    return {**_exchanged(obj), "apiVersion": _VERSION} if kind == "Event" else obj


def _exchanged(event: Object) -> Object:
    made = {_FROM_CORE.get(name, name): value for name, value in event.items()}
    # Here these are not told when there is nothing to tell.
    for field in ("reportingController", "reportingInstance"):
        if not made.get(field):
            made.pop(field, None)
    return made

"""Endpoints: what a controller answers over HTTP. Nothing can be changed here.

=============  =======================================================================
``/healthz``   200 while the process does its work; else 500 and why. A prober restarts it.
``/readyz``    200 while the view of the cluster is complete and fresh, also on standby; else 503.
``/metrics``   numbers, for Prometheus
``/status``    nodes, their lives, what is held and why, as JSON
=============  =======================================================================

The first two are for probes, which show no token: they are open to everybody and name nothing.
Below their verdict they say how things stand. What a restart would not better is no reason for one:
a controller that cannot reach LINSTOR says so, and goes on.
The others show what an incident shows as well (names and reasons, no secrets, no contents of
objects), and where others than this machine can reach them, ``Callers`` says who may.
The handler reads a ``Report`` and nothing else, so it answers in a simulation as in a cluster.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from backstay.record.callers import Callers
from backstay.record.metrics import CONTENT_TYPE
from backstay.seam.serve import Answer, Handler, Inbound
from backstay.seam.transport import NO_HEADERS

_JSON: Mapping[str, str] = {"content-type": "application/json"}
_TEXT: Mapping[str, str] = {"content-type": "text/plain; charset=utf-8"}

OPEN = ("/healthz", "/readyz")
CLOSED = ("/metrics", "/status")


class HeldWorkload(msgspec.Struct, frozen=True):
    workload: str
    code: str
    sentence: str
    next: str = ""


class NodeStatus(msgspec.Struct, frozen=True):
    """A node that is not healthy."""

    node: str
    state: str
    code: str
    sentence: str
    incident: str = ""
    held: tuple[HeldWorkload, ...] = ()


class ControllerStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What ``/status`` says. ``nodes`` counts all of them by state; ``trouble`` lists the others
    than healthy ones."""

    version: str
    identity: str
    mode: str
    leading: bool
    leader: str
    epoch: int
    view_age: float | None
    """Seconds; None as long as there is no view at all."""
    nodes: Mapping[str, int]
    trouble: tuple[NodeStatus, ...]
    notes: tuple[str, ...] = ()
    """What else a person should know: an old recording that cannot be written, for one."""


class Report(Protocol):
    """What a controller can say of itself."""

    def unhealthy(self) -> str:
        """Why the process should be restarted, without names; empty if it should not."""
        ...

    def unready(self) -> str:
        """Why its view cannot be relied on, without names; empty if it can."""
        ...

    def standing(self) -> tuple[str, ...]:
        """How things stand with what it hears, and with who leads: sentences without names."""
        ...

    def metrics(self) -> bytes:
        """The text exposition, up to date."""
        ...

    def status(self) -> ControllerStatus: ...


def endpoints(report: Report, callers: Callers | None = None) -> Handler:
    """The handler of a controller's own address; without ``callers`` everything is open."""

    async def handle(inbound: Inbound) -> Answer:
        if inbound.method not in ("GET", "HEAD"):
            return _text(405, "There is nothing to change here.", {"allow": "GET, HEAD"})
        answer = await _refusal(callers, inbound) or _answer(report, inbound.path)
        if inbound.method == "HEAD":
            return Answer(status=answer.status, headers=answer.headers)
        return answer

    return handle


async def _refusal(callers: Callers | None, inbound: Inbound) -> Answer | None:
    if inbound.path not in (*OPEN, *CLOSED):
        return _text(404, "Ask for /healthz, /readyz, /metrics or /status.")
    if callers is None or inbound.path in OPEN:
        return None
    refusal = await callers.refuse(inbound.headers.get("authorization", ""), inbound.path)
    return None if refusal is None else _text(refusal.status, refusal.sentence, refusal.headers)


def _answer(report: Report, path: str) -> Answer:
    match path:
        case "/healthz":
            return _verdict(report.unhealthy(), 500, report)
        case "/readyz":
            return _verdict(report.unready(), 503, report)
        case "/metrics":
            return Answer(headers={"content-type": CONTENT_TYPE}, body=report.metrics())
        case _:
            return Answer(headers=_JSON, body=msgspec.json.encode(report.status()))


def _verdict(problem: str, otherwise: int, report: Report) -> Answer:
    lines = (problem or "ok", *report.standing())
    return _text(otherwise if problem else 200, "\n".join(lines))


def _text(status: int, words: str, headers: Mapping[str, str] = NO_HEADERS) -> Answer:
    return Answer(status=status, headers={**_TEXT, **headers}, body=f"{words}\n".encode())

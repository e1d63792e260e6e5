"""The embedded API and a real one, asked the same things.

``BothApis.same`` sends a request to both and compares the answers: code, every word of a refusal
and of its causes, and the object. What no two servers could have in common is taken away first:
uids, times and versions. Managed fields are compared where a test asks for it.
"""

import asyncio
import http.client
import re
import ssl
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from backstay.seam.clock import WallClock
from backstay.seam.serve import Answer, Inbound
from backstay.seam.system import SystemClock, SystemRng
from backstay.sim.api.server import ApiServer
from backstay.sim.api.store import Store
from harness.cluster import ControlPlane

Json = dict[str, Any]

JSON = "application/json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

_AGENT = "differential/1"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_AGES = frozenset({"Age", "Created At", "Duration", "First Seen", "Last Seen"})
_PERIOD = 0.05
_PATIENCE = 30.0


class Reply(NamedTuple):
    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def message(self) -> str:
        return str(self.body["message"])

    @property
    def causes(self) -> list[tuple[str, str, str]]:
        """Reason, field and message of each."""
        causes = (self.body.get("details") or {}).get("causes") or ()
        return [(c.get("reason", ""), c.get("field", ""), c.get("message", "")) for c in causes]


class Embedded:
    """The embedded API, without any network."""

    def __init__(self, wall: WallClock | None = None, store: Store | None = None) -> None:
        self.server = ApiServer(wall=wall or SystemClock(), rng=SystemRng(7), store=store)

    async def call(
        self, method: str, path: str, body: Any = None, *, content: str = JSON, accept: str = JSON
    ) -> Reply:
        answer = await self._handle(method, path, body, content, accept)
        assert isinstance(answer.body, bytes), "a watch is read with ``watch``"
        return Reply(answer.status, _decoded(answer.body), answer.headers)

    async def watch(self, path: str, *, accept: str = JSON) -> Any:
        """The lines of a watch, as they come."""
        answer = await self._handle("GET", path, None, JSON, accept)
        assert not isinstance(answer.body, bytes), answer.body
        return answer.body

    async def _handle(self, method: str, path: str, body: Any, content: str, accept: str) -> Answer:
        path, _, query = path.partition("?")
        headers = {"content-type": content, "accept": accept, "user-agent": _AGENT}
        encoded = msgspec.json.encode(body) if body is not None else b""
        inbound = Inbound(method=method, path=path, query=query, headers=headers, body=encoded)
        return await self.server.handle(inbound)


class Real:
    """A real API server, as admin."""

    def __init__(self, plane: ControlPlane) -> None:
        self._host = plane.url.removeprefix("https://")
        self._token = plane.identities.admin_token
        self._trust = ssl.create_default_context(cadata=plane.identities.ca.decode())

    async def call(
        self, method: str, path: str, body: Any = None, *, content: str = JSON, accept: str = JSON
    ) -> Reply:
        return await asyncio.to_thread(self._call, method, path, body, content, accept)

    def _call(self, method: str, path: str, body: Any, content: str, accept: str) -> Reply:
        connection = http.client.HTTPSConnection(self._host, timeout=15, context=self._trust)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content,
                   "Accept": accept, "User-Agent": _AGENT}  # fmt: skip
        try:
            encoded = msgspec.json.encode(body) if body is not None else None
            connection.request(method, path, encoded, headers)
            answer = connection.getresponse()
            return Reply(answer.status, _decoded(answer.read()), dict(answer.getheaders()))
        finally:
            connection.close()


def _decoded(body: bytes) -> Any:
    return msgspec.json.decode(body) if body[:1] in (b"{", b"[") else body.decode()


def normal(value: Any, *, managed: bool = False) -> Any:
    """Without what differs between any two servers."""
    if isinstance(value, dict):
        dropped = {"resourceVersion"} if managed else {"resourceVersion", "managedFields"}
        made = {k: normal(v, managed=managed) for k, v in value.items() if k not in dropped}
        causes = (made.get("details") or {}).get("causes") if "details" in made else None
        if causes is not None:
            causes.sort(key=lambda cause: msgspec.json.encode(cause, order="sorted"))
            if len(causes) > 1:
                # Several are listed in the message too, in an order that is nobody's.
                made["message"] = made["message"].partition("[")[0]
        return made
    if isinstance(value, list):
        return [normal(item, managed=managed) for item in value]
    return _UID.sub("<uid>", _TIME.sub("<time>", value)) if isinstance(value, str) else value


class BothApis:
    """One of each, with the same namespace in both."""

    def __init__(self, real: Real, embedded: Embedded, namespace: str) -> None:
        self.real = real
        self.embedded = embedded
        self.namespace = namespace

    async def same(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        managed: bool = False,
        content: str = JSON,
        accept: str = JSON,
    ) -> Reply:
        """Sends it to both; the embedded one's answer, which must be the real one's too."""
        real = await self.real.call(method, path, body, content=content, accept=accept)
        ours = await self.embedded.call(method, path, body, content=content, accept=accept)
        _compare(f"{method} {path} {body}", real, ours, managed)
        return ours

    async def same_update(self, path: str, change: Callable[[Json], Any]) -> Reply:
        """Reads, changes and writes back, each on its own."""
        replies = []
        for api in (self.real, self.embedded):
            found = (await api.call("GET", path)).body
            change(found)
            replies.append(await api.call("PUT", path, found))
        _compare(f"PUT {path}", replies[0], replies[1], managed=False)
        return replies[1]

    async def same_table(self, path: str) -> list[list[Any]]:
        """The cells, which must be the same but for ages; so must the columns."""
        real = _shown((await self.real.call("GET", path, accept=TABLE)).body)
        ours = _shown((await self.embedded.call("GET", path, accept=TABLE)).body)
        assert ours == real
        cells: list[list[Any]] = ours["rows"]
        return cells

    async def until_real(self, path: str, done: Callable[[Reply], bool]) -> Reply:
        """Waits for what the real controllers do; the embedded ones have no clock here."""
        async with asyncio.timeout(_PATIENCE):
            while True:
                reply = await self.real.call("GET", path)
                if done(reply):
                    return reply
                await asyncio.sleep(_PERIOD)


def _shown(table: Json) -> Json:
    columns = [{**column, "description": ""} for column in table["columnDefinitions"]]
    rows = [
        [
            "<age>" if column["name"] in _AGES else cell
            for column, cell in zip(columns, row["cells"], strict=True)
        ]
        for row in table["rows"]
    ]
    conditions = [row.get("conditions") for row in table["rows"]]
    return {"columns": columns, "rows": rows, "conditions": conditions}


def _compare(what: str, real: Reply, ours: Reply, managed: bool) -> None:
    theirs = {"asked": what, "status": real.status, "body": normal(real.body, managed=managed)}
    got = {"asked": what, "status": ours.status, "body": normal(ours.body, managed=managed)}
    assert got == theirs

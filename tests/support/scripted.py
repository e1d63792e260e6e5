"""A client and the API servers that it talks to, in memory: each answers what a test says.

``vip`` is the configured address; further servers are learned. ``link`` has the faults and the
record of what was put on the wire.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from backstay.kube.access import Grant
from backstay.kube.client import KubeClient
from backstay.kube.limits import VerbLimits
from backstay.seam.serve import Answer, Inbound, ServerTls
from backstay.seam.transport import Request, Tls
from backstay.sim.network import Link, Network, Sent

NEVER = 1e9
"""A ``connect_delay`` that nobody lives to see: packets go in and nothing comes out."""

Step = Answer | Callable[[Inbound], Awaitable[Answer]]


def now() -> float:
    return asyncio.get_running_loop().time()


def json(body: Any, *, code: int = 200, **headers: str) -> Answer:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status=code, headers=names, body=msgspec.json.encode(body))


def refusal(code: int, *, reason: str = "", message: str = "", **headers: str) -> Answer:
    body = {"kind": "Status", "reason": reason, "message": message, "code": code}
    return json(body, code=code, **headers)


class ScriptedServer:
    """Answers step by step and then goes on with the last one; without a script, with ``{}``."""

    def __init__(self) -> None:
        self.script: list[Step] = []
        self.seen: list[Inbound] = []

    async def __call__(self, inbound: Inbound) -> Answer:
        self.seen.append(inbound)
        if not self.script:
            return json({})
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return step if isinstance(step, Answer) else await step(inbound)


class Badges:
    """An ``Access`` that hands out a token until it is refused, and then the next."""

    namespace = "default"
    origin = "context 'test' of a kubeconfig"
    standing = None

    def __init__(self, server: str, *tokens: str) -> None:
        self.server = server
        self.tls: Tls | None = Tls()
        self.fetching_takes = 0.0
        self.refusals: list[Grant] = []
        self._tokens = list(tokens)

    async def grant(self) -> Grant:
        if self.fetching_takes:
            await asyncio.sleep(self.fetching_takes)
        return Grant(headers={"authorization": f"Bearer {self._tokens[0]}"}, tls=self.tls)

    def refused(self, grant: Grant) -> None:
        self.refusals.append(grant)
        if len(self._tokens) > 1:
            self._tokens.pop(0)


class _Journal(list[Sent]):
    """A link's record that also tells a common one."""

    def __init__(self, host: str, sent_to: list[str]) -> None:
        super().__init__()
        self._host = host
        self._sent_to = sent_to

    def append(self, sent: Sent) -> None:
        super().append(sent)
        self._sent_to.append(self._host)


class World:
    """Made by ``world``."""

    def __init__(
        self, hosts: tuple[str, ...], tokens: tuple[str, ...], limits: VerbLimits | None
    ) -> None:
        self.network = Network()
        self.servers = {host: ScriptedServer() for host in hosts}
        self.access = Badges(url(hosts[0]), *tokens)
        self.client = KubeClient(self.network.transport, self.access, limits=limits)
        self.client.addresses.learn(url(host) for host in hosts[1:])
        self.sent_to: list[str] = []
        """The hosts to which something was sent, in order."""
        for host in hosts:
            self.link(host).sent = _Journal(host, self.sent_to)

    def link(self, host: str = "vip") -> Link:
        return self.network.link(url(host))

    def server(self, host: str = "vip") -> ScriptedServer:
        return self.servers[host]

    def sent(self, host: str = "vip") -> list[Request]:
        return [sent.request for sent in self.link(host).sent]


def url(host: str) -> str:
    return f"https://{host}:6443"


async def world(
    *hosts: str, tokens: tuple[str, ...] = ("secret",), limits: VerbLimits | None = None
) -> World:
    made = World(hosts or ("vip",), tokens, limits)
    for host, server in made.servers.items():
        await made.network.serve.listen(
            server, host=host, port=6443, tls=ServerTls(cert=b"", key=b"")
        )
    return made

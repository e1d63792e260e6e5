"""A small embedded cluster over HTTPS, with Backstay's roles, and commands that run against it.

The API lives in the test's own event loop; a command is a process of its own (``nursery.py``), as
if a person had started it, with pipes (``run``) or at a terminal (``at_terminal``). Who runs it is
one of the users of ``installed.py``, or ``admin``.
"""

import asyncio
import os
import pty
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import trustme
import yaml

from backstay.cli.manifests import manifests
from backstay.kube.calls import JSON, MERGE_PATCH
from backstay.seam.aiohttp_serve import AiohttpServe
from backstay.seam.serve import Answer, Inbound, ServerTls
from backstay.seam.system import SystemClock, SystemRng
from backstay.seam.tasks import Tasks
from backstay.sim.api.access import AccessControl, User
from backstay.sim.api.garbage import GarbageCollector, NamespaceController
from backstay.sim.api.server import ApiServer
from tests.support.installed import USERS, bindings
from tests.support.nursery import Command, reading, start

Json = dict[str, Any]
Meanwhile = Callable[[], Awaitable[None]]

TIMEOUT = 30.0


@dataclass(frozen=True)
class Said:
    """How a command ended. At a terminal both streams are one, in ``out``."""

    code: int
    out: str
    err: str = ""


@dataclass(frozen=True)
class SmallCluster:
    """See the module; ``url`` and ``home`` are where the API and the kubeconfigs are."""

    server: ApiServer
    url: str
    home: Path
    tokens: dict[str, str] = field(repr=False)
    _before: dict[str, Meanwhile] = field(repr=False)

    def just_before(self, method: str, happens: Meanwhile) -> None:
        """Once, right before the next command's request of this method is served."""
        self._before[method] = happens

    # The API, as its owner sees it

    async def call(self, method: str, path: str, body: object = None, kind: str = JSON) -> Json:
        """A request past all access control; it must be granted."""
        path, _, query = path.partition("?")
        encoded = b"" if body is None else msgspec.json.encode(body)
        headers = {"content-type": kind, "user-agent": "suite"}
        answer = await self.server.handle(
            Inbound(method=method, path=path, query=query, headers=headers, body=encoded)
        )
        assert isinstance(answer.body, bytes)
        decoded: Json = msgspec.json.decode(answer.body)
        assert answer.status < 300, decoded
        return decoded

    async def put(self, document: Json) -> Json:
        """Creates an object of any kind that is known."""
        return await self.call("POST", self._path(document), document)

    async def change(self, path: str, patch: Json) -> Json:
        return await self.call("PATCH", path, patch, MERGE_PATCH)

    def _path(self, document: Json) -> str:
        group, _, version = document["apiVersion"].rpartition("/")
        (info,) = [
            each
            for each in self.server.kinds.of_kind(group, document["kind"])
            if each.version == version
        ]
        return info.resource.path(namespace=document["metadata"].get("namespace"))

    async def node(self, name: str, *, ready: str = "Unknown", boot: str = "", **meta: Any) -> Json:
        """A node and its lease; ``boot`` is its boot id, by default one of its own name."""
        made = await self.put({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **meta},
            "status": {
                "nodeInfo": node_info(boot or f"boot-of-{name}"),
                "conditions": [{"type": "Ready", "status": ready, "reason": "r", "message": ""}],
            },
        })  # fmt: skip
        await self.put({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": "kube-node-lease"},
            "spec": {
                "holderIdentity": name, "leaseDurationSeconds": 4,
                "renewTime": "2030-01-01T00:00:00.000000Z",
            },
        })  # fmt: skip
        return made

    async def renew(self, name: str) -> None:
        """What a living kubelet does."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"
        at = SystemClock().now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        await self.change(path, {"spec": {"renewTime": at}})

    @asynccontextmanager
    async def alive(self, *names: str) -> AsyncIterator[None]:
        """These nodes renew their leases meanwhile."""

        async def renewing() -> None:
            while True:
                for name in names:
                    await self.renew(name)
                await asyncio.sleep(0.2)

        async with Tasks("kubelets") as tasks:
            tasks.spawn(renewing(), name="renewing")
            yield

    def storage(self, path: str) -> list[Json]:
        """All stored objects of a kind: ``nodes``, ``incidents.backstay.dev``."""
        return [dict(stored.object) for stored in self.server.store.all(path)]

    def names(self, path: str) -> list[str]:
        return [each["metadata"]["name"] for each in self.storage(path)]

    # People

    def kubeconfig(self, role: str) -> Path:
        path = self.home / f"kubeconfig-{role}"
        authority = str(self.home / "ca.pem")
        cluster = {"server": self.url, "certificate-authority": authority}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": role, "user": {"token": self.tokens[role]}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": role}}],
            "current-context": "it",
        }
        path.write_text(yaml.safe_dump(config))
        return path

    async def run(
        self, role: str, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> Said:
        """With pipes, as from a script; with these variables besides the usual ones."""
        return await run(self.kubeconfig(role), *arguments, environment=environment)

    async def at_terminal(
        self,
        role: str,
        *arguments: str,
        answers: Sequence[tuple[str, str]] = (),
        meanwhile: Meanwhile | None = None,
    ) -> Said:
        """At a terminal: each answer is typed once its question has been read.

        ``meanwhile`` happens between a question and its answer.
        """
        path = self.kubeconfig(role)
        return await at_terminal(path, *arguments, answers=answers, meanwhile=meanwhile)


async def run(
    kubeconfig: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> Said:
    command = Command(arguments, {**_environment(kubeconfig), **(environment or {})})
    (out, its_out), (err, its_err) = os.pipe(), os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        process = await start(command, (nothing, its_out, its_err))
    finally:
        for each in (nothing, its_out, its_err):
            os.close(each)
    texts = [(await reading(pipe)).read() for pipe in (out, err)]
    try:
        async with asyncio.timeout(TIMEOUT):
            said, complained = await asyncio.gather(*texts)
            code = await process.wait()
    except BaseException:
        process.kill()
        raise
    return Said(code, said.decode(), complained.decode())


async def at_terminal(
    kubeconfig: Path,
    *arguments: str,
    answers: Sequence[tuple[str, str]] = (),
    meanwhile: Meanwhile | None = None,
) -> Said:
    master, slave = pty.openpty()
    command = Command(arguments, _environment(kubeconfig), owns_terminal=True)
    try:
        process = await start(command, (slave, slave, slave))
    finally:
        os.close(slave)
    terminal = _Terminal(master)
    try:
        async with asyncio.timeout(TIMEOUT):
            for question, answer in answers:
                await terminal.until(question)
                if meanwhile is not None:
                    await meanwhile()
                os.write(master, answer.encode())
            await terminal.until(None)
            code = await process.wait()
    except BaseException:
        process.kill()
        raise
    finally:
        terminal.close()
    return Said(code, terminal.text)


def _environment(kubeconfig: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "KUBECONFIG": str(kubeconfig), "HOME": "/nonexistent"}


class _Terminal:
    """The person's side of a terminal. ``^C`` is typed as ``\\x03``."""

    def __init__(self, master: int) -> None:
        self.text = ""
        self._master = master
        self._ended = False
        self._read_up_to = 0
        self._news = asyncio.Event()
        asyncio.get_running_loop().add_reader(master, self._read)

    async def until(self, words: str | None) -> None:
        """Until these words have come after the last ones; without words, until the end."""
        while not self._ended:
            at = self.text.find(words, self._read_up_to) if words else -1
            if words and at >= 0:
                self._read_up_to = at + len(words)
                return
            self._news.clear()
            await self._news.wait()
        assert words is None, f"{words!r} never came: {self.text}"

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)

    def _read(self) -> None:
        data = b""
        # Linux ends a terminal whose other side has gone with an error.
        with suppress(OSError):
            data = os.read(self._master, 65536)
        if data:
            self.text += data.decode().replace("\r\n", "\n")
        else:
            self._ended = True
            asyncio.get_running_loop().remove_reader(self._master)
        self._news.set()


@asynccontextmanager
async def small_cluster(home: Path, *, with_kinds: bool = True) -> AsyncIterator[SmallCluster]:
    """``with_kinds`` says whether Backstay's manifests are applied."""
    server = ApiServer(wall=SystemClock(), rng=SystemRng())
    users = {f"token-of-{role}": User(name) for role, name in USERS.items()}
    users["token-of-admin"] = User("admin", ("system:masters",))
    authority = trustme.CA()
    (home / "ca.pem").write_bytes(authority.cert_pem.bytes())
    issued = authority.issue_cert("127.0.0.1")
    tls = ServerTls(
        cert=b"".join(part.bytes() for part in issued.cert_chain_pems),
        key=issued.private_key_pem.bytes(),
    )
    before: dict[str, Meanwhile] = {}
    guarded = AccessControl(server, users)

    async def handle(inbound: Inbound) -> Answer:
        happens = before.pop(inbound.method, None)
        if happens is not None:
            await happens()
        return await guarded.handle(inbound)

    listener = await AiohttpServe(grace=0.1).listen(handle, tls=tls)
    tokens = {role: f"token-of-{role}" for role in [*USERS, "admin"]}
    cluster = SmallCluster(server, listener.url, home, tokens, before)
    for name in ("default", "kube-system", "kube-node-lease"):
        await cluster.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for document in _installation() if with_kinds else ():
        await cluster.put(document)
    try:
        async with Tasks("controllers") as tasks:
            for controller in (GarbageCollector, NamespaceController):
                tasks.spawn(controller(server.operations).run(), name=controller.__name__)
            yield cluster
    finally:
        await listener.close()


@cache
def _installation() -> tuple[Json, ...]:
    """To read it takes ten times as long as to put it into a cluster."""
    return (*manifests(), *bindings())


def node_info(boot: str) -> Json:
    words = (
        "architecture", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion",
        "kubeletVersion", "machineID", "operatingSystem", "osImage", "systemUUID",
    )  # fmt: skip
    return {**dict.fromkeys(words, ""), "bootID": boot}

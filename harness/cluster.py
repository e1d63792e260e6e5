"""A control plane that lives as long as somebody needs it: etcd and the Kubernetes servers.

Everything listens on loopback, on ports that were free a moment ago; if somebody else was
faster, all of it starts again on others. ``start`` returns when the cluster *works*: the API is
ready, the controllers have made their first object and the scheduler has judged a pod. A part
that dies or does not get ready is reported with the end of its log.

``start`` must be called on the main thread (see ``processes.py``); a ``ControlPlane`` is bound
to no event loop, so one can serve a whole test session.
"""

import asyncio
import http.client
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import msgspec

from harness import pki
from harness.build import Binaries
from harness.processes import Child, RunDirectory

Json = dict[str, Any]

_READY_WITHIN = 40.0
_STORE = "etcd"
_POLL = 0.05


class ControlPlaneError(Exception):
    """The control plane did not do its part; the end of the log is in the text."""


class CallFailed(Exception):
    """The API answered a call of the harness itself with a refusal."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP {status}: {body.decode(errors='replace')}")
        self.status = status


class KubectlFailed(Exception):
    """kubectl ended with a code other than 0; the text is what it said."""


class _PortTaken(Exception):
    pass


@dataclass(frozen=True)
class Timers:
    """How soon Kubernetes acts on a silent node, in seconds. The defaults are its own.

    ``node_eviction_rate`` is how many nodes per second are given up, and ``attachment_sync`` how
    often it is compared which volumes are attached with which are thought to be.
    """

    node_monitor_period: float = 5
    node_monitor_grace_period: float = 50
    not_ready_toleration: int = 300
    unreachable_toleration: int = 300
    node_eviction_rate: float = 0.1
    attachment_sync: float = 60


KUBERNETES_TIMERS = Timers()

FAST = Timers(
    node_monitor_period=0.5,
    node_monitor_grace_period=4,
    not_ready_toleration=1,
    unreachable_toleration=1,
    node_eviction_rate=10,
    attachment_sync=1.5,
)
"""For tests: a node that is silent for 4 s is Unknown, and its pods are evicted a second later."""


class ApiServer:
    """One kube-apiserver; it keeps its port over restarts."""

    def __init__(self, child: Child, port: int, identities: pki.Identities) -> None:
        self.url = f"https://127.0.0.1:{port}"
        self._child = child
        self._port = port
        self._token = identities.admin_token
        self._trust = ssl.create_default_context(cadata=identities.ca.decode())

    def pause(self) -> None:
        """Connections stay open and nothing is answered any more."""
        self._child.suspend()

    def resume(self) -> None:
        self._child.send(signal.SIGCONT)

    async def stop(self) -> None:
        await self._child.stop()

    async def start(self) -> None:
        self._child.start()
        await _until(self.ready, self._child)

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def ready(self) -> bool:
        try:
            await self.call("GET", "/readyz")
        except (OSError, http.client.HTTPException, CallFailed):
            return False
        return True

    async def call(self, method: str, path: str, body: Json | None = None) -> Json:
        """A request as admin, for fixtures that must not depend on the client under test."""
        return await asyncio.to_thread(self._call, method, path, body)

    def _call(self, method: str, path: str, body: Json | None) -> Json:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, timeout=10, context=self._trust
        )
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, msgspec.json.encode(body) if body else None, headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise CallFailed(answer.status, content)
        if content[:1] != b"{":
            return {}
        decoded: Json = msgspec.json.decode(content)
        return decoded


class ControlPlane:
    """``async with ControlPlane(ensure_binaries()) as plane: ...``, or ``start`` and ``stop``.

    ``flags`` adds to a program's own: ``{"kube-controller-manager": ["--node-eviction-rate=5"]}``.
    """

    def __init__(
        self,
        binaries: Binaries,
        *,
        timers: Timers = KUBERNETES_TIMERS,
        extra_apiservers: int = 0,
        flags: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.apiservers: list[ApiServer] = []
        self._binaries = binaries
        self._timers = timers
        self._extra_apiservers = extra_apiservers
        self._flags = flags or {}
        self._children: list[Child] = []
        self._run: RunDirectory | None = None
        self._identities: pki.Identities | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self, *, attempts: int = 3) -> None:
        for attempt in range(1, attempts + 1):
            self._run = RunDirectory()
            try:
                await self._start_all(self._run.path)
            except _PortTaken:
                await self.stop()
                if attempt == attempts:
                    raise ControlPlaneError(
                        f"No control plane: free ports were taken {attempts} times in a row."
                    ) from None
            except BaseException:
                await self.stop()
                raise
            else:
                return

    async def stop(self) -> None:
        """Ends all of it and removes its directory; harmless when nothing runs."""
        # All at once: nothing is to be kept, so no order has to be.
        await asyncio.gather(*(child.stop() for child in self._children))
        self._children.clear()
        self.apiservers.clear()
        if self._run is not None:
            self._run.remove()
            self._run = None

    @property
    def directory(self) -> Path:
        if self._run is None:
            raise _not_started()
        return self._run.path

    @property
    def identities(self) -> pki.Identities:
        if self._identities is None:
            raise _not_started()
        return self._identities

    @property
    def kubeconfig(self) -> Path:
        """With the contexts ``admin`` (the current one), ``admin-token`` and ``ordinary``."""
        return self.directory / "kubeconfig"

    @property
    def pids(self) -> dict[str, int]:
        return {child.name: child.pid for child in self._children if child.pid is not None}

    @property
    def url(self) -> str:
        return self.apiservers[0].url

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.apiservers]

    def pause(self) -> None:
        self.apiservers[0].pause()

    def resume(self) -> None:
        self.apiservers[0].resume()

    async def restart(self) -> None:
        """The (first) API server comes back on the same port with the same data."""
        await self.apiservers[0].restart()

    async def back_up(self) -> None:
        """Keeps what is in the store now, and nothing older. It is away for a moment."""
        await self._while_etcd_is_down(partial(_copy, self._store, self._backup))

    async def restore(self, *, raised: int = 0) -> None:
        """The store is as it was in the backup, by the way of every manual: the API servers are
        stopped for it, and etcd with them. Where its versions are to be ``raised`` by so many,
        etcd's own tool does it."""
        await asyncio.gather(*(server.stop() for server in self.apiservers))
        put_back = partial(_copy, self._backup, self._store)
        if raised:
            put_back = partial(_raise_versions, self._binaries, self._backup, self._store, raised)
        await self._while_etcd_is_down(put_back)
        for server in self.apiservers:
            await server.start()

    async def _while_etcd_is_down(self, work: Callable[[], None]) -> None:
        [etcd] = [child for child in self._children if child.name == "etcd"]
        await etcd.stop(patience=5.0)
        await asyncio.to_thread(work)
        etcd.start()

    @property
    def _store(self) -> Path:
        return self.directory / _STORE

    @property
    def _backup(self) -> Path:
        return self.directory / "backup"

    async def call(self, method: str, path: str, body: Json | None = None) -> Json:
        return await self.apiservers[0].call(method, path, body)

    async def kubectl(self, *arguments: str, stdin: str = "", context: str = pki.ADMIN) -> str:
        """What the real kubectl prints; ``KubectlFailed`` with its words when it fails."""
        process = await asyncio.create_subprocess_exec(
            Path(sys.executable).parent / "kubectl",
            f"--context={context}",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # A home of its own, so that neither a person's settings nor caches come into play.
            env={
                "KUBECONFIG": str(self.kubeconfig),
                "HOME": str(self.directory),
                "PATH": os.environ.get("PATH", ""),
            },
        )
        out, err = await process.communicate(stdin.encode())
        if process.returncode != 0:
            raise KubectlFailed(f"kubectl {' '.join(arguments)}: {err.decode().strip()}")
        return out.decode()

    async def _start_all(self, directory: Path) -> None:
        identities = self._identities = pki.issue(directory / "pki")
        etcd_port, *api_ports = _free_ports(2 + self._extra_apiservers)
        pki.write_kubeconfig(
            directory / "kubeconfig", identities, server=f"https://127.0.0.1:{api_ports[0]}"
        )
        self._child("etcd", _etcd_flags(directory, etcd_port)).start()
        for number, port in enumerate(api_ports, start=1):
            suffix = f"-{number}" if number > 1 else ""
            flags = _apiserver_flags(identities, self._timers, port=port, etcd_port=etcd_port)
            child = self._child("kube-apiserver", flags, suffix=suffix)
            self.apiservers.append(ApiServer(child, port, identities))
            child.start()
        for server in self.apiservers:
            await self._until(server.ready)
        self._child(
            "kube-controller-manager", _controller_flags(directory, identities, self._timers)
        ).start()
        self._child("kube-scheduler", _scheduler_flags(directory)).start()
        await self._until(self._controllers_work)
        await self._until(self._scheduler_works)
        await self.call("DELETE", f"{_DEFAULT_PODS}/{_PROBE}?gracePeriodSeconds=0")

    def _child(self, program: str, flags: list[str], *, suffix: str = "") -> Child:
        argv = [str(self._binaries.path(program)), *flags, *self._flags.get(program, ())]
        child = Child(program + suffix, argv, log=self.directory / f"{program}{suffix}.log")
        self._children.append(child)
        return child

    async def _until(self, done: Callable[[], Awaitable[bool]]) -> None:
        await _until(done, *self._children)

    async def _controllers_work(self) -> bool:
        return await self._exists("/api/v1/namespaces/default/serviceaccounts/default")

    async def _scheduler_works(self) -> bool:
        """It has said of a pod that asks for the impossible that nothing fits."""
        if not await self._exists(f"{_DEFAULT_PODS}/{_PROBE}"):
            await self.call("POST", _DEFAULT_PODS, _PROBE_POD)
        pod = await self.call("GET", f"{_DEFAULT_PODS}/{_PROBE}")
        return any(
            condition["type"] == "PodScheduled" and condition["status"] == "False"
            for condition in pod["status"].get("conditions", ())
        )

    async def _exists(self, path: str) -> bool:
        try:
            await self.call("GET", path)
        except CallFailed as error:
            if error.status == 404:
                return False
            raise
        return True


_DEFAULT_PODS = "/api/v1/namespaces/default/pods"
_PROBE = "is-the-scheduler-up"
_PROBE_POD: Json = {
    "metadata": {"name": _PROBE},
    "spec": {
        "nodeSelector": {"backstay.dev/no-such": "node"},
        "containers": [{"name": "never", "image": "never"}],
    },
}


def _copy(kept: Path, becomes: Path) -> None:
    shutil.rmtree(becomes, ignore_errors=True)
    shutil.copytree(kept, becomes)


def _raise_versions(binaries: Binaries, kept: Path, becomes: Path, by: int) -> None:
    shutil.rmtree(becomes, ignore_errors=True)
    done = subprocess.run(
        [
            binaries.path("etcdutl"), "snapshot", "restore", kept / "member" / "snap" / "db",
            # Only what etcd hands out over the wire has a sum at its end.
            "--skip-hash-check", f"--data-dir={becomes}", f"--bump-revision={by}",
            "--mark-compacted",
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise ControlPlaneError(f"etcdutl cannot restore the backup: {done.stderr.strip()}")


def _etcd_flags(directory: Path, port: int) -> list[str]:
    url = f"http://127.0.0.1:{port}"
    return [
        f"--data-dir={directory / _STORE}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        # A single member has no peers, but insists on a door for them.
        "--listen-peer-urls=http://127.0.0.1:0",
        # Losing power is not among the things that this etcd has to survive.
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _apiserver_flags(
    identities: pki.Identities, timers: Timers, *, port: int, etcd_port: int
) -> list[str]:
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={identities.file('server.pem')}",
        f"--tls-private-key-file={identities.file('server-key.pem')}",
        f"--client-ca-file={identities.file('ca.pem')}",
        f"--token-auth-file={identities.file('tokens.csv')}",
        "--authorization-mode=RBAC",
        # A loopback address may not stand in Endpoints, and no other one leads to us.
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={identities.file('service-accounts.pem')}",
        f"--service-account-signing-key-file={identities.file('service-accounts.pem')}",
        # Pods may be made right after their namespace, without waiting for its service account.
        "--disable-admission-plugins=ServiceAccount",
        f"--default-not-ready-toleration-seconds={timers.not_ready_toleration}",
        f"--default-unreachable-toleration-seconds={timers.unreachable_toleration}",
    ]


def _controller_flags(directory: Path, identities: pki.Identities, timers: Timers) -> list[str]:
    return [
        *_common_flags(directory),
        f"--service-account-private-key-file={identities.file('service-accounts.pem')}",
        f"--root-ca-file={identities.file('ca.pem')}",
        f"--node-monitor-period={timers.node_monitor_period}s",
        f"--node-monitor-grace-period={timers.node_monitor_grace_period}s",
        f"--node-eviction-rate={timers.node_eviction_rate}",
        f"--attach-detach-reconcile-sync-period={timers.attachment_sync}s",
    ]


def _scheduler_flags(directory: Path) -> list[str]:
    return _common_flags(directory)


def _common_flags(directory: Path) -> list[str]:
    return [f"--kubeconfig={directory / 'kubeconfig'}", "--leader-elect=false", "--secure-port=0"]


def _not_started() -> ControlPlaneError:
    return ControlPlaneError("The control plane is not running: start it first.")


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at this moment, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


async def _until(done: Callable[[], Awaitable[bool]], *children: Child) -> None:
    """Waits for a condition as long as all the children live."""
    give_up = time.monotonic() + _READY_WITHIN
    while not await done():
        for child in children:
            if not child.alive:
                _report_death(child)
        if time.monotonic() > give_up:
            logs = "\n".join(f"--- {child.name}\n{child.tail(8)}" for child in children)
            raise ControlPlaneError(
                f"The control plane was not ready within {_READY_WITHIN:.0f} s:\n{logs}"
            )
        await asyncio.sleep(_POLL)


def _report_death(child: Child) -> None:
    tail = child.tail()
    if "address already in use" in tail:
        raise _PortTaken
    raise ControlPlaneError(f"{child.name} ended before it was ready. Its last words:\n{tail}")

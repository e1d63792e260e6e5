"""A cluster to break by hand: ``python -m harness`` (``make control-plane``).

Boots a control plane with hollow nodes and stays until Ctrl-C. At a terminal there is a prompt
for faults; what the commands do is in ``backstay.sim.nodes.node``. Everything is gone at the end.
"""

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack

from backstay.kube.client import KubeClient
from backstay.kube.errors import KubeError
from backstay.kube.resource import NODES, PODS
from backstay.sim.nodes.fleet import HollowFleet
from backstay.sim.nodes.node import Node
from backstay.sim.nodes.wire import Json
from harness.build import Binaries, BuildError, ensure_binaries
from harness.cluster import FAST, KUBERNETES_TIMERS, ControlPlane, ControlPlaneError
from harness.connect import FAST_PACE, REAL_PACE, connect, hollow_nodes, until

_PROMPT = "> "

_HELP = """\
  nodes             every node: how it is, what the API thinks of it, what runs there
  truth             every pod: where it really runs, and what the API says
  kill N            N loses its power
  freeze N          N's kubelet stands still, its containers run on
  thaw N            it goes on
  cut N             N and the API no longer reach each other, its containers run on
  heal N            they do again
  kubelet-kill N    N's kubelet dies alone, its containers run on
  kubelet-start N   N gets a new one, which takes over what runs
  reboot N          N loses its power, if it still had any, and boots anew
  quit              ends everything, like Ctrl-C"""


class Console:
    """Commands in, sentences and tables out."""

    def __init__(self, fleet: HollowFleet, client: KubeClient) -> None:
        self._fleet = fleet
        self._client = client
        self._on_node: dict[str, Callable[[Node], str]] = {
            "kill": _kill,
            "freeze": _freeze,
            "thaw": _thaw,
            "cut": _cut,
            "heal": _heal,
            "kubelet-kill": _kill_kubelet,
            "kubelet-start": _start_kubelet,
            "reboot": _reboot,
        }

    async def answer(self, line: str) -> str:
        """What to print for a line that somebody typed."""
        words = line.split()
        if not words:
            return ""
        command, *arguments = words
        if command in self._on_node:
            return self._to_node(command, arguments)
        if command == "help":
            return _HELP
        try:
            if command == "nodes":
                return await self._nodes()
            if command == "truth":
                return await self._truth()
        except KubeError as error:
            return f"The API does not say: {error}"
        return f"There is no command {command!r}: type help."

    def _to_node(self, command: str, arguments: Sequence[str]) -> str:
        if len(arguments) != 1:
            return f"{command} takes one node: {command} n1."
        node = self._fleet.nodes.get(arguments[0])
        if node is None:
            known = ", ".join(self._fleet.nodes) or "none at all"
            return f"There is no node {arguments[0]!r}: there are {known}."
        return self._on_node[command](node)

    async def _nodes(self) -> str:
        listed = (await self._client.list(NODES)).json()["items"]
        ready = {node["metadata"]["name"]: _ready(node) for node in listed}
        rows = [
            (node.name, node.condition, ready.get(node.name, "not there"), str(len(node.truth)))
            for node in self._fleet.nodes.values()
        ]
        return _table(("NODE", "REALLY", "READY IN THE API", "PODS RUNNING"), rows)

    async def _truth(self) -> str:
        listed = (await self._client.list(PODS)).json()["items"]
        said = {pod["metadata"]["uid"]: _said(pod) for pod in listed}
        names = {pod["metadata"]["uid"]: _name(pod) for pod in listed}
        places: dict[str, list[str]] = {uid: [] for uid in said}
        for each in self._fleet.truth():
            places.setdefault(each.uid, []).append(each.node)
            names[each.uid] = f"{each.namespace}/{each.name}"
        rows = [
            (names[uid], uid[:8], ", ".join(nodes) or "-", said.get(uid, "gone"))
            for uid, nodes in sorted(places.items(), key=lambda item: names[item[0]])
        ]
        if not rows:
            return "Nothing runs, and the API knows of no pod."
        return _table(("POD", "UID", "REALLY RUNS ON", "THE API SAYS"), rows)


def _kill(node: Node) -> str:
    if node.boot_id is None:
        return f"{node.name} is off already."
    ended = len(node.truth)
    node.kill()
    return f"{node.name} lost its power; pods ended: {ended}."


def _freeze(node: Node) -> str:
    if node.boot_id is None:
        return f"{node.name} is off."
    node.freeze()
    return f"{node.name} stands still; pods that run on: {len(node.truth)}."


def _thaw(node: Node) -> str:
    if not node.frozen:
        return f"{node.name} is not frozen."
    node.thaw()
    return f"{node.name} goes on."


def _cut(node: Node) -> str:
    node.cut_off()
    return f"{node.name} is cut off; pods that run on: {len(node.truth)}."


def _heal(node: Node) -> str:
    if node.cut is None:
        return f"{node.name} is not cut off."
    node.heal()
    return f"{node.name} reaches the API again."


def _kill_kubelet(node: Node) -> str:
    if not node.has_kubelet:
        return f"{node.name} has no kubelet already."
    node.kill_kubelet()
    return f"{node.name} has no kubelet any more; pods that run on: {len(node.truth)}."


def _start_kubelet(node: Node) -> str:
    if node.boot_id is None:
        return f"{node.name} is off."
    node.start_kubelet()
    return f"{node.name} has a kubelet again."


def _reboot(node: Node) -> str:
    node.reboot()
    return f"{node.name} boots again, as {node.boot_id}."


def _ready(node: Json) -> str:
    conditions = node["status"].get("conditions") or ()
    return next((each["status"] for each in conditions if each["type"] == "Ready"), "Unknown")


def _name(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _said(pod: Json) -> str:
    deleting = ", being deleted" if "deletionTimestamp" in pod["metadata"] else ""
    return f"{pod['status']['phase']} on {pod['spec'].get('nodeName', 'no node')}{deleting}"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


async def _converse(console: Console) -> None:
    """Answers lines from the terminal until it says quit, or ends."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str] = asyncio.Queue()
    # A terminal is readable when a whole line is there, so this never blocks the loop.
    loop.add_reader(sys.stdin, lambda: lines.put_nowait(sys.stdin.readline()))
    try:
        while True:
            print(_PROMPT, end="", flush=True)
            line = await lines.get()
            if line in ("", "quit\n", "exit\n"):
                return
            if answer := await console.answer(line):
                print(answer)
    finally:
        loop.remove_reader(sys.stdin)


async def _session(binaries: Binaries, nodes: int, *, fast: bool) -> None:
    _end_on_signals()
    print("starting ...", file=sys.stderr, flush=True)
    started = time.monotonic()
    async with AsyncExitStack() as stack:
        timers, pace = (FAST, FAST_PACE) if fast else (KUBERNETES_TIMERS, REAL_PACE)
        plane = await stack.enter_async_context(ControlPlane(binaries, timers=timers))
        client = await stack.enter_async_context(connect(plane))
        fleet = await stack.enter_async_context(hollow_nodes(client, pace=pace))
        names = [f"n{number}" for number in range(1, nodes + 1)]
        fleet.add(*names)
        await until(client, NODES, lambda seen: _all_ready(seen, nodes), timeout=60)
        print(
            f"Kubernetes {binaries.kubernetes} at {plane.url}, up in "
            f"{time.monotonic() - started:.1f} s; nodes: {', '.join(names) or 'none'}\n"
            f"kubeconfig: {plane.kubeconfig}\n\n"
            f"  export KUBECONFIG={plane.kubeconfig}\n",
            flush=True,
        )
        if sys.stdin.isatty():
            print("Type help for what you can do to the nodes; Ctrl-C ends everything.")
            await _converse(Console(fleet, client))
        else:
            await asyncio.Event().wait()


def _all_ready(nodes: list[Json], wanted: int) -> bool:
    return len(nodes) == wanted and all(_ready(node) == "True" for node in nodes)


def _end_on_signals() -> None:
    """The first signal ends the session in good order; further ones must not disturb that."""
    session = asyncio.current_task()
    assert session is not None
    loop = asyncio.get_running_loop()
    ending = False

    def end() -> None:
        nonlocal ending
        if not ending:
            ending = True
            print("\nending ...", file=sys.stderr, flush=True)
            session.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m harness", description=__doc__)
    parser.add_argument("--nodes", type=int, default=3, metavar="N", help="how many (default 3)")
    parser.add_argument(
        "--fast", action="store_true", help="give up on a silent node in seconds, as tests do"
    )
    options = parser.parse_args(arguments)
    if options.nodes < 0:
        parser.error("--nodes takes a number from 0.")
    try:
        binaries = ensure_binaries()
        asyncio.run(_session(binaries, options.nodes, fast=options.fast))
    except (asyncio.CancelledError, KeyboardInterrupt):
        return 0
    except (BuildError, ControlPlaneError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0

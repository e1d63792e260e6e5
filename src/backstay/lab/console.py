"""Console: a lab cluster in the hands of whoever types. Commands in, sentences out."""

from collections.abc import Callable

from backstay.kube.errors import KubeError
from backstay.lab.cluster import LabCluster
from backstay.lab.picture import nodes_of
from backstay.lab.view import Paint, nodes
from backstay.sim.nodes.node import Node

HELP = """\
  truth         what really runs, beside what Kubernetes and Backstay say
  kill N        node N loses its power
  boot N        it gets it back
  cut N         N and the API no longer reach each other; what N runs, runs on
  heal N        they do again
  confirm N     what backstay confirm-dead N does
  withdraw N    what backstay confirm-dead N --withdraw does
  quit          ends everything, like Ctrl-C"""


class Console:
    """See the module."""

    def __init__(self, cluster: LabCluster, paint: Paint) -> None:
        self._cluster = cluster
        self._paint = paint
        self._faults: dict[str, Callable[[Node], str]] = {
            "kill": _kill, "boot": _boot, "cut": _cut, "heal": _heal,
        }  # fmt: skip

    async def answer(self, line: str) -> str:
        """What to print for a line that somebody typed."""
        match line.split():
            case []:
                return ""
            case ["help"]:
                return HELP
            case ["truth"]:
                return "\n".join(nodes(nodes_of(self._cluster), self._paint))
            case [command, name] if command in (*self._faults, "confirm", "withdraw"):
                return await self._about_a_node(command, name)
            case [command] if command in (*self._faults, "confirm", "withdraw"):
                return f"{command} takes one node: {command} n2."
            case [command, *_]:
                return f"There is no such command as {command!r}: type help."
        raise AssertionError("every list of words is one of these")

    async def _about_a_node(self, command: str, name: str) -> str:
        node = self._cluster.nodes.get(name)
        if node is None:
            return f"There is no node {name!r}: there are {', '.join(self._cluster.nodes)}."
        if command in self._faults:
            return self._faults[command](node)
        try:
            if command == "withdraw":
                await self._cluster.withdraw(name)
                return f"Whatever was confirmed of {name} is withdrawn."
            await self._cluster.confirm_dead(name, by="you", reason="typed into the demo")
        except KubeError as error:
            return f"The API refuses: {error}"
        return f"{name} is confirmed dead."


def _kill(node: Node) -> str:
    if node.boot_id is None:
        return f"{node.name} is off already."
    ended = len(node.truth)
    node.kill()
    return f"{node.name} lost its power; what ran there is down: {ended}."


def _boot(node: Node) -> str:
    if node.boot_id is not None:
        return f"{node.name} is on already."
    node.reboot()
    return f"{node.name} boots."


def _cut(node: Node) -> str:
    if node.cut is not None:
        return f"{node.name} is cut off already."
    node.cut_off()
    return f"{node.name} is cut off; what it runs, runs on: {len(node.truth)}."


def _heal(node: Node) -> str:
    if node.cut is None:
        return f"{node.name} is not cut off."
    node.heal()
    return f"{node.name} reaches the API again."

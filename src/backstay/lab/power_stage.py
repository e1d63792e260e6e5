"""BMCs on a stage: sets them up as a scenario says, lets happen to them what a step says, and tells
the witness of all that they are asked for.

Each is a machine of its own in the network, ``bmc-n2``, which goes on when its node is off or cut
off. Our controllers find its credentials in a file named like the node.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from backstay.kube.client import KubeClient
from backstay.kube.resource import NODES
from backstay.lab.power_spec import BmcSpec, BmcsSpec, How
from backstay.lab.witness import Witness
from backstay.model.labels import DRAIN_TAINT
from backstay.seam import Seams
from backstay.seam.files import Files
from backstay.seam.serve import ServerTls
from backstay.sim.bmc import PASSWORD, USER, Bmc, PowerState, Reset, Trouble, serving
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.nodes.machine import Machine
from backstay.sim.nodes.node import Node

DIRECTORY = "/etc/backstay/redfish"
"""Where controllers find who to ask, and as whom."""


_PROGRAM = "redfish"
_PORT = 443
_UNCHECKED = ServerTls(cert=b"", key=b"")
"""The network in memory asks for no proof."""


def host(node: str) -> str:
    return f"bmc-{node}"


@dataclass(frozen=True)
class _Power:
    """A ``Server``: the power of a node."""

    node: Node

    @property
    def is_on(self) -> bool:
        return self.node.boot_id is not None

    def switch_off(self) -> None:
        self.node.kill()

    def switch_on(self) -> None:
        self.node.reboot()


@dataclass(frozen=True)
class _Ear:
    """An ``Onlooker``: tells the witness of the BMC that stands for ``meant``, and switches
    ``machine``."""

    witness: Witness
    meant: str
    machine: str
    switched_off: set[str]
    """The machines that are off because a BMC has switched them off."""

    def read(self, peer: str, state: PowerState) -> None:
        off = state is PowerState.OFF and self.meant == self.machine
        self.witness.power_was_read(peer, self.meant, off=off)

    def asked(self, peer: str, reset: str, *, accepted: bool) -> None:
        body = {"ResetType": reset, "machine": self.machine, "accepted": accepted}
        self.witness.power_was_asked(peer, self.meant, body)

    def switched(self, *, on: bool, by: str) -> None:
        who = self.witness.user_of(by) or by
        self.switched_off.discard(self.machine)
        if not on:
            self.switched_off.add(self.machine)
        self.witness.truth.switched(self.machine, on=on, by=who)


class PowerStage:
    """See the module."""

    def __init__(self, embedded: EmbeddedCluster, witness: Witness) -> None:
        self.bmcs: dict[str, Bmc] = {}
        self._embedded = embedded
        self._witness = witness
        self._specs: dict[str, BmcSpec] = {}
        self._machines: dict[str, Machine] = {}
        self._without_power: set[str] = set()
        self._switched_off: set[str] = set()
        witness.powers.is_readable = self.is_readable

    async def set_up(self, spec: BmcsSpec, nodes: tuple[str, ...]) -> None:
        for node in nodes:
            said = spec.of_node(node)
            if said is not None:
                self._add(node, said)
        # Until they listen.
        await asyncio.sleep(1.0)

    def _add(self, node: str, spec: BmcSpec) -> None:
        machine = spec.wired_to or node
        self._specs[node] = spec
        self.bmcs[node] = Bmc(
            _Power(self._embedded.nodes[machine]),
            spec.identity(machine),
            spec.build,
            _Ear(self._witness, node, machine, self._switched_off),
        )
        self._machines[node] = self._embedded.ground.machine(host(node))
        self._start(node)

    def _start(self, node: str) -> None:
        bmc = self.bmcs[node]

        async def main(seams: Seams) -> None:
            async with serving(seams.serve, bmc, host=host(node), port=_PORT, tls=_UNCHECKED):
                await asyncio.Event().wait()

        self._machines[node].start(_PROGRAM, main)

    def is_readable(self, node: str) -> bool:
        bmc, spec = self.bmcs.get(node), self._specs.get(node)
        if bmc is None or spec is None or node in self._without_power:
            return False
        own = not spec.wired_to and spec.uuid in ("own", "swapped")
        return own and bmc.trouble in _READABLE

    async def give_credentials(self, files: Files) -> None:
        """To a controller, as its kubelet mounts them."""
        for node in self.bmcs:
            said = f"address: https://{host(node)}\nusername: {USER}\npassword: {PASSWORD}\n"
            await files.write(f"{DIRECTORY}/{node}", said.encode())

    # What happens

    def befall(self, node: str, how: How, seconds: float) -> str:
        bmc = self.bmcs.get(node)
        if bmc is None:
            return ""
        bmc.befall(how, seconds)
        return _WORDS[how].format(seconds=seconds)

    def switch(self, node: str, reset: Reset, *, by: str) -> str:
        """At the console, whatever is wrong with it for others."""
        bmc = self.bmcs.get(node)
        goal = PowerState.ON if reset is Reset.ON else PowerState.OFF
        if bmc is None or bmc.state is goal or not bmc.switch(reset, by=by):
            return ""
        return f"switches {node} {'on' if reset is Reset.ON else 'off'} at its BMC"

    def follow_mains(self) -> None:
        """Some have no power of their own: what befalls their machine befalls them."""
        for node, spec in self._specs.items():
            if not spec.shares_power:
                continue
            off = self._embedded.nodes[node].boot_id is None and node not in self._switched_off
            if off and node not in self._without_power:
                self._without_power.add(node)
                self._machines[node].lose_power()
            elif not off and node in self._without_power:
                self._without_power.discard(node)
                self._start(node)


async def put_in_maintenance(client: KubeClient, node: str) -> str:
    """As somebody does who works at it, by the taint that programs for that put on."""
    taints = await _taints(client, node)
    if any(each["key"] == DRAIN_TAINT for each in taints):
        return ""
    taint = {"key": DRAIN_TAINT, "effect": "NoSchedule"}
    await client.merge_patch(NODES, node, {"spec": {"taints": [*taints, taint]}})
    return f"puts {node} in maintenance, by its taint"


async def take_out_of_maintenance(client: KubeClient, node: str) -> str:
    taints = await _taints(client, node)
    left = [each for each in taints if each["key"] != DRAIN_TAINT]
    if left == taints:
        return ""
    await client.merge_patch(NODES, node, {"spec": {"taints": left or None}})
    return f"takes {node} out of maintenance"


async def _taints(client: KubeClient, node: str) -> list[dict[str, str]]:
    return list((await client.get(NODES, node)).json()["spec"].get("taints") or ())


_READABLE = (Trouble.WELL, Trouble.STUCK, Trouble.HOLDS_UP, Trouble.LOSES_ANSWERS)
_WORDS: Mapping[Trouble, str] = {
    Trouble.SILENT: "has a BMC that does not answer any more",
    Trouble.SLOW: "has a BMC whose answers take {seconds:g} s",
    Trouble.LOSES_ANSWERS: "has a BMC that switches when it is asked to, and does not say so",
    Trouble.HOLDS_UP: "has a BMC that the next request to switch reaches {seconds:g} s late",
    Trouble.REFUSES: "has a BMC with another password",
    Trouble.FAILS: "has a BMC that fails",
    Trouble.STUCK: "has a BMC that accepts everything and does nothing",
    Trouble.LIES: "has a BMC that says that it is off, whatever is so",
    Trouble.WELL: "has a BMC that is well again",
}

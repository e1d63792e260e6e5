"""A hollow node: a kubelet, a lease and a truth about what runs, but no containers.

To the API it is a node. What is special is that it can be made to fail in each of the ways that
matter, and that it knows what really ran all the while:

================  ==========  ==========  ==========  =============================================
fault             kubelet     agents      containers  on return
================  ==========  ==========  ==========  =============================================
``kill``          gone        gone        gone        (``reboot``)
``freeze``        stands      stand       run on      ``thaw``: first goes on with what it had in
                  still       still                   mind
``cut_off``       runs,       run,        run on,     ``heal``: tells what happened and ends what
                  unheard     unheard     restart     is no longer wanted
``kill_kubelet``  gone        run         run on      ``start_kubelet``: a new one takes over what
                                                      runs
``reboot``        a new one   begin anew  gone        at once: new boot id, starts what the API
                                                      still wants
================  ==========  ==========  ==========  =============================================

At the port of its kubelet others see an answer while the kubelet runs, a refusal once it is gone, a
connection on which nothing comes while it stands still, and nothing at all where there is no power
or no network. Where machines have no ports of their own (``Machine.has_ports``) there is none.

A freeze or a cut is ended by nothing but its opposite, except that a reboot also unfreezes and
brings a killed kubelet back. Faults take effect at once, before the call returns.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from backstay.kube.client import KubeClient
from backstay.seam import Seams
from backstay.seam.clock import Rng, WallClock
from backstay.sim.nodes.agents import Agent, AgentContext
from backstay.sim.nodes.devices import Devices
from backstay.sim.nodes.kubelet import Pace
from backstay.sim.nodes.kubelet_program import KubeletProgram
from backstay.sim.nodes.machine import Cut, Machine, Main
from backstay.sim.nodes.network import PodNetwork
from backstay.sim.nodes.nodestatus import NodeIdentity
from backstay.sim.nodes.runtime import Runtime
from backstay.sim.nodes.truth import Running, Truth

KUBELET = "kubelet"
KUBELET_PORT = 10250

Connect: TypeAlias = Callable[[str, Seams], KubeClient]
"""A client for the programs of the node of this name, over their own network."""


@dataclass(frozen=True)
class Site:
    """What the nodes of one cluster share."""

    truth: Truth
    connect: Connect
    wall: WallClock
    rng: Rng
    pace: Pace
    find: "Callable[[str], Node | None]"
    """Another node, by its name."""
    network: PodNetwork | None = None
    """What gives pods their addresses; None if nobody keeps account of them."""
    devices: Devices | None = None
    """What opens their volumes; None if all that is attached can be used."""


class Node:
    """See the module. It has power from the beginning."""

    def __init__(
        self,
        identity: NodeIdentity,
        *,
        machine: Machine,
        site: Site,
        agents: Mapping[str, Agent] | None = None,
    ) -> None:
        self.name = identity.name
        self.frozen = False
        self.cut: Cut | None = None
        self.has_kubelet = False
        self.runtime = Runtime(identity.name, truth=site.truth, wall=site.wall, rng=site.rng)
        port = KUBELET_PORT if machine.has_ports else 0
        self._identity = dataclasses.replace(identity, port=port)
        self._machine = machine
        self._site = site
        self._agents = dict(agents or {})
        self._boot_up()

    # What is true of it

    @property
    def boot_id(self) -> str | None:
        """None while it has no power."""
        return self.runtime.boot

    @property
    def truth(self) -> list[Running]:
        """What really runs here now."""
        return self._site.truth.running(self.name)

    @property
    def condition(self) -> str:
        """In one or two words, for people."""
        if self.boot_id is None:
            return "off"
        wrong = {
            "frozen": self.frozen,
            "cut off": self.cut is not None,
            "without kubelet": not self.has_kubelet,
        }
        return ", ".join(word for word, on in wrong.items() if on) or "fine"

    def reaches(self, name: str) -> bool:
        """Whether what runs here and what runs there can talk to each other."""
        other = self._site.find(name)
        return other is not None and self._talks and other._talks

    @property
    def _talks(self) -> bool:
        return self.runtime.boot is not None and self.cut in (None, Cut.API)

    # Faults

    def kill(self) -> None:
        """Power loss."""
        self._machine.lose_power()
        self.runtime.lose_power()
        self.has_kubelet = False
        self._tell_devices()

    def freeze(self) -> None:
        """Its programs stand still and its containers, guests among them, run on."""
        self.frozen = True
        self._machine.freeze()
        self._tell_devices()

    def thaw(self) -> None:
        self.frozen = False
        self._machine.thaw()
        self._tell_devices()

    def cut_off(self, what: Cut = Cut.BOTH) -> None:
        """Nothing gets from it to anybody else, or back."""
        self.cut = what
        self._machine.cut_off(what)
        self._tell_devices()

    def heal(self) -> None:
        self.cut = None
        self._machine.heal()
        self._tell_devices()

    def slow_down(self, seconds: float) -> None:
        """All that it tells others, and that others tell it, takes so much longer; 0 ends that."""
        self._machine.slow_down(seconds)

    def step_clock(self, seconds: float) -> None:
        """Its time of day jumps, as when somebody sets it. Its timers do not notice."""
        self._machine.step_clock(seconds)

    def kill_kubelet(self) -> None:
        """The kubelet alone dies; its containers and the agents do not notice."""
        if self.has_kubelet:
            self.has_kubelet = False
            self._machine.kill(KUBELET)

    def start_kubelet(self) -> None:
        if self.boot_id is None:
            raise RuntimeError(f"{self.name} has no power: reboot it.")
        if not self.has_kubelet:
            self.has_kubelet = True
            self._machine.start(KUBELET, self._kubelet())

    def reboot(self) -> None:
        """Power loss, if it still had any, and a new boot."""
        self.kill()
        self.thaw()
        self._boot_up()

    def exit(self, namespace: str, name: str, *, code: int) -> None:
        """The containers of a pod end by themselves; what follows is the kubelet's business."""
        uid = self.runtime.find(namespace, name)
        if uid is None:
            raise LookupError(f"{namespace}/{name} does not run on {self.name}.")
        reason = "Error" if code else "Completed"
        self.runtime.stop(uid, code=code, reason=reason, why=f"exited with {code}")

    # Programs

    def run(self, name: str, agent: Agent) -> None:
        """One more agent, from now on and on every boot."""
        self._agents[name] = agent
        if self.boot_id is not None:
            self._machine.start(name, self._main_of(agent))

    def _tell_devices(self) -> None:
        if self._site.devices is not None:
            self._site.devices.node_changed(self.name)

    def _boot_up(self) -> None:
        self.runtime.power_on()
        self._tell_devices()
        self.start_kubelet()
        for name, agent in self._agents.items():
            self._machine.start(name, self._main_of(agent))

    def _kubelet(self) -> Main:
        program: KubeletProgram | None = None

        async def main(seams: Seams) -> None:
            nonlocal program
            if program is None:
                program = KubeletProgram(
                    self._identity,
                    self.runtime,
                    wall=seams.wall,
                    pace=self._site.pace,
                    network=self._site.network,
                    devices=self._site.devices,
                )
            await program.run(self._site.connect(self.name, seams), seams)

        return main

    def _main_of(self, agent: Agent) -> Main:
        boot = self.boot_id
        assert boot is not None

        async def main(seams: Seams) -> None:
            await agent(
                AgentContext(
                    node=self.name,
                    boot_id=boot,
                    client=self._site.connect(self.name, seams),
                    runtime=self.runtime,
                    truth=self._site.truth,
                    seams=seams,
                    reaches=self.reaches,
                )
            )

        return main

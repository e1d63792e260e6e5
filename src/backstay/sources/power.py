"""Power: what the devices of nodes say, while a node is silent and before.

* The device of a silent node is asked every few seconds, and at once when somebody is about to
  act. What counts is an answer that was asked for after suspicion began (``decide/proof.py``).
* All devices are tried, a few at a time, every few minutes: whether they answer, and whether
  they are those of the right machines. Who learns of a wrong password when a node has died learns
  it too late.
* A device is that of a node if it names the same machine as the node's kubelet, and no other node
  names that one too.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NoReturn

import msgspec

from backstay.apis.core import NodeRow
from backstay.decide.power import unidentified
from backstay.drivers.power import PowerDevices, PowerFailed, PowerReading
from backstay.model.evidence import Testimony
from backstay.model.node import NodeFacts
from backstay.model.power import DeviceReport, PowerMeans, PowerSight, machine_of
from backstay.model.power_reasons import PowerReason
from backstay.model.reasons import Why
from backstay.model.workload import Workload
from backstay.seam.tasks import side_by_side
from backstay.sources.nodes import NodeSource

_AT_ONCE = 8
_TRIED_AT_ONCE = 4
_HURRIED = 1.0
"""Seconds between two questions while something was asked of a device."""

_REFRESH = 30.0
"""Seconds until it is looked again which devices there are."""

_MOST_WORRIES = 3

_FIRST_ROUND = 0.25
"""The longest pause between two devices when all of them are tried for the first time."""


class DeviceState(msgspec.Struct, frozen=True):
    """How a device did when it was last asked. ``why`` is what is wrong with it, None if nothing
    is; ``seconds`` is how long it took to answer."""

    why: Why | None
    seconds: float


class PowerSource:
    """See the module; a ``Source``. It asks every ``interval`` seconds about nodes that are silent,
    and tries all devices about every ``survey`` seconds."""

    name = "power"

    def __init__(
        self,
        devices: PowerDevices,
        nodes: NodeSource,
        *,
        interval: float,
        survey: float = 300.0,
    ) -> None:
        self.trouble = ""
        self.states: dict[str, DeviceState] = {}
        self._devices = devices
        self._nodes = nodes
        self._interval = interval
        self._survey = survey
        self._watched: Mapping[str, NodeFacts] = {}
        self._seen: dict[str, PowerSight] = {}
        self._failing: dict[str, str] = {}
        self._hurried: dict[str, float] = {}
        self._answered_at: float | None = None
        self._news = asyncio.Event()
        self._tell: Callable[[str], None] = lambda _: None
        self._machines: Counter[str] = Counter()
        nodes.cache.subscribe(self._node_changed)

    def subscribe(self, tell: Callable[[str], None]) -> None:
        """``tell`` is called with the name of a silent node whose power has changed."""
        self._tell = tell

    def age(self, now: float) -> float | None:
        if self._answered_at is None or self._devices.nodes().isdisjoint(self._watched):
            return None
        return now - self._answered_at

    async def run(self) -> NoReturn:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_refreshing(), name="devices")
            group.create_task(self._keep_trying(), name="survey")
            await self._keep_asking()

    def watch(self, nodes: Sequence[NodeFacts]) -> None:
        self._watched = {node.name: node for node in nodes}
        boots = {_boot(node) for node in nodes}
        self._seen = {boot: sight for boot, sight in self._seen.items() if boot in boots}
        self._failing = {n: why for n, why in self._failing.items() if n in self._watched}
        self._hurried = {n: until for n, until in self._hurried.items() if n in self._watched}
        self._news.set()

    def testimony(self, node: NodeFacts) -> Testimony:
        return Testimony(power=self._seen.get(_boot(node)))

    async def ask(self, node: NodeFacts, workloads: Sequence[Workload]) -> Testimony:
        return Testimony(power=await self._look(node))

    def means(self, node: NodeFacts) -> PowerMeans:
        """What there is to switch it with."""
        if node.name not in self._devices.nodes():
            return PowerMeans()
        return PowerMeans(device=device_of(node.name), failing=self._failing.get(node.name, ""))

    def hurry(self, node: str, *, seconds: float) -> None:
        """For so long its device is asked every second: something is about to change."""
        self._hurried[node] = asyncio.get_running_loop().time() + seconds
        self._news.set()

    def reports(self) -> dict[str, DeviceReport]:
        """How each device was found when it was last tried, by node."""
        return {
            name: DeviceReport()
            if state.why is None
            else DeviceReport(state.why.code, state.why.sentence, state.why.next)
            for name, state in self.states.items()
        }

    def notes(self) -> Iterator[Why]:
        """What is wrong with devices, those first that are another machine's."""
        found = [state.why for _, state in sorted(self.states.items()) if state.why is not None]
        yield from sorted(found, key=lambda why: why.code == PowerReason.DeviceSilent.name)

    def worries(self) -> Iterator[str]:
        """The same in a few sentences, however many there are."""
        found = list(self.notes())
        yield from (why.sentence for why in found[:_MOST_WORRIES])
        if (more := len(found) - _MOST_WORRIES) > 0:
            yield f"{more} more BMCs have trouble: backstay readiness shows which."

    # While a node is silent

    async def _keep_asking(self) -> NoReturn:
        while True:
            self._news.clear()
            await side_by_side(list(self._watched.values()), self._look, at_once=_AT_ONCE)
            try:
                async with asyncio.timeout(self._pause()):
                    await self._news.wait()
            except TimeoutError:
                continue

    def _pause(self) -> float | None:
        if not self._watched:
            return None
        now = asyncio.get_running_loop().time()
        hurried = any(until > now for until in self._hurried.values())
        return min(_HURRIED, self._interval) if hurried else self._interval

    async def _look(self, node: NodeFacts) -> PowerSight | None:
        """What was said before is dropped if it cannot be had again."""
        if node.name not in self._devices.nodes():
            return None
        sight = await self._try(node)
        if sight is None:
            self._seen.pop(_boot(node), None)
            return None
        before = self._seen.get(_boot(node))
        if before is not None and before.observed_at > sight.observed_at:
            # Somebody else has asked meanwhile, and was answered sooner.
            return sight
        if node.name in self._watched:
            self._seen[_boot(node)] = sight
        if before is None or before.on is not sight.on:
            self._tell(node.name)
        return sight

    async def _try(self, node: NodeFacts) -> PowerSight | None:
        """One question, and what is to be known of the device by its answer."""
        loop, device = asyncio.get_running_loop(), device_of(node.name)
        started = loop.time()
        try:
            reading = await self._devices.sight(node.name)
        except PowerFailed as error:
            self._failing[node.name] = str(error)
            about = {"node": node.name, "device": device, "because": str(error)}
            why = PowerReason.DeviceSilent.because(**about)
            self.states[node.name] = DeviceState(why, loop.time() - started)
            return None
        self._failing.pop(node.name, None)
        self._answered_at = started
        sight = PowerSight(
            device=device,
            on=reading.on,
            identified=self._is_its(node, reading),
            detail=reading.detail,
            observed_at=started,
            uuid=reading.uuid,
        )
        self.states[node.name] = DeviceState(unidentified(sight, node), loop.time() - started)
        return sight

    def _is_its(self, node: NodeFacts, reading: PowerReading) -> bool:
        machine = machine_of(reading.uuid)
        if not machine or machine != machine_of(node.system_uuid):
            return False
        return self._machines[machine] <= 1

    def _node_changed(self, old: NodeRow | None, new: NodeRow | None) -> None:
        """How many nodes name each machine."""
        for row, change in ((old, -1), (new, 1)):
            machine = "" if row is None else machine_of(row.system_uuid)
            if machine:
                self._machines[machine] += change

    # Before

    async def _keep_refreshing(self) -> NoReturn:
        while True:
            wrong = [*await self._devices.refresh(), *self._nobodys()]
            more = f"; and {len(wrong) - 1} more of the kind" if len(wrong) > 1 else ""
            self.trouble = f"{wrong[0]}{more}" if wrong else ""
            there = self._devices.nodes() & self._nodes.names
            self.states = {name: state for name, state in self.states.items() if name in there}
            await asyncio.sleep(_REFRESH)

    def _nobodys(self) -> list[str]:
        """What is described under a name that no node has: most often that is a slip."""
        if not self._nodes.cache.synced:
            return []
        unknown = sorted(self._devices.nodes() - self._nodes.names)
        return [f"a BMC is described for {name}, and there is no such node" for name in unknown]

    async def _keep_trying(self) -> NoReturn:
        longest = _FIRST_ROUND
        while True:
            names = sorted(self._devices.nodes() & self._nodes.names)
            pause = self._survey / max(1, len(names))
            for at in range(0, len(names), _TRIED_AT_ONCE):
                batch = names[at : at + _TRIED_AT_ONCE]
                await asyncio.sleep(min(pause, longest) * len(batch))
                known = (self._nodes.facts(each) for each in batch if each not in self._watched)
                await side_by_side(filter(None, known), self._try, at_once=_TRIED_AT_ONCE)
            if names:
                longest = self._survey
            else:
                await asyncio.sleep(min(_REFRESH, self._interval))


def device_of(node: str) -> str:
    """As a part of a sentence."""
    return f"the BMC of {node}"


def _boot(node: NodeFacts) -> str:
    return f"{node.uid}/{node.boot_id}"

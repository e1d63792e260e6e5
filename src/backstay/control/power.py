"""The power of a silent node: switched off where nothing else proves its death, and on again when
everything is done without it.

* A request is never proof, and never repeated blindly. The device is watched; if the node stays on,
  it is asked again once the last request cannot be under way any more, a few times, and then that
  is said once.
* Whoever switches on has waited, by its own clock and from when it first saw it, for as long as the
  last claim on the device may last (``PowerRecord``); that it stands in the incident is what a
  successor knows it by.
* That a device is silent, or another machine's, is said once and holds up nothing else.
"""

import asyncio
from collections.abc import Callable, Sequence

from backstay.control.guard import Guard
from backstay.control.incident import OpenIncident
from backstay.decide.failover import Decision, Snapshot
from backstay.decide.power import (
    MOST_OFFS,
    MOST_ONS,
    POWER_CHAIN,
    PowerCase,
    PowerCheck,
    decide_power,
    has_lapsed,
    is_on_due,
)
from backstay.kube.lease import Term
from backstay.model.policy import Times
from backstay.model.power import NO_POWER, PowerRecord
from backstay.model.power_reasons import PowerReason
from backstay.model.reasons import Why
from backstay.sources.power import PowerSource, device_of

_WORTH_SAYING = frozenset(
    reason.name
    for reason in (
        PowerReason.NoDevice,
        PowerReason.DeviceSilent,
        PowerReason.WrongDevice,
        PowerReason.DeviceUnidentified,
        PowerReason.InMaintenance,
        PowerReason.LastCopyThere,
        PowerReason.OtherCopiesUnknown,
        PowerReason.ControlPlaneNeedsIt,
        PowerReason.StillConnected,
        PowerReason.SwitchedOnSince,
    )
)
"""What people can do something about. The rest is said of the workloads that wait as well."""

_PAUSE = 5.0
"""Seconds between two looks whether a node can be switched on."""


class Power:
    """See the module. Without a ``source`` there are no devices, and nothing is done."""

    def __init__(
        self,
        guard: Guard,
        source: PowerSource | None,
        *,
        times: Times,
        chain: Sequence[PowerCheck] = POWER_CHAIN,
    ) -> None:
        self._guard = guard
        self._source = source
        self._times = times
        self._chain = chain
        self._claims: dict[str, tuple[PowerRecord, float]] = {}
        """Of each node the last claim on its device, and when it was first seen here."""
        self._failed: dict[str, str] = {}
        self._looked_at: dict[str, float] = {}
        self._due: set[str] = set()
        """The nodes that are to be switched on."""
        self._settled: set[str] = set()
        """The nodes that were seen to be on again, or of which nobody will ask that any more."""

    async def switch_off(
        self,
        snapshot: Snapshot,
        decision: Decision,
        incident: OpenIncident,
        *,
        term: Term,
        told: Callable[[Why], None],
    ) -> str:
        """What became of it, in words; empty if there was nothing to do."""
        record, seen_at = self._claim(snapshot, incident)
        if self._source is None or not (decision.held and snapshot.policy.power):
            return ""
        case = self._case(snapshot, decision, incident, self._source)
        verdict = decide_power(case, chain=self._chain)
        if not verdict.switch:
            if case.waiting and verdict.why is not None and verdict.why.code in _WORTH_SAYING:
                self._say_once(verdict.why, incident, told)
            return ""
        if record.offs and not has_lapsed(record, seen_at, case.now):
            return ""
        if record.offs >= MOST_OFFS:
            because = self._failed.get(decision.node) or "it was asked, and is on"
            why = _unanswered(PowerReason.PowerOffUnanswered, decision.node, record.offs, because)
            self._say_once(why, incident, told)
            return ""
        return await self._ask_off(snapshot, incident, self._source, term, told)

    async def _ask_off(
        self,
        snapshot: Snapshot,
        incident: OpenIncident,
        source: PowerSource,
        term: Term,
        told: Callable[[Why], None],
    ) -> str:
        node = snapshot.facts.name
        done = await self._guard.switch_off(node, source.means, term=term, incident=incident)
        record, _ = self._claim(snapshot, incident)
        if not done.asked:
            return ""
        self._failed[node] = done.failed
        source.hurry(node, seconds=record.seconds)
        if done.failed:
            self._say_once(_refused(node, "off", done.failed), incident, told)
            return done.failed
        told(PowerReason.SwitchingOff.because(node=node, device=device_of(node)))
        return "its device was asked to switch it off"

    def is_awaited(self, snapshot: Snapshot, incident: OpenIncident) -> bool:
        """Whether its device was asked to switch it off, and that may still take effect: until then
        nobody knows whether the node, be it alive, will be so in a moment."""
        record, seen_at = self._claim(snapshot, incident)
        now = asyncio.get_running_loop().time()
        return record.offs > 0 and not record.ons and not has_lapsed(record, seen_at, now)

    def is_promising(self, snapshot: Snapshot, incident: OpenIncident) -> bool:
        """Whether that is worth to wait for: one that was asked twice, or could not be asked, is
        not what anybody relies on."""
        record = incident.row.status.power or NO_POWER
        well = record.offs == 1 and not self._failed.get(snapshot.facts.name)
        return well and self.is_awaited(snapshot, incident)

    async def switch_on(
        self,
        snapshot: Snapshot,
        decision: Decision,
        incident: OpenIncident,
        *,
        owes: bool,
        term: Term,
        told: Callable[[Why], None],
    ) -> str:
        """The same, the other way. ``owes``: volumes are still to be freed."""
        record, seen_at = self._claim(snapshot, incident)
        node = snapshot.facts.name
        if self._source is None or not record.offs or node in self._settled:
            return ""
        case = self._case(snapshot, decision, incident, self._source)
        due = is_on_due(case, owes=owes)
        (self._due.add if due.switch else self._due.discard)(node)
        if not due.switch:
            self._say_once(due.why, incident, told)
            return ""
        waited = case.now - self._looked_at.get(node, 0.0) >= _PAUSE
        if not waited or not has_lapsed(record, seen_at, case.now):
            return ""
        self._looked_at[node] = case.now
        done = await self._guard.switch_on(
            node, self._source.means, seen_at=seen_at, owes=owes, term=term, incident=incident
        )
        self._claim(snapshot, incident)
        if done.asked:
            self._failed[node] = done.failed
            if done.failed:
                self._say_once(_refused(node, "on", done.failed), incident, told)
                return done.failed
            told(PowerReason.SwitchingOn.because(node=node, device=device_of(node)))
            return "its device was asked to switch it on"
        if done.on:
            self._settled.add(node)
        elif record.ons >= MOST_ONS:
            because = self._failed.get(node) or "it was asked, and is off"
            why = _unanswered(PowerReason.PowerOnUnanswered, node, record.ons, because)
            self._say_once(why, incident, told)
            self._settled.add(node)
        return ""

    def owes(self, node: str) -> bool:
        """Whether it is to be switched on, and was not seen to be on yet."""
        return node in self._due and node not in self._settled

    def forget(self, node: str) -> None:
        self._settled.discard(node)
        self._due.discard(node)
        for kept in (self._claims, self._failed, self._looked_at):
            kept.pop(node, None)

    def _claim(self, snapshot: Snapshot, incident: OpenIncident) -> tuple[PowerRecord, float]:
        """The last claim on the device, and when it was first seen here."""
        node, record = snapshot.facts.name, incident.row.status.power or NO_POWER
        known = self._claims.get(node)
        if known is None or known[0] != record:
            known = self._claims[node] = record, asyncio.get_running_loop().time()
        return known

    def _case(
        self, snapshot: Snapshot, decision: Decision, incident: OpenIncident, source: PowerSource
    ) -> PowerCase:
        return PowerCase(
            snapshot=snapshot,
            decision=decision,
            means=source.means(snapshot.facts),
            told=incident.row.status,
            now=asyncio.get_running_loop().time(),
            times=self._times,
        )

    def _say_once(
        self, why: Why | None, incident: OpenIncident, told: Callable[[Why], None]
    ) -> None:
        """In one incident, whoever leads."""
        said = {moment.code for moment in incident.row.status.timeline}
        if why is not None and why.code not in said:
            told(why)


def _refused(node: str, what: str, because: str) -> Why:
    about = {"node": node, "device": device_of(node), "what": what, "because": because}
    return PowerReason.PowerRefused.because(**about)


def _unanswered(reason: PowerReason, node: str, count: int, because: str) -> Why:
    return reason.because(node=node, device=device_of(node), count=count, because=because)

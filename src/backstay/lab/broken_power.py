"""Broken parts that have to do with power; see ``broken.py``."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from backstay.control.guard import Guard
from backstay.control.incident import OpenIncident
from backstay.control.outcomes import Switched
from backstay.control.power import Power
from backstay.decide.failover import Decision, Snapshot
from backstay.decide.power import POWER_CHAIN, PowerCase, PowerCheck
from backstay.drivers.power import PowerReading
from backstay.drivers.redfish import Redfish
from backstay.kube.lease import Term
from backstay.model.evidence import Testimony
from backstay.model.incident import IncidentStatus, Step
from backstay.model.node import NodeFacts
from backstay.model.power import NO_POWER, PowerMeans, PowerRecord, PowerSight
from backstay.model.reasons import Why
from backstay.model.workload import Workload
from backstay.sources.power import PowerSource


def power_without(*checks: PowerCheck) -> tuple[PowerCheck, ...]:
    """The shipped questions but for these."""
    missing = [check for check in checks if check not in POWER_CHAIN]
    assert not missing, f"no such checks: {missing}"
    return tuple(check for check in POWER_CHAIN if check not in checks)


class OfAnyMachine(PowerSource):
    """Whoever answers is the device of the node."""

    def _is_its(self, node: NodeFacts, reading: PowerReading) -> bool:
        return True


class BelievesTheCommand(PowerSource):
    """A device that was asked is taken to have done it."""

    def __init__(self, *args: Any, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self._commanded: set[str] = set()

    def hurry(self, node: str, *, seconds: float) -> None:
        self._commanded.add(node)
        super().hurry(node, seconds=seconds)

    async def _try(self, node: NodeFacts) -> PowerSight | None:
        sight = await super()._try(node)
        if sight is None or node.name not in self._commanded:
            return sight
        return msgspec.structs.replace(sight, on=False)


class AsksOnce(PowerSource):
    """What was read of a node that is off is not read again."""

    async def ask(self, node: NodeFacts, workloads: Sequence[Workload]) -> Testimony:
        known = self.testimony(node)
        if known.power is None or known.power.on is not False:
            return await super().ask(node, workloads)
        return known


class WithoutIntent(Guard):
    """Tells nobody what it is about to ask of a device."""

    async def _claim(
        self, step: Step, snapshot: Snapshot, term: Term, incident: OpenIncident
    ) -> float:
        status = incident.row.status
        record = status.power or NO_POWER
        counted = msgspec.structs.replace(
            record,
            offs=record.offs + (step is Step.POWER_OFF),
            ons=record.ons + (step is Step.POWER_ON),
        )
        incident.row = msgspec.structs.replace(
            incident.row, status=msgspec.structs.replace(status, power=counted)
        )
        return term.require()


class _Restarting(Redfish):
    """Has a machine start anew, which is off for a moment only."""

    async def switch_off(self, node: str, *, not_after: float) -> None:
        known = await self._read(node)
        system = await self._system(known)
        body = msgspec.json.encode({"ResetType": "ForceRestart"})
        path = system.actions.reset.target
        await self._send(known, "POST", path, body, not_after=not_after)


class RestartsInstead(Guard):
    def __init__(self, *args: Any, **rest: Any) -> None:
        shipped = rest.get("devices")
        if isinstance(shipped, Redfish):
            rest["devices"] = _Restarting(shipped._transport, shipped._files, shipped._directory)
        super().__init__(*args, **rest)


# Switching on


class ForgetsOlderClaims(Power):
    """Does not ask whether a request to switch off may still be on its way."""

    def _claim(self, snapshot: Snapshot, incident: OpenIncident) -> tuple[PowerRecord, float]:
        record, _ = super()._claim(snapshot, incident)
        return record, -math.inf


class HastyPower(Power):
    """Has a node switched on as soon as it is off."""

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
        if self._source is None or not (incident.row.status.power or NO_POWER).offs:
            return ""
        node = snapshot.facts.name
        await self._guard.switch_on(
            node, self._source.means, seen_at=-math.inf, owes=False, term=term, incident=incident
        )
        return ""


class SwitchesOnTooSoon(Guard):
    """Does not ask whether all is done."""

    async def switch_on(
        self,
        node: str,
        means: Callable[[NodeFacts], PowerMeans],
        *,
        seen_at: float,
        owes: bool,
        term: Term,
        incident: OpenIncident,
    ) -> Switched:
        return await super().switch_on(
            node, means, seen_at=seen_at, owes=owes, term=term, incident=_AllDone(incident)
        )

    def _power_case(
        self, snapshot: Snapshot, means: Callable[[NodeFacts], PowerMeans], incident: OpenIncident
    ) -> PowerCase:
        case = super()._power_case(snapshot, means, incident)
        if not isinstance(incident, _AllDone):
            return case
        return msgspec.structs.replace(case, told=msgspec.structs.replace(case.told, workloads=()))


class _AllDone(OpenIncident):
    """An incident as it would be at its end."""

    def __init__(self, incident: OpenIncident) -> None:
        super().__init__(incident._book, incident.row)
        self._whole = incident

    async def claim_power(self, *args: Any, **rest: Any) -> None:
        await self._whole.claim_power(*args, **rest)
        self.row = self._whole.row


class OnForAnybody(Guard):
    """Does not ask who has switched a node off."""

    def _power_case(
        self, snapshot: Snapshot, means: Callable[[NodeFacts], PowerMeans], incident: OpenIncident
    ) -> PowerCase:
        case = super()._power_case(snapshot, means, incident)
        return msgspec.structs.replace(case, told=_as_if_ours(case.told))


class PowerForAnybody(Power):
    def _claim(self, snapshot: Snapshot, incident: OpenIncident) -> tuple[PowerRecord, float]:
        record, seen_at = super()._claim(snapshot, incident)
        return (record, seen_at) if record.offs else (_ONE_OFF, -math.inf)

    def _case(
        self, snapshot: Snapshot, decision: Decision, incident: OpenIncident, source: PowerSource
    ) -> PowerCase:
        case = super()._case(snapshot, decision, incident, source)
        return msgspec.structs.replace(case, told=_as_if_ours(case.told))


_ONE_OFF = msgspec.structs.replace(NO_POWER, offs=1)


def _as_if_ours(told: IncidentStatus) -> IncidentStatus:
    record = told.power or NO_POWER
    return told if record.offs else msgspec.structs.replace(told, power=_ONE_OFF)

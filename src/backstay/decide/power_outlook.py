"""What would come of switching a node off, if it died now: the rules of ``power.py``, as far as
they can be asked before."""

import msgspec

from backstay.decide.failover import Decision, Snapshot
from backstay.decide.power import (
    PowerCase,
    PowerCheck,
    does_the_control_plane_need_it,
    is_it_in_maintenance,
    is_it_our_job,
    is_node_exempt,
)
from backstay.model.caveats import Caveat
from backstay.model.incident import IncidentStatus
from backstay.model.policy import Times
from backstay.model.power import DeviceReport, PowerMeans, PowerSight
from backstay.model.power_reasons import PowerReason
from backstay.model.reasons import Reason, Why

SECONDS = 10
"""Until a BMC has switched a machine off and says so, as a rule."""

_ASKED: tuple[PowerCheck, ...] = (
    is_it_our_job,
    is_node_exempt,
    is_it_in_maintenance,
    does_the_control_plane_need_it,
)


class PowerOutlook(msgspec.Struct, frozen=True):
    """``proves``: the node would be switched off and seen to be. ``why`` says so, or why not; it is
    None where nobody has asked for that."""

    proves: bool = False
    why: Why | None = None


def power_outlook(snapshot: Snapshot, device: DeviceReport | None, *, known: bool) -> PowerOutlook:
    """``device`` is how that of the node was found; ``known``: somebody has looked which there
    are."""
    facts = snapshot.facts
    case = PowerCase(
        snapshot=snapshot,
        decision=Decision(facts.name, Reason.NodeHealthy.because(node=facts.name)),
        means=PowerMeans(),
        told=IncidentStatus(),
        now=0.0,
        times=Times(),
    )
    if not snapshot.policy.power or not known:
        return PowerOutlook()
    for check in _ASKED:
        if (why := check(case)) is not None:
            return PowerOutlook(why=why)
    if device is None:
        return PowerOutlook(why=PowerReason.NoDevice.because(node=facts.name))
    if not device.works:
        return PowerOutlook(why=Why(device.code, device.sentence, device.next))
    why = Caveat.ProvenByPower.because(node=facts.name, seconds=SECONDS)
    return PowerOutlook(proves=True, why=why)


def as_if_off(snapshot: Snapshot) -> Snapshot:
    """The same, once its device says that it is off."""
    sight = PowerSight(
        device=f"the BMC of {snapshot.facts.name}",
        on=False,
        identified=True,
        detail="it would be off",
        observed_at=0.0,
    )
    testimony = msgspec.structs.replace(snapshot.testimony, power=sight)
    return msgspec.structs.replace(snapshot, testimony=testimony)

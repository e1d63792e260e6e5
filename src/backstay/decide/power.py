"""Power: whether a silent node is switched off, so that nothing there can run any more; and
whether it is switched on again.

Either is a deed of its own with a chain of its own, because it can hurt: if the node lives after
all, all its guests are killed, and so is whatever else it bears. ``decide_power`` asks, and the
first that objects gives the reason:

* the node is lost, the configuration wants it, it is our job, the node is not exempt, and nobody
  works on it;
* there is a device, it answers, and it is that of this very machine;
* the node is not off yet (if it is, that is proof by itself), and was not off in this incident: who
  has switched it on since had a reason;
* it would help: some workload is held for lack of proof, and the node has not the last copy of what
  that needs;
* our view is sound; nothing of the node was heard on any channel, its storage has lost it too, and
  it is more than its lease that is silent;
* it is no storm, and the control plane keeps its majority without it;
* the API has not gone back in time, and we are armed.

**Power order.** No ``off`` may arrive after the ``on`` of its incident. What was asked of a device
stands in the incident before it is sent, together with how long it may be under way
(``PowerRecord``). ``decide_power_on`` waits for the whole of that, counted from when the one who
would switch on has first seen it; and once an ``on`` stands there, nobody asks for ``off`` again.
"""

from collections.abc import Callable, Sequence

import msgspec

from backstay.decide import life as lives
from backstay.decide import proof, restraint
from backstay.decide.failover import Decision, Snapshot
from backstay.model.drbd import ResourceSight
from backstay.model.evidence import EvidenceKind
from backstay.model.incident import IncidentStatus, Progress, WorkloadRecord
from backstay.model.node import Life, NodeFacts
from backstay.model.policy import Job, Ownership, Times
from backstay.model.power import NO_POWER, PowerMeans, PowerRecord, PowerSight, machine_of
from backstay.model.power_reasons import PowerReason
from backstay.model.reasons import Reason, Why
from backstay.model.workload import Workload

MOST_OFFS = 4
MOST_ONS = 3
"""How often a device is asked in one incident."""

_UNPROVEN = (Reason.ProofMissing.name, Reason.ConfirmationRefused.name)


class PowerCase(msgspec.Struct, frozen=True, kw_only=True):
    """What a check is asked about. ``told`` is the incident as it stands."""

    snapshot: Snapshot
    decision: Decision
    means: PowerMeans
    told: IncidentStatus
    now: float
    times: Times

    @property
    def sight(self) -> PowerSight | None:
        """What the device has said of late."""
        sight = self.snapshot.testimony.power
        recent = sight is not None and self.now - sight.observed_at <= self.times.fresh
        return sight if recent else None

    @property
    def waiting(self) -> tuple[Workload, ...]:
        """What is held for lack of proof, and for nothing else."""
        return tuple(v.workload for v in self.decision.held if v.why.code in _UNPROVEN)


PowerCheck = Callable[[PowerCase], Why | None]


class PowerVerdict(msgspec.Struct, frozen=True):
    """Whether to switch it. ``why`` says what objects, if something does."""

    switch: bool
    why: Why | None


def decide_power(case: PowerCase, *, chain: Sequence[PowerCheck]) -> PowerVerdict:
    """See the module."""
    for check in chain:
        why = check(case)
        if why is not None:
            return PowerVerdict(False, why)
    return PowerVerdict(True, None)


# The checks, each the answer to one question


def is_node_lost(case: PowerCase) -> Why | None:
    """Or proven to be shut out of some volumes, which says nothing of what else it runs."""
    life = case.snapshot.life
    return None if life.state in (Life.LOST, Life.PROVEN) else life.why


def is_it_our_job(case: PowerCase) -> Why | None:
    policy = case.snapshot.policy
    owner = policy.owner_of(Job.FENCING) if policy.power else Ownership.OFF
    if owner is Ownership.OURS:
        return None
    return Reason.NotOurJob.because(job=Job.FENCING, owner=owner)


def is_node_exempt(case: PowerCase) -> Why | None:
    facts = case.snapshot.facts
    return Reason.Exempt.because(node=facts.name) if facts.exempt else None


def is_it_in_maintenance(case: PowerCase) -> Why | None:
    facts = case.snapshot.facts
    return PowerReason.InMaintenance.because(node=facts.name) if facts.in_maintenance else None


def is_there_a_device(case: PowerCase) -> Why | None:
    node, means = case.snapshot.facts.name, case.means
    if not means.device:
        return PowerReason.NoDevice.because(node=node)
    if case.sight is not None:
        return None
    because = means.failing or "it was not asked yet"
    return PowerReason.DeviceSilent.because(node=node, device=means.device, because=because)


def is_it_the_right_one(case: PowerCase) -> Why | None:
    return None if case.sight is None else unidentified(case.sight, case.snapshot.facts)


def unidentified(sight: PowerSight, facts: NodeFacts) -> Why | None:
    """Why a device is not known to be that of the node, if it is not."""
    if sight.identified:
        return None
    known, about = facts.system_uuid, {"device": sight.device, "node": facts.name}
    if not machine_of(sight.uuid):
        because = "it does not name its machine"
    elif not machine_of(known):
        because = f"the node's kubelet does not name the machine that {facts.name} is"
    elif machine_of(sight.uuid) == machine_of(known):
        because = "another node names the same machine"
    else:
        return PowerReason.WrongDevice.because(shown=sight.uuid, known=known, **about)
    return PowerReason.DeviceUnidentified.because(because=because, **about)


def is_it_on(case: PowerCase) -> Why | None:
    sight, node = case.sight, case.snapshot.facts.name
    if sight is None or sight.on:
        return None
    if sight.on is None:
        about = {"node": node, "device": sight.device, "because": sight.detail}
        return PowerReason.PowerInBetween.because(**about)
    return PowerReason.AlreadyOff.because(node=node, device=sight.device)


def has_somebody_switched_it_on(case: PowerCase) -> Why | None:
    """We, or somebody else: either way it is not switched off again in the same incident."""
    record = case.told.power or NO_POWER
    was_off = any(each.kind == EvidenceKind.POWERED_OFF.value for each in case.told.evidence)
    if not record.ons and not was_off:
        return None
    return PowerReason.SwitchedOnSince.because(node=case.snapshot.facts.name)


def would_it_help(case: PowerCase) -> Why | None:
    if case.waiting:
        return None
    return PowerReason.NothingWaits.because(node=case.snapshot.facts.name)


def has_it_the_last_copy(case: PowerCase) -> Why | None:
    """Where that is so for all that waits; what can be moved is not left for what cannot."""
    lost = [_last_copies(workload, case.snapshot) for workload in case.waiting]
    if not lost or not all(lost):
        return None
    volumes = ", ".join(dict.fromkeys(claim for claims in lost for claim in claims))
    return PowerReason.LastCopyThere.because(node=case.snapshot.facts.name, volumes=volumes)


def _last_copies(workload: Workload, snapshot: Snapshot) -> tuple[str, ...]:
    return tuple(
        volume.claim
        for volume in workload.volumes
        for sight in snapshot.testimony.quorums
        if proof.is_of(volume, sight) and _is_last_copy(sight)
    )


def _is_last_copy(sight: ResourceSight) -> bool:
    """By LINSTOR's word: the node has a disk, and of all others it is known that theirs lack
    something. That none could be promoted says nothing: one that is connected to a primary cannot
    be."""
    own = any(each.node == sight.node and each.diskful for each in sight.replicas)
    others = [each for each in sight.replicas if each.node != sight.node and each.diskful]
    return own and not sight.view and all(each.up_to_date is False for each in others)


def are_its_copies_known(case: PowerCase) -> Why | None:
    """While LINSTOR does not tell whether another copy is good, this may be the last; and without
    LINSTOR nobody could use the other either, so that nothing is lost by waiting for it."""
    told = case.snapshot
    waits = [_untold(each, told) or _last_copies(each, told) for each in case.waiting]
    untold = dict.fromkeys(claim for each in case.waiting for claim in _untold(each, told))
    if not untold or not all(waits):
        return None
    return PowerReason.OtherCopiesUnknown.because(node=told.facts.name, volumes=", ".join(untold))


def _untold(workload: Workload, snapshot: Snapshot) -> tuple[str, ...]:
    testimony = snapshot.testimony
    silent = {each.driver for each in testimony.unheard if each.driver}
    return tuple(
        volume.claim
        for volume in workload.volumes
        if volume.driver in silent
        or any(proof.is_of(volume, each) and _is_untold(each) for each in testimony.quorums)
    )


def _is_untold(sight: ResourceSight) -> bool:
    others = [each for each in sight.replicas if each.node != sight.node and each.diskful]
    known = any(each.up_to_date for each in others) and not sight.view
    return not known and (bool(sight.view) or any(each.up_to_date is None for each in others))


def is_view_fresh(case: PowerCase) -> Why | None:
    return restraint.stale(case.snapshot, case.times)


def is_anything_heard(case: PowerCase) -> Why | None:
    """What is switched off while it runs is killed."""
    return restraint.heard(case.snapshot, case.times, waiting=next(iter(case.waiting), None))


def is_it_still_connected(case: PowerCase) -> Why | None:
    """A node that its peers replicate with lives, whatever Kubernetes hears of it."""
    snapshot, now = case.snapshot, case.now
    for sight in snapshot.testimony.quorums:
        if sight.view or now - sight.observed_at > case.times.fresh:
            continue
        for each in sight.replicas:
            if each.online and each.sees and each.node != sight.node:
                about = {"node": snapshot.facts.name, "peer": each.node}
                return PowerReason.StillConnected.because(**about)
    return None


def is_it_silent_elsewhere(case: PowerCase) -> Why | None:
    node, times = case.snapshot.facts.name, case.times
    if restraint.is_silent_elsewhere(case.snapshot, case.now, times):
        return None
    return PowerReason.PowerWaits.because(node=node, seconds=round(times.heartbeat))


def is_it_a_storm(case: PowerCase) -> Why | None:
    return restraint.stormy(case.snapshot, waiting=next(iter(case.waiting), None))


def does_the_control_plane_need_it(case: PowerCase) -> Why | None:
    facts, fleet = case.snapshot.facts, case.snapshot.fleet
    count = len(fleet.control_plane)
    alive = sum(name != facts.name for name in fleet.control_plane_alive)
    if not facts.control_plane or 2 * alive > count:
        return None
    return PowerReason.ControlPlaneNeedsIt.because(node=facts.name, alive=alive, count=count)


def has_api_gone_back(case: PowerCase) -> Why | None:
    return restraint.rolled_back(case.snapshot.policy)


def may_we_act(case: PowerCase) -> Why | None:
    """Last, so that everything above is said in observation too."""
    return restraint.unarmed(case.snapshot.policy, f"the power of {case.snapshot.facts.name}")


POWER_CHAIN: tuple[PowerCheck, ...] = (
    is_node_lost,
    is_it_our_job,
    is_node_exempt,
    is_it_in_maintenance,
    is_there_a_device,
    is_it_the_right_one,
    is_it_on,
    has_somebody_switched_it_on,
    would_it_help,
    has_it_the_last_copy,
    are_its_copies_known,
    is_view_fresh,
    is_anything_heard,
    is_it_still_connected,
    is_it_silent_elsewhere,
    is_it_a_storm,
    does_the_control_plane_need_it,
    has_api_gone_back,
    may_we_act,
)


# Switching it on again

_STRANDED = 2.0
"""How many times as long as a presumption takes what was released may look for another place."""

_OVER = (Progress.LEFT, Progress.RECOVERED, Progress.STAYS_DOWN)


def is_all_done(case: PowerCase) -> bool:
    """Whether nothing is left to do without the node. What cannot run anywhere else waits for the
    very node, and nothing else would help it; and so does what has found no room for long."""
    return all(
        record.progress in _OVER
        or (record.progress is Progress.HELD and record.code == Reason.CannotRunElsewhere.name)
        or _is_stranded(record, case)
        for record in case.told.workloads
    )


def _is_stranded(record: WorkloadRecord, case: PowerCase) -> bool:
    """It was released, and runs nowhere. It cannot run twice: whatever boots does not know it."""
    waited = lives.silence(case.snapshot.facts) - (record.released_after or 0.0)
    return record.progress is Progress.RELEASED and waited >= _STRANDED * case.times.presume


def is_on_due(case: PowerCase, *, owes: bool) -> PowerVerdict:
    """Whether a node that we have switched off is to be switched on again, as far as that can be
    said without asking its device. ``owes``: volumes are still to be freed. Where no reason is
    given there is nothing to do."""
    snapshot, record = case.snapshot, case.told.power or NO_POWER
    if not record.offs or owes or not (_is_over(case) and is_all_done(case)):
        return PowerVerdict(False, None)
    policy, node = snapshot.policy, snapshot.facts.name
    if not policy.power_on or is_it_our_job(case) is not None:
        return PowerVerdict(False, PowerReason.StaysOff.because(node=node))
    why = (
        is_node_exempt(case)
        or is_it_in_maintenance(case)
        or has_api_gone_back(case)
        or restraint.unarmed(policy, f"the power of {node}")
    )
    return PowerVerdict(why is None, why)


def _is_over(case: PowerCase) -> bool:
    """Whatever waited for proof may have been deleted by its owner meanwhile: then nothing is ever
    proven, and the node is done with all the same."""
    state = case.snapshot.life.state
    done = state in (Life.PROVEN, Life.RECOVERED)
    return done or (state is Life.LOST and case.decision.leaves_all)


def decide_power_on(case: PowerCase, *, seen_at: float, owes: bool) -> PowerVerdict:
    """The same, once its device was asked. ``seen_at`` is when whoever decides has first seen the
    last claim on the device."""
    due, record = is_on_due(case, owes=owes), case.told.power or NO_POWER
    if not due.switch:
        return due
    why = is_there_a_device(case) or is_it_the_right_one(case)
    is_off = case.sight is not None and case.sight.on is False
    may = is_off and record.ons < MOST_ONS and has_lapsed(record, seen_at, case.now)
    return PowerVerdict(may and why is None, why)


def has_lapsed(record: PowerRecord, seen_at: float, now: float) -> bool:
    """Whether what was asked of the device last can no longer arrive there."""
    return now - seen_at > record.seconds

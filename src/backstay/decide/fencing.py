"""Fencing: whether the storage is told to refuse a silent node, so that its volumes can be used
elsewhere without anybody's word that it is dead.

It is a deed of its own with a chain of its own, because it can hurt: if the node lives after all,
its guests lose their disks. ``decide`` asks, and the first that objects gives the reason:

* the configuration wants it, and it is our job;
* the node is lost, not exempt, and nothing of it was heard on any channel: no answer at its ports,
  no heartbeat of virt-handler; and it is more than the lease that is silent;
* our view is sound, and it is no storm: one fence at a time is a fence, several are an outage;
* it would help: some workload is held for lack of proof and for nothing else, and *all* that it
  can write to would be refused;
* we are armed, and the API has not gone back in time since.

What is fenced is a driver and one of its clusters, for all addresses of the node.
"""

from collections.abc import Callable

import msgspec

from backstay.decide import restraint
from backstay.decide.failover import Decision, Snapshot
from backstay.decide.policy import terms_of
from backstay.model.fences import FenceOrder, Fencing
from backstay.model.node import Life
from backstay.model.policy import Job, Ownership, Times
from backstay.model.reasons import Reason, Why
from backstay.model.workload import Volume, Workload


class FenceCase(msgspec.Struct, frozen=True, kw_only=True):
    """What a check is asked about; ``orders`` is what would be asked of the storage."""

    snapshot: Snapshot
    decision: Decision
    fencing: Fencing
    orders: tuple[FenceOrder, ...]
    times: Times


FenceCheck = Callable[[FenceCase], Why | None]


class FenceVerdict(msgspec.Struct, frozen=True):
    """``orders`` are empty if something objects; ``why`` says what."""

    orders: tuple[FenceOrder, ...]
    why: Why | None


def decide_fencing(
    snapshot: Snapshot, decision: Decision, fencing: Fencing, *, times: Times
) -> FenceVerdict:
    """See the module."""
    orders = _orders(snapshot, decision, fencing)
    case = FenceCase(
        snapshot=snapshot, decision=decision, fencing=fencing, orders=orders, times=times
    )
    for check in FENCE_CHAIN:
        why = check(case)
        if why is not None:
            return FenceVerdict((), why)
    return FenceVerdict(orders, None)


def is_node_lost(case: FenceCase) -> Why | None:
    life = case.snapshot.life
    return None if life.state is Life.LOST else life.why


def is_it_our_job(case: FenceCase) -> Why | None:
    policy = case.snapshot.policy
    owner = policy.owner_of(Job.FENCING) if policy.network_fences else Ownership.OFF
    if owner is Ownership.OURS:
        return None
    return Reason.NotOurJob.because(job=Job.FENCING, owner=owner)


def is_node_exempt(case: FenceCase) -> Why | None:
    facts = case.snapshot.facts
    return Reason.Exempt.because(node=facts.name) if facts.exempt else None


def would_it_help(case: FenceCase) -> Why | None:
    if case.orders:
        return None
    return Reason.NothingToFence.because(node=case.snapshot.facts.name)


def is_view_fresh(case: FenceCase) -> Why | None:
    return restraint.stale(case.snapshot, case.times)


def is_anything_heard(case: FenceCase) -> Why | None:
    """A guest whose disk is taken away while it runs is a guest that is killed."""
    return restraint.heard(case.snapshot, case.times, waiting=_first_held(case))


def is_it_silent_elsewhere(case: FenceCase) -> Why | None:
    snapshot, times = case.snapshot, case.times
    if restraint.is_silent_elsewhere(snapshot, snapshot.facts.looked_at, times):
        return None
    return Reason.FenceWaits.because(node=snapshot.facts.name, seconds=round(times.heartbeat))


def is_it_a_storm(case: FenceCase) -> Why | None:
    return restraint.stormy(case.snapshot, waiting=_first_held(case))


def has_api_gone_back(case: FenceCase) -> Why | None:
    return restraint.rolled_back(case.snapshot.policy)


def may_we_act(case: FenceCase) -> Why | None:
    return restraint.unarmed(case.snapshot.policy, f"the storage of {case.snapshot.facts.name}")


def _first_held(case: FenceCase) -> Workload | None:
    return next((verdict.workload for verdict in case.decision.held), None)


FENCE_CHAIN: tuple[FenceCheck, ...] = (
    is_node_lost,
    is_it_our_job,
    is_node_exempt,
    would_it_help,
    is_view_fresh,
    is_anything_heard,
    is_it_silent_elsewhere,
    is_it_a_storm,
    has_api_gone_back,
    may_we_act,
)


# What there is to fence


def _orders(snapshot: Snapshot, decision: Decision, fencing: Fencing) -> tuple[FenceOrder, ...]:
    waiting = [
        verdict.workload
        for verdict in decision.held
        if verdict.why.code == Reason.ProofMissing.name
    ]
    found: dict[tuple[str, str], FenceOrder] = {}
    for workload in waiting:
        orders = [_order(volume, snapshot, fencing) for volume in workload.volumes]
        if not _fences_suffice(workload, snapshot) or None in orders:
            continue
        found |= {(each.driver, each.cluster): each for each in orders if each is not None}
    have = {(fence.driver, fence.cluster) for fence in fencing.ours if fence.fenced}
    return tuple(order for key, order in sorted(found.items()) if key not in have)


def _fences_suffice(workload: Workload, snapshot: Snapshot) -> bool:
    singleton = terms_of(workload, snapshot.policy).singleton
    return workload.began_with_volumes and not workload.also_writes and not singleton


def _order(volume: Volume, snapshot: Snapshot, fencing: Fencing) -> FenceOrder | None:
    """None for a volume that cannot be fenced."""
    addresses = fencing.addresses.get(volume.driver) or fencing.addresses.get("", ())
    secret = snapshot.policy.fence_secrets.get(volume.driver) or volume.secret
    if not (volume.pv and volume.driver in fencing.drivers and addresses and secret):
        return None
    return FenceOrder(
        driver=volume.driver, cluster=volume.cluster, secret=secret, addresses=addresses
    )

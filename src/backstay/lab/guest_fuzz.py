"""Chance for guests that live: what people have said about them, and a kubelet that dies."""

from collections.abc import Iterator, Sequence

import msgspec

from backstay.lab.scenario import Do, PolicySpec, Step, Vm
from backstay.sim.chance import Chance

_CHOICES = ("Leave", "Migrate", "Migrate", "StopAndMove", "StopAndMove", "StopAndMove")


def about_guests(dice: Chance, policy: PolicySpec) -> PolicySpec:
    """In one of three, people have said what is done for guests that would be left as they are."""
    if not dice.happens(0.35):
        return policy
    defaults = {"onKubeletLoss": dice.pick(_CHOICES), "start": dice.happens(0.5)}
    return msgspec.structs.replace(policy, config={**policy.config, "defaults": defaults})


def kubelet_dies(
    dice: Chance, nodes: Sequence[str], vms: Sequence[str], *, until: float
) -> Iterator[Step]:
    """And somebody meddles with what is done about it."""
    if not vms or not dice.happens(0.4):
        return
    at = dice.between(0.0, 20.0)
    yield _step(at, Do.KILL_KUBELET, node=dice.pick(nodes))
    for vm in vms:
        if dice.happens(0.4):
            meddling = dice.pick((Do.CANCEL_MIGRATION, Do.DELETE_GUEST, Do.SAY_FAILED))
            yield _step(dice.between(at + 40, until - 1), meddling, workload=vm)


def guests_outlive_it(
    dice: Chance, vms: Sequence[Vm], controllers: Sequence[str]
) -> Iterator[Step]:
    """A kubelet dies while we only observe, and somebody takes that for the death of its node. By
    the time that we are armed, nothing but a heartbeat of virt-handler says that guests run: no
    port of the node answers us."""
    if not vms or not dice.happens(0.06):
        return
    node, at = dice.pick(vms).node, dice.between(2.0, 10.0)
    yield _step(0.0, Do.OBSERVE)
    for name in controllers:
        yield _step(1.0, Do.FIREWALL, controller=name)
    yield _step(at, Do.KILL_KUBELET, node=node)
    at += dice.between(3.0, 10.0)
    yield _step(at, Do.CONFIRM, node=node)
    # A heartbeat comes once a minute.
    yield _step(at + dice.between(65.0, 120.0), Do.ARM)


def _step(at: float, do: Do, *, node: str = "", workload: str = "", controller: str = "") -> Step:
    return Step(at=round(at, 1), do=do, node=node, workload=workload, controller=controller)

"""Deciding: milliseconds of CPU for one node with ``amount`` VMs, all of which may be released.

Ours is the whole of ``decide``: proof, terms of each workload among ten policies of its namespace,
every check of the chain, the reasons in words. The floor asks as many questions of nobody: a
Python function for each check and workload that says nothing.
"""

import time

from backstay.decide.failover import CHAIN, Snapshot, decide
from backstay.model.evidence import Confirmation
from backstay.model.node import Life, NodeFacts, NodeLife
from backstay.model.policy import AvailabilityRule, Mode, Policy, Requirement, Times
from backstay.model.reasons import Reason
from backstay.model.workload import PodRef, Volume, Workload, WorkloadKind
from bench.worker import Job, Measure

_TIMES = Times()
_NOW = 150.0
_REPEAT = 20


def snapshot(vms: int) -> Snapshot:
    """A node that is lost and confirmed dead."""
    facts = NodeFacts(
        name="n1", uid="u", boot_id="b", looked_at=_NOW, lease_seen_at=1.0, lease_changed_at=100.0
    )
    word = Confirmation(
        name="n1", uid="c", node="n1", node_uid="u", boot_id="b", by="carla", reason="off",
        seen_at=130.0,
    )  # fmt: skip
    life = NodeLife(
        node_uid="u", boot_id="b", state=Life.LOST, since=140.0, suspected_at=122.0,
        why=Reason.NodeLost.because(node="n1", seconds=50),
    )  # fmt: skip
    rules = tuple(
        AvailabilityRule(namespace="shop", name=f"p{n}", requirements=(Requirement("a", "Exists"),))
        for n in range(10)
    )
    policy = Policy(mode=Mode.ARMED, rules=rules)
    return Snapshot(
        facts=facts,
        life=life,
        policy=policy,
        workloads=tuple(map(_vm, range(vms))),
        confirmations=(word,),
    )


def _vm(number: int) -> Workload:
    return Workload(
        kind=WorkloadKind.VIRTUAL_MACHINE,
        namespace="shop",
        name=f"vm-{number}",
        node="n1",
        pods=(PodRef("shop", f"virt-launcher-{number}", f"u{number}", "7"),),
        volumes=(Volume(claim="root", pv="pv", driver="csi", access_modes=("ReadWriteMany",)),),
        run_strategy="Always",
    )


def ours(job: Job) -> Measure:
    asked = snapshot(job.amount)

    def measure() -> float:
        began = time.process_time()
        decided = [decide(asked, _NOW, times=_TIMES, chain=CHAIN) for _ in range(_REPEAT)]
        took = (time.process_time() - began) / _REPEAT
        if any(len(each.releases) != job.amount for each in decided):
            raise RuntimeError("not all of them were released")
        return took * 1000

    return measure


def _says_nothing(_case: object) -> None:
    return None


def bare_calls(job: Job) -> Measure:
    def measure() -> float:
        began = time.process_time()
        for _ in range(_REPEAT):
            for number in range(job.amount):
                for _check in CHAIN:
                    _says_nothing(number)
        return (time.process_time() - began) / _REPEAT * 1000

    return measure

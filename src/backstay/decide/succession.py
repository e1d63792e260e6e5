"""Succession: LINSTOR's controller died with a node, and its word is needed to prove anything.

Kubernetes leaves a silent node five minutes before it replaces what ran there. Until then nobody
could say whom DRBD has shut out, although all satellites know. So the controller's pod is marked as
deleted as soon as the node is lost: its ReplicaSet starts another one at once.

That needs no proof of a death, because nothing is taken from the node that two could harm:

* It is what Kubernetes itself does, only sooner: the graceful deletion. Nothing is *removed*; a
  kubelet that is alive after all ends the pod in order.
* It has no volumes and writes to nothing that outlives it. A LINSTOR controller that keeps its
  database on a disk is left alone; one that keeps it in Kubernetes' API elects who speaks.
* Somebody starts another one. Nothing else of the node is touched.
* Nobody has heard of it since: while LINSTOR answers, it needs no successor
  (``control/witnesses.py``).

Everything else is asked as for any failover: the node is lost, it is our job, the view is sound,
nothing contradicts it, and we are armed.

**A storm** does not hold it up. What a storm brakes is to take as many deaths for granted as there
are silent nodes; this is one pod, however many fell silent, and if all of them live it costs one
restart of LINSTOR. It is also what ends the storm's worst part: DRBD's word is observed, and needs
LINSTOR to be heard. Whether it is we who are cut off is asked of the view, which is not sound
unless most other nodes are seen to live.
"""

from backstay.decide import life as lives
from backstay.decide import proof
from backstay.decide.failover import Snapshot
from backstay.model.labels import LINSTOR_CONTROLLER
from backstay.model.node import Life
from backstay.model.policy import Job, Mode, Ownership, Times
from backstay.model.workload import Workload, WorkloadKind


def to_be_succeeded(snapshot: Snapshot, *, times: Times) -> tuple[Workload, ...]:
    """The workloads of the node that are to be marked for that reason."""
    if not _may_be(snapshot, times):
        return ()
    return tuple(each for each in snapshot.workloads if is_succeeded(each) and not each.marked)


def is_succeeded(workload: Workload) -> bool:
    """Whether it is a controller of LINSTOR that another can take the place of."""
    return (
        workload.kind is WorkloadKind.OTHER
        and any(workload.labels.get(key) == value for key, value in LINSTOR_CONTROLLER)
        and workload.restarts
        and not workload.ended
        and not workload.volumes
        and not workload.also_writes
        and not workload.pinned_by
    )


def _may_be(snapshot: Snapshot, times: Times) -> bool:
    policy = snapshot.policy
    return (
        snapshot.life.state in (Life.LOST, Life.PROVEN)
        and policy.mode is Mode.ARMED
        and not policy.rolled_back
        and policy.owner_of(Job.FAILOVER) is Ownership.OURS
        and not snapshot.facts.exempt
        and snapshot.view_age <= times.fresh
        and proof.refuted(snapshot.heard) is None
        and proof.answered(snapshot.heard, times) is None
        and not lives.guests_alive(snapshot.life, snapshot.facts, times)
    )

"""Cases of nodes in maintenance, for the bugs in how they are drained. See ``cases.py``.

The node ``n2`` is the one that is drained; on it are the VM ``till``, which can be moved live, two
replicas of ``db`` of which one must stay, the Deployment ``site`` and a pod of a DaemonSet.
"""

from backstay.lab.linstor_spec import LinstorClass, LinstorSpec
from backstay.lab.scenario import (
    Budget,
    Claim,
    Deployment,
    Do,
    PolicySpec,
    Scenario,
    StatefulSet,
    Step,
    Vm,
    Workloads,
)

_NODES = ("n1", "n2", "n3")

_MIXED = Workloads(
    vms=(Vm(name="till", node="n2", eviction_strategy="LiveMigrate"),),
    stateful_sets=(StatefulSet(name="db", node="n2", replicas=2, budget=Budget(min_available=1)),),
    deployments=(Deployment(name="site", node="n2"), Deployment(name="blog", node="n1")),
    daemon_sets=("agent",),
)

_STUCK = Workloads(
    stateful_sets=(StatefulSet(name="db", node="n2", budget=Budget(min_available=1)),)
)
"""Nothing may ever go, until somebody deletes the budget."""


def _n2(at: float, do: Do) -> Step:
    return Step(at=at, do=do, node="n2")


def _unstuck(at: float) -> Step:
    return Step(at=at, do=Do.DELETE_BUDGET, workload="db-0")


DRAINED = Scenario(
    name="drained",
    question="What if a node is drained, and its maintenance ended?",
    nodes=_NODES,
    maintenance=True,
    workloads=_MIXED,
    steps=(_n2(5, Do.MAINTAIN), _n2(50, Do.END_MAINTENANCE)),
    until=120,
)

CONTROL_PLANE = Scenario(
    name="control-plane",
    question="What if somebody asks for the maintenance of two nodes of the control plane?",
    nodes=_NODES,
    control_plane=("n1", "n2"),
    maintenance=True,
    workloads=_MIXED,
    steps=(_n2(5, Do.MAINTAIN), Step(at=6, do=Do.MAINTAIN, node="n1")),
    until=60,
)

BLOCKED = Scenario(
    name="blocked",
    question="What if a drain waits for a budget that allows nothing?",
    nodes=_NODES,
    maintenance=True,
    workloads=_STUCK,
    steps=(_n2(5, Do.MAINTAIN),),
    until=125,
)

UNBLOCKED = Scenario(
    name="unblocked",
    question="What if somebody deletes the budget that a drain waits for?",
    nodes=_NODES,
    maintenance=True,
    workloads=_STUCK,
    steps=(_n2(5, Do.MAINTAIN), _unstuck(40)),
    until=120,
)

ENDED_EARLY = Scenario(
    name="ended-early",
    question="What if a maintenance is ended before the budget that it waits for is deleted?",
    nodes=_NODES,
    maintenance=True,
    workloads=_STUCK,
    steps=(_n2(5, Do.MAINTAIN), _n2(20, Do.END_MAINTENANCE), _unstuck(35)),
    until=50,
)

DISARMED_MEANWHILE = Scenario(
    name="disarmed-meanwhile",
    question="What if somebody disarms us while a node is drained?",
    nodes=_NODES,
    maintenance=True,
    workloads=_STUCK,
    steps=(_n2(5, Do.MAINTAIN), Step(at=20, do=Do.DISARM, seconds=600), _unstuck(30)),
    until=45,
)

CORDONED_BEFORE = Scenario(
    name="cordoned-before",
    question="What if somebody had cordoned the node before its maintenance?",
    nodes=_NODES,
    maintenance=True,
    workloads=_STUCK,
    steps=(_n2(2, Do.CORDON), _n2(5, Do.MAINTAIN), _n2(20, Do.END_MAINTENANCE)),
    until=30,
)

OF_ANOTHER_PROGRAM = Scenario(
    name="of-another-program",
    question="What if the configuration leaves the maintenance of nodes to another program?",
    nodes=_NODES,
    maintenance=True,
    workloads=_MIXED,
    policy=PolicySpec(config={"owners": {"maintenance": "Foreign"}}),
    steps=(_n2(5, Do.MAINTAIN),),
    until=20,
)

LAST_COPY = Scenario(
    name="last-copy",
    question="What if the node that is drained has the last copy of a volume?",
    nodes=_NODES,
    maintenance=True,
    linstor=LinstorSpec(
        controller="n3",
        classes={"linstor": LinstorClass(replicas=("n1", "n2"), tie_breaker="n3")},
    ),
    workloads=Workloads(
        stateful_sets=(StatefulSet(name="db", node="n2", claims=(Claim.LINSTOR,)),)
    ),
    steps=(
        Step(at=2, do=Do.CUT_REPLICATION, node="n1", peer="n2"),
        Step(at=2, do=Do.CUT_REPLICATION, node="n1", peer="n3"),
        _n2(30, Do.MAINTAIN),
    ),
    until=60,
)

"""Cases about LINSTOR and DRBD; see ``cases.py``. Here ``n1`` is the node that things happen to."""

from backstay.lab.linstor_spec import LinstorClass, LinstorSpec, What
from backstay.lab.scenario import (
    Claim,
    Deployment,
    Do,
    Scenario,
    StatefulSet,
    Step,
    Vm,
    Workloads,
)

_NODES = ("n1", "n2", "n3")
_FIVE = ("n1", "n2", "n3", "n4", "n5")
_DATABASE = Workloads(stateful_sets=(StatefulSet(name="db", node="n1", claims=(Claim.LINSTOR,)),))


def _linstor(own: LinstorClass | None = None, *, controller: str = "n3") -> LinstorSpec:
    classes = {} if own is None else {"linstor": own}
    return LinstorSpec(controller=controller, classes=classes)


def _n1(at: float, do: Do) -> Step:
    return Step(at=at, do=do, node="n1")


def _linstor_is(at: float, what: What) -> Step:
    return Step(at=at, do=Do.LINSTOR, what=what)


def _between(at: float, do: Do, *pairs: tuple[str, str]) -> tuple[Step, ...]:
    return tuple(Step(at=at, do=do, node=one, peer=other) for one, other in pairs)


_BOTH = (("n1", "n2"), ("n1", "n3"))
_FIREWALL = Step(at=1, do=Do.FIREWALL, controller="backstay-1")
"""Otherwise the machine itself would be heard at its ports."""
_FROZEN = (_FIREWALL, _n1(5, Do.FREEZE))
"""Nothing is heard of its programs, its satellite among them; its pods and its kernel go on."""

BACK_WITHOUT_STORAGE = Scenario(
    name="back-without-storage",
    question="What if a node comes back while its storage is still cut off?",
    nodes=_NODES,
    linstor=_linstor(),
    workloads=_DATABASE,
    steps=(
        *_between(4, Do.CUT_REPLICATION, *_BOTH),
        _n1(5, Do.CUT),
        _n1(150, Do.HEAL),
    ),
    until=215,
)

WITHOUT_QUORUM = Scenario(
    name="without-quorum",
    question="What if a node is cut off, and either side of the cut may write?",
    nodes=_NODES,
    linstor=_linstor(LinstorClass(quorum="off")),
    workloads=_DATABASE,
    steps=(_n1(5, Do.CUT),),
    until=130,
)

FREED = Scenario(
    name="freed",
    question="What if a node is cut off whose own replicas go by no quorum?",
    nodes=_NODES,
    linstor=_linstor(),
    workloads=_DATABASE,
    steps=(
        _FIREWALL,
        _n1(2, Do.FREE_REPLICA),
        _n1(5, Do.CUT_API),
        *_between(5, Do.CUT_REPLICATION, *_BOTH),
    ),
    until=130,
)

FREED_AND_CUT_OFF = Scenario(
    name="freed-and-cut-off",
    question="What if nothing at all is heard of a node whose own replicas go by no quorum?",
    nodes=_NODES,
    linstor=_linstor(),
    workloads=_DATABASE,
    steps=(_n1(2, Do.FREE_REPLICA), _n1(5, Do.CUT)),
    until=130,
)

TWO_PRIMARIES = Scenario(
    name="two-primaries",
    question="What if a node dies whose volumes may have two primaries?",
    nodes=_NODES,
    linstor=_linstor(LinstorClass(two_primaries=True)),
    workloads=_DATABASE,
    steps=(_n1(5, Do.KILL),),
    until=90,
)

SEEN_BY_A_THIRD = Scenario(
    name="seen-by-a-third",
    question="What if a node loses the API and one replica, while another still lends its vote?",
    nodes=_NODES,
    linstor=_linstor(),
    workloads=_DATABASE,
    steps=(*_FROZEN, *_between(5, Do.CUT_REPLICATION, ("n1", "n2"))),
    until=90,
)

ALONE = Scenario(
    name="alone",
    question="What if LINSTOR hears one replica, which has lost the two that go on together?",
    nodes=_FIVE,
    linstor=_linstor(),
    workloads=_DATABASE,
    steps=(
        *_FROZEN,
        Step(at=5, do=Do.FREEZE, node="n2"),
        *_between(5, Do.CUT_REPLICATION, ("n1", "n3"), ("n2", "n3")),
    ),
    until=100,
)

LAST_WORDS = Scenario(
    name="last-words",
    question="What if LINSTOR repeats what a satellite said before its node fell silent?",
    nodes=_FIVE,
    linstor=_linstor(),
    workloads=_DATABASE,
    steps=(
        *_between(0, Do.CUT_REPLICATION, ("n1", "n2")),
        Step(at=20, do=Do.STAY_ONLINE, node="n2"),
        Step(at=20, do=Do.FREEZE, node="n2"),
        *_between(21, Do.MEND_REPLICATION, ("n1", "n2")),
        _FIREWALL,
        _n1(35, Do.FREEZE),
        *_between(35, Do.CUT_REPLICATION, ("n1", "n3"), ("n2", "n3")),
    ),
    until=130,
)

NOW_AND_AGAIN = Scenario(
    name="now-and-again",
    question="What if a node that the API has lost comes and goes for DRBD?",
    nodes=_NODES,
    linstor=_linstor(),
    workloads=_DATABASE,
    steps=(
        *_FROZEN,
        *_between(5, Do.CUT_REPLICATION, *_BOTH),
        *_between(40, Do.MEND_REPLICATION, *_BOTH),
        *_between(50, Do.CUT_REPLICATION, *_BOTH),
        *_between(85, Do.MEND_REPLICATION, *_BOTH),
    ),
    until=100,
)

OUT_OF_DATE = Scenario(
    name="out-of-date",
    question="What if LINSTOR falls silent while a node is shut out, and it comes back for DRBD?",
    nodes=_NODES,
    linstor=_linstor(),
    workloads=_DATABASE,
    steps=(
        *_FROZEN,
        *_between(5, Do.CUT_REPLICATION, *_BOTH),
        _linstor_is(40, What.REFUSE),
        *_between(41, Do.MEND_REPLICATION, *_BOTH),
    ),
    until=90,
)

SETTINGS_CHANGE = Scenario(
    name="settings-change",
    question="What if somebody switches quorum off while a node is shut out?",
    nodes=_NODES,
    linstor=_linstor(),
    workloads=_DATABASE,
    steps=(
        *_FROZEN,
        *_between(5, Do.CUT_REPLICATION, *_BOTH),
        _linstor_is(40, What.QUORUM_OFF),
    ),
    until=130,
)

ONE_OF_TWO = Scenario(
    name="one-of-two",
    question="What if a node is cut off, and DRBD speaks of one of two volumes of a VM?",
    nodes=_NODES,
    linstor=_linstor(),
    workloads=Workloads(
        vms=(
            Vm(name="till", node="n1", claims=(Claim.LINSTOR, Claim.SINGLE)),
            Vm(name="stock", node="n1", claims=(Claim.LINSTOR,)),
        )
    ),
    steps=(_n1(5, Do.CUT),),
    until=90,
)

WITHOUT_STORAGE = Scenario(
    name="without-storage",
    question="What if a node that is there loses the others for DRBD alone?",
    nodes=_NODES,
    linstor=_linstor(),
    workloads=_DATABASE,
    steps=_between(5, Do.CUT_REPLICATION, *_BOTH),
    until=90,
)

EXPORTED = Scenario(
    name="exported",
    question="What if a node is shut out that has its volume over NFS, and another serves it then?",
    nodes=_NODES,
    linstor=_linstor(LinstorClass(exported_by="n1")),
    workloads=Workloads(
        stateful_sets=(StatefulSet(name="db", node="n1", claims=(Claim.LINSTOR_SHARED,)),)
    ),
    steps=(
        *_FROZEN,
        *_between(5, Do.CUT_REPLICATION, *_BOTH),
        Step(at=100, do=Do.SERVE_EXPORTS, node="n2"),
    ),
    until=130,
)

CONTROLLER_CUT_OFF = Scenario(
    name="controller-cut-off",
    question="What if a node is cut off on which LINSTOR's controller runs, beside other programs?",
    nodes=_NODES,
    linstor=_linstor(controller="n1"),
    workloads=Workloads(deployments=(Deployment(name="web", node="n1"),)),
    steps=(_n1(5, Do.CUT),),
    until=80,
)

CONTROLLER_ANSWERS = Scenario(
    name="controller-answers",
    question="What if a node with LINSTOR's controller loses the API, and answers at its ports?",
    nodes=_NODES,
    linstor=_linstor(controller="n1"),
    workloads=_DATABASE,
    steps=(_n1(5, Do.CUT_API),),
    until=80,
)

MOST_ARE_SILENT = Scenario(
    name="most-are-silent",
    question="What if most nodes lose the API, and LINSTOR's controller cannot be heard?",
    nodes=("n1", "n2", "n3", "n4", "n5"),
    linstor=_linstor(controller="n1"),
    workloads=_DATABASE,
    steps=(
        _n1(5, Do.CUT),
        *(Step(at=5, do=Do.CUT_API, node=node) for node in ("n2", "n3", "n4")),
    ),
    until=80,
)

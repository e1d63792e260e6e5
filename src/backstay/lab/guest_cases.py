"""Cases of guests that live, for the bugs that would do them harm. See ``cases.py``."""

from backstay.lab.scenario import Do, PolicySpec, Scenario, Step, Vm, Workloads

_NODES = ("n1", "n2", "n3")
_GUESTS = Workloads(vms=(Vm(name="till", node="n2"), Vm(name="desk", node="n1")))
_STOP = PolicySpec(config={"defaults": {"onKubeletLoss": "StopAndMove"}})
_MOVE = PolicySpec(config={"defaults": {"onKubeletLoss": "Migrate"}})


def _n2(at: float, do: Do) -> Step:
    return Step(at=at, do=do, node="n2")


def _full(at: float) -> tuple[Step, ...]:
    """There is no room anywhere else."""
    return tuple(Step(at=at, do=Do.CORDON, node=node) for node in ("n1", "n3"))


def _till(at: float, do: Do) -> Step:
    return Step(at=at, do=do, workload="till")


LEFT_ALONE = Scenario(
    name="left-alone",
    question="What if the kubelet alone dies, and its guests are to be left alone?",
    nodes=_NODES,
    workloads=_GUESTS,
    steps=(_n2(5, Do.KILL_KUBELET),),
    until=150,
)

SAID_TO_HAVE_FAILED = Scenario(
    name="said-to-have-failed",
    question="What if a guest is said to have failed, and its virt-handler is not heard any more?",
    nodes=_NODES,
    workloads=_GUESTS,
    steps=(_n2(5, Do.KILL_KUBELET), _n2(120, Do.CUT), _till(125, Do.SAY_FAILED)),
    until=160,
)

DEAF_WHEN_ASKED = Scenario(
    name="deaf-when-asked",
    question="What if a guest is to be stopped, and its virt-handler does not hear of it?",
    nodes=_NODES,
    workloads=_GUESTS,
    policy=_STOP,
    steps=(
        _n2(5, Do.KILL_KUBELET),
        *_full(30),
        _n2(120, Do.CUT),
        _till(125, Do.CANCEL_MIGRATION),
        Step(at=126, do=Do.UNCORDON, node="n1"),
    ),
    until=170,
)

NO_ROOM = Scenario(
    name="no-room",
    question="What if a guest is to be migrated, and there is no room for it?",
    nodes=_NODES,
    workloads=_GUESTS,
    policy=_MOVE,
    steps=(_n2(5, Do.KILL_KUBELET), *_full(30)),
    until=150,
)

STAYS_DOWN = Scenario(
    name="stays-down",
    question="What if a VM that is Manual loses its node, and nobody asks to start it?",
    nodes=_NODES,
    workloads=Workloads(vms=(Vm(name="till", node="n2", run_strategy="Manual"),)),
    steps=(_n2(5, Do.KILL), _n2(60, Do.CONFIRM)),
    until=90,
)

ON_ITS_WAY = Scenario(
    name="on-its-way",
    question="What if the node dies that a guest is being moved away from?",
    nodes=_NODES,
    workloads=_GUESTS,
    steps=(
        _till(5, Do.MIGRATE),
        _till(5.5, Do.KILL_SOURCE),
        _n2(60, Do.CONFIRM),
    ),
    until=100,
)

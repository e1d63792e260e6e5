"""Cases of what people have said, for the bugs that do not heed it. See ``cases.py``."""

from backstay.lab.scenario import CalicoSpec, Claim, Do, PolicySpec, Scenario, Step, Vm, Workloads
from backstay.model.labels import MINIMUM_PROOF, TMAX_PROTECT

_NODES = ("n1", "n2", "n3")
_FIVE = (*_NODES, "n4", "n5")
_TILL = Workloads(vms=(Vm(name="till", node="n2"),))


def _dies(node: str, at: float, confirmed: float) -> tuple[Step, Step]:
    return Step(at=at, do=Do.KILL, node=node), Step(at=confirmed, do=Do.CONFIRM, node=node)


OF_SOMEBODY_ELSE = Scenario(
    name="of-somebody-else",
    question="What if a node dies, and another program is to do something about it?",
    nodes=_NODES,
    workloads=_TILL,
    policy=PolicySpec(config={"owners": {"failover": "Foreign"}}),
    steps=_dies("n2", 5, 50),
    until=80,
)

ADDRESS_OF_SOMEBODY_ELSE = Scenario(
    name="address-of-somebody-else",
    question="What if a VM has an address of its own, and another program gives such back?",
    nodes=_NODES,
    calico=CalicoSpec(),
    workloads=Workloads(vms=(Vm(name="till", node="n2", addresses=("10.244.200.5",)),)),
    policy=PolicySpec(config={"owners": {"addresses": "Foreign"}}),
    steps=_dies("n2", 5, 50),
    until=80,
)

KEPT_BY_POLICY = Scenario(
    name="kept-by-policy",
    question="What if a policy of the namespace says that its VMs are to be left alone?",
    nodes=_NODES,
    workloads=_TILL,
    policy=PolicySpec(policies={"hands-off": {"protect": False}}),
    steps=_dies("n2", 5, 50),
    until=80,
)

LEFT_OUT = Scenario(
    name="left-out",
    question="What if a node dies, and the configuration leaves VMs out?",
    nodes=_NODES,
    workloads=_TILL,
    policy=PolicySpec(virtual_machines=False),
    steps=_dies("n2", 5, 50),
    until=80,
)

NEWER_THAN_WE_ARE = Scenario(
    name="newer-than-we-are",
    question="What if an owner says something in a policy that we do not understand?",
    nodes=_NODES,
    workloads=_TILL,
    steps=(Step(at=2, do=Do.SAY_WHAT_WE_DO_NOT_KNOW), *_dies("n2", 5, 50)),
    until=80,
)

ONLY_WHAT_IS_OBSERVED = Scenario(
    name="only-what-is-observed",
    question="What if the owner of a VM does not take a person's word for the death of its node?",
    nodes=_NODES,
    workloads=_TILL,
    policy=PolicySpec(policies={"strict": {"minimumProof": "Observed"}}),
    steps=_dies("n2", 5, 50),
    until=80,
)

NO_PRESUMPTIONS = Scenario(
    name="no-presumptions",
    question="What if an owner consents to a presumption, and the cluster does not allow that?",
    nodes=_NODES,
    hosts={"n1": ("backstay-1",), "n3": ("backstay-2",)},
    controllers=2,
    workloads=Workloads(
        vms=(
            Vm(name="till", node="n2", claims=(Claim.FILES,), labels={TMAX_PROTECT: "true"}),
            Vm(name="desk", node="n2", claims=(Claim.FILES,), labels={MINIMUM_PROOF: "Presumed"}),
        )
    ),
    policy=PolicySpec(config={"proof": {"weakest": "Confirmed"}}),
    steps=(Step(at=5, do=Do.KILL, node="n2"),),
    until=200,
)

AGAIN_AND_AGAIN = Scenario(
    name="again-and-again",
    question="What if a VM may be moved once an hour, and its next node dies as well?",
    nodes=_FIVE,
    workloads=_TILL,
    policy=PolicySpec(config={"limits": {"attempts": 1}}),
    steps=(*_dies("n2", 5, 50), *_dies("n1", 75, 120)),
    until=140,
)

AT_A_WALK = Scenario(
    name="at-a-walk",
    question="What if two of five nodes die, and one workload may be released in a minute?",
    nodes=_FIVE,
    # Two on each: whichever node is first, the other one is still a part of the storm.
    workloads=Workloads(
        vms=(
            *(Vm(name=name, node="n2") for name in ("till", "desk")),
            *(Vm(name=name, node="n4") for name in ("stock", "office")),
        )
    ),
    policy=PolicySpec(config={"limits": {"releasesPerMinute": 1}}),
    steps=(*_dies("n2", 5, 75), *_dies("n4", 5, 75)),
    until=150,
)

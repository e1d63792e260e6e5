"""Cases of nodes whose power can be switched, for the bugs that would do harm by it. See
``cases.py``."""

from typing import Any

from backstay.lab.linstor_spec import LinstorClass, LinstorSpec, What
from backstay.lab.power_spec import BmcSpec, BmcsSpec, How
from backstay.lab.scenario import (
    After,
    Claim,
    Do,
    PolicySpec,
    Scenario,
    StatefulSet,
    Step,
    Vm,
    Workloads,
)
from backstay.model.policy import Mode

_NODES = ("n1", "n2", "n3")
_POWER: dict[str, Any] = {"fencing": {"power": {"enabled": True}}}
_WORKLOADS = Workloads(vms=(Vm(name="till", node="n2"), Vm(name="desk", node="n1")))


def _n2(at: float, do: Do, **about: Any) -> Step:
    return Step(at=at, do=do, node="n2", **about)


def _case(name: str, question: str, *steps: Step, until: float, **about: Any) -> Scenario:
    usual = {
        "nodes": _NODES,
        "bmcs": BmcsSpec(),
        "workloads": _WORKLOADS,
        "policy": PolicySpec(config=_POWER),
    }
    return Scenario(name=name, question=question, steps=steps, until=until, **{**usual, **about})


SWITCHED_OFF = _case(
    "switched-off",
    "What if a node is cut off, and switched off and on again through its BMC?",
    _n2(5, Do.CUT),
    _n2(60, Do.HEAL),
    until=110,
)

ANSWERS = _case(
    "answers-though-silent",
    "What if a node has lost touch with the API alone, and could be switched off?",
    _n2(5, Do.CUT_API),
    until=60,
)

SEVERAL = _case(
    "several-could-be-switched-off",
    "What if two nodes are cut off one after the other, and both could be switched off?",
    Step(at=5, do=Do.CUT, node="n3"),
    _n2(40, Do.CUT),
    until=110,
    nodes=("n1", "n2", "n3", "n4", "n5"),
    bmcs=BmcsSpec(without=("n3",)),
    workloads=Workloads(vms=(Vm(name="till", node="n2"), Vm(name="desk", node="n3"))),
)

WATCHED = _case(
    "watched",
    "What if a node is cut off while we only observe, and could be switched off?",
    _n2(5, Do.CUT),
    until=60,
    policy=PolicySpec(mode=Mode.OBSERVE, config=_POWER),
)

MISWIRED = _case(
    "miswired",
    "What if a node is cut off, and its credentials lead to the BMC of another?",
    _n2(5, Do.CUT),
    until=60,
    bmcs=BmcsSpec(of={"n2": BmcSpec(wired_to="n1")}),
)

STUCK = _case(
    "stuck",
    "What if a BMC accepts that it is to switch a node off, and does nothing?",
    _n2(2, Do.BMC, how=How.STUCK),
    _n2(5, Do.CUT),
    until=80,
)

HELD_UP = _case(
    "held-up",
    "What if a request to switch a node off is held up, and somebody else does it meanwhile?",
    _n2(2, Do.BMC, how=How.HOLDS_UP, seconds=16.5),
    _n2(5, Do.CUT),
    _n2(5, Do.SWITCH_OFF, after=After.INTENT),
    until=110,
    workloads=Workloads(vms=(Vm(name="till", node="n2", run_strategy="Manual"),)),
)

WORKED_AT = _case(
    "worked-at",
    "What if somebody works at a node that falls silent, and it could be switched off?",
    _n2(2, Do.PUT_IN_MAINTENANCE),
    _n2(5, Do.CUT),
    until=60,
)

OFF_BY_ITSELF = _case(
    "off-by-itself",
    "What if a node loses its power by itself, and could be switched on?",
    _n2(5, Do.KILL),
    until=110,
)

LAST_COPY = _case(
    "last-copy",
    "What if a node is cut off that has the last good copy of a volume?",
    Step(at=2, do=Do.CUT_REPLICATION, node="n1", peer="n2"),
    Step(at=20, do=Do.CUT, node="n1"),
    until=90,
    linstor=LinstorSpec(
        controller="n3",
        classes={"linstor": LinstorClass(replicas=("n1", "n2"), tie_breaker="n3")},
    ),
    workloads=Workloads(
        stateful_sets=(StatefulSet(name="db", node="n1", claims=(Claim.LINSTOR,)),)
    ),
)

COPIES_UNTOLD = _case(
    "copies-untold",
    "What if LINSTOR's controller has just started when a node is lost with the last good copy?",
    Step(at=2, do=Do.CUT_REPLICATION, node="n1", peer="n2"),
    Step(at=20, do=Do.CUT, node="n1"),
    Step(at=50, do=Do.LINSTOR, what=What.KILL),
    until=90,
    nodes=(*_NODES, "n4"),
    linstor=LinstorSpec(
        controller="n4",
        classes={"linstor": LinstorClass(replicas=("n1", "n2"), tie_breaker="n3")},
    ),
    workloads=LAST_COPY.workloads,
)

MAJORITY = _case(
    "majority",
    "What if a node is cut off without which the control plane has no majority?",
    Step(at=2, do=Do.KILL, node="n3"),
    _n2(60, Do.CUT),
    until=130,
    control_plane=_NODES,
    nodes=(*_NODES, "n4"),
    workloads=Workloads(vms=(Vm(name="till", node="n2"), Vm(name="desk", node="n3"))),
)

FENCED_BY_OTHERS = _case(
    "fencing-is-another-s",
    "What if a node is cut off, and fencing is another program's job?",
    _n2(5, Do.CUT),
    until=60,
    policy=PolicySpec(config={**_POWER, "owners": {"fencing": "Foreign"}}),
)

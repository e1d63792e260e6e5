"""Cases: the disasters in which deliberate bugs show (``bugs.py``).

Each is a small scenario that a controller without a bug goes through without breaking anything.
The node ``n2`` is the one that things happen to; it runs the VM ``till`` and the replica ``db-0``.
"""

import msgspec

from backstay.lab.scenario import (
    LEADER,
    After,
    CalicoSpec,
    Claim,
    Do,
    PolicySpec,
    Scenario,
    StatefulSet,
    Step,
    Vm,
    Workloads,
)
from backstay.model.labels import PROTECT, TMAX_PROTECT
from backstay.model.policy import Mode

_NODES = ("n1", "n2", "n3")

_WORKLOADS = Workloads(
    vms=(Vm(name="till", node="n2"), Vm(name="desk", node="n1")),
    stateful_sets=(StatefulSet(name="db", node="n2"),),
)

_KEPT = Workloads(
    vms=_WORKLOADS.vms,
    stateful_sets=(StatefulSet(name="own", node="n2", labels={PROTECT: "false"}),),
)

_PINNED = Workloads(
    vms=(Vm(name="till", node="n2", addresses=("10.244.200.5",)), Vm(name="desk", node="n1"))
)

_OBSERVE = PolicySpec(mode=Mode.OBSERVE)


def _n2(at: float, do: Do) -> Step:
    return Step(at=at, do=do, node="n2")


def _ours(at: float, do: Do, *, after: After | None = None, seconds: float = 0.0) -> Step:
    return Step(at=at, do=do, controller="backstay-1", after=after, seconds=seconds)


def _leader(at: float, do: Do, *, after: After | None = None) -> Step:
    return Step(at=at, do=do, controller=LEADER, after=after)


_DEATH = (_n2(5, Do.KILL), _n2(65, Do.CONFIRM))
"""Confirmed when Kubernetes has put its own taints on the node already."""

DEATH = Scenario(
    name="death",
    question="What if a node loses power and somebody confirms it?",
    nodes=_NODES,
    workloads=_WORKLOADS,
    steps=_DEATH,
    until=145,
)

HOTPLUG = Scenario(
    name="hotplug",
    question="What if a node dies with a VM that was given another disk while it ran?",
    nodes=_NODES,
    workloads=Workloads(
        vms=(Vm(name="till", node="n2", hotplug=(Claim.SHARED,)), Vm(name="desk", node="n1"))
    ),
    steps=_DEATH,
    until=145,
)

CUT_OFF = Scenario(
    name="cut-off",
    question="What if a node is only cut off, and nobody says anything?",
    nodes=_NODES,
    workloads=_WORKLOADS,
    steps=(_n2(5, Do.CUT),),
    until=95,
)

OBSERVED = Scenario(
    name="observed",
    question="What if a node dies while we only observe?",
    nodes=_NODES,
    workloads=_WORKLOADS,
    policy=_OBSERVE,
    steps=_DEATH,
    until=95,
)

DISARMED = Scenario(
    name="disarmed",
    question="What if a node dies while somebody has disarmed us?",
    nodes=_NODES,
    workloads=_WORKLOADS,
    policy=PolicySpec(disarmed_for=600),
    steps=_DEATH,
    until=95,
)

CLOCK_SET_WHILE_DISARMED = Scenario(
    name="clock-set-while-disarmed",
    question="What if our clock is set by an hour while somebody has disarmed us?",
    nodes=_NODES,
    workloads=_WORKLOADS,
    policy=PolicySpec(disarmed_for=600),
    steps=(_ours(2, Do.SKEW_CONTROLLER, seconds=3600), *_DEATH),
    until=95,
)

RESTORED = Scenario(
    name="restored",
    question="What if the API is restored from a backup while a node is dead?",
    nodes=_NODES,
    workloads=_WORKLOADS,
    steps=(
        Step(at=0, do=Do.BACK_UP),
        _n2(5, Do.KILL),
        Step(at=55, do=Do.ROLL_BACK),
        _n2(110, Do.CONFIRM),
    ),
    until=150,
)

RESTORED_RAISED = msgspec.structs.replace(
    RESTORED,
    name="restored-raised",
    question="What if the API is restored, and its versions count on from a higher one?",
    steps=(
        Step(at=0, do=Do.BACK_UP),
        _n2(5, Do.KILL),
        Step(at=55, do=Do.ROLL_BACK_RAISED_A_LITTLE),
        _n2(110, Do.CONFIRM),
    ),
)

RESTORED_UNSEEN = Scenario(
    name="restored-unseen",
    question="What if the API is restored, and whoever leads next was cut off before the backup?",
    nodes=_NODES,
    workloads=_WORKLOADS,
    controllers=3,
    steps=(
        Step(at=1, do=Do.CUT_CONTROLLER, controller="backstay-2"),
        Step(at=15, do=Do.BACK_UP),
        _n2(20, Do.KILL),
        _leader(55, Do.KILL_CONTROLLER),
        Step(at=55, do=Do.HEAL_CONTROLLER, controller="backstay-2"),
        Step(at=55, do=Do.ROLL_BACK),
        _n2(120, Do.CONFIRM),
    ),
    until=160,
)

RESTORED_TO_BEFORE_A_BOOT = Scenario(
    name="restored-to-before-a-boot",
    question="What if a dead node boots, is forgotten by restores of the API, and is cut off?",
    nodes=_NODES,
    workloads=_WORKLOADS,
    steps=(
        _n2(0, Do.KILL),
        _n2(0, Do.CONFIRM),
        Step(at=6, do=Do.BACK_UP),
        _n2(6, Do.BOOT),
        Step(at=16, do=Do.ROLL_BACK),
        _n2(16.1, Do.CUT),
        Step(at=29, do=Do.ROLL_BACK),
        Step(at=53, do=Do.ARM),
    ),
    until=90,
)

RESTORED_AGAIN_UNSEEN = Scenario(
    name="restored-again-unseen",
    question="What if the API is restored again, and whoever leads was cut off meanwhile?",
    nodes=_NODES,
    workloads=_WORKLOADS,
    controllers=2,
    steps=(
        Step(at=0, do=Do.KILL_CONTROLLER, controller="backstay-1"),
        _n2(0, Do.KILL),
        Step(at=1, do=Do.BACK_UP),
        Step(at=10, do=Do.ROLL_BACK),
        Step(at=14, do=Do.START_CONTROLLER, controller="backstay-1"),
        Step(at=30, do=Do.CUT_CONTROLLER, controller="backstay-2"),
        _n2(30.5, Do.CONFIRM),
        Step(at=31, do=Do.BACK_UP),
        _n2(31, Do.BOOT),
        Step(at=36, do=Do.ROLL_BACK),
        _n2(36.1, Do.CUT),
        Step(at=37, do=Do.HEAL_CONTROLLER, controller="backstay-2"),
        Step(at=50, do=Do.KILL_CONTROLLER, controller="backstay-1"),
        Step(at=60, do=Do.ARM),
    ),
    until=110,
)

RESTORED_BY_THE_BOOK = Scenario(
    name="restored-by-the-book",
    question="What if the API is restored by the book, and whoever leads was cut off meanwhile?",
    nodes=_NODES,
    workloads=_WORKLOADS,
    steps=(
        _n2(0, Do.KILL),
        _leader(30, Do.CUT_CONTROLLER),
        _n2(30.5, Do.CONFIRM),
        Step(at=31, do=Do.BACK_UP),
        _n2(31, Do.BOOT),
        Step(at=36, do=Do.ROLL_BACK_RAISED),
        _n2(36.1, Do.CUT),
        _leader(37, Do.HEAL_CONTROLLER),
        Step(at=60, do=Do.ARM),
    ),
    until=110,
)

UNPROTECTED = Scenario(
    name="unprotected",
    question="What if the owner of a workload does not want our help?",
    nodes=_NODES,
    workloads=_KEPT,
    steps=_DEATH,
    until=95,
)

EXEMPT = Scenario(
    name="exempt",
    question="What if an exempt node dies?",
    nodes=_NODES,
    exempt=("n2",),
    workloads=_WORKLOADS,
    steps=_DEATH,
    until=95,
)

WITHOUT_KUBELET = Scenario(
    name="without-kubelet",
    question="What if the kubelet alone dies, and somebody takes that for the death of the node?",
    nodes=_NODES,
    workloads=_WORKLOADS,
    policy=_OBSERVE,
    steps=(
        # Otherwise the machine itself would contradict it, at its port.
        _ours(1, Do.FIREWALL),
        _n2(5, Do.KILL_KUBELET),
        _n2(10, Do.CONFIRM),
        Step(at=130, do=Do.ARM),
    ),
    until=170,
)

EARLIER_BOOT = Scenario(
    name="earlier-boot",
    question="What if a node is cut off whose death was confirmed before it rebooted?",
    nodes=_NODES,
    workloads=_WORKLOADS,
    policy=_OBSERVE,
    steps=(*_DEATH, _n2(75, Do.BOOT), Step(at=120, do=Do.ARM), _n2(125, Do.CUT)),
    until=190,
)

LIFE_UNSEEN = Scenario(
    name="life-unseen",
    question="What if a node that was declared dead has lived while none of us was there?",
    nodes=_NODES,
    workloads=_WORKLOADS,
    policy=_OBSERVE,
    steps=(
        _n2(5, Do.CUT),
        _n2(50, Do.CONFIRM),
        _ours(55, Do.KILL_CONTROLLER),
        _n2(60, Do.HEAL),
        _n2(90, Do.CUT),
        _ours(95, Do.START_CONTROLLER),
        Step(at=100, do=Do.ARM),
    ),
    until=180,
)

LIFE_SEEN = Scenario(
    name="life-seen",
    question="What if a node that was declared dead shows life, and is cut off again?",
    nodes=_NODES,
    workloads=_WORKLOADS,
    policy=_OBSERVE,
    steps=(
        _n2(5, Do.CUT),
        _n2(50, Do.CONFIRM),
        _n2(60, Do.HEAL),
        _n2(100, Do.CUT),
        Step(at=150, do=Do.ARM),
    ),
    until=190,
)

ANSWERED_BEFORE = Scenario(
    name="answered-before",
    question="What if an answer has refuted a word, and somebody else leads once it is cut off?",
    nodes=_NODES,
    workloads=_WORKLOADS,
    steps=(
        Step(at=5, do=Do.KILL_KUBELET, node="n1"),
        Step(at=12, do=Do.CONFIRM, node="n1"),
        Step(at=60, do=Do.CUT, node="n1"),
        Step(at=62, do=Do.KILL_CONTROLLER, controller="backstay-1"),
        Step(at=64, do=Do.START_CONTROLLER, controller="backstay-1"),
    ),
    until=150,
)

ANSWERED_EARLY = Scenario(
    name="answered-early",
    question="What if an answer has refuted a word before the node was lost, and we restart?",
    nodes=_NODES,
    workloads=_WORKLOADS,
    steps=(
        _n2(5, Do.KILL_KUBELET),
        _n2(8, Do.CONFIRM),
        _n2(24, Do.CUT),
        _ours(42, Do.KILL_CONTROLLER),
        _ours(44, Do.START_CONTROLLER),
    ),
    until=130,
)

WITHDRAWN = Scenario(
    name="withdrawn",
    question="What if somebody takes back that a node is dead, before we are armed?",
    nodes=_NODES,
    workloads=_WORKLOADS,
    policy=_OBSERVE,
    steps=(
        _n2(5, Do.CUT),
        _n2(50, Do.CONFIRM),
        _n2(70, Do.WITHDRAW),
        Step(at=80, do=Do.ARM),
    ),
    until=130,
)

ASLEEP = Scenario(
    name="asleep",
    question="What if a leader is stopped in the midst of its work and wakes up a minute later?",
    nodes=_NODES,
    workloads=_WORKLOADS,
    controllers=2,
    steps=(
        *_DEATH,
        _leader(65, Do.PAUSE_CONTROLLER, after=After.TAINT),
        _leader(125, Do.RESUME_CONTROLLER),
    ),
    until=165,
)

LEASE_DELETED = Scenario(
    name="lease-deleted",
    question="What if somebody deletes our lease while no controller runs?",
    nodes=_NODES,
    workloads=_WORKLOADS,
    steps=(
        _n2(5, Do.KILL),
        _ours(60, Do.KILL_CONTROLLER),
        Step(at=65, do=Do.DELETE_LEASE),
        _ours(70, Do.START_CONTROLLER),
    ),
    until=120,
)

INCIDENT_DELETED = Scenario(
    name="incident-deleted",
    question="What if somebody deletes the incident of a node about which nothing can be done?",
    nodes=_NODES,
    workloads=_WORKLOADS,
    steps=(_n2(5, Do.CUT), Step(at=60, do=Do.DELETE_INCIDENTS)),
    until=140,
)

ADDRESS_TAKEN = Scenario(
    name="address-taken",
    question="What if somebody has given the address of a dead VM to another pod?",
    nodes=_NODES,
    calico=CalicoSpec(),
    workloads=_PINNED,
    steps=(
        _n2(5, Do.KILL),
        Step(at=55, do=Do.TAKE_ADDRESS, workload="till"),
        _n2(65, Do.CONFIRM),
    ),
    until=100,
)

ADDRESS_IN_USE = Scenario(
    name="address-in-use",
    question="What if a node is cut off whose VM has an address of its own?",
    nodes=_NODES,
    calico=CalicoSpec(),
    workloads=_PINNED,
    steps=(_n2(5, Do.CUT),),
    until=100,
)

TAINT_PREFERRED = Scenario(
    name="taint-preferred",
    question="What if the out-of-service taint is preferred, and something must stay on the node?",
    nodes=_NODES,
    workloads=Workloads(
        vms=(
            Vm(name="till", node="n2", claims=(Claim.SINGLE,)),
            Vm(name="dongle", node="n2", pinned=True),
        )
    ),
    policy=PolicySpec(config={"defaults": {"detach": "OutOfServiceTaint"}}),
    steps=_DEATH,
    until=100,
)

_FENCES = PolicySpec(
    config={
        "fencing": {
            "networkFence": {
                "enabled": True,
                "secrets": {"csi.example": {"name": "admin", "namespace": "storage"}},
            }
        }
    }
)

HALF_FENCED = Scenario(
    name="half-fenced",
    question="What if a node is cut off, and not all that its workloads write to can be fenced?",
    nodes=_NODES,
    csi_addons=True,
    workloads=Workloads(
        vms=(
            Vm(name="till", node="n2", claims=(Claim.SINGLE,), hotplug=(Claim.VAULT,)),
            Vm(name="stock", node="n2", claims=(Claim.SINGLE,)),
            Vm(name="lamp", node="n2", claims=()),
        ),
        stateful_sets=(
            StatefulSet(name="log", node="n2", claims=(Claim.SINGLE,), host_path="/var/log/till"),
        ),
    ),
    policy=_FENCES,
    steps=(_n2(5, Do.CUT),),
    until=90,
)

DEAF_TO_THE_API = Scenario(
    name="deaf-to-the-api",
    question="What if a node loses touch with the API alone, and somebody says that it is dead?",
    nodes=_NODES,
    csi_addons=True,
    workloads=Workloads(vms=(Vm(name="till", node="n2", claims=(Claim.SINGLE,)),)),
    policy=_FENCES,
    # Armed when it has answered for so long that nobody can have missed it.
    steps=(
        Step(at=0, do=Do.OBSERVE),
        _n2(5, Do.CUT_API),
        Step(at=60, do=Do.ARM),
        _n2(70, Do.CONFIRM),
    ),
    until=110,
)

FENCED_BY_OTHERS = Scenario(
    name="fenced-by-others",
    question="What if somebody else has the storage refuse a dead node, and it comes back?",
    nodes=_NODES,
    csi_addons=True,
    workloads=Workloads(vms=(Vm(name="till", node="n2", claims=(Claim.SINGLE,)),)),
    steps=(_n2(5, Do.KILL), _n2(50, Do.FENCE), _n2(80, Do.BOOT)),
    until=150,
)

PUT_OUT_BY_HAND = Scenario(
    name="put-out-by-hand",
    question="What if a person puts a dead node out of service, and it comes back?",
    nodes=_NODES,
    workloads=_WORKLOADS,
    steps=(_n2(5, Do.KILL), _n2(48, Do.PUT_OUT), _n2(80, Do.BOOT)),
    until=160,
)

_CONSENTING = Vm(name="till", node="n2", claims=(Claim.FILES,), labels={TMAX_PROTECT: "true"})
_TWO_PLACES: dict[str, tuple[str, ...]] = {"n1": ("backstay-1",), "n3": ("backstay-2",)}

SILENT = Scenario(
    name="silent",
    question="What if a node dies in silence, and only some of its VMs may be moved on that?",
    nodes=_NODES,
    hosts=_TWO_PLACES,
    controllers=2,
    workloads=Workloads(
        vms=(
            _CONSENTING,
            Vm(name="plain", node="n2", claims=(Claim.FILES,)),
            Vm(name="ledger", node="n2", claims=(Claim.SINGLE,), labels={TMAX_PROTECT: "true"}),
        )
    ),
    steps=(_n2(5, Do.KILL),),
    until=200,
)

SEEN_FROM_ONE_PLACE = Scenario(
    name="seen-from-one-place",
    question="What if a node is cut off, and there is one controller that does not reach it?",
    nodes=_NODES,
    workloads=Workloads(vms=(_CONSENTING,)),
    steps=(_n2(5, Do.CUT),),
    until=215,
)

BEHIND_A_FIREWALL = Scenario(
    name="behind-a-firewall",
    question="What if our controllers reach no node at all, and one loses touch with the API?",
    nodes=_NODES,
    hosts=_TWO_PLACES,
    controllers=2,
    workloads=Workloads(vms=(_CONSENTING,)),
    steps=(
        _ours(1, Do.FIREWALL),
        Step(at=1, do=Do.FIREWALL, controller="backstay-2"),
        _n2(5, Do.CUT_API),
    ),
    until=200,
)

FROZEN = Scenario(
    name="frozen",
    question="What if all programs of a node stand still, while its guests run on?",
    nodes=_NODES,
    hosts=_TWO_PLACES,
    controllers=2,
    workloads=Workloads(vms=(_CONSENTING,)),
    steps=(_n2(5, Do.FREEZE),),
    until=200,
)

STORM = Scenario(
    name="storm",
    question="What if two of five nodes fall silent at once?",
    nodes=("n1", "n2", "n3", "n4", "n5"),
    hosts=_TWO_PLACES,
    controllers=2,
    workloads=Workloads(vms=(_CONSENTING, Vm(name="desk", node="n4"))),
    steps=(_n2(5, Do.KILL), Step(at=6, do=Do.KILL, node="n4")),
    until=200,
)

WRONG_CLOCK = Scenario(
    name="wrong-clock",
    question="What if our clock is an hour ahead, and a node is declared dead that is not?",
    nodes=_NODES,
    workloads=_WORKLOADS,
    steps=(
        _ours(1, Do.FIREWALL),
        _ours(5, Do.SKEW_CONTROLLER, seconds=3600),
        _n2(40, Do.CONFIRM),
    ),
    until=120,
)

CRASH = Scenario(
    name="crash",
    question="What if the controller dies after it has marked a pod, and is started again?",
    nodes=_NODES,
    workloads=_WORKLOADS,
    steps=(
        *_DEATH,
        _ours(65, Do.KILL_CONTROLLER, after=After.MARK),
        _ours(70, Do.START_CONTROLLER),
    ),
    until=165,
)

RETURN = Scenario(
    name="return",
    question="What if a node that was wrongly declared dead is heard again, but hears nothing?",
    nodes=_NODES,
    workloads=_WORKLOADS,
    steps=(_n2(5, Do.CUT), _n2(50, Do.CONFIRM), _n2(90, Do.CUT_IN)),
    until=118,
)

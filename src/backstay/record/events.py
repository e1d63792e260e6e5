"""Herald: the reasons of decisions as Kubernetes Events, where ``kubectl describe`` shows them.

An Event has the code as its reason and the sentence, with what to do next, as its message. What
waits for somebody is a Warning, what goes forward is Normal. The same thing is said once, until
something else has been said of the same object; ``kube/events.py`` keeps the numbers bounded.

What is left alone is not announced: that a Deployment's pod is none of our business is no news to
its owner. Neither are workloads that will be released: that is said when it has happened (``say``).
"""

from backstay.decide.failover import Action, Decision
from backstay.kube.events import EventRecorder, EventType, ObjectRef
from backstay.model.node import NodeFacts
from backstay.model.reasons import Reason, Why
from backstay.model.workload import Workload, WorkloadKind
from backstay.record.telling import same_why

KUBEVIRT = "kubevirt.io/v1"

_ALARMING = frozenset(
    reason.name
    for reason in (
        Reason.NodeLost,
        Reason.EvidenceContradicted,
        Reason.GuestAliveKubeletDead,
        Reason.ProofExpired,
        Reason.StaysDown,
        Reason.ConfirmationRefused,
    )
)
"""Codes that want attention wherever they are said."""

_UNREMARKABLE = Reason.NodeHealthy.name


class Herald:
    """Says things about nodes and workloads; see the module."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events
        self._said: dict[str, dict[ObjectRef, Why]] = {}

    def decided(self, facts: NodeFacts, decision: Decision) -> None:
        """What is new in this decision, about the node and about what is held on it."""
        if decision.why.code == _UNREMARKABLE:
            self.forget(facts.name)
            return
        self.say(decision.why, node=facts)
        for verdict in decision.verdicts:
            if verdict.action is Action.HOLD:
                self._tell(facts.name, about_workload(verdict.workload), verdict.why, "Warning")

    def say(self, why: Why, *, node: NodeFacts, workload: Workload | None = None) -> None:
        """About a workload of this node or, without one, about the node itself."""
        about = about_node(node) if workload is None else about_workload(workload)
        self._tell(node.name, about, why, "Warning" if why.code in _ALARMING else "Normal")

    def forget(self, node: str) -> None:
        """The incident is over: next time, everything is news again."""
        self._said.pop(node, None)

    def _tell(self, node: str, about: ObjectRef, why: Why, type: EventType) -> None:
        said = self._said.setdefault(node, {})
        last = said.get(about)
        if last and same_why(last, why):
            return
        said[about] = why
        message = f"{why.sentence} NEXT: {why.next}" if why.next else why.sentence
        self._events.record(about=about, type=type, reason=why.code, message=message)


def about_node(facts: NodeFacts) -> ObjectRef:
    return ObjectRef(api_version="v1", kind="Node", name=facts.name, uid=facts.uid)


def about_workload(workload: Workload) -> ObjectRef:
    """The object that its owner would look at."""
    if workload.kind in (WorkloadKind.VIRTUAL_MACHINE, WorkloadKind.INSTANCE):
        return ObjectRef(
            api_version=KUBEVIRT,
            kind=workload.kind.value,
            namespace=workload.namespace,
            name=workload.name,
            uid=workload.uid,
        )
    pod = workload.pods[0] if workload.pods else None
    return ObjectRef(
        api_version="v1",
        kind="Pod",
        namespace=workload.namespace,
        name=pod.name if pod else workload.name,
        uid=pod.uid if pod else "",
    )

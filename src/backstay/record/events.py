"""Herald: the reasons of decisions as Kubernetes Events, where ``kubectl describe`` shows them.

An Event has the code as its reason and the sentence, with what to do next, as its message. What
waits for somebody is a Warning, what goes forward is Normal. The same thing is said once, until
something else has been said of the same object; ``kube/events.py`` keeps the numbers bounded.

What is said of a workload is said of the object that its owner looks at (the VM, the StatefulSet)
and of each pod that is concerned, because people begin at either end.

What is left alone is not announced: that a Deployment's pod is none of our business is no news to
its owner. Neither are workloads that will be released: that is said when it has happened (``say``).
"""

from collections.abc import Iterable, Iterator

from backstay.apis.apps import STATEFUL_SETS
from backstay.decide.failover import Decision
from backstay.kube.events import EventRecorder, EventType, ObjectRef
from backstay.kube.resource import NODES, PODS
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
        Reason.NoLongerOurs,
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
        for verdict in decision.held:
            for about in about_workload(verdict.workload):
                self._tell(facts.name, about, verdict.why, "Warning")

    def say(self, why: Why, *, node: NodeFacts, workload: Workload | None = None) -> None:
        """About a workload of this node or, without one, about the node itself."""
        objects = (about_node(node),) if workload is None else about_workload(workload)
        self.say_of(objects, why, node=node.name)

    def say_of(self, objects: Iterable[ObjectRef], why: Why, *, node: str) -> None:
        """About these objects, on account of what befell the node."""
        for about in objects:
            self._tell(node, about, why, "Warning" if why.code in _ALARMING else "Normal")

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
    return ObjectRef.to(NODES, name=facts.name, uid=facts.uid)


def about_workload(workload: Workload) -> tuple[ObjectRef, ...]:
    """The object that its owner would look at, and its pods on the node."""
    pods = tuple(
        ObjectRef.to(PODS, namespace=pod.namespace, name=pod.name, uid=pod.uid)
        for pod in workload.pods
    )
    return (*_owner(workload), *pods)


def _owner(workload: Workload) -> Iterator[ObjectRef]:
    if workload.kind in (WorkloadKind.VIRTUAL_MACHINE, WorkloadKind.INSTANCE):
        api_version, name, uid = KUBEVIRT, workload.name, workload.uid
    elif workload.set_name:
        api_version, name, uid = STATEFUL_SETS.api_version, workload.set_name, workload.set_uid
    else:
        return
    yield ObjectRef(
        api_version=api_version,
        kind=workload.kind.value,
        namespace=workload.namespace,
        name=name,
        uid=uid,
    )

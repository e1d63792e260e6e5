"""Caveats: what is worth knowing before a node dies, such as what a VM would wait for.

They are reasons like any other (``reasons.py``), but of something that has not happened: they stand
in ``backstay readiness``, and nothing is done on account of them.
"""

from backstay.model.reasons import Catalogue, Entry


class Caveat(Catalogue):
    """How a recovery would go on, and what would be in its way."""

    # What is worth knowing before a node dies

    WaitsForDetach = Entry(
        "Its volume {volume} ({modes}) can be used on another node only once it is detached from "
        "{node}: {how}.",
        "A volume for one node at a time stays attached to a node that died, for six minutes if "
        "nobody does anything. Backstay detaches it once the death is proven, and Kubernetes "
        "notices that within a minute; by the out-of-service taint, which the configuration can "
        "prefer (defaults.detach), it goes at once.",
        "backstay config show",
    )
    VolumeUnknown = Entry(
        "Nothing is known about its volume {volume}: its claim could not be read, or is not bound.",
        "Whether the workload could use this volume on another node cannot be told in advance.",
        "kubectl describe pvc {volume} -n {namespace}",
    )
    OutlivesItsDaemon = Entry(
        "{node} runs its containers with {runtime}, which can keep them alive when it dies itself.",
        "With live-restore the containers of Docker, and the guests in them, run on while its "
        "daemon and the kubelet are dead. Such a node looks dead and still writes, so its silence "
        "says even less than that of others. It is a fact to know, and nothing has to be done.",
    )
    ProvenByDrbd = Entry(
        "DRBD shows within {seconds} s or so that {node} cannot write to its volumes any more.",
        "Each of its volumes has enough other replicas that can be asked now. They have the quorum "
        "when the node is gone, and nobody has to confirm anything; what is counted is DRBD's own "
        "time to miss a peer, and the grace.",
    )
    NotProvenByDrbd = Entry(
        "DRBD would not show that {node} cannot write to its volume {volume}: {because}.",
        "Somebody would have to confirm the death of the node. Most often the quorum of the "
        "resource is off because it has too few replicas: with two on disks, a third without one "
        "(a tie-breaker) is enough.",
        "linstor resource-definition list-properties, linstor resource list",
    )
    ProvenByPower = Entry(
        "The BMC of {node} would switch it off, and show within {seconds} s or so that it is.",
        "The BMC answers, accepts the login, and names the very machine that the node's kubelet "
        "names: it is tried every few minutes. Where the machine loses its power the BMC is gone "
        "with it, as a rule, and something else has to prove the death.",
    )
    PresumedOnSilence = Entry(
        "If nobody confirms it, it restarts after {seconds} s in which {node} is silent.",
        "Its owner has consented to that, and two copies of it could use its volumes at once. The "
        "node must not answer two controllers on other nodes, both of which reach the kubelets of "
        "the rest, and not too many nodes may be silent at the same time.",
    )
    SilenceNotEnough = Entry(
        "Its owner consents to a restart when {node} is silent, but that is not enough: {because}.",
        "Where a second copy would destroy the data of the first, silence is never enough. It is "
        "restarted when its volumes are fenced, or when a person confirms the death.",
        "backstay confirm-dead {node}, once it is certain that it is off",
    )
    SeenFromOnePlace = Entry(
        "No death can be presumed: controllers run on {count} of the {needed} nodes that it takes.",
        "A node that only one other cannot reach may be alive and well. Workloads whose owners "
        "have consented to a restart on silence wait for a person's word as well.",
        "run two controllers, on two nodes: kubectl get pods -n backstay-system -o wide",
    )
    LeavesDataBehind = Entry(
        "What it has written to {where} stays on {node}.",
        "The volume is a part of the node or of the pod, and does not follow to another node.",
    )
    StartsPaused = Entry(
        "It starts paused, and somebody has to let it go on.",
        "Its start strategy is Paused.",
        "virtctl unpause vm {name} -n {namespace}",
    )
    NoticesLate = Entry(
        "KubeVirt {version} starts it only when the heartbeat of its node is five minutes old.",
        "Before version 1.2 KubeVirt took no notice of a launcher pod that is gone.",
        "upgrade KubeVirt",
    )
    IsReplaced = Entry(
        "Another takes its place: {set} makes it.",
        "What belongs to a replica set or a pool is not started again but replaced, under another "
        "name.",
    )
    WouldBeStarted = Entry(
        "It would stay down by its run strategy, and is started because its policy asks for that.",
        "The policy of the workload or of the cluster says start: true.",
    )

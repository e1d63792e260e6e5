"""Names: every label, annotation, taint and manager that Backstay writes or honours.

They are an interface: people put them into manifests, and an uninstall looks for them.
"""

GROUP = "backstay.dev"

MANAGER = "backstay"
"""Our field manager, by which what we wrote can be told from what others wrote."""

TAINT = f"{GROUP}/failing-over"
"""On a node whose workloads are being moved, so that nothing new is put there."""

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""Kubernetes' own taint for a node that is off: whatever is on it, Kubernetes takes away."""

OUT_OF_SERVICE_OURS = f"{GROUP}/out-of-service"
"""An annotation beside that taint where it is ours; its value names the incident."""

DRAIN_TAINT = "medik8s.io/drain"
"""On a node in maintenance, ``NoSchedule``: the taint of the Node Maintenance Operator."""

EXCLUDE = "remediation.medik8s.io/exclude-from-remediation"
"""A label on the same: ``"true"`` keeps the medik8s operators from taking it for broken."""

MAINTENANCE = f"{GROUP}/maintenance"
"""An annotation on the same: which maintenance it is for, and which of cordon, taint and label are
ours to take back, as JSON. What was there before is not ours."""

MAINTENANCE_FINALIZER = "foregroundDeleteNodeMaintenance"
"""On a NodeMaintenance, until its node was given back. It has the name that the Node Maintenance
Operator gave it, so that each finishes what the other has begun."""

FENCED_NODE = f"{GROUP}/fenced-node"
"""An annotation on a fence of ours: the uid of the node that it was put up against."""

PROTECT = f"{GROUP}/protect"
"""On a pod, a VM or their templates: ``"true"`` or ``"false"``. It decides before any default."""

TMAX_PROTECT = "tmax/virt-auto-failover"
"""The label of the KubeVirt node-fail controller: ``"true"`` protects like our own."""

ON_STORAGE_LOST = "linstor.csi.linbit.com/on-storage-lost"
"""The label of the Piraeus HA controller: ``"remove"`` protects like our own, unless another
selector takes its place."""

IGNORE_FAIL_OVER = "drbd.linbit.com/ignore-fail-over"
"""An annotation on a pod, of the same controller's later versions: whatever its value, the pod is
left alone."""

MINIMUM_PROOF = f"{GROUP}/minimum-proof"
"""On a pod, a VM or their templates: ``Observed``, ``Confirmed`` or ``Presumed``, the weakest proof
on which it may be started elsewhere. The cluster's configuration bounds it."""

EXEMPT = f"{GROUP}/exempt"
"""On a node: ``"true"`` means that its workloads are nobody's business but their owner's."""

ARMED = f"{GROUP}/armed"
"""On the configuration: when and by whom Backstay was last armed. Another value than before means
that somebody has armed it anew, which also accepts an API that was rolled back."""

ROLLED_BACK = f"{GROUP}/rolled-back"
"""On our own lease: that whoever leads has seen the API go back in time. On the lease of a view:
that a controller on that node has."""

OPT_IN = f"{GROUP}/opt-in"
"""On our own lease: which pods whoever leads protects by labels that are not ours, where somebody
has chosen others than the usual. Commands read it there, to say what the controller would do."""

NOTES = f"{GROUP}/notes"
"""On our own lease: what whoever leads has trouble with, and what else people should know, as a
JSON list of sentences. ``backstay status`` shows it."""

DEVICES = f"{GROUP}/devices"
"""On another lease of ours: how the devices are by which nodes could be switched off."""

LAUNCHER_UID = f"{GROUP}/launcher"
"""On a migration that we asked for: the uid of the pod that the guest is moved away from."""

COMPONENT = "app.kubernetes.io/part-of"
"""With the value ``backstay``, on everything that an installation creates."""

FRAMES = f"{GROUP}/frames"
"""With the value ``"true"``, on what we keep of the decisions of an incident."""

INCIDENT = f"{GROUP}/incident"
"""An annotation on the same: whose decisions they are."""

VIEW = f"{GROUP}/view"
"""On a lease of ours: as a label ``"true"``, as an annotation what a controller sees of silent
nodes."""

LINSTOR_CONTROLLER = (
    ("app.kubernetes.io/component", "linstor-controller"),
    ("role", "piraeus-controller"),
)
"""Either marks a pod of LINSTOR's controller: as Piraeus' operator names it since its second
version, and before."""

CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
"""Either marks a node of the control plane: as Kubernetes names it since 1.20, and before."""

LEASE_NAMESPACE = "kube-node-lease"

HEARTBEAT = "kubevirt.io/heartbeat"
NODE_NAME = "kubevirt.io/nodeName"
LAUNCHER = "kubevirt.io"
LAUNCHER_VALUE = "virt-launcher"
HOTPLUG_VALUE = "hotplug-disk"
VM_NAME = "vm.kubevirt.io/name"

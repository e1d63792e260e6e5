"""Verbs: what can happen in a scenario, and what of ours a step can wait for."""

from collections.abc import Mapping
from enum import StrEnum


class Do(StrEnum):
    """What can happen. ``NEEDS`` says which field each of them is about."""

    KILL = "kill"
    BOOT = "boot"
    """Somebody presses the button: power, and a new boot."""
    FREEZE = "freeze"
    THAW = "thaw"
    CUT = "cut"
    CUT_OUT = "cut-out"
    """Nothing gets from the node to others; it hears them."""
    CUT_IN = "cut-in"
    """Nothing gets from others to the node; they hear it."""
    CUT_API = "cut-api"
    """The node and the control plane hear nothing of each other; others hear it."""
    HEAL = "heal"
    FLAP = "flap"
    """Its network is gone for ``seconds`` and there for as long, ``times`` times."""
    SLOW_DOWN = "slow-down"
    """All that it tells others, and others tell it, takes ``seconds`` longer; 0 ends that."""
    SET_CLOCK = "set-clock"
    """Its time of day is set ``seconds`` forward, or back."""
    KILL_KUBELET = "kill-kubelet"
    START_KUBELET = "start-kubelet"
    CONFIRM = "confirm"
    """Somebody vouches for the death of the boot that the API knows at this moment."""
    CONFIRM_OFF = "confirm-off"
    """Somebody who has looked vouches for the death of every node that has no power."""
    WITHDRAW = "withdraw"
    DELETE_NODE = "delete-node"
    REMOVE_TAINT = "remove-taint"
    """Somebody takes our taint off."""
    PUT_OUT = "put-out-of-service"
    """Somebody puts Kubernetes' own taint for that on the node."""
    REMEDIATE = "remediate"
    """A program does, which takes silence for death."""
    PUT_BACK = "put-back-in-service"
    FENCE = "fence"
    """Somebody else has the storage refuse the node."""
    BMC = "bmc"
    """Something befalls the BMC of the node: ``how``, see ``power_spec.py``."""
    SWITCH_OFF = "switch-off"
    SWITCH_ON = "switch-on"
    """Somebody does that at the BMC of the node."""
    PUT_IN_MAINTENANCE = "put-in-maintenance"
    """Somebody puts the taint of a drain on the node by hand."""
    TAKE_OUT_OF_MAINTENANCE = "take-out-of-maintenance"
    CORDON = "cordon"
    UNCORDON = "uncordon"
    EXCLUDE = "exclude"
    """Somebody labels the node so that programs which remediate nodes leave it alone."""
    MAINTAIN = "maintain"
    """Somebody creates a NodeMaintenance for the node."""
    END_MAINTENANCE = "end-maintenance"
    """Somebody deletes all that there are for it, ``seconds`` apart."""

    ARM = "arm"
    DISARM = "disarm"
    """For ``seconds``."""
    OBSERVE = "observe"
    DELETE_CONFIG = "delete-config"
    CONFIGURE = "configure"
    """Somebody changes in the configuration what ``config`` names."""
    SAY_WHAT_WE_DO_NOT_KNOW = "say-what-we-do-not-know"
    """Somebody installs definitions that are newer than we are, and asks by a policy for a proof
    that we have never heard of, or to be left alone."""
    RELEASE_STORM = "release-storm"
    """Somebody has looked at so many silent nodes, and lets us act on it for ``seconds``."""

    KILL_CONTROLLER = "kill-controller"
    START_CONTROLLER = "start-controller"
    PAUSE_CONTROLLER = "pause-controller"
    RESUME_CONTROLLER = "resume-controller"
    CUT_CONTROLLER = "cut-controller"
    HEAL_CONTROLLER = "heal-controller"
    FIREWALL = "firewall"
    """The controller can connect to the API, and to no node."""
    SKEW_CONTROLLER = "skew-controller"
    """Its time of day is set ``seconds`` forward, or back."""
    DELETE_INCIDENTS = "delete-incidents"
    """Somebody deletes what was told of all dead nodes."""
    DELETE_LEASE = "delete-lease"
    """Somebody deletes the lease by which our controllers agree on who leads."""

    KILL_API = "kill-api"
    START_API = "start-api"
    BACK_UP = "back-up"
    ROLL_BACK = "roll-back"
    """Somebody restores the last backup of the API's store."""
    ROLL_BACK_RAISED = "roll-back-raised"
    """The same by the book: with ``etcdutl snapshot restore --bump-revision 1000000000``."""
    ROLL_BACK_RAISED_A_LITTLE = "roll-back-raised-a-little"
    """The same with a million, which an API might have written by itself."""
    KILL_PROGRAM = "kill-program"
    START_PROGRAM = "start-program"
    """Of the control plane: ``kube-scheduler``, ``virt-controller`` and so on."""

    MIGRATE = "migrate"
    """Somebody has the VM moved to another node, live."""
    KILL_SOURCE = "kill-source"
    KILL_TARGET = "kill-target"
    """The node that a VM is moved from, or to, loses its power as soon as the VM is copied."""
    CANCEL_MIGRATION = "cancel-migration"
    """Somebody deletes the migrations of a VM."""
    DELETE_GUEST = "delete-guest"
    """Somebody deletes the VMI, and not the VM."""
    SAY_FAILED = "say-failed"
    """KubeVirt's controller, which cannot know, says that its guest has failed; it runs on."""
    PLUG_DISK = "plug-disk"
    """A running VM is given one more disk."""
    EVICT = "evict"
    """Somebody asks politely for the pods of a workload to go, as kubectl drain does."""
    DELETE_BUDGET = "delete-budget"
    """Somebody deletes the disruption budget of a workload."""
    DELETE_VM = "delete-vm"
    STOP_VM = "stop-vm"
    FORCE_DELETE = "force-delete"
    """Somebody deletes the pods of a workload without grace, as with kubectl --force."""
    TAKE_ADDRESS = "take-address"
    """Somebody takes the addresses of a VM that is down back with calicoctl, and starts a pod with
    them."""
    GARBLE_ADDRESSES = "garble-addresses"
    """Somebody writes into a VM's template which addresses it is to have, and not as JSON."""
    WRITE_BLOCKS = "write-blocks"
    """For ``seconds`` others write to all blocks of addresses, a hundred times a second."""
    CUT_REPLICATION = "cut-replication"
    """DRBD has no connection between the node and its ``peer``; all else has."""
    MUTE_REPLICATION = "mute-replication"
    """What DRBD sends from the node does not get to its ``peer``; what the peer sends arrives."""
    MEND_REPLICATION = "mend-replication"
    ALLOW_TWO_BETWEEN = "allow-two-primaries-between"
    """Somebody allows two primaries on the connections of the node and its ``peer`` alone."""
    STOP_SATELLITE = "stop-satellite"
    """LINSTOR's agent on the node ends; DRBD goes on."""
    START_SATELLITE = "start-satellite"
    EVICT_SATELLITE = "evict-satellite"
    """LINSTOR gives up on the satellite of the node, if that is away, and has the others go on
    without the replicas there."""
    STAY_ONLINE = "stay-online"
    """LINSTOR does not notice what becomes of the satellite of the node."""
    FREE_REPLICA = "free-replica"
    """Somebody switches quorum off for the replicas on the node, and for no others."""
    SERVE_EXPORTS = "serve-exports"
    """An NFS server is started on the node, for volumes that are exported and that nobody serves
    any more."""
    LINSTOR = "linstor"
    """``what`` becomes of LINSTOR's controller, see ``linstor_spec.py``."""

    PROTECT = "protect"
    UNPROTECT = "unprotect"
    """The label by which an owner says whether we may touch the workload's pods."""


class After(StrEnum):
    """A kind of write of ours that a step can wait for, or of request to a BMC that has landed."""

    INCIDENT = "incident"
    INTENT = "intent"
    TAINT = "taint"
    MARK = "mark"
    ADDRESS = "address"
    """Addresses were released."""
    REMOVAL = "removal"
    OFF = "asked-off"
    """A BMC was asked to switch its node off, be it in vain. (YAML takes a mere off for no.)"""
    ON = "asked-on"
    UNTAINT = "untaint"
    CLOSED = "closed"
    CORDON = "cordon"
    """A node was cordoned because somebody has asked for its maintenance."""
    EVICTION = "eviction"
    """A pod was evicted, and the API has let it go."""
    DRAINED = "drained"
    """It is told that nothing is left to drain."""
    UNCORDON = "uncordon"


OF_FAILOVERS = (
    After.INCIDENT, After.INTENT, After.TAINT, After.MARK, After.ADDRESS, After.REMOVAL,
    After.UNTAINT, After.CLOSED,
)  # fmt: skip
OF_DRAINS = (After.CORDON, After.EVICTION, After.DRAINED, After.UNCORDON)
OF_POWER = (After.OFF, After.ON)
"""What is done through BMCs."""


# What each verb is about

MOVING_VERBS = frozenset({
    Do.MIGRATE, Do.KILL_SOURCE, Do.KILL_TARGET, Do.PLUG_DISK, Do.CANCEL_MIGRATION,
    Do.DELETE_GUEST, Do.SAY_FAILED,
})  # fmt: skip
"""They are about VMs, too."""

VM_VERBS = frozenset({Do.DELETE_VM, Do.STOP_VM, Do.TAKE_ADDRESS, Do.GARBLE_ADDRESSES})
_CALICO_VERBS = frozenset({Do.TAKE_ADDRESS, Do.WRITE_BLOCKS})
_BETWEEN_TWO = frozenset({
    Do.CUT_REPLICATION, Do.MUTE_REPLICATION, Do.MEND_REPLICATION, Do.ALLOW_TWO_BETWEEN,
})  # fmt: skip
_OF_SATELLITES = frozenset({
    Do.STOP_SATELLITE, Do.START_SATELLITE, Do.EVICT_SATELLITE, Do.STAY_ONLINE, Do.FREE_REPLICA,
    Do.SERVE_EXPORTS,
})  # fmt: skip
_MAINTENANCE_VERBS = frozenset({Do.MAINTAIN, Do.END_MAINTENANCE})
_LINSTOR_VERBS = _BETWEEN_TWO | _OF_SATELLITES | {Do.LINSTOR}
_POWER_VERBS = frozenset({Do.BMC, Do.SWITCH_OFF, Do.SWITCH_ON})

OF_PARTS = {
    "calico": _CALICO_VERBS, "maintenance": _MAINTENANCE_VERBS, "linstor": _LINSTOR_VERBS,
    "bmcs": _POWER_VERBS,
}  # fmt: skip
"""What a scenario must have for these to make sense."""

OF_FIELDS: Mapping[str, frozenset[Do]] = {
    "how": frozenset({Do.BMC}), "what": frozenset({Do.LINSTOR}), "peer": _BETWEEN_TWO,
    "config": frozenset({Do.CONFIGURE}),
}  # fmt: skip
"""What a step has if it is one of these, and else not."""

NEEDS: Mapping[Do, str] = {
    **dict.fromkeys(
        (
            Do.KILL, Do.BOOT, Do.FREEZE, Do.THAW, Do.CUT, Do.CUT_OUT, Do.CUT_IN, Do.CUT_API,
            Do.HEAL, Do.KILL_KUBELET, Do.START_KUBELET, Do.CONFIRM, Do.WITHDRAW, Do.DELETE_NODE,
            Do.REMOVE_TAINT, Do.PUT_OUT, Do.REMEDIATE, Do.PUT_BACK, Do.FENCE, Do.CORDON,
            Do.UNCORDON, Do.EXCLUDE, Do.MAINTAIN, Do.END_MAINTENANCE, Do.FLAP, Do.SLOW_DOWN,
            Do.SET_CLOCK, *_BETWEEN_TWO, *_OF_SATELLITES, *_POWER_VERBS, Do.PUT_IN_MAINTENANCE,
            Do.TAKE_OUT_OF_MAINTENANCE,
        ),
        "node",
    ),
    **dict.fromkeys(
        (
            Do.KILL_CONTROLLER, Do.START_CONTROLLER, Do.PAUSE_CONTROLLER, Do.RESUME_CONTROLLER,
            Do.CUT_CONTROLLER, Do.HEAL_CONTROLLER, Do.SKEW_CONTROLLER, Do.FIREWALL,
        ),
        "controller",
    ),
    **dict.fromkeys((*MOVING_VERBS, Do.EVICT), "workload"),
    **dict.fromkeys((Do.KILL_PROGRAM, Do.START_PROGRAM), "program"),
    **dict.fromkeys(
        (
            Do.DELETE_VM, Do.STOP_VM, Do.DELETE_BUDGET, Do.FORCE_DELETE, Do.PROTECT, Do.UNPROTECT,
            Do.TAKE_ADDRESS, Do.GARBLE_ADDRESSES,
        ),
        "workload",
    ),
}  # fmt: skip
"""Verbs that are not in here are about the whole cluster."""

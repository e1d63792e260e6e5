"""Why a silent node is switched off, or is not, and what became of it.

They are reasons like any other (``reasons.py``): a code and a sentence, the same everywhere.
"""

from backstay.model.reasons import Catalogue, Entry


class PowerReason(Catalogue):
    """What is decided and done about the power of a node."""

    # Switching a node off, and on again

    SwitchingOff = Entry(
        "{device} was asked to switch {node} off.",
        "The node is silent on every channel, and what it runs waits for proof. That the device "
        "was asked is none: once it is *seen* to say that the power is off, nothing of this boot "
        "can run any more, and everything that waits is moved.",
        "backstay status",
    )
    PowerRefused = Entry(
        "{device} could not be asked to switch {node} {what}: {because}.",
        "Whether it has switched is looked at all the same, and it is asked again once the request "
        "cannot arrive any more.",
    )
    PowerOffUnanswered = Entry(
        "{device} was asked {count} times to switch {node} off, and it is not off: {because}.",
        "Nothing rests on a command, only on a power that is seen to be off. It is not asked "
        "again; everything else goes on as if there were no such device.",
        "switch {node} off by hand, then: backstay confirm-dead {node}",
    )
    SwitchingOn = Entry(
        "{device} was asked to switch {node} on again: nothing is left to do without it.",
        "Backstay had switched the node off in this incident. What was there runs elsewhere, or "
        "has found no other place for minutes; its volumes are freed, and no older request can "
        "reach the device any more. The node boots, and is given back once it is clean.",
    )
    PowerOnUnanswered = Entry(
        "{device} was asked {count} times to switch {node} on again, and it is not on: {because}.",
        "The failover is complete, and the node stays down. It is not asked again.",
        "look at {node}, and switch it on by hand",
    )
    StaysOff = Entry(
        "{node} stays off: the configuration leaves it to people to switch it on (fencing.power).",
        "Backstay has switched the node off, and everything is done. Where nodes that failed are "
        "looked at before they come back, that is what is wanted.",
        "switch {node} on when it is mended",
    )

    # Why a node is not switched off

    NoDevice = Entry(
        "{node} cannot be switched off: no device is known for it.",
        "The directory with the credentials of BMCs has no file of the node's name.",
        "add a file named {node} to the Secret with the credentials",
    )
    DeviceSilent = Entry(
        "{node} cannot be switched off: {device} does not answer ({because}).",
        "A machine that has lost its power takes its BMC with it, as a rule. It is asked again "
        "every few seconds; whatever else can prove the death is used meanwhile.",
        "backstay confirm-dead {node}, once it is certain that it is off",
    )
    WrongDevice = Entry(
        "{device} is that of another machine: it says {shown}, and {node} is {known}.",
        "The device is used for nothing: to switch off the wrong machine kills what is healthy, "
        "and to believe it would start things twice. Most often an address was given away, or two "
        "files were swapped.",
        "set the address in the file of {node}",
    )
    DeviceUnidentified = Entry(
        "It cannot be told whether {device} is that of {node}: {because}.",
        "A device is used only if it names the machine that the node's kubelet names "
        "(status.nodeInfo.systemUUID). Without that it is used for nothing.",
        "compare the UUID of the system in the BMC with: kubectl get node {node} -o "
        "jsonpath='{{.status.nodeInfo.systemUUID}}'",
    )
    AlreadyOff = Entry(
        "{node} needs not be switched off: {device} says that it is.",
        "That is proof by itself.",
    )
    PowerInBetween = Entry(
        "{node} is not switched off now: {device} says that {because}.",
        "The power is about to change. It is looked at again every few seconds.",
    )
    InMaintenance = Entry(
        "{node} is not switched off: it is in maintenance.",
        "Somebody works on the node: its taint says so (medik8s.io/drain). It may be rebooting, or "
        "being updated. Its death is not presumed either; with any other proof, what it ran is "
        "moved as always.",
        "backstay confirm-dead {node}, once it is certain that it is off",
    )
    NothingWaits = Entry(
        "It would not help to switch {node} off.",
        "Nothing there is held for lack of proof alone.",
        "backstay readiness node/{node}",
    )
    LastCopyThere = Entry(
        "It would not help to switch {node} off: it has the only good copy of {volumes}.",
        "LINSTOR says that no other replica of what waits could take over. A node that is cut off "
        "with the last copy is better mended than switched off.",
        "linstor resource list; mend the other replicas, or the network of {node}",
    )
    OtherCopiesUnknown = Entry(
        "{node} is not switched off yet: LINSTOR does not tell whether there is another good copy "
        "of {volumes}.",
        "If there is none, to switch the node off would help nobody, and nobody would switch it on "
        "again. Without LINSTOR no other node could use the volume anyway. It is looked at again.",
        "linstor node list; linstor resource list",
    )
    StillConnected = Entry(
        "{node} is not switched off: {peer} is still connected to it, by DRBD's word.",
        "A node that replicates is alive, and so are its guests, as far as anybody knows: it is "
        "only Kubernetes that has lost it. To switch it off would kill what runs well.",
        "mend the way from {node} to the API; if its guests are to move, switch it off by hand",
    )
    PowerWaits = Entry(
        "{node} is not switched off yet: its ports cannot be asked from here, and it is not "
        "{seconds} s since its virt-handler could have been heard of.",
        "Where only the kubelet has died, the guests run on, and would be killed. So either "
        "nothing answers at the node's ports, or all is silent for longer.",
    )
    ControlPlaneNeedsIt = Entry(
        "{node} is not switched off: only {alive} of {count} control plane nodes are alive besides "
        "it.",
        "Without a majority the cluster's store stops. If the node lives after all, it may be the "
        "one that is needed.",
        "mend the other control plane nodes first",
    )
    SwitchedOnSince = Entry(
        "{node} is not switched off again: it was off in this incident, and somebody has switched "
        "it on.",
        "Backstay does not fight with people over a power button, and a node that boots is about "
        "to be heard of. What is still held is decided when it is.",
    )

"""Reasons: why something was done, or was not.

A reason is a code and a sentence. The pair is the same in the log, the Event, the Incident, the
metric, the command line, the docs and the tests; nobody has to guess whether two places speak of
the same thing. Not to act is a decision too and has a reason like any other.

``Reason`` is the catalogue; what is only expected has one of its own (``caveats.py``), and so have
drains (``drain_reasons.py``). Each entry has the sentence (with the names of what it is about to be
filled in), what it means for someone who reads it at night, and what to do next. docs/reasons.md is
generated from all.
"""

from enum import Enum
from typing import NamedTuple

import msgspec


class Entry(NamedTuple):
    """``sentence`` and ``next`` are templates; ``meaning`` is for the docs."""

    sentence: str
    meaning: str
    next: str = ""


class Why(msgspec.Struct, frozen=True):
    """One reason, filled in. ``next`` is empty where there is nothing to do."""

    code: str
    sentence: str
    next: str = ""


class Catalogue(Enum):
    """The name of a member is its code."""

    @property
    def entry(self) -> Entry:
        # Not by ``value``, nor ``name`` below: those are looked up by Python code, at every look.
        entry: Entry = self._value_
        return entry

    def because(self, **about: object) -> Why:
        """Filled in. A name that the entry needs and is not given is a bug, and raises."""
        entry = self.entry
        then = entry.next.format(**about) if entry.next else ""
        return Why(self._name_, entry.sentence.format(**about), then)


class Reason(Catalogue):
    """What is decided, done and told of nodes and workloads."""

    # A node's life

    NodeHealthy = Entry(
        "{node} is alive.",
        "The node renews its lease. Nothing on it is touched.",
    )
    NodeSuspect = Entry(
        "{node} has been silent for {seconds} s.",
        "The node has missed renewals of its lease. Nothing is done yet: it is watched closely, "
        "and what runs on it is looked up, so that a decision can be made without delay.",
    )
    NodeLost = Entry(
        "{node} is lost: no sign of life for {seconds} s.",
        "The node has been silent for too long to be expected back by itself. Silence does not "
        "prove that its guests stopped: a node that is only cut off still runs them.",
    )
    NodeRecovered = Entry(
        "{node} is down, and nothing is left for us to do.",
        "The failover is complete: what was ours to restart runs elsewhere, and the incident says "
        "why whatever else is down was left alone. The node keeps its taint until it comes back "
        "clean.",
        "repair or replace {node}",
    )
    NodeReturned = Entry(
        "{node} shows life again.",
        "The node renews its lease again, in the same boot. Whatever was under way stops. Its "
        "taint stays until nothing of the incident runs there any more.",
    )
    NodeRebooted = Entry(
        "{node} has rebooted: nothing of its former boot runs any more.",
        "The boot id changed. What the API still lists for the node is started again by its own "
        "kubelet, and what is being deleted is never started: there is nothing to fail over.",
    )

    NodeGone = Entry(
        "{node} is no longer in the API.",
        "Somebody removed the node from the cluster. Kubernetes itself removes its pods then.",
    )

    # Why a workload is left alone, or waits

    Observing = Entry(
        "Backstay only observes: it would have acted on {workload}.",
        "This is how Backstay starts out: it records what it would have done and changes nothing.",
        "backstay arm",
    )
    Disarmed = Entry(
        "Backstay is disarmed until {until}: {because}.",
        "Somebody has disarmed Backstay for a time. It observes and records, and changes nothing.",
        "backstay arm",
    )
    ApiRolledBack = Entry(
        "The API was rolled back ({because}): nothing is taken from any node until somebody arms "
        "Backstay again.",
        "The store of the API was restored from a backup. What it lists may be long gone, what it "
        "does not list may run, and what was confirmed of a node may be about another day. So "
        "Backstay has disarmed itself. Look first whether guests run twice, or on other nodes than "
        "the API says; arming accepts the API as it is then, but for confirmations of deaths: what "
        "was confirmed before counts no more, and takes another look.",
        "backstay arm",
    )
    NoLongerArmed = Entry(
        "Backstay is no longer armed: {because}.",
        "From here on it observes and records, and changes nothing, until somebody arms it. "
        "Workloads of a node that dies meanwhile stay down.",
        "backstay arm",
    )
    NotProtected = Entry(
        "{workload} is not protected: {because}.",
        "Backstay acts for virtual machines and the pods of StatefulSets, and for what is labelled "
        "for it. Everything else is left to its owner.",
        "kubectl label {object} backstay.dev/protect=true",
    )
    Exempt = Entry(
        "{node} is exempt: its workloads are left to their owner.",
        "The node carries the label backstay.dev/exempt=true.",
        "kubectl label node {node} backstay.dev/exempt-",
    )
    CannotRunElsewhere = Entry(
        "{workload} cannot run on another node: {because}.",
        "The workload is bound to the node, for example by a local volume. To take it away there "
        "would not bring it back anywhere else.",
    )
    StaleView = Entry(
        "Our view of the cluster is nothing to act on: {because}.",
        "The API has not been heard of for too long, or shows most nodes as silent. A decision on "
        "old news could hit a node that is back by now, and where everybody is silent it is more "
        "likely that we are deaf. Nothing is done until the view is sound.",
        "backstay doctor",
    )
    EvidenceContradicted = Entry(
        "{node} was declared dead, but it shows life ({sign}).",
        "Somebody said that the node is off, and then a sign of life was seen. It may be a node "
        "that is cut off. That word stays void, also if the node dies later, and beside it neither "
        "another word nor silence counts: only what is observed of the node or of its volumes "
        "releases anything.",
        "backstay confirm-dead {node} --withdraw, and once it is off: backstay confirm-dead {node}",
    )
    GuestAliveKubeletDead = Entry(
        "The kubelet of {node} is silent but virt-handler is not: {workload} is running there.",
        "Only the kubelet has died. The guests run and are not disturbed; to start them elsewhere "
        "would make second copies.",
        "restart the kubelet on {node}",
    )
    ProofMissing = Entry(
        "{workload} is held: nothing proves that {node} is dead, so it may still {risk}{missing}.",
        "The node is silent, but a node that is only cut off could still run the workload. A "
        "second copy would write to the same disk. It is restarted as soon as there is proof.",
        "make sure that {node} is off, then: backstay confirm-dead {node}",
    )
    NodeAnswers = Entry(
        "{node} is silent, but its {channel} answers: it is not dead.",
        "The node does not renew its lease, and yet something at its address answers, be it with a "
        "refusal. It has power and may run its guests; nothing is taken from it.",
        "look at {node}: is its kubelet running, and can it reach the API server?",
    )
    AttemptCap = Entry(
        "{workload} was failed over {count} times in {minutes} minutes and is left where it is.",
        "Something that dies wherever it is put may be what kills the nodes. It is failed over "
        "again after a while, or at once if the configuration allows more (limits.attempts).",
        "find out why its nodes die, before it is moved to the next one",
    )
    StormHold = Entry(
        "{workload} is held: {count} of {nodes} nodes are silent at once, and where more than "
        "{most} are, silence proves nothing.",
        "So many deaths at once are more likely one broken network, or one mistake of ours. "
        "Nothing is done that rests on silence; what is observed, or confirmed by a person, "
        "goes on.",
        "find out what they have in common; if they are off: backstay storm release --reason WHY",
    )
    StormPaced = Entry(
        "{workload} waits for its turn: {count} of {nodes} nodes are down at once.",
        "Its node is proven dead. In a storm so many workloads are moved that the nodes which are "
        "left could drown in them: they are released a few at a time.",
    )
    PolicyUnreadable = Entry(
        "{workload} is held, because nobody knows what its owner asks for: {because}.",
        "A policy of its namespace cannot be read, and no earlier version of it is known. It might "
        "ask to be left alone, or for stronger proof, so nothing is guessed.",
        "kubectl get availabilitypolicies -A",
    )
    NotOurJob = Entry(
        "The configuration says that {job} is not ours to do ({owner}).",
        "Another program was found to do this job, or somebody has switched it off. Two programs "
        "that do the same to one node would get into each other's way.",
        "backstay config show",
    )
    ProofExpired = Entry(
        "The proof that {node} is dead no longer holds: {because}.",
        "Proof is looked at again after the barrier, right before anything is removed. This time "
        "it did not hold any more, so nothing was removed and everything is decided anew.",
        "backstay explain node/{node}",
    )
    NoLongerOurs = Entry(
        "What was to be released from {node} is no longer there, or no longer ours to release.",
        "Between the barrier and the removal its owner has kept it from us, deleted it, or it has "
        "ended; or the configuration has given the job to another program, or to nobody. Nothing "
        "was removed. A pod that was marked as deleted before stays Terminating until its node is "
        "back, or until its owner or that program removes it.",
        "kubectl get pods -A --field-selector spec.nodeName={node}",
    )
    AlreadyEnded = Entry(
        "{workload} has ended by itself.",
        "The pod has succeeded or failed and holds nothing any more.",
    )
    RunsElsewhere = Entry(
        "{workload} runs on {target}: {node} has only the other end of a migration.",
        "A migration had begun, or had just ended, when the node fell silent. The guest itself is "
        "on another node and needs nothing; the rest is removed once the node is proven dead.",
    )
    LookupFailed = Entry(
        "{workload} is held until it can be looked up: {because}.",
        "What stands behind the pod could not be read, so it is not known whether it is protected "
        "and who would start it again. Nothing is guessed; it is looked up again.",
        "backstay doctor",
    )

    # What is done, step by step

    MayBeReleased = Entry(
        "{workload} may be released from {node}: nothing stands in its way.",
        "All checks have let it pass. The barrier and a second look follow.",
    )
    DeathConfirmed = Entry(
        "{by} confirmed that {node} is dead: {because}.",
        "A person vouches that this boot of the node is off. It counts until a sign of life is "
        "seen, or until it is withdrawn.",
    )
    EvidenceFound = Entry(
        "{kind} of {node}: {because}.",
        "Something shows that the node, or what ran there, can no longer write. What it is enough "
        "for is decided for each workload.",
    )
    BarrierRaised = Entry(
        "{node} takes no new pods, and {count} of its pods are marked as deleted.",
        "From here on no kubelet will ever start these pods again, whatever comes back. The proof "
        "is looked at again after this moment, and only then is anything removed.",
    )
    ProofHolds = Entry(
        "It is proven that {node} is dead: {because}.",
        "Looked at again after the barrier, the evidence still holds.",
    )
    PresumptionHolds = Entry(
        "{node} is presumed dead, which is enough for those who consent to it: {because}.",
        "Looked at again after the barrier, nothing was heard of the node on any channel. That is "
        "no proof. It is acted on only for workloads whose owners accept it, and whose volumes "
        "can stand it.",
    )
    Released = Entry(
        "{workload} was released from {node} and can start elsewhere.",
        "Its pod on the dead node was removed. Its own controller now creates it anew.",
    )
    Recovered = Entry(
        "{workload} runs on {target}.",
        "It is up again on a node that is alive.",
    )
    ReadyAgain = Entry(
        "{workload} is ready on {target}.",
        "It not only runs but serves: its guest, or its containers, passed the probes that their "
        "owner has set. This is when its users stop waiting.",
    )
    StaysDown = Entry(
        "{workload} was released from {node} but stays down: {because}.",
        "Its run strategy does not start it again by itself; that is its owner's choice.",
        "virtctl start {name} -n {namespace}",
    )
    MigrationCleared = Entry(
        "{workload} was being migrated between {node} and {target}, and its pod on {node} was "
        "removed.",
        "The other end of a migration was on the dead node. KubeVirt ends the migration now; where "
        "the guest runs, nothing was touched.",
    )
    RunsOnce = Entry(
        "{workload} was released from {node} but stays down: {because}, and KubeVirt starts such a "
        "VM a single time.",
        "KubeVirt answers a request to start a VM whose run strategy is Once with a refusal. It "
        "starts it once more when its VMI, which has failed, is deleted: that is its owner's to "
        "decide, and Backstay deletes no VMIs.",
        "kubectl delete vmi {name} -n {namespace}",
    )
    NobodyStartsIt = Entry(
        "{workload} was released from {node} but stays down: {because}.",
        "It was made by hand and has no controller, so there is nobody who would make another.",
        "create {namespace}/{name} again, as a VirtualMachine or as the pod of a controller",
    )
    NeedsRecovery = Entry(
        "{workload} was released from {node} but stays down: KubeVirt does not start it before "
        "somebody has looked after its volumes.",
        "The VM has the condition ManualRecoveryRequired: a migration of its volumes was "
        "interrupted, and some of them may not be what the VM says.",
        "kubectl describe vm {name} -n {namespace}",
    )
    ToBeStarted = Entry(
        "{workload} was released from {node}. It would stay down ({because}), and is started, "
        "because its policy asks for that.",
        "The policy of the workload or of the cluster says start: true. KubeVirt is asked to start "
        "it as soon as it has taken note that the old guest is gone.",
    )
    StartRequested = Entry(
        "KubeVirt was asked to start {workload}.",
        "KubeVirt has accepted the request. Where the guest runs is for the scheduler to say.",
    )
    StartRefused = Entry(
        "KubeVirt does not start {workload}: {because}.",
        "KubeVirt has refused the request to start the VM. It is asked again while the incident "
        "lasts.",
        "kubectl describe vm {name} -n {namespace}",
    )
    StartBackoff = Entry(
        "{workload} waits: {count} starts of it have failed, and KubeVirt tries none before "
        "{until}.",
        "A guest that ends before it has ever run is started again after a while that grows with "
        "every failure, up to five minutes.",
        "find out why it does not start: kubectl get events",
    )
    StartFails = Entry(
        "{workload} was released but does not start: KubeVirt says {word}.",
        "Its controller has made it anew, and something keeps it from running: there is no room "
        "for it, or it misses a volume or an image.",
        "kubectl describe vm {name} -n {namespace}",
    )
    NoticedLate = Entry(
        "{workload} was released from {node}. KubeVirt {version} takes note of it when the node's "
        "heartbeat is five minutes old, and starts it then.",
        "Before version 1.2 KubeVirt did not look at the launcher pod but at the heartbeat of the "
        "node's virt-handler, which it gives five minutes.",
        "upgrade KubeVirt",
    )
    RecoveredPaused = Entry(
        "{workload} is on {target} and paused.",
        "Its start strategy is Paused: KubeVirt starts its guest and holds it until somebody lets "
        "it go on.",
        "virtctl unpause vm {name} -n {namespace}",
    )
    Replaced = Entry(
        "{workload} was replaced: {set} is complete again ({count}).",
        "A replica set or a pool makes another guest, of another name, in the place of one that is "
        "gone.",
    )
    NoLongerWanted = Entry(
        "{workload} is not started again: {because}.",
        "Somebody stopped or deleted it while its node lay dead. What was left of it on the node "
        "has been cleared away, and there is nothing else to do.",
    )
    WouldRecover = Entry(
        "{workload} would restart on another node as soon as {node} is proven dead.",
        "Nothing stands in its way but the proof.",
    )

    # Volumes that the dead node still has

    VolumeDetached = Entry(
        "{volumes} of {workload} is being detached from {node}: it can be had on another node "
        "within about a minute.",
        "The workload was released and the node is proven dead, so its attachment was deleted. The "
        "storage driver does the rest; Kubernetes notices it with its next comparison, which comes "
        "once a minute.",
        "kubectl get volumeattachments",
    )
    VolumeStays = Entry(
        "{volumes} of {workload} stays attached to {node}: {because}.",
        "A volume is detached only from a node that is proven dead or that the storage refuses, "
        "and only if nothing else on that node uses it. Kubernetes itself gives it up six minutes "
        "after the last pod with it is gone.",
        "kubectl get volumeattachments",
    )
    OutOfService = Entry(
        "{node} was put out of service: Kubernetes detaches all its volumes at once.",
        "The configuration prefers Kubernetes' own taint for a node that is off. Nothing on the "
        "node is held, and its death is proven. Backstay takes the taint off when the node is "
        "back.",
    )
    OutOfServiceHeld = Entry(
        "{node} is not put out of service: {because}. Its volumes are detached one by one.",
        "The out-of-service taint makes Kubernetes remove everything from the node, so it is only "
        "put on when everything there may go.",
        "backstay explain node/{node}",
    )

    # A kubelet that has died, and guests that have not

    MayBeMigrated = Entry(
        "{workload} is to be migrated away from {node}, whose kubelet is silent.",
        "The guest is alive, and its policy (onKubeletLoss) asks to move it while it runs.",
    )
    MigrationRequested = Entry(
        "KubeVirt was asked to migrate {workload} away from {node}.",
        "A VirtualMachineInstanceMigration was created, one and no more for this launcher. "
        "KubeVirt runs it within its own limits.",
    )
    GuestMigrating = Entry(
        "{workload} is being migrated away from {node} ({phase}).",
        "The migration that Backstay asked for is under way. The guest runs on meanwhile.",
        "kubectl get vmim -n {namespace}",
    )
    Migrated = Entry(
        "{workload} was migrated to {target} while it ran.",
        "Only the kubelet of its node had died; the guest was moved without an interruption.",
    )
    MigrationFailed = Entry(
        "{workload} runs on {node}, whose kubelet is silent, and could not be migrated: {because}.",
        "The guest is left as it is: it runs. It was tried once and is not tried again.",
        "restart the kubelet on {node}",
    )
    MayBeStopped = Entry(
        "{workload} is to be shut down on {node}, whose kubelet is silent, and started elsewhere.",
        "It cannot be migrated, and its policy (onKubeletLoss: StopAndMove) asks to shut it down "
        "then. virt-handler on the node does that, and only when it has said that the guest has "
        "stopped is the launcher removed.",
    )
    StopRequested = Entry(
        "KubeVirt was asked to restart {workload}: virt-handler on {node} shuts its guest down.",
        "KubeVirt deletes the VMI, and the node's living virt-handler shuts the guest down and "
        "says how it ended. The launcher stays until then.",
    )
    GuestStopping = Entry(
        "{workload} is being shut down on {node}.",
        "It is not started elsewhere before virt-handler has said that its guest has stopped, and "
        "has been heard of since.",
        "restart the kubelet on {node}",
    )
    GuestHasStopped = Entry(
        "It is proven that a guest on {node} has stopped: {because}.",
        "The node is alive, and its virt-handler has seen the guest end. Looked at again after the "
        "barrier, that still holds; the launcher, which the dead kubelet would never clear away, "
        "is removed.",
    )
    CannotBeStopped = Entry(
        "{workload} runs on {node}, whose kubelet is silent, and is not shut down: {because}.",
        "Its policy asks to shut it down and to start it elsewhere, but it could not be started "
        "there. A guest that runs is better than one that does not.",
        "restart the kubelet on {node}",
    )
    MoveRefused = Entry(
        "KubeVirt does not move {workload}: {because}.",
        "KubeVirt has refused to migrate the guest, or to restart it. It is asked again while the "
        "node's kubelet is silent.",
        "kubectl describe vmi {name} -n {namespace}",
    )

    # Telling the storage to refuse a node

    FenceRaised = Entry(
        "The storage ({driver}) was asked to refuse {node} ({addresses}).",
        "The node is silent on every channel, and what it runs waits for proof. Once the storage "
        "says that it refuses the node, nothing there can write any more, whether or not it lives, "
        "and what has all its volumes in that storage is moved.",
        "kubectl get networkfences",
    )
    FenceWaits = Entry(
        "{node} is not fenced yet: its ports cannot be asked from here, and it is not {seconds} s "
        "since its virt-handler could have been heard of.",
        "Where only the kubelet has died, the guests run on, and a fence would take their disks "
        "away. So either nothing answers at the node's ports, or all is silent for longer.",
    )
    FenceHolds = Entry(
        "Nothing on {node} can write to its volumes any more: {because}.",
        "Looked at again after the barrier, the storage still refuses the node. Whether the node "
        "is dead does not matter then to what has all its volumes there.",
    )
    StillMounted = Entry(
        "{node} is back, but still has {volumes} of {workload} mounted: it stays closed to new "
        "pods.",
        "What ran there was released while the node was away, and its kubelet cannot end it: it "
        "waits for its storage, as a rule. Our taint goes when the kubelet says that it has let "
        "go of the volume.",
        "drbdadm status on {node}, or whatever its storage has; mend it, or reboot {node}",
    )
    MountedForNobody = Entry(
        "{node} is back, but has {volume} mounted, and no pod there accounts for it{because}: it "
        "stays closed to new pods.",
        "Nobody knows what was released from the node: its incident was deleted, and whoever "
        "remembered it is gone. Our taint goes when the kubelet says that it has let go.",
        "look whether something runs on {node} that the API does not list; reboot it, or: kubectl "
        "taint node {node} backstay.dev/failing-over-",
    )
    LinstorReplaced = Entry(
        "LINSTOR's controller ({workload}) was on {node}: it is marked as deleted, so that another "
        "starts elsewhere.",
        "Without it nobody can say whom DRBD has shut out. It has no volumes of its own, and "
        "Kubernetes would replace it after five minutes anyway; nothing is removed from the node.",
    )
    LinstorIsBack = Entry(
        "LINSTOR speaks again, {seconds} s after its controller on {node} was replaced.",
        "Its successor has heard from the satellites: what DRBD says can be proof again.",
    )
    CutOffFromStorage = Entry(
        "{node} is alive, but DRBD has shut it out of {resources}: what runs there cannot write.",
        "The other replicas have the quorum and have lost the node, while Kubernetes hears of it. "
        "Nothing is taken from a node that is alive; its pods hang until it reaches the others "
        "again, or is switched off.",
        "drbdadm status on {node}, then mend its replication network, or reboot it",
    )
    FenceUnanswered = Entry(
        "The fence {fence} against {node} does not hold: {because}.",
        "The storage was asked to refuse the node and has not said that it does. Nothing rests on "
        "a fence that does not hold; everything else goes on as if there were none.",
        "kubectl describe networkfence {fence}",
    )
    FenceLifted = Entry(
        "The storage ({driver}) takes {node} back: our fence is lifted.",
        "The node is back and runs nothing of what was moved. Only fences that Backstay put up are "
        "lifted by it.",
    )
    NothingToFence = Entry(
        "No fence of the storage would help on {node}.",
        "Nothing there is held for lack of proof alone, or not all that it can write to can be "
        "fenced: the driver has no csi-addons, a volume is of another kind, or two copies would be "
        "harmful even without their volumes.",
        "backstay readiness node/{node}",
    )

    # Addresses that a workload is pinned to

    AddressReleased = Entry(
        "{node} no longer holds {addresses}: the new pod of {workload} can start with that.",
        "The workload asks for this address by name. Calico gives it back only when the node "
        "itself says so, which a dead node never does, so Backstay has done it once the death of "
        "the node was proven and Calico's records named this very pod as its owner.",
    )
    AddressCoolsDown = Entry(
        "{node} no longer holds {addresses}: the new pod of {workload} can start with that in "
        "{seconds} s.",
        "Calico is configured to let addresses rest before they are used again "
        "(ipCooldownSeconds). The new pod waits for that long.",
        "calicoctl ipam show --ip={address}",
    )
    AddressKept = Entry(
        "Calico keeps {addresses} for {workload}: its new pod is given that without our help.",
        "Since version 3.32 Calico holds the address of a virtual machine under the name of the "
        "machine. It must not be released, or another pod could get it.",
    )
    AddressRests = Entry(
        "Its address {addresses} rests for {seconds} s before its new pod can have it.",
        "Calico is configured to let released addresses rest (ipCooldownSeconds).",
    )
    AddressBound = Entry(
        "{workload} asks for {addresses}, which Calico lets no node but {node} use.",
        "Calico is configured with strictAffinity: an address belongs to the node whose block it "
        "is in. The workload's pod on any other node waits for the address for ever.",
        "calicoctl ipam configure --strictaffinity=false, or have no address asked for by name",
    )
    AddressLeft = Entry(
        "The new pod of {workload} may have to wait for {addresses}: {because}.",
        "An address is released only if Calico's records say that it is this very pod's, and if "
        "they can be changed. The failover goes on without it.",
        "calicoctl ipam show --ip={address}",
    )
    AddressMayBeUsed = Entry(
        "The new pod of {workload} has to wait for {addresses}: it is proven that {node} cannot "
        "write, and not that nothing there uses that any more.",
        "What the storage refuses, or a guest that has stopped, says nothing about the node's "
        "network. The address is not released, or two machines could answer on it. Calico itself "
        "gives it back a quarter of an hour after its pod is gone.",
        "make sure that {node} is off, then: calicoctl ipam release --ip={address}",
    )
    AddressUnreadable = Entry(
        "{thing} does not say which addresses {workload} is to have: {because}.",
        "The annotation cni.projectcalico.org/ipAddrs is to be a JSON list of at most one IPv4 and "
        "one IPv6 address. Calico starts no pod with one that it cannot read.",
        "kubectl edit {object}",
    )
    AddressHasNoEffect = Entry(
        "{workload} does not get {addresses}: KubeVirt does not pass on the annotations of a "
        "VirtualMachine.",
        "Only the annotations in spec.template.metadata reach the launcher pod, by which Calico "
        "goes. The machine has some other address, and gets another one when it is moved.",
        "put cni.projectcalico.org/ipAddrs into spec.template.metadata.annotations of {object}",
    )

    # What is told of an incident

    TimelineShortened = Entry(
        "What happened from here on was left out, because there was too much of it.",
        "An incident keeps its beginning and its newest moments. The log and the flight recorder "
        "have what was left out.",
    )

    # Confirmations that do not count

    ConfirmationRefused = Entry(
        "The confirmation that {node} is dead does not count: {because}.",
        "A confirmation is bound to one boot of one node, and to the last sign of life before it "
        "was given. The node has lived since, or the API was restored from a backup and cannot "
        "tell, so somebody has to look again.",
        "make sure that {node} is off, then: backstay confirm-dead {node}",
    )

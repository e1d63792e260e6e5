"""Why a pod leaves its node, or stays, or cannot leave; and how a maintenance stands.

They are reasons like any other (``reasons.py``), in a catalogue of their own: they stand in the
status of a NodeMaintenance, in Events and in what ``backstay drain`` shows.
"""

from backstay.model.reasons import Catalogue, Entry


class DrainReason(Catalogue):
    """What is planned, done and waited for when a node is drained."""

    # What becomes of a pod when its node is drained

    WillBeEvicted = Entry(
        "It is evicted.",
        "The pod is asked to end, within its own grace period, if its disruption budget allows "
        "it. Whatever made it makes another one on another node.",
    )
    WillBeMigrated = Entry(
        "Its guest {guest} is migrated while it runs.",
        "KubeVirt moves the guest to another node; the pod that it leaves behind is removed then.",
    )
    WillBeMovedByOthers = Entry(
        "Its guest {guest} waits for somebody else to move it (evictionStrategy External).",
        "KubeVirt only notes that the guest has to leave. Whatever program the strategy External "
        "is meant for has to move it or to stop it.",
        "ask whoever runs {guest}",
    )
    WillBeRestarted = Entry(
        "Its guest {guest} is shut down, and starts on another node if its run strategy says so.",
        "Its eviction strategy is None, or LiveMigrateIfPossible while it cannot be migrated. The "
        "guest is stopped within its grace period.",
    )
    GoesWithItsGuest = Entry(
        "It holds volumes that are plugged into a guest, and goes with it.",
        "KubeVirt removes such a pod itself as soon as its guest has left.",
    )
    IncomingMigration = Entry(
        "Its guest {guest} is just being migrated to {node}, and leaves once it has come.",
        "A migration to this node was under way when it was drained. KubeVirt refuses to evict its "
        "target; as soon as the guest runs here it is asked to leave like any other.",
    )
    LeavesAlready = Entry(
        "It has been told to end already.",
        "The pod is Terminating, and is waited for.",
    )
    DaemonSetPod = Entry(
        "It stays: it belongs to the DaemonSet {owner}.",
        "A DaemonSet would put it back at once, because it tolerates cordons.",
    )
    StaticPod = Entry(
        "It stays: it is a static pod.",
        "What a kubelet runs from its own files cannot be taken from it through the API.",
    )
    NotWaitedFor = Entry(
        "It has been Terminating for too long, and is not waited for.",
        "That is what --skip-wait-for-delete-timeout asks for: most often its node is down.",
    )

    # What the options of a drain do not allow

    DaemonSetRefused = Entry(
        "It belongs to the DaemonSet {owner}, whose pods stay.",
        "kubectl drain wants it said that they are ignored, and so do we.",
        "--ignore-daemonsets",
    )
    DaemonSetGone = Entry(
        "It belongs to the DaemonSet {owner}, which is gone.",
        "Nobody would make another one. With --force it is evicted all the same.",
        "--force",
    )
    DaemonSetUnknown = Entry(
        "Whether its DaemonSet {owner} is still there is not known: {because}.",
        "One that is there keeps its pods on the node, so it has to be known.",
        "grant the right to get daemonsets, or try again",
    )
    LocalDataRefused = Entry(
        "It keeps data in {volumes} (emptyDir), which is lost when it goes.",
        "Nothing is evicted until somebody has said that this data may go.",
        "--delete-emptydir-data",
    )
    UnmanagedRefused = Entry(
        "Nothing would make another one: it has no controller.",
        "Nothing is evicted until somebody has said that such pods may go.",
        "--force",
    )

    # What a drain waits for

    BudgetExhausted = Entry(
        "{pod} may not go yet: its disruption budget {budget} allows no disruption at present "
        "({because}).",
        "Evicting it now would leave fewer healthy pods than its owner asks for. It is asked again "
        "as soon as the budget changes. If it never does, the budget asks for more than there can "
        "be: minAvailable as large as the number of replicas, maxUnavailable 0, or pods that are "
        "not ready.",
        "kubectl describe pdb {name} -n {namespace}",
    )
    BudgetUncounted = Entry(
        "{pod} may not go yet: its disruption budget {budget} has not been counted since it was "
        "changed.",
        "Kubernetes' disruption controller counts it within seconds, unless it does not run.",
        "kubectl describe pdb {name} -n {namespace}",
    )
    TwoBudgets = Entry(
        "{pod} cannot be evicted: more than one disruption budget selects it ({budgets}).",
        "Kubernetes evicts no pod with two budgets. One of them has to select something else.",
        "kubectl get pdb -n {namespace}",
    )
    NotLiveMigratable = Entry(
        "{guest} cannot leave {node}: it may only be migrated (evictionStrategy LiveMigrate), and "
        "cannot be{because}.",
        "KubeVirt refuses to evict it, for ever. Either what keeps it from being migrated is "
        "changed, or somebody stops it.",
        "virtctl stop {name} -n {namespace}, once its owner agrees",
    )
    EvacuationSlow = Entry(
        "{guest} has been asked to leave {node} for {seconds} s: {because}.",
        "KubeVirt has accepted to move it. A migration takes as long as the guest's memory is "
        "large and busy; one that finds no room waits until there is some, and one that fails is "
        "tried again by KubeVirt.",
        "kubectl get vmim -n {namespace}",
    )
    StillTerminating = Entry(
        "{pod} was told to end and is still there, {seconds} s after its time was over{because}.",
        "Its kubelet has not ended it, or a finalizer keeps it. If the node is down it stays for "
        "ever, and only proof that the node is off helps.",
        "kubectl describe pod {name} -n {namespace}",
    )
    NamespaceGoing = Entry(
        "{pod} cannot be evicted: its namespace is being deleted.",
        "Whoever deletes the namespace deletes the pod. It is waited for.",
        "kubectl get namespace {namespace} -o yaml",
    )
    EvictionDenied = Entry(
        "The eviction of {pod} is refused: {because}.",
        "An admission webhook or a policy of the cluster does not allow it.",
        "kubectl describe pod {name} -n {namespace}",
    )
    EvictionForbidden = Entry(
        "The eviction of {pod} is forbidden: {because}.",
        "Whoever drains lacks the right to evict pods there.",
        "kubectl auth can-i create pods --subresource=eviction -n {namespace}",
    )
    EvictionUnanswered = Entry(
        "The eviction of {pod} was not carried out: {because}.",
        "The API could not be reached, was busy or failed. It is asked again.",
    )
    LeaveUnknown = Entry(
        "Nobody is asked to leave {node} at present: {because}.",
        "Before pods are asked to leave, it is looked whether that is still wanted. The API could "
        "not be asked, so nothing is done until it can be.",
    )
    NotKeptFree = Entry(
        "Nobody is asked to leave {node} until it is cordoned again.",
        "Somebody has taken the cordon off. What leaves now could come back to the same node.",
    )
    PodUnreadable = Entry(
        "{pod} cannot be read: {because}.",
        "It is there, but nothing is known of it, so the node is not drained.",
        "kubectl get pod {name} -n {namespace} -o yaml",
    )
    LastCopy = Entry(
        "{node} has the only up-to-date copy of {resource}.",
        "Nothing has to be evicted any more, but if this node goes down the data cannot be "
        "reached by anybody. Wait until another replica is up to date, or make one.",
        "linstor resource list -r {resource}",
    )
    CopiesUnknown = Entry(
        "Whether {node} has the only up-to-date copy of something is not known: {because}.",
        "LINSTOR could not be asked, or did not say. The node is not reported as ready to go down "
        "until it has.",
        "backstay status",
    )

    # How a maintenance stands

    MaintenanceBegun = Entry(
        "{node} is in maintenance: {reason}.",
        "Somebody has made a NodeMaintenance for it. It is cordoned, and what runs there is asked "
        "to leave.",
    )
    Draining = Entry(
        "{pending} of {most} pods still have to leave {node}.",
        "The drain goes on. Blockers, if there are any, are named one by one.",
    )
    DrainBlocked = Entry(
        "{pending} of {most} pods still have to leave {node}; {blocked} cannot yet: {because}.",
        "Something is in the way of some of them. Each blocker says what, since when, and what to "
        "do; the others go on meanwhile.",
        "kubectl get nodemaintenance {name} -o yaml",
    )
    Drained = Entry(
        "{node} is drained, and may go down.",
        "Nothing that had to leave is left on it. It stays cordoned until its NodeMaintenance is "
        "deleted, and whatever comes there nevertheless is asked to leave as well.",
    )
    NotSafeYet = Entry(
        "{node} is drained, but must not go down yet: {because}.",
        "Nothing that had to leave is left on it, but its storage is needed.",
        "kubectl get nodemaintenance {name} -o yaml",
    )
    WouldDrain = Entry(
        "Backstay only observes: it would cordon and drain {node} (pods that have to leave: "
        "{count}, of which cannot: {blocked}).",
        "Nothing was written to the node or to its pods. The blockers are those that can be "
        "foreseen.",
        "backstay arm",
    )
    MaintenanceDisarmed = Entry(
        "Nothing more is asked to leave {node}: Backstay is disarmed until {until} ({because}).",
        "What was cordoned stays so, and what was asked to leave leaves.",
        "backstay arm",
    )
    MaintenanceRolledBack = Entry(
        "Nothing more is asked to leave {node}: the API was rolled back ({because}).",
        "Until somebody arms Backstay again, what the API lists is not relied on. What was "
        "cordoned stays so.",
        "backstay arm",
    )
    MaintenanceNotOurs = Entry(
        "The configuration says that maintenance is not ours to do ({owner}).",
        "Another program was found to do it, or somebody has switched it off.",
        "backstay config show",
    )
    NodeMissing = Entry(
        "There is no node {node}; it is waited for.",
        "The NodeMaintenance names a node that the API does not know. If it comes, it is cordoned "
        "and drained.",
        "kubectl get nodes",
    )
    AnotherMaintenance = Entry(
        "{node} is in maintenance on account of {other} already; that one counts.",
        "There are two NodeMaintenances for one node. The older one counts; when it is deleted "
        "this one takes its place, and the node stays cordoned.",
        "kubectl delete nodemaintenance {name}, or {other}",
    )
    ControlPlaneQuorum = Entry(
        "{node} is a control-plane node, and {other} is {state}: one at a time.",
        "With two of them away the API may lose its quorum. It begins as soon as the other one is "
        "back.",
        "kubectl get nodes -l node-role.kubernetes.io/control-plane",
    )
    CordonedAgain = Entry(
        "{node} was cordoned again: somebody had taken its cordon off while it is in maintenance.",
        "To end a maintenance its NodeMaintenance is deleted.",
        "kubectl delete nodemaintenance {name}",
    )
    EvacuationCancelled = Entry(
        "{guest} stays on {node}: it had been asked to leave, and its migration had not begun.",
        "The maintenance was ended before KubeVirt had begun to move it.",
    )
    EvacuationGoesOn = Entry(
        "{guest} still leaves {node}, though the maintenance was ended: {because}.",
        "A migration that has begun is not interrupted; it does no harm. Where KubeVirt has no way "
        "to take a request back, the guest is moved.",
    )
    MaintenanceEnded = Entry(
        "The maintenance of {node} is over: {given}.",
        "Its NodeMaintenance was deleted. What was put on the node for it was taken off again, and "
        "nothing else.",
    )

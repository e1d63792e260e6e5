"""Deliberate bugs: each takes away one thing that keeps us safe, and an invariant notices.

A rule that nothing can break proves nothing. Every bug here replaces one part of a built
controller: a check of the chain, a step of the guarded write, of the loop, of observing or of
leading. It names what it replaces, the case in which it shows (``cases.py``) and the invariants
that must catch it there; tests/lab holds them to it, and the shipped controller to going through
the same case unharmed. The shipped rooms contain no switch for any of this.
"""

from dataclasses import dataclass, field

from backstay.app import Parts
from backstay.decide import failover
from backstay.decide.failover import CHAIN
from backstay.lab import cases, guest_cases
from backstay.lab.broken import (
    ByTheClock,
    ByTheLeaseAlone,
    ForAllTimes,
    Glancing,
    GuardOfAnHeir,
    HearsOfFences,
    Impatient,
    InAHurry,
    LoopOfAnHeir,
    OfAnyBoot,
    OfAnyScope,
    OverOthersTaints,
    ReadOnce,
    WithInstances,
    WithoutAWord,
    WithoutEvidence,
    WithoutFinalizers,
    WithoutGrace,
    WithoutHandles,
    WithoutHeartbeat,
    WithoutIntent,
    WithoutLastRenewal,
    WithoutMark,
    WithoutPreconditions,
    WithoutSettling,
    WithoutTaint,
    WithoutTerm,
    WithoutTerminating,
    WithoutUid,
    WithoutVersion,
    chain_without,
    do_we_only_observe,
    is_it_an_even_second,
)
from backstay.lab.broken_guests import (
    AskedIsDone,
    MovingAgain,
    OfItsOwnMind,
    WithBothEnds,
    WithoutMoves,
    WithoutNextHeartbeat,
)
from backstay.lab.broken_silence import (
    AsIfShared,
    FromOnePlace,
    HastyGuard,
    HastyLoop,
    OnlyKubelets,
    WithoutConsent,
    WithoutProof,
)
from backstay.lab.broken_storage import (
    DetachesOnAnyWord,
    OutOfServiceAtOnce,
    TakesOffAnybodysTaint,
    WithoutAttachmentsVersion,
    WithRashVolumes,
)
from backstay.lab.scenario import Scenario


@dataclass(frozen=True)
class Bug:
    """``guard`` is what it takes away, as the shipped code calls it."""

    name: str
    sentence: str
    guard: str
    caught_by: frozenset[str]
    instead: Parts
    case: Scenario = field(default=cases.DEATH)


_CAUGHT_IN_LIFE = frozenset({"NoDeleteWithoutEvidence", "NoHealthyGuestStopped", "NoBystander"})

BUGS: tuple[Bug, ...] = (
    Bug(
        "silence-is-death",
        "Silence counts as death.",
        "decide/failover.py: is_it_proven",
        _CAUGHT_IN_LIFE | {"OneWriter"},
        {"chain": chain_without(failover.is_it_proven), "guard": WithoutEvidence},
        cases.CUT_OFF,
    ),
    Bug(
        "acts-while-observing",
        "It acts while it should only observe.",
        "decide/failover.py: may_we_act",
        frozenset({"Disarm"}),
        {"chain": chain_without(failover.may_we_act)},
        cases.OBSERVED,
    ),
    Bug(
        "acts-while-disarmed",
        "That somebody has disarmed us is not looked at.",
        "decide/failover.py: may_we_act",
        frozenset({"Disarm"}),
        {"chain": (*chain_without(failover.may_we_act), do_we_only_observe)},
        cases.DISARMED,
    ),
    Bug(
        "trusts-a-restored-api",
        "That the API has gone back in time is not looked at.",
        "decide/failover.py: has_api_gone_back",
        frozenset({"Disarm"}),
        {"chain": chain_without(failover.has_api_gone_back)},
        cases.RESTORED,
    ),
    Bug(
        "takes-the-unprotected",
        "What its owner has kept from us is taken all the same.",
        "decide/failover.py: is_it_protected",
        frozenset({"NoBystander"}),
        {"chain": chain_without(failover.is_it_protected)},
        cases.UNPROTECTED,
    ),
    Bug(
        "takes-from-exempt-nodes",
        "An exempt node is a node like any other.",
        "decide/failover.py: is_node_exempt",
        frozenset({"NoBystander"}),
        {"chain": chain_without(failover.is_node_exempt)},
        cases.EXEMPT,
    ),
    Bug(
        "decides-by-a-clock",
        "A decision depends on something that is not in its snapshot.",
        "decide/failover.py: decide",
        frozenset({"SameDecision"}),
        {"chain": (is_it_an_even_second, *CHAIN)},
    ),
    Bug(
        "word-for-another-boot",
        "A confirmation of an earlier boot counts for this one.",
        "decide/failover.py: is_about",
        _CAUGHT_IN_LIFE | {"OneWriter"},
        {"observer": OfAnyBoot},
        cases.EARLIER_BOOT,
    ),
    Bug(
        "forgets-last-renewal",
        "A confirmation does not remember the last sign of life before it.",
        "decide/failover.py: void",
        _CAUGHT_IN_LIFE | {"OneWriter"},
        {"observer": WithoutLastRenewal},
        cases.LIFE_UNSEEN,
    ),
    Bug(
        "ignores-life",
        "Life does not refute a confirmation.",
        "decide/failover.py: refuted",
        _CAUGHT_IN_LIFE | {"OneWriter"},
        {"observer": ForAllTimes},
        cases.LIFE_SEEN,
    ),
    Bug(
        "stops-healthy-guests",
        "That virt-handler is heard of is not looked at.",
        "decide/life.py: guests_alive",
        frozenset({"NoHealthyGuestStopped", "NoDeleteWithoutEvidence", "NoBystander"}),
        {"observer": WithoutHeartbeat},
        cases.WITHOUT_KUBELET,
    ),
    Bug(
        "believes-clocks",
        "Signs of life are dated by the clock of whoever gave them.",
        "sources/nodes.py: _Track.see",
        frozenset({"NoHealthyGuestStopped", "NoBystander"}),
        {"observer": ByTheClock},
        cases.WRONG_CLOCK,
    ),
    Bug(
        "presumes-from-one-place",
        "Silence that was seen from one place is enough.",
        "decide/proof.py: why_not_presumed",
        _CAUGHT_IN_LIFE | {"OneWriter"},
        {"reach": FromOnePlace},
        cases.SEEN_FROM_ONE_PLACE,
    ),
    Bug(
        "presumes-too-soon",
        "A death is presumed after less than 150 s.",
        "decide/proof.py: presumed_after",
        frozenset({"NoDeleteWithoutEvidence"}),
        {"loop": HastyLoop, "guard": HastyGuard},
        cases.SILENT,
    ),
    Bug(
        "presumes-behind-a-firewall",
        "Silence counts although nobody else could be reached either.",
        "decide/proof.py: _sound",
        _CAUGHT_IN_LIFE | {"OneWriter"},
        {"reach": WithoutProof},
        cases.BEHIND_A_FIREWALL,
    ),
    Bug(
        "ignores-refusals",
        "A machine that takes or refuses a connection counts as silent.",
        "sources/reach.py: _ask_port",
        _CAUGHT_IN_LIFE | {"OneWriter"},
        {"reach": OnlyKubelets},
        cases.FROZEN,
    ),
    Bug(
        "presumes-without-consent",
        "Nobody asks the owner whether silence is enough.",
        "decide/policy.py: terms_of",
        frozenset({"EvidenceScope"}),
        {"observer": WithoutConsent},
        cases.SILENT,
    ),
    Bug(
        "presumes-for-single-writers",
        "Silence is enough for a volume that only one node may have.",
        "decide/proof.py: _unconsented",
        frozenset({"EvidenceScope"}),
        {"observer": AsIfShared},
        cases.SILENT,
    ),
    Bug(
        "presumes-in-a-storm",
        "How many nodes are silent at once is not looked at.",
        "decide/failover.py: is_it_a_storm",
        frozenset({"Storm"}),
        {"chain": chain_without(failover.is_it_a_storm)},
        cases.STORM,
    ),
    Bug(
        "inherits-evidence",
        "What an incident records as evidence counts as evidence.",
        "decide/failover.py: sufficient",
        _CAUGHT_IN_LIFE | {"OneWriter"},
        {"loop": LoopOfAnHeir, "guard": GuardOfAnHeir},
        cases.WITHDRAWN,
    ),
    Bug(
        "no-taint",
        "The node is left open to new pods.",
        "control/guard.py: _keep_scheduler_away",
        frozenset({"TaintBeforeRemoval"}),
        {"guard": WithoutTaint},
    ),
    Bug(
        "overwrites-taints",
        "Our taint takes the place of everybody else's.",
        "act/taints.py: put_on",
        frozenset({"Ownership"}),
        {"guard": OverOthersTaints},
    ),
    Bug(
        "no-barrier",
        "Pods are removed that a kubelet could still start.",
        "control/guard.py: _mark",
        frozenset({"NoDeleteWithoutEvidence"}),
        {"guard": WithoutMark},
    ),
    Bug(
        "marks-without-grace",
        "A pod without a grace period is marked like any other, which removes it.",
        "act/pods.py: mark",
        frozenset({"NoDeleteWithoutEvidence"}),
        {"guard": WithoutGrace},
        cases.HOTPLUG,
    ),
    Bug(
        "proof-before-barrier",
        "Nobody asks the API again after the barrier.",
        "control/observe.py: look_closely",
        frozenset({"ProofAfterBarrier"}),
        {"observer": Glancing},
    ),
    Bug(
        "deletes-by-name",
        "Pods are deleted by name alone.",
        "act/pods.py: remove",
        frozenset({"Preconditions"}),
        {"guard": WithoutPreconditions},
    ),
    Bug(
        "drops-uid",
        "Deletions name a version, and no uid.",
        "act/pods.py: remove",
        frozenset({"Preconditions"}),
        {"guard": WithoutUid},
    ),
    Bug(
        "drops-version",
        "Deletions name a uid, and no version.",
        "act/pods.py: remove",
        frozenset({"Preconditions"}),
        {"guard": WithoutVersion},
    ),
    Bug(
        "strips-finalizers",
        "Finalizers are taken off what is removed.",
        "act/pods.py: remove",
        frozenset({"Ownership"}),
        {"guard": WithoutFinalizers},
    ),
    Bug(
        "deletes-instances",
        "The VMI is deleted together with its launcher.",
        "control/guard.py: _remove_what_is_proven",
        frozenset({"Ownership"}),
        {"guard": WithInstances},
    ),
    Bug(
        "takes-anybodys-address",
        "An address is taken back from whoever has it.",
        "act/addresses.py: _Release._judge",
        frozenset({"OneAddress"}),
        {"guard": WithoutHandles},
        cases.ADDRESS_TAKEN,
    ),
    Bug(
        "takes-addresses-of-the-living",
        "What shows that a node cannot write counts for its addresses too.",
        "control/guard.py: _claims",
        frozenset({"OneAddress"}),
        {"guard": OfAnyScope, "observer": HearsOfFences},
        cases.ADDRESS_IN_USE,
    ),
    Bug(
        "detaches-on-any-word",
        "A volume is detached although only another program says that the node is dead.",
        "decide/proof.py: may_detach",
        frozenset({"EvidenceScope"}),
        {"loop": WithRashVolumes, "guard": DetachesOnAnyWord},
        cases.FOREIGN_WORD,
    ),
    Bug(
        "out-of-service-too-soon",
        "A node is put out of service although something on it is held.",
        "decide/detach.py: _in_the_way",
        frozenset({"EvidenceScope"}),
        {"guard": OutOfServiceAtOnce},
        cases.TAINT_PREFERRED,
    ),
    Bug(
        "detaches-by-name",
        "Attachments are deleted by name and uid, whatever they have become.",
        "act/attachments.py: detach",
        frozenset({"Preconditions"}),
        {"guard": WithoutAttachmentsVersion},
        cases.TAINT_PREFERRED,
    ),
    Bug(
        "takes-off-anybodys-taint",
        "The out-of-service taint is taken off, whoever put it on.",
        "act/taints.py: take_off",
        frozenset({"Ownership"}),
        {"guard": TakesOffAnybodysTaint},
        cases.PUT_OUT_BY_HAND,
    ),
    Bug(
        "stops-without-leave",
        "A guest whose kubelet has died is moved or stopped although nobody has asked for it.",
        "decide/rescue.py: rescue",
        frozenset({"AsPolicySays"}),
        {"observer": OfItsOwnMind},
        guest_cases.LEFT_ALONE,
    ),
    Bug(
        "starts-without-leave",
        "A VM that its run strategy leaves down is started although nobody has asked for it.",
        "control/machines.py: start",
        frozenset({"AsPolicySays"}),
        {"observer": OfItsOwnMind},
        guest_cases.STAYS_DOWN,
    ),
    Bug(
        "believes-any-phase",
        "That a VMI is said to have failed counts as the word of its virt-handler.",
        "sources/guests.py: _stops",
        _CAUGHT_IN_LIFE | {"OneWriter"},
        {"guests": WithoutNextHeartbeat},
        guest_cases.SAID_TO_HAVE_FAILED,
    ),
    Bug(
        "removes-before-the-stop",
        "A guest that was asked to stop counts as one that has stopped.",
        "sources/guests.py: _stops",
        _CAUGHT_IN_LIFE | {"OneWriter"},
        {"guests": AskedIsDone},
        guest_cases.DEAF_WHEN_ASKED,
    ),
    Bug(
        "migrates-twice",
        "A migration that was asked for is asked for again.",
        "act/machines.py: migrate",
        frozenset({"AsPolicySays"}),
        {"guests": WithoutMoves, "machines": MovingAgain},
        guest_cases.NO_ROOM,
    ),
    Bug(
        "removes-the-target",
        "The launcher that a guest was being moved to is removed as well.",
        "control/guard.py: _remove_what_is_proven",
        frozenset({"NoBystander"}),
        {"guard": WithBothEnds},
        guest_cases.ON_ITS_WAY,
    ),
    Bug(
        "acts-when-deposed",
        "Writes do not carry the end of the term.",
        "kube/lease.py: Term.require",
        frozenset({"Zombie"}),
        {"guard": WithoutTerm},
        cases.ASLEEP,
    ),
    Bug(
        "takes-over-early",
        "The lease is taken from a leader who may still be acting.",
        "kube/lease.py: Leadership._free_at",
        frozenset({"Zombie"}),
        {"leadership": Impatient},
        cases.ASLEEP,
    ),
    Bug(
        "epoch-from-lease",
        "The epoch of a term comes from the lease alone.",
        "record/incidents.py: highest_epoch",
        frozenset({"Epoch"}),
        {"leadership": ByTheLeaseAlone},
        cases.LEASE_DELETED,
    ),
    Bug(
        "forgets-intent",
        "Nothing announces what is about to be done.",
        "control/incident.py: intend",
        frozenset({"Epoch"}),
        {"guard": WithoutIntent},
    ),
    Bug(
        "untaints-on-ready",
        "A node is given back as soon as it is heard again.",
        "control/failover.py: _is_clean",
        frozenset({"Zombie"}),
        {"loop": InAHurry},
        cases.RETURN,
    ),
    Bug(
        "leaves-what-was-begun",
        "What a predecessor began is left to the predecessor.",
        "control/incident.py: intend",
        frozenset({"Recovered", "NothingTerminating"}),
        {"loop": WithoutSettling},
        cases.CRASH,
    ),
    Bug(
        "terminating-is-gone",
        "A pod that is marked counts as one that is gone.",
        "sources/workloads.py: assemble",
        frozenset({"NothingTerminating"}),
        {"observer": WithoutTerminating},
    ),
    Bug(
        "stale-list",
        "The pods of a node are read once, and never again.",
        "control/observe.py: read_workloads",
        frozenset({"NoActionLoops"}),
        {"observer": ReadOnce},
    ),
    Bug(
        "holds-in-silence",
        "What is held is not told.",
        "control/failover.py: _fail_over",
        frozenset({"HoldsAreTold"}),
        {"loop": WithoutAWord},
        cases.CUT_OFF,
    ),
)


def bug_named(name: str) -> Bug:
    """Raises ``KeyError`` for one that there is not."""
    return {bug.name: bug for bug in BUGS}[name]

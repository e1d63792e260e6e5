"""Deliberate bugs in what owners and the cluster allow, and how often; see ``bugs.py``."""

from backstay.decide import failover
from backstay.lab import policy_cases
from backstay.lab.broken import chain_without
from backstay.lab.broken_policy import (
    EverybodysAddresses,
    Forgetful,
    WithoutBounds,
    WithoutKinds,
    WithoutPolicies,
    chain_without_pace,
)
from backstay.lab.bug import Bug

POLICY_BUGS: tuple[Bug, ...] = (
    Bug(
        "rushes-through-a-storm",
        "In a storm everything that is proven is released at once.",
        "decide/failover.py: is_it_a_storm",
        frozenset({"Storm"}),
        {"chain": chain_without_pace()},
        policy_cases.AT_A_WALK,
    ),
    Bug(
        "forgets-what-it-released",
        "How much was released in the last minute is not known.",
        "control/history.py: released",
        frozenset({"Storm"}),
        {"loop": Forgetful},
        policy_cases.AT_A_WALK,
    ),
    Bug(
        "moves-without-end",
        "A workload is moved however often its nodes have died.",
        "decide/failover.py: has_it_been_tried_too_often",
        frozenset({"NoActionLoops"}),
        {"chain": chain_without(failover.has_it_been_tried_too_often)},
        policy_cases.AGAIN_AND_AGAIN,
    ),
    Bug(
        "does-others-jobs",
        "That another program is to do it is not looked at.",
        "decide/failover.py: is_it_our_job",
        frozenset({"OneOwner"}),
        {"chain": chain_without(failover.is_it_our_job)},
        policy_cases.OF_SOMEBODY_ELSE,
    ),
    Bug(
        "takes-back-others-addresses",
        "That another program gives addresses back is not looked at.",
        "control/guard.py: _free_addresses",
        frozenset({"OneOwner"}),
        {"guard": EverybodysAddresses},
        policy_cases.ADDRESS_OF_SOMEBODY_ELSE,
    ),
    Bug(
        "ignores-policies",
        "What owners say in policies is not looked at.",
        "decide/policy.py: terms_of",
        frozenset({"NoBystander"}),
        {"observer": WithoutPolicies},
        policy_cases.KEPT_BY_POLICY,
    ),
    Bug(
        "takes-what-is-left-out",
        "That the configuration leaves VMs or StatefulSets out is not looked at.",
        "decide/failover.py: is_it_protected",
        frozenset({"NoBystander"}),
        {"observer": WithoutKinds},
        policy_cases.LEFT_OUT,
    ),
    Bug(
        "ignores-unreadable-policies",
        "A policy that cannot be read counts as none.",
        "decide/failover.py: is_its_policy_known",
        frozenset({"NoBystander"}),
        {"chain": chain_without(failover.is_its_policy_known)},
        policy_cases.NEWER_THAN_WE_ARE,
    ),
    Bug(
        "takes-any-proof",
        "Any proof is enough, whatever its owner asks for.",
        "decide/proof.py: objection",
        frozenset({"OwnersProof"}),
        {"observer": WithoutPolicies},
        policy_cases.ONLY_WHAT_IS_OBSERVED,
    ),
    Bug(
        "grants-any-consent",
        "An owner can consent to less than the cluster allows.",
        "decide/policy.py: _minimum",
        frozenset({"OwnersProof"}),
        {"observer": WithoutBounds},
        policy_cases.NO_PRESUMPTIONS,
    ),
)

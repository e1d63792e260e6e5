"""Deliberate bugs in what is concluded from silence; see ``bugs.py``."""

from backstay.decide import failover
from backstay.lab import cases
from backstay.lab.broken import chain_without
from backstay.lab.broken_silence import (
    AsIfShared,
    FromOnePlace,
    HastyGuard,
    HastyLoop,
    OnlyKubelets,
    WithKubernetes,
    WithoutAnswers,
    WithoutConsent,
    WithoutProof,
)
from backstay.lab.bug import CAUGHT_IN_LIFE, Bug

SILENCE_BUGS: tuple[Bug, ...] = (
    Bug(
        "presumes-from-one-place",
        "Silence that was seen from one place is enough.",
        "decide/proof.py: why_not_presumed",
        CAUGHT_IN_LIFE | {"OneWriter"},
        {"reach": FromOnePlace},
        cases.SEEN_FROM_ONE_PLACE,
    ),
    Bug(
        "counts-ready-as-a-witness",
        "That Kubernetes calls a node not ready counts as a second place that sees its silence.",
        "decide/proof.py: why_not_presumed",
        CAUGHT_IN_LIFE | {"OneWriter"},
        {"reach": WithKubernetes},
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
        "decide/proof.py: sound_silences",
        CAUGHT_IN_LIFE | {"OneWriter"},
        {"reach": WithoutProof},
        cases.BEHIND_A_FIREWALL,
    ),
    Bug(
        "ignores-refusals",
        "A machine that takes or refuses a connection counts as silent.",
        "sources/reach.py: _ask_port",
        CAUGHT_IN_LIFE | {"OneWriter"},
        {"reach": OnlyKubelets},
        cases.FROZEN,
    ),
    Bug(
        "ignores-answers",
        "That something at the node answers is not looked at.",
        "decide/failover.py: does_node_answer",
        CAUGHT_IN_LIFE | {"OneWriter"},
        {"reach": WithoutAnswers},
        cases.DEAF_TO_THE_API,
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
)

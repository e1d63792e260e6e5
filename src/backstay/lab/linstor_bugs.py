"""Deliberate bugs in what rests on LINSTOR and DRBD; see ``bugs.py``.

Several guards stand in for each other here, on purpose: DRBD's own word that a replica could be
promoted goes by the same votes that we count. To break one of them breaks nothing, so the bug takes
all of them away, and says so.
"""

from backstay.lab import linstor_cases
from backstay.lab.broken_linstor import (
    AsIfOnePrimary,
    AsIfQuorate,
    DetachesEverything,
    ExportsLikeDevices,
    FromHearsay,
    OfAnyDriver,
    OldNews,
    OnceInAWhile,
    OneLossIsEnough,
    OnlyLinstors,
    ReadsOptionsOnce,
    RemovesLinstor,
    RobsTheReady,
    SucceedsAnybody,
    SucceedsTheLiving,
    SucceedsThoughDeaf,
    WithHastyWitnesses,
    WithoutFreePrimaries,
    WithoutMajority,
    WithoutPrimaries,
)
from backstay.lab.broken_storage import GivesBackWhatIsMounted
from backstay.lab.bug import CAUGHT_IN_LIFE, Bug

LINSTOR_BUGS: tuple[Bug, ...] = (
    Bug(
        "gives-back-what-is-mounted",
        "A node that is back is given back although it has a volume of what was released mounted.",
        "decide/detach.py: still_mounted",
        frozenset({"Zombie"}),
        {"loop": GivesBackWhatIsMounted},
        linstor_cases.BACK_WITHOUT_STORAGE,
    ),
    Bug(
        "ignores-quorum",
        "A volume whose quorum is off counts as one whose quorum is on.",
        "decide/quorum.py: is_unprotected",
        CAUGHT_IN_LIFE | {"OneWriter"},
        {"linstor": AsIfQuorate},
        linstor_cases.WITHOUT_QUORUM,
    ),
    Bug(
        "forgets-a-replicas-own-settings",
        "What is set for a resource counts for all its replicas, whatever is set for one alone.",
        "drivers/linstor/wire.py: weakest",
        CAUGHT_IN_LIFE | {"OneWriter"},
        {"linstor": AsIfQuorate},
        linstor_cases.FREED_AND_CUT_OFF,
    ),
    Bug(
        "ignores-two-primaries",
        "A volume that may have two primaries counts as one that has one.",
        "decide/quorum.py: is_unprotected",
        frozenset({"EvidenceScope"}),
        {"linstor": AsIfOnePrimary},
        linstor_cases.TWO_PRIMARIES,
    ),
    Bug(
        "ignores-the-primary",
        "That a replica is in use, by its own satellite's word, is not looked at; nor what is set "
        "for it alone, which stands in for that.",
        "decide/quorum.py: is_still_there",
        CAUGHT_IN_LIFE | {"OneWriter"},
        {"linstor": WithoutFreePrimaries},
        linstor_cases.FREED,
    ),
    Bug(
        "one-loss-is-enough",
        "A replica that is still connected to the node does not count, if another has lost it; nor "
        "does it that none could be promoted, which stands in for that.",
        "decide/quorum.py: is_still_there",
        CAUGHT_IN_LIFE,
        {"linstor": OneLossIsEnough},
        linstor_cases.SEEN_BY_A_THIRD,
    ),
    Bug(
        "asks-no-majority",
        "Those who can be asked are enough, however few; and DRBD's own word about that, that none "
        "could be promoted, is not looked at.",
        "decide/quorum.py: is_not_outvoted",
        CAUGHT_IN_LIFE,
        {"linstor": WithoutMajority},
        linstor_cases.ALONE,
    ),
    Bug(
        "believes-hearsay",
        "What a satellite said last counts after its node fell silent; and that none of the others "
        "could be promoted, which stands in for that, is not looked at.",
        "decide/quorum.py: _not_shown_alive",
        CAUGHT_IN_LIFE,
        {"linstor": FromHearsay},
        linstor_cases.LAST_WORDS,
    ),
    Bug(
        "samples-the-grace",
        "A node that is shut out now, and was before, counts as shut out all the while.",
        "sources/linstor.py: _lasting",
        frozenset({"EvidenceScope"}),
        {"linstor": OnceInAWhile},
        linstor_cases.NOW_AND_AGAIN,
    ),
    Bug(
        "acts-on-old-looks",
        "What LINSTOR said once counts while it can be neither asked nor heard; the age of a look "
        "and the end of the stream stand in for each other, and neither is looked at.",
        "decide/quorum.py: settled",
        CAUGHT_IN_LIFE,
        {"linstor": OldNews},
        linstor_cases.OUT_OF_DATE,
    ),
    Bug(
        "reads-settings-once",
        "What is set for a resource is read once, and never again.",
        "sources/linstor.py: _look_at",
        CAUGHT_IN_LIFE | {"OneWriter"},
        {"linstor": ReadsOptionsOnce},
        linstor_cases.SETTINGS_CHANGE,
    ),
    Bug(
        "one-volume-is-enough",
        "A VM with a volume of LINSTOR counts as covered, whatever else it writes to.",
        "decide/proof.py: _open_to_writes",
        frozenset({"EvidenceScope", "NoDeleteWithoutEvidence"}),
        {"observer": OnlyLinstors},
        linstor_cases.ONE_OF_TWO,
    ),
    Bug(
        "speaks-for-any-driver",
        "DRBD's word counts for the volumes of other drivers.",
        "decide/proof.py: is_of",
        frozenset({"EvidenceScope", "NoDeleteWithoutEvidence"}),
        {"observer": OfAnyDriver},
        linstor_cases.ONE_OF_TWO,
    ),
    Bug(
        "covers-what-is-exported",
        "A volume that is served over NFS counts as covered when DRBD has shut the node out.",
        "decide/proof.py: is_of",
        CAUGHT_IN_LIFE | {"OneWriter"},
        {"observer": ExportsLikeDevices},
        linstor_cases.EXPORTED,
    ),
    Bug(
        "detaches-what-nobody-spoke-of",
        "What DRBD says of one volume is enough to detach another.",
        "decide/proof.py: may_detach",
        frozenset({"EvidenceScope"}),
        {"guard": DetachesEverything},
        linstor_cases.ONE_OF_TWO,
    ),
    Bug(
        "robs-the-ready",
        "A node that DRBD has lost counts as silent, although it is heard of; and its satellite's "
        "word that it is still the primary, which stands in for that, is not looked at.",
        "decide/life.py: step",
        frozenset({"NoBystander"}),
        {"observer": RobsTheReady, "linstor": WithoutPrimaries},
        linstor_cases.WITHOUT_STORAGE,
    ),
    Bug(
        "removes-linstor",
        "LINSTOR's controller is removed instead of marked, without proof that its node is dead.",
        "control/guard.py: succeed",
        CAUGHT_IN_LIFE,
        {"guard": RemovesLinstor},
        linstor_cases.CONTROLLER_CUT_OFF,
    ),
    Bug(
        "replaces-anybody",
        "Whatever somebody would start again is replaced together with LINSTOR's controller.",
        "decide/succession.py: is_succeeded",
        frozenset({"NoBystander", "NoHealthyGuestStopped"}),
        {"guard": SucceedsAnybody},
        linstor_cases.CONTROLLER_CUT_OFF,
    ),
    Bug(
        "replaces-linstor-of-the-living",
        "LINSTOR's controller is replaced although its node answers.",
        "decide/succession.py: to_be_succeeded",
        frozenset({"NoBystander", "NoHealthyGuestStopped"}),
        {"loop": WithHastyWitnesses, "guard": SucceedsTheLiving},
        linstor_cases.CONTROLLER_ANSWERS,
    ),
    Bug(
        "replaces-linstor-though-deaf",
        "LINSTOR's controller is replaced although most other nodes are silent as well.",
        "decide/succession.py: to_be_succeeded",
        frozenset({"NoBystander", "NoHealthyGuestStopped"}),
        {"loop": WithHastyWitnesses, "guard": SucceedsThoughDeaf},
        linstor_cases.MOST_ARE_SILENT,
    ),
)

"""Deliberate bugs in leading, in finishing what was begun, and in telling; see ``bugs.py``."""

from backstay.lab import cases
from backstay.lab.broken import (
    ByTheLeaseAlone,
    Impatient,
    InAHurry,
    ReadOnce,
    WithoutAWord,
    WithoutIntent,
    WithoutMissing,
    WithoutSettling,
    WithoutTerm,
    WithoutTerminating,
)
from backstay.lab.bug import Bug

LEADER_BUGS: tuple[Bug, ...] = (
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
    Bug(
        "misses-no-incident",
        "An incident that somebody has deleted is not written again.",
        "control/failover.py: deleted",
        frozenset({"HoldsAreTold"}),
        {"loop": WithoutMissing},
        cases.INCIDENT_DELETED,
    ),
)

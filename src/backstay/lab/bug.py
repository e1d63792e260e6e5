"""A deliberate bug, as a value; see ``bugs.py``."""

from dataclasses import dataclass, field

from backstay.app import Parts
from backstay.lab import cases
from backstay.lab.scenario import Scenario

CAUGHT_IN_LIFE = frozenset({"NoDeleteWithoutEvidence", "NoHealthyGuestStopped", "NoBystander"})
"""Where what runs on a node that lives is taken from it."""


@dataclass(frozen=True)
class Bug:
    """``guard`` is what it takes away, as the shipped code calls it."""

    name: str
    sentence: str
    guard: str
    caught_by: frozenset[str]
    instead: Parts
    case: Scenario = field(default=cases.DEATH)

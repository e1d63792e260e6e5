"""The matrix: what becomes of a VM whose node has died, for every kind of VM that there is.

It depends on what there is to show that the node is dead, on where the VM has its disks, on whether
its owner has consented to a presumption, and on its run strategy: ``EXPECTED`` says whether it is
taken from the node, or the code by which it is held there; ``AFTERWARDS`` how it goes on with one
that is taken.

For each kind of proof there is one scenario, in which one node runs a VM of every other kind. The
same tables are a part of docs/policy.md: ``python -m backstay.lab.matrix`` prints it.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias, get_args

from backstay.lab.scenario import Claim, Do, PolicySpec, Scenario, Step, Vm, Workloads
from backstay.model.labels import TMAX_PROTECT
from backstay.model.policy import Mode

RunStrategy: TypeAlias = Literal["Always", "RerunOnFailure", "Manual", "Once"]

DIES = "n2"
"""The node on which all of them are."""


class Shown(StrEnum):
    """What there is to show that the node is dead."""

    CONFIRMED = "it is observed, or a person confirms it"
    SILENCE = "it has been silent for less than 150 s, or was seen from one place only"
    PRESUMED = "it is presumed: silent for 150 s, seen from two places"
    REFUTED = "it was confirmed, and heard of again"


class Disks(StrEnum):
    FILES = "shared files (ReadWriteMany, Filesystem)"
    BLOCK = "a shared block device (ReadWriteMany, Block)"
    ONE_NODE = "for one node at a time (ReadWriteOnce)"
    PLUGGED = "shared files, and one for one node at a time that was plugged in while it ran"
    LOCAL = "on the node itself"


_CLAIMS = {
    Disks.FILES: Claim.FILES,
    Disks.BLOCK: Claim.SHARED,
    Disks.ONE_NODE: Claim.SINGLE,
    Disks.PLUGGED: Claim.FILES,
    Disks.LOCAL: Claim.LOCAL,
}

MOVES = ""
"""Nothing holds it: it is taken from the node."""
_PROOF, _BOUND, _REFUTED = "ProofMissing", "CannotRunElsewhere", "EvidenceContradicted"

EXPECTED: Mapping[tuple[Disks, bool], tuple[str, str, str, str]] = {
    # Disks, consent:        confirmed, silence, presumed, refuted
    (Disks.FILES, False):    (MOVES,  _PROOF, _PROOF, _REFUTED),
    (Disks.FILES, True):     (MOVES,  _PROOF, MOVES,  _REFUTED),
    (Disks.BLOCK, False):    (MOVES,  _PROOF, _PROOF, _REFUTED),
    (Disks.BLOCK, True):     (MOVES,  _PROOF, _PROOF, _REFUTED),
    (Disks.ONE_NODE, False): (MOVES,  _PROOF, _PROOF, _REFUTED),
    (Disks.ONE_NODE, True):  (MOVES,  _PROOF, _PROOF, _REFUTED),
    (Disks.PLUGGED, False):  (MOVES,  _PROOF, _PROOF, _REFUTED),
    (Disks.PLUGGED, True):   (MOVES,  _PROOF, _PROOF, _REFUTED),
    (Disks.LOCAL, False):    (_BOUND, _BOUND, _BOUND, _BOUND),
    (Disks.LOCAL, True):     (_BOUND, _BOUND, _BOUND, _BOUND),
}  # fmt: skip

STARTS = ""
"""KubeVirt starts it elsewhere."""

AFTERWARDS: Mapping[RunStrategy, str] = {
    "Always": STARTS,
    "RerunOnFailure": STARTS,
    "Manual": "StaysDown",
    "Once": "RunsOnce",
}


@dataclass(frozen=True)
class Kind:
    """One kind of VM. ``name`` is that of the one in the scenarios."""

    disks: Disks
    consents: bool
    run_strategy: RunStrategy

    @property
    def name(self) -> str:
        said = "yes" if self.consents else "no"
        return f"{self.disks.name}-{said}-{self.run_strategy}".lower().replace("_", "-")

    def held(self, shown: Shown) -> str:
        """By which code; ``MOVES`` if it is not."""
        return EXPECTED[self.disks, self.consents][list(Shown).index(shown)]

    @property
    def down(self) -> str:
        """By which code it stays down once it is taken from its node; ``STARTS`` if it does not."""
        return AFTERWARDS[self.run_strategy]

    def vm(self) -> Vm:
        return Vm(
            name=self.name,
            node=DIES,
            run_strategy=self.run_strategy,
            claims=(_CLAIMS[self.disks],),
            hotplug=(Claim.SINGLE,) if self.disks is Disks.PLUGGED else (),
            labels={TMAX_PROTECT: "true"} if self.consents else {},
        )


KINDS = tuple(
    Kind(disks, consents, strategy)
    for disks, consents in EXPECTED
    for strategy in get_args(RunStrategy)
)


def scenario(shown: Shown) -> Scenario:
    """The node dies with a VM of every kind on it, and this is what shows it."""
    nodes = ("n1", DIES, "n3", "n4")
    steps, until = _STEPS[shown]
    two = shown is Shown.PRESUMED
    return Scenario(
        name=f"matrix-{shown.name.lower()}",
        question=f"What becomes of the VMs of a node, if {shown}?",
        nodes=nodes,
        hosts={"n1": ("backstay-1",), "n3": ("backstay-2",)} if two else {},
        controllers=2 if two else 1,
        workloads=Workloads(vms=tuple(kind.vm() for kind in KINDS)),
        # Nothing may be done before it is heard of again, or there would be nothing to hold.
        policy=PolicySpec(mode=Mode.OBSERVE if shown is Shown.REFUTED else Mode.ARMED),
        steps=steps,
        until=until,
    )


def _happens(at: float, do: Do) -> Step:
    return Step(at=at, do=do, node=DIES)


_STEPS: Mapping[Shown, tuple[tuple[Step, ...], float]] = {
    Shown.CONFIRMED: ((_happens(5, Do.KILL), _happens(50, Do.CONFIRM)), 150),
    Shown.SILENCE: ((_happens(5, Do.KILL),), 60),
    Shown.PRESUMED: ((_happens(5, Do.KILL),), 220),
    Shown.REFUTED: (
        (
            _happens(5, Do.CUT),
            _happens(20, Do.CONFIRM),
            _happens(30, Do.HEAL),
            _happens(45, Do.CUT),
            Step(at=105, do=Do.ARM),
        ),
        115,
    ),
}


# For people


def tables() -> str:
    """As they stand in docs/policy.md."""
    return "\n".join((*_of_proof(), "", *_of_run_strategies(), ""))


def _of_proof() -> Iterator[str]:
    yield f"| its disks | its owner consents | {' | '.join(Shown)} |"
    yield "|---|---|" + "---|" * len(Shown)
    for (disks, consents), codes in EXPECTED.items():
        cells = ("moves" if code == MOVES else f"held: `{code}`" for code in codes)
        yield f"| {disks} | {'yes' if consents else 'no'} | {' | '.join(cells)} |"


def _of_run_strategies() -> Iterator[str]:
    yield "| run strategy | a VM that moves |"
    yield "|---|---|"
    for strategy, code in AFTERWARDS.items():
        end = "starts elsewhere" if code == STARTS else f"stays down: `{code}`"
        yield f"| {strategy} | {end} |"


if __name__ == "__main__":
    sys.stdout.write(tables())

"""What replicas say is held against who can really write, in thousands of broken clusters.

DRBD itself (``sim/linstor/drbd.py``) decides who can write; nothing of our own rule is in it.
Chance cuts links, kills nodes, promotes and demotes. After each step some satellites are heard, and
our rule is asked about every node: wherever it says that the node is shut out, it cannot write.
"""

from collections import Counter
from collections.abc import Sequence

import pytest

from backstay.decide.quorum import (
    RULES,
    Rule,
    has_no_successor,
    is_not_outvoted,
    is_still_there,
    is_unprotected,
    shut_out,
)
from backstay.model.drbd import ReplicaSight, ResourceSight
from backstay.sim.chance import Chance
from backstay.sim.linstor.drbd import Drbd, Refused
from backstay.sim.linstor.replicas import Kind, Link, Options, Role

SHAPES = (
    ("d", "d", "d"),
    ("d", "d", "t"),
    ("d", "d", "t", "c"),
    ("d", "d", "d", "c"),
    ("d", "d", "d", "d", "d"),
    ("d", "d", "d", "d", "t"),
    ("d", "c", "c"),
)
KINDS = {"d": Kind.DISKFUL, "t": Kind.TIE_BREAKER, "c": Kind.DISKLESS}
STEPS = 60


class Broken:
    """One resource, and what chance does to its nodes."""

    def __init__(self, seed: int) -> None:
        self.chance = Chance(seed, "broken")
        shape = self.chance.pick(SHAPES)
        self.nodes = [f"n{number}" for number, _ in enumerate(shape, 1)]
        self.options = Options(quorum=self.chance.pick(("majority", "majority", "all", "off")))
        self.now = 0.0
        self.down: set[str] = set()
        self.drbd = Drbd(now=lambda: self.now, between=self.chance.between)
        placed = {node: KINDS[kind] for node, kind in zip(self.nodes, shape, strict=True)}
        self.drbd.create("r", placed, self.options)

    def step(self) -> None:
        one, other = self.chance.pick(self.nodes), self.chance.pick(self.nodes)
        match self.chance.below(9):
            case 0 | 1 if one != other:
                self.drbd.cut(one, other, one_way=self.chance.happens(0.3))
            case 2 if one != other:
                self.drbd.mend(one, other)
            case 3 if one not in self.down:
                self.down.add(one)
                self.drbd.lose_power(one)
            case 4 if one in self.down:
                self.down.discard(one)
                self.drbd.boot(one)
            case 5 | 6 if one not in self.down:
                self._promote(one)
            case 7 if one not in self.down:
                self.drbd.demote("r", one)
            case _:
                self._isolate(one)
        self._pass(self.chance.pick((0.0, 0.5, 3.0, 20.0)))

    def _promote(self, node: str) -> None:
        try:
            self.drbd.promote("r", node)
        except Refused:
            return

    def _isolate(self, node: str) -> None:
        for other in self.nodes:
            if other != node:
                self.drbd.cut(node, other)

    def _pass(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.drbd.advance()) is not None and due <= end:
            self.now = due
        self.now = end

    def sight(self, node: str, heard: set[str]) -> ResourceSight:
        """As LINSTOR tells it if it hears these satellites."""
        return ResourceSight(
            resource="r",
            node=node,
            driver="",
            observed_at=self.now,
            replicas=tuple(self._replica(each, node, each in heard) for each in self.nodes),
            quorum=self.options.quorum,
            two_primaries=False,
        )

    def _replica(self, name: str, about: str, heard: bool) -> ReplicaSight:
        seen = self.drbd.sight("r", name) if heard else None
        diskful = self.drbd.resources["r"][name].kind is Kind.DISKFUL
        if seen is None:
            return ReplicaSight(node=name, diskful=diskful, online=False)
        link = seen.connections.get(about)
        return ReplicaSight(
            node=name,
            diskful=diskful,
            online=True,
            in_use=seen.role is Role.PRIMARY,
            may_promote=seen.may_promote,
            sees=None if link is None else link is Link.CONNECTED,
        )


def play(seeds: range, rules: Sequence[Rule] = RULES) -> Counter[str]:
    """How often a node was shut out, and wrongly so; one of the latter is enough."""
    found: Counter[str] = Counter()
    for seed in seeds:
        if found["wrongly"]:
            break
        broken = Broken(seed)
        for _ in range(STEPS):
            broken.step()
            heard = {node for node in broken.nodes if broken.chance.happens(0.8)}
            for node in broken.nodes:
                found["asked"] += 1
                if shut_out(broken.sight(node, heard), rules) is None:
                    found["shut out"] += 1
                    found["wrongly"] += broken.drbd.can_write("r", node)
    return found


@pytest.mark.parametrize("first", range(0, 200, 100))
def test_whoever_is_shut_out_cannot_write(first: int) -> None:
    found = play(range(first, first + 100))
    assert found["wrongly"] == 0
    assert found["shut out"] > 200, "or it would have been asked in vain"


@pytest.mark.parametrize(
    "without",
    [
        {is_unprotected},
        {is_still_there},
        # DRBD's own word for a quorum and our count of votes stand in for each other.
        {is_not_outvoted, has_no_successor},
    ],
)
def test_without_its_rules_somebody_would_be_taken_for_shut_out_who_writes(
    without: set[Rule],
) -> None:
    left = [rule for rule in RULES if rule not in without]
    assert play(range(200), left)["wrongly"] > 0

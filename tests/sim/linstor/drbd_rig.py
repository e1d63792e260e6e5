"""A few nodes with DRBD, and a clock that is turned by hand."""

from collections.abc import Mapping

from backstay.sim.chance import Chance
from backstay.sim.linstor.drbd import Drbd, Refused
from backstay.sim.linstor.replicas import Kind, Options, Sight

THREE = {"a": Kind.DISKFUL, "b": Kind.DISKFUL, "c": Kind.DISKFUL}
TWO_AND_A_HALF = {"a": Kind.DISKFUL, "b": Kind.DISKFUL, "c": Kind.TIE_BREAKER}
LONG = 60.0
"""Seconds after which everybody has noticed whatever there was to notice."""


class Rig:
    """The resource ``r`` on the nodes ``a``, ``b`` and ``c``."""

    def __init__(
        self,
        replicas: Mapping[str, Kind] = THREE,
        options: Options | None = None,
        *,
        seed: int = 7,
    ) -> None:
        self.now = 0.0
        self.most_writers = 0
        self.drbd = Drbd(now=lambda: self.now, between=Chance(seed, "drbd").between)
        self.drbd.follow(self._count)
        self.drbd.create("r", replicas, options)
        self.resource = self.drbd.resources["r"]

    def pass_time(self, seconds: float = LONG) -> None:
        end = self.now + seconds
        while (due := self.drbd.advance()) is not None and due <= end:
            self.now = due
        self.now = end

    @property
    def writers(self) -> list[str]:
        return [node for node in self.drbd.resources["r"].replicas if self.can_write(node)]

    def can_write(self, node: str) -> bool:
        return self.drbd.can_write("r", node)

    def promote(self, node: str) -> str:
        """The refusal, or nothing."""
        try:
            self.drbd.promote("r", node)
        except Refused as refusal:
            return str(refusal)
        return ""

    def sight(self, node: str) -> Sight:
        sight = self.drbd.sight("r", node)
        assert sight is not None
        return sight

    def disk(self, node: str) -> str:
        return self.resource[node].disk

    def isolate(self, node: str) -> None:
        for other in self.resource[node].ends:
            self.drbd.cut(node, other)

    def rejoin(self, node: str) -> None:
        for other in self.resource[node].ends:
            self.drbd.mend(node, other)

    def _count(self, _: str) -> None:
        self.most_writers = max(self.most_writers, len(self.writers))

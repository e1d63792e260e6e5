"""Laps: how long the parts of a failover took, by the clock of the controller that saw them.

Everything is counted from the node's last sign of life. What happened before we looked (under
another leader, before we started) is left out and never guessed.
"""

from backstay.model.incident import StageTime
from backstay.model.node import Life, NodeFacts
from backstay.record.metrics import Stage


class Laps:
    """What we have seen of one node's incident ourselves; moments are the event loop's.

    ``released``, ``running`` and ``ready`` are those of workloads, by key. A node that shows life
    again has had another last sign of it: for whoever begins then there is nothing to count from.
    """

    def __init__(self, facts: NodeFacts, life: Life) -> None:
        self.stages: list[StageTime] = []
        self.released: dict[str, float] = {}
        self.running: dict[str, float] = {}
        self.ready: dict[str, float] = {}
        self._last_sign = None if life is Life.RETURNING else facts.lease_changed_at

    def took(self, stage: Stage, seconds: float) -> None:
        self.stages.append(StageTime(stage.value, _rounded(seconds)))

    def after(self, moment: float) -> float | None:
        """Seconds from the last sign of life until then."""
        return None if self._last_sign is None else _rounded(moment - self._last_sign)


def _rounded(seconds: float) -> float:
    """To what a person can make use of."""
    return round(seconds, 1)

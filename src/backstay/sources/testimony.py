"""Sources of testimony: whatever knows something of a node that its lease does not say.

A source looks after the nodes that are suspected, at its own pace, and says at any time what it
has seen of one. Right before something is done it is asked to look anew: what it says then was
observed after that request.

A source never fails for its own trouble. One that cannot look has nothing to say, and what others
say must not suffer from it; ``trouble`` tells people why it is silent.
"""

from collections.abc import Sequence
from typing import NoReturn, Protocol

from backstay.model.evidence import Testimony
from backstay.model.node import NodeFacts
from backstay.model.workload import Workload


class Source(Protocol):
    """See the module."""

    @property
    def name(self) -> str:
        """As metrics and people call it."""

    @property
    def trouble(self) -> str:
        """Why it cannot look at present, in a sentence; empty if it can."""

    def age(self, now: float) -> float | None:
        """How long ago it last saw what it looks at; None while there is nothing to look at."""

    async def run(self) -> NoReturn:
        """Keeps looking, until cancelled."""

    def watch(self, nodes: Sequence[NodeFacts]) -> None:
        """From now on it looks after these, and no others."""

    def testimony(self, node: NodeFacts) -> Testimony:
        """What is at hand."""

    async def ask(self, node: NodeFacts, workloads: Sequence[Workload]) -> Testimony:
        """What it sees when it looks now."""

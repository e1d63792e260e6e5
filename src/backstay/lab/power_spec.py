"""BMCs in a scenario: which nodes have one, how each is made, and what can befall it.

::

    bmcs:
      without: [n3]
      of:
        n2: {wiredTo: n1}
    policy:
      config: {fencing: {power: {enabled: true}}}
    steps:
      - {at: 5, do: bmc, node: n2, how: stuck}
      - {at: 9, do: switch-on, node: n2}

``bmcs: {}`` is a usual one for every node. Their credentials are where our controllers look for
them; what each is asked for, and by whom, the witness knows.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec

from backstay.sim.bmc import Build, Trouble, swapped
from backstay.sim.nodes.nodestatus import system_uuid

How = Trouble
"""What befalls a BMC, as a step says it."""

TIMED = (Trouble.SLOW, Trouble.HOLDS_UP)
"""What takes a time that has to be said."""


class _Part(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    rename="camel",
):
    """How all parts are written."""


class BmcSpec(_Part, frozen=True):
    """``wired_to``: the credentials of this node lead to the BMC of another. ``uuid`` is how it
    calls its machine: by its own name, with some bytes swapped, by somebody else's name, or not at
    all. ``shares_power``: it dies with its machine. ``repeats_are_errors`` and ``takes``: see
    ``sim/bmc.py``."""

    wired_to: str = ""
    uuid: Literal["own", "swapped", "other", "none"] = "own"
    shares_power: bool = False
    repeats_are_errors: bool = False
    takes: float = 3.0

    @property
    def build(self) -> Build:
        return Build(repeats_are_errors=self.repeats_are_errors, takes=self.takes)

    def identity(self, node: str) -> str:
        """What it says that the machine is called, in capitals as some do."""
        own = system_uuid(node)
        said = {"own": own, "swapped": swapped(own), "other": system_uuid(f"not-{node}")}
        return said.get(self.uuid, "").upper()


class BmcsSpec(_Part, frozen=True):
    """``without`` are the nodes that have none; ``of`` are those that are not as usual."""

    without: tuple[str, ...] = ()
    of: dict[str, BmcSpec] = {}

    def of_node(self, node: str) -> BmcSpec | None:
        return None if node in self.without else self.of.get(node, BmcSpec())

    def on(self, nodes: tuple[str, ...]) -> "BmcsSpec":
        """The same where there are only these nodes."""
        left = {
            name: each for name, each in self.of.items() if {name, each.wired_to} <= {"", *nodes}
        }
        return BmcsSpec(without=tuple(name for name in self.without if name in nodes), of=left)

    def wrongs(self, nodes: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        """Field and fault."""
        named = {"without": self.without, "of": tuple(self.of)}
        for name, each in self.of.items():
            if each.wired_to:
                named[f"of.{name}.wiredTo"] = (each.wired_to,)
            if not 0 < each.takes <= 60:
                yield f"of.{name}.takes", "it is to be more than 0 and at most 60 seconds"
        for field, names in named.items():
            for name in names:
                if name not in nodes:
                    yield field, f"there is no node {name}"

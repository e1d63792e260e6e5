"""LINSTOR in a scenario: what there is of it, and what can become of it.

::

    linstor:
      controller: n3
      classes:
        linstor: {replicas: [n1, n2], tieBreaker: n3}
    workloads:
      vms: [{name: till, node: n1, claims: [linstor]}]
    steps:
      - {at: 5, do: cut-replication, node: n1, peer: n2}
      - {at: 9, do: linstor, what: cut-streams}

The class ``linstor`` need not be described. What is not said of a class: its replicas have disks on
the first three nodes, and a majority of them decides.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Literal

import msgspec

from backstay.sim.linstor.database import (
    ON_NO_QUORUM,
    OUTDATED_PRIMARY,
    QUORUM,
    TWO_PRIMARIES,
    Props,
)
from backstay.sim.linstor.replicas import Kind
from backstay.sim.linstor.storage import Placement

Level = Literal["resource", "group", "controller", "nowhere"]

USUAL_CLASS = "linstor"
_REPLICAS = 3


class What(StrEnum):
    """What becomes of LINSTOR's controller, or of what it says. All but the first few last until
    ``well``."""

    KILL = "kill"
    """Its process dies. The kubelet starts it again."""
    CUT_STREAMS = "cut-streams"
    END_STREAMS = "end-streams"
    SILENCE_STREAMS = "silence-streams"
    """Nothing more comes on the streams that there are, and they stay open."""
    ALLOW_TWO_PRIMARIES = "allow-two-primaries"
    """Somebody allows it for every resource that does not say otherwise."""
    QUORUM_OFF = "quorum-off"
    """Somebody switches quorum off for every resource."""
    QUORUM_ON = "quorum-on"
    """Somebody sets it to a majority for every resource."""

    STALE = "stale"
    """It hears nothing new of any satellite, and does not notice."""
    REFUSE = "refuse"
    """Nobody takes connections at its address."""
    SLOW = "slow"
    """Every answer takes ``seconds``."""
    HTML = "html"
    REDIRECT = "redirect"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    BROKEN = "broken"
    UNAVAILABLE = "unavailable"
    SILENT = "silent"
    BREAKS_OFF = "breaks-off"
    GARBLED = "garbled"
    EMPTY = "empty"
    HUGE_NUMBERS = "huge-numbers"
    ERROR_EVENT = "error-event"
    LATE_HEAD = "late-head"
    WELL = "well"
    """All of that is over."""


class _Part(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    rename="camel",
):
    """How all parts are written."""


class LinstorClass(_Part, frozen=True):
    """How volumes are replicated. ``level`` is where quorum and two primaries are set: for each
    resource, for the group of its class, for all of LINSTOR, or nowhere. ``renamed``: resources are
    not called like their volumes, and handles say which volume of the resource it is.
    ``exported_by`` is the node with the NFS server that serves them, where they are not devices."""

    replicas: tuple[str, ...] = ()
    tie_breaker: str = ""
    quorum: str = "majority"
    level: Level = "resource"
    two_primaries: bool = False
    on_no_quorum: Literal["suspend-io", "io-error"] = "suspend-io"
    outdated_primary: Literal["force-secondary", "disconnect"] = "force-secondary"
    renamed: bool = False
    exported_by: str = ""

    @property
    def props(self) -> Props:
        """What is set, wherever that is."""
        two = {TWO_PRIMARIES: "yes"} if self.two_primaries else {}
        return {QUORUM: self.quorum, **two} if self.level != "nowhere" else {}

    def placement(self, nodes: tuple[str, ...]) -> Placement:
        chosen = self.replicas or nodes[:_REPLICAS]
        kinds = dict.fromkeys(chosen, Kind.DISKFUL)
        if self.tie_breaker:
            kinds[self.tie_breaker] = Kind.TIE_BREAKER
        behaviour = {ON_NO_QUORUM: self.on_no_quorum, OUTDATED_PRIMARY: self.outdated_primary}
        return Placement(
            kinds,
            behaviour | (self.props if self.level == "resource" else {}),
            self.props if self.level == "group" else {},
            prefix="disk-" if self.renamed else "pvc-",
            suffix="/0" if self.renamed else "",
            exported_by=self.exported_by,
        )


class LinstorSpec(_Part, frozen=True):
    """``controller`` is the node that its pod is on at first. ``upper_case``: LINSTOR writes the
    names of nodes so."""

    controller: str = ""
    classes: dict[str, LinstorClass] = {}
    upper_case: bool = False

    @property
    def all_classes(self) -> dict[str, LinstorClass]:
        """With the usual one, which need not be described."""
        return {USUAL_CLASS: LinstorClass(), **self.classes}

    def on(self, nodes: tuple[str, ...]) -> "LinstorSpec":
        """The same where there are only these nodes."""
        classes = {
            name: msgspec.structs.replace(
                each,
                replicas=tuple(node for node in each.replicas if node in nodes),
                tie_breaker=each.tie_breaker if each.tie_breaker in nodes else "",
                exported_by=each.exported_by if each.exported_by in nodes else "",
            )
            for name, each in self.classes.items()
        }
        controller = self.controller if self.controller in nodes else ""
        return msgspec.structs.replace(self, controller=controller, classes=classes)

    def wrongs(
        self, nodes: tuple[str, ...], wanted: Mapping[str, str]
    ) -> Iterator[tuple[str, str]]:
        """Field and fault. ``wanted`` are the classes that workloads ask for, by workload."""
        named: dict[str, tuple[str, ...]] = {
            "controller": (self.controller,) if self.controller else ()
        }
        for name, each in self.classes.items():
            named[f"classes.{name}.replicas"] = each.replicas
            named[f"classes.{name}.tieBreaker"] = (each.tie_breaker,) if each.tie_breaker else ()
            named[f"classes.{name}.exportedBy"] = (each.exported_by,) if each.exported_by else ()
            if each.quorum not in ("majority", "all", "off") and not each.quorum.isdecimal():
                yield f"classes.{name}.quorum", "it is majority, all, off or a number"
        for field, names in named.items():
            for node in names:
                if node not in nodes:
                    yield field, f"there is no node {node}"
        for workload, name in wanted.items():
            if name not in self.all_classes:
                yield "classes", f"there is no class {name}, which {workload} is to have"

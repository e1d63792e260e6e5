"""Policy: what the people who run the cluster have allowed."""

from enum import StrEnum

import msgspec


class Mode(StrEnum):
    OBSERVE = "Observe"
    ARMED = "Armed"
    DISARMED = "Disarmed"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What holds now. A disarming that has run out is no longer in here."""

    mode: Mode = Mode.OBSERVE
    disarmed_until: str = ""
    disarmed_because: str = ""
    virtual_machines: bool = True
    stateful_sets: bool = True


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """In seconds. The defaults fit a kubelet that renews its lease every 10 s.

    ``suspect`` and ``lost``: silence of the lease. ``confirmed``: the silence that must be seen
    although a person has confirmed the death, a little more than one renewal. ``fresh``: how old
    a view may be that is acted on. ``heartbeat``: how long virt-handler, once it has outlived the
    kubelet, counts as alive after it was last heard of; it beats every 60 to 132 s.
    """

    suspect: float = 22.0
    lost: float = 40.0
    confirmed: float = 12.0
    fresh: float = 10.0
    heartbeat: float = 150.0

    def scaled(self, factor: float) -> "Times":
        return Times(
            suspect=self.suspect * factor,
            lost=self.lost * factor,
            confirmed=self.confirmed * factor,
            fresh=self.fresh * factor,
            heartbeat=self.heartbeat * factor,
        )

"""Power: what the device that a machine's power hangs on says of it, and what we have asked of it.

A device is one thing and the machine behind it another: a cable that was moved, or an address that
was given away, makes a device speak of a stranger. So what it says counts only if it names the very
machine that the node's kubelet has named (``same_machine``).
"""

import msgspec

_PLACEHOLDERS = frozenset(
    {
        "0" * 32,
        "f" * 32,
        # What boards show whose maker has not given them a name of their own, in either order.
        "03000200040005000006000700080009",
        "00020003000400050006000700080009",
    }
)


class PowerSight(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a device has said, asked at ``observed_at``. ``on`` is None in between, and where it
    does not say. ``identified``: it is the device of this very machine; ``uuid`` is whose it says
    that it is."""

    device: str
    on: bool | None
    identified: bool
    detail: str
    observed_at: float
    uuid: str = ""


class PowerMeans(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to switch one node off with. An empty ``device`` is none; ``failing`` is why it
    cannot be asked at present."""

    device: str = ""
    failing: str = ""


WORKS = "Works"
"""What is told of a device that nothing is wrong with, in place of a code."""


class DeviceReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a device was found when it was last tried: what is wrong with it, or nothing."""

    code: str = ""
    sentence: str = ""
    next: str = ""

    @property
    def works(self) -> bool:
        return not self.code


class PowerRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was asked of a node's device in one incident, as it stands there.

    It is the claim on the device: whoever asks for something says so here first, and the last of
    them may be under way for so many ``seconds`` after it was written. ``offs`` and ``ons`` count
    them, ``epoch`` is that of the last.
    """

    offs: int
    ons: int
    epoch: int
    seconds: float
    at: str


NO_POWER = PowerRecord(offs=0, ons=0, epoch=0, seconds=0.0, at="")


def same_machine(shown: str, known: str) -> bool:
    """Whether both name one machine."""
    machine = machine_of(shown)
    return bool(machine) and machine == machine_of(known)


def machine_of(uuid: str) -> str:
    """The machine that is named, in one way of writing: firmware shows the first three fields of a
    UUID in either byte order. Empty for what is nobody's own name."""
    plain = _plain(uuid)
    return "" if plain in _PLACEHOLDERS else min(plain, _swapped(plain))


def _plain(uuid: str) -> str:
    return uuid.strip().casefold().removeprefix("urn:uuid:").strip("{}").replace("-", "")


def _swapped(plain: str) -> str:
    if len(plain) != 32:
        return plain
    pairs = [plain[at : at + 2] for at in range(0, 32, 2)]
    return "".join((*pairs[3::-1], *pairs[5:3:-1], *pairs[7:5:-1], *pairs[8:]))

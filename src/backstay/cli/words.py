"""How a report is laid out for a person: ages, fields, paragraphs, and what to do next."""

import shutil
import textwrap
from collections.abc import Iterable, Sequence

from backstay.model.workload import Volume

_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def ago(seconds: float) -> str:
    """How long something has lasted, in the one unit that matters."""
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{max(0, round(seconds / unit))} {name}"
    return f"{round(seconds / 86400)} days"


def counted(count: int, thing: str) -> str:
    return f"{count} {thing}" + ("" if count == 1 else "s")


def fields(pairs: Iterable[tuple[str, str]], *, whole: str = "") -> str:
    """One line each, wrapped under itself; pairs without a value are left out.

    The value called ``whole`` is never wrapped: it is there to be copied.
    """
    shown = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in shown), default=0)
    lines = []
    for name, value in shown:
        start = f"  {name:<{width}}   "
        rest = " " * len(start)
        lines.append(start + value if name == whole else wrapped(value, start, rest))
    return "\n".join(lines)


def paragraph(text: str, *, indent: int = 0) -> str:
    return wrapped(text, " " * indent, " " * indent)


def bullet(text: str) -> str:
    return wrapped(text, "  - ", "    ")


def wrapped(text: str, start: str, rest: str) -> str:
    """Names and commands stay in one piece, however long they are."""
    return textwrap.fill(
        text,
        width=_width(),
        initial_indent=start,
        subsequent_indent=rest,
        break_on_hyphens=False,
        break_long_words=False,
    )


def next_steps(steps: Iterable[str]) -> list[str]:
    """``NEXT:`` and a command, once each and never wrapped: they are there to be copied."""
    return [f"NEXT: {step}" for step in dict.fromkeys(filter(None, steps))]


def volume(volume: Volume) -> str:
    """``root (rbd.csi.ceph.com, RWO, block)``."""
    modes = "/".join(_MODES.get(mode, mode) for mode in volume.access_modes)
    parts = [volume.driver or "driver unknown", modes, "block" if volume.block else ""]
    bound = f"only on {volume.only_on}" if volume.only_on else ""
    return f"{volume.claim} ({', '.join(filter(None, [*parts, bound]))})"


def join(parts: Sequence[str]) -> str:
    """Paragraphs of a report, with an empty line between them."""
    return "\n\n".join(filter(None, parts))


def _width() -> int:
    return min(100, shutil.get_terminal_size((80, 24)).columns)

"""docs/reasons.md, generated from the catalogue: ``python -m backstay.record.reasons_page``.

The groups are the comments between the entries of ``model/reasons.py`` and its neighbours, so that
there is one place to add a reason and none to forget.
"""

import inspect
import re
import sys

from backstay.model.caveats import Caveat
from backstay.model.drain_reasons import DrainReason
from backstay.model.power_reasons import PowerReason
from backstay.model.reasons import Catalogue, Entry, Reason

CATALOGUES: tuple[type[Catalogue], ...] = (Reason, PowerReason, DrainReason, Caveat)

_HEADING = re.compile(r"^    # (.+)$")
_MEMBER = re.compile(r"^    (\w+) = Entry\($")

_INTRODUCTION = """\
# Reasons

Whatever Backstay does, or does not do, has a reason: a code and a sentence. The pair is the same
in the log, in Events, in an incident, in metrics, on the command line and here. In what follows,
names in braces stand for what the reason is about. NEXT is what to do about it.

This page is generated from `src/backstay/model/reasons.py` and its neighbours `power_reasons.py`,
`drain_reasons.py` and `caveats.py` by `python -m backstay.record.reasons_page > docs/reasons.md`.
"""


def page() -> str:
    """The whole page."""
    parts = [_INTRODUCTION]
    for heading, reasons in groups().items():
        parts.append(f"## {heading}\n")
        parts += [_section(reason.name, reason.entry) for reason in reasons]
    return "\n".join(parts)


def groups() -> dict[str, list[Catalogue]]:
    """Every reason under the comment that it stands below."""
    found: dict[str, list[Catalogue]] = {}
    for catalogue in CATALOGUES:
        heading = ""
        for line in inspect.getsource(catalogue).splitlines():
            if match := _HEADING.match(line):
                heading = match[1]
            elif (match := _MEMBER.match(line)) and match[1] in catalogue.__members__:
                found.setdefault(heading, []).append(catalogue[match[1]])
    return found


def _section(code: str, entry: Entry) -> str:
    lines = [f"### {code}", "", f"> {entry.sentence}", "", entry.meaning, ""]
    if entry.next:
        lines += [f"NEXT: `{entry.next}`", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(page())

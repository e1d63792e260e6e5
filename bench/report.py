"""What was measured: the table for a terminal, the file for programs, the table for the docs."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import msgspec

RESULTS = Path(__file__).with_name("results.json")
_ROOT = Path(__file__).parent.parent
PAGES = (_ROOT / "docs" / "benchmarks.md", _ROOT / "README.md")

_COLUMNS = ("row", "ours", "peer", "ours/peer", "unit", "peer is")
_BEGIN, _END = "<!-- results: python -m bench.report -->\n", "<!-- end of results -->"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One measured row. ``ratio`` is ours divided by the peer's."""

    name: str
    ours: float
    peer: float
    peer_name: str
    ratio: float
    unit: str

    @classmethod
    def of(cls, name: str, figures: tuple[float, float], *, peer_name: str, unit: str) -> Self:
        ours, peer = figures
        return cls(
            name=name,
            ours=_rounded(ours),
            peer=_rounded(peer),
            peer_name=peer_name,
            ratio=1.0 if ours == peer else _rounded(ours / peer),
            unit=unit,
        )


def table(results: Sequence[Result]) -> str:
    lines = [_COLUMNS, *map(_cells, results)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_COLUMNS))]
    aligned = (
        "  ".join(
            cell.rjust(width) if 1 <= column <= 3 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
    return "\n".join(aligned)


def markdown(results: Sequence[Result]) -> str:
    lines = [_COLUMNS, ("---", "---:", "---:", "---:", "---", "---"), *map(_cells, results)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def read(path: Path) -> list[Result]:
    return msgspec.json.decode(path.read_bytes(), type=list[Result]) if path.exists() else []


def write(path: Path, results: Sequence[Result]) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")


def merged(known: Iterable[Result], measured: Iterable[Result]) -> dict[str, Result]:
    """By name; rows that were not measured now stay as they were."""
    return {result.name: result for result in (*known, *measured)}


def inserted(page: str, results: Sequence[Result]) -> str:
    """The page, with the table between its markers."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise ValueError(f"the page has no lines {_BEGIN.strip()!r} and {_END!r} for the table")
    return before + begin + "\n" + markdown(results) + "\n" + end + after


def _cells(result: Result) -> tuple[str, ...]:
    figures = (_short(x) for x in (result.ours, result.peer, result.ratio))
    return (result.name, *figures, result.unit, result.peer_name)


def _rounded(value: float) -> float:
    """Four digits: more would claim what no such measurement can give."""
    return float(f"{value:.4g}")


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(inserted(page.read_text(), read(RESULTS)))

"""A checker for Prometheus' text format, written from its grammar and independent of our writer.

It refuses what a scraper would refuse (a bad name, a label twice, a value that is no number) and
what would be read wrongly (a series twice, a family in pieces, buckets that shrink).
"""

import re
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
_SAMPLE = re.compile(rf"({_NAME})(?:\{{({_LABEL}(?:,{_LABEL})*)?\}})? (\S+)")
_PAIR = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"')
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|Inf)|NaN")
_KINDS = {"counter", "gauge", "histogram", "summary", "untyped"}

Series = tuple[str, frozenset[tuple[str, str]]]


@dataclass
class Exposition:
    """What was read: the kind of each family, and the value of each series."""

    kinds: dict[str, str] = field(default_factory=dict)
    values: dict[Series, float] = field(default_factory=dict)

    def value(self, name: str, **labels: str) -> float:
        return self.values[name, frozenset(labels.items())]


def parse(data: bytes) -> Exposition:
    """Raises ``ValueError`` with the line that is wrong."""
    text = data.decode("utf-8")
    if not text.endswith("\n"):
        raise ValueError("the last line has no end")
    read = Exposition()
    finished: set[str] = set()
    current = ""
    for line in text[:-1].split("\n"):
        family = _take(line, read)
        if family != current:
            if family in finished:
                raise ValueError(f"{family} is in pieces: {line!r}")
            finished.add(current)
            current = family
    _check_histograms(read)
    return read


def _take(line: str, read: Exposition) -> str:
    """Notes one line; the family that it belongs to."""
    if help_line := re.match(rf"# HELP ({_NAME}) ", line):
        return help_line[1]
    if line.startswith("# TYPE "):
        _, _, name, kind = line.split(" ")
        if kind not in _KINDS or name in read.kinds or not re.fullmatch(_NAME, name):
            raise ValueError(f"not a type: {line!r}")
        read.kinds[name] = kind
        return name
    return _sample(line, read)


def _sample(line: str, read: Exposition) -> str:
    match = _SAMPLE.fullmatch(line)
    if match is None or not _NUMBER.fullmatch(match[3]):
        raise ValueError(f"not a sample: {line!r}")
    pairs = _PAIR.findall(match[2] or "")
    names = [name for name, _ in pairs]
    if len({*names}) != len(names):
        raise ValueError(f"a label twice: {line!r}")
    series = (match[1], frozenset(pairs))
    if series in read.values:
        raise ValueError(f"a series twice: {line!r}")
    read.values[series] = float(match[3])
    family = re.sub(r"_(bucket|sum|count)$", "", match[1])
    family = family if read.kinds.get(family) == "histogram" else match[1]
    if family not in read.kinds:
        raise ValueError(f"a sample before its type: {line!r}")
    return family


def _check_histograms(read: Exposition) -> None:
    for name in (name for name, kind in read.kinds.items() if kind == "histogram"):
        buckets: dict[frozenset[tuple[str, str]], dict[float, float]] = {}
        for (sample, labels), value in read.values.items():
            if sample == f"{name}_bucket":
                (bound,) = (float(value) for label, value in labels if label == "le")
                rest = frozenset(pair for pair in labels if pair[0] != "le")
                buckets.setdefault(rest, {})[bound] = value
        for labels, counts in buckets.items():
            in_order = [counts[bound] for bound in sorted(counts)]
            if in_order != sorted(in_order) or float("inf") not in counts:
                raise ValueError(f"{name} has buckets that shrink, or no last one")
            if read.values[f"{name}_count", labels] != counts[float("inf")]:
                raise ValueError(f"{name} does not add up")
            if (f"{name}_sum", labels) not in read.values:
                raise ValueError(f"{name} has no sum")

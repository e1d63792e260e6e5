"""``python -m bench``: measures, prints a table, writes bench/results.json.

``make bench`` installs the peers first. It takes about nine minutes on two quiet cores; on busy
ones every figure suffers, and the ratios suffer least.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.contest import contest
from bench.processes import BenchError
from bench.report import RESULTS, Result, merged, read, table, write
from bench.rows import ROWS


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    chosen = [row for row in ROWS if not options.only or row.name in options.only]
    measured: dict[str, Result] = {}
    failed = False
    for row in chosen:
        try:
            measured[row.name] = contest(row, rounds=options.rounds, quick=options.quick, say=_say)
        except BenchError as error:
            failed = True
            _say(f"{row.name}: {error}")
    print(table(list(measured.values())))
    _print_bars(measured)
    output = options.output or (None if options.quick else RESULTS)
    if output is not None:
        known = merged(read(output), measured.values())
        write(output, [known[row.name] for row in ROWS if row.name in known])
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = [row.name for row in ROWS]
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--rounds", type=_rounds, default=5, help="how many count (default: 5)")
    parser.add_argument(
        "--quick", action="store_true", help="little data; the figures mean nothing"
    )
    parser.add_argument(
        "--output",
        type=Path,
        help="where to write (default: bench/results.json, or with --quick nowhere)",
    )
    return parser


def _rounds(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rounds: at least one counts")
    return int(text)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print_bars(measured: dict[str, Result]) -> None:
    print()
    for row in ROWS:
        if row.bar and (result := measured.get(row.name)):
            verdict = "met" if row.bar.met(result) else "MISSED"
            print(f"{verdict:6}  {row.name}: {row.bar.sentence}")


if __name__ == "__main__":
    sys.exit(main())

"""How results look: tables that fit a terminal, or the same data as JSON or YAML."""

import shutil
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec

output_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="How to print the result.",
)


def show(data: object, *, output: str, table: Callable[[], str]) -> None:
    """Prints ``data`` for programs, or what ``table`` makes of it for people."""
    if output == "table":
        click.echo(printable(table()))
    elif output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())
    else:
        import yaml  # the slowest import of this room, and few ask for it

        plain = msgspec.to_builtins(data)
        click.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), nl=False)


def printable(text: str) -> str:
    """Without what a terminal would obey: reasons and names are written by others."""
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text)


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], *, width: int = 0) -> str:
    """Left-aligned columns; the last one is wrapped, indented under itself, to the terminal."""
    width = width or shutil.get_terminal_size((80, 24)).columns
    table = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(header) - 1)]
    indent = sum(widths) + 3 * len(widths)
    room = max(20, width - indent)
    lines: list[str] = []
    for row in table:
        start = "".join(f"{cell:<{size}}   " for cell, size in zip(row[:-1], widths, strict=True))
        wrapped = textwrap.wrap(row[-1], room, break_on_hyphens=False) or [""]
        lines.append((start + wrapped[0]).rstrip())
        lines += [" " * indent + more for more in wrapped[1:]]
    return "\n".join(lines)

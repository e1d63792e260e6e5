"""View: a picture as lines of text, 80 columns wide and 24 high. Pure.

Colours are put on last, by whoever knows whether there is a terminal; without them the lines say
the same.
"""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backstay.lab.picture import Held, NodePicture, Picture, Side
from backstay.lab.recovery import (
    BARRIER,
    DETECT,
    FIRST_UP,
    HELD,
    LAST_UP,
    PROOF,
    REMOVAL,
    StageTime,
)

WIDTH = 80
HEIGHT = 24

_PANEL = 9
"""The lines that are left for what is said below the nodes."""

_STAGES = {
    DETECT: "silent for too long: lost",
    HELD: "a lost node may still run and write",
    BARRIER: "no new pods there, and the old ones are marked",
    PROOF: "looked at again: it still holds",
    REMOVAL: "the pods on the dead node are removed",
    FIRST_UP: "the first workload runs on another node",
    LAST_UP: "the last one runs",
}

Paint = Callable[[str, str], str]
"""Gives a text a colour, by the name of what it means."""

_CODES = {
    "title": "1;7", "bold": "1", "dim": "2", "good": "32", "bad": "1;31", "wait": "33",
    "next": "1;36",
}  # fmt: skip


def in_colour(style: str, text: str) -> str:
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def plain(_style: str, text: str) -> str:
    return text


@dataclass(frozen=True)
class News:
    """``at`` is in seconds of the show."""

    at: float
    text: str
    style: str = ""


@dataclass(frozen=True)
class Frame:
    """All that is on the screen at one moment."""

    speed: float
    clock: float
    scene: str
    caption: str
    picture: Picture
    news: tuple[News, ...] = ()
    stages: tuple[StageTime, ...] = ()


def screen(frame: Frame, paint: Paint) -> list[str]:
    """At most ``HEIGHT`` lines."""
    return [
        *_header(frame, paint),
        *caption(frame.caption, paint),
        "",
        *nodes(frame.picture.nodes, paint),
        "",
        *comparison(frame.picture, paint),
        "",
        *_panel(frame, paint),
    ][:HEIGHT]


def _header(frame: Frame, paint: Paint) -> list[str]:
    left = f" BACKSTAY DEMO  {frame.scene}"
    right = f"{frame.speed:g} times faster than in life   {frame.clock:5.1f} s "
    return [paint("title", f"{left}{right:>{WIDTH - len(left)}}")]


def caption(text: str, paint: Paint) -> list[str]:
    lines = textwrap.wrap(text, WIDTH - 2)[:3]
    return [paint("bold", f" {line}") for line in [*lines, *[""] * (2 - len(lines))]]


# The nodes


def nodes(pictures: Sequence[NodePicture], paint: Paint) -> list[str]:
    head = f" {'NODE':<6}{'REALLY':<21}{'KUBERNETES SAYS':<27}BACKSTAY SAYS"
    return [paint("dim", head), *(_node(each, paint) for each in pictures)]


def _node(node: NodePicture, paint: Paint) -> str:
    well = node.condition == "on"
    really = f"{node.condition}, {node.runs} {'running' if node.runs != 1 else 'runs'}"
    said = ", ".join(f"{count} {status}" for status, count in sorted(node.pods.items()))
    told = f"{node.ready}, {said or 'no pods'}"
    ours = f"{node.life}: {node.held} held" if node.held else node.life
    return (
        f" {node.name:<6}"
        + paint("good" if well else "bad", f"{really:<21}")
        + paint("good" if node.ready == "Ready" else "wait", f"{told:<27}")
        + paint("good" if node.life == "Healthy" else "wait", ours)
    )


# With and without


def comparison(picture: Picture, paint: Paint) -> list[str]:
    return [
        _side("with Backstay", picture.ours, _our_words(picture), paint),
        _side("plain Kubernetes", picture.plain, _plain_words(picture.plain_nodes), paint),
    ]


def _side(name: str, side: Side, words: str, paint: Paint) -> str:
    down = side.total - side.up
    if down:
        state = f"{down} down for {side.down_for:.1f} s"
    else:
        state = f"back after {side.down_for:.1f} s" if side.down_for else ""
    counted = paint("bad" if down else "good", f"{side.up:>2} of {side.total} up")
    return f" {name:<18}{counted}   {state:<19}{words}".rstrip()


def _our_words(picture: Picture) -> str:
    held = picture.held
    return f"{held.count} held, nothing taken away" if held else ""


def _plain_words(pictures: Sequence[NodePicture]) -> str:
    """What ``kubectl get nodes,pods`` shows of the node that is not well."""
    for node in pictures:
        if node.condition != "on" or node.ready != "Ready":
            said = ", ".join(f"{count} {status}" for status, count in sorted(node.pods.items()))
            return f"{node.name} {node.ready}, pods: {said or 'none'}"
    return ""


# Below


def _panel(frame: Frame, paint: Paint) -> list[str]:
    if frame.stages:
        return stages(frame.stages, frame.speed, paint)
    above = held(frame.picture.held, paint) if frame.picture.held else []
    return [*above, *_newest(frame.news, _PANEL - len(above), paint)]


def _newest(items: Sequence[News], room: int, paint: Paint) -> list[str]:
    """As many of the last ones as fit, each of them whole."""
    lines: list[str] = []
    for item in reversed(items):
        more = news(item, paint)
        if len(more) + len(lines) > room:
            break
        lines = more + lines
    return lines


def held(waits: Held, paint: Paint) -> list[str]:
    more = f" ({waits.count - 1} more like it)" if waits.count > 1 else ""
    sentence = textwrap.wrap(f"{waits.sentence}{more}", WIDTH - 8)
    return [
        *(f" {'HELD' if not n else '':<6}{paint('wait', text)}" for n, text in enumerate(sentence)),
        f" {'NEXT':<6}{paint('next', waits.next)}",
        "",
    ]


def news(item: News, paint: Paint) -> list[str]:
    first, *rest = textwrap.wrap(item.text, WIDTH - 11) or [""]
    style = item.style
    shown = [paint(style, line) if style else line for line in (first, *rest)]
    return [f" {item.at:6.1f} s {shown[0]}", *(f"{'':10}{line}" for line in shown[1:])]


def stages(times: Sequence[StageTime], speed: float, paint: Paint) -> list[str]:
    head = f" {'STAGE':<10}{'TOOK':>8}{'SINCE':>9}   WHAT"
    return [paint("dim", head), *(_stage(each, speed, paint) for each in times)]


def _stage(time: StageTime, speed: float, paint: Paint) -> str:
    what = _STAGES[time.stage]
    if time.stage == DETECT:
        what += f" ({time.seconds * speed:.0f} s in life)"
    took = paint("good" if time.stage in (FIRST_UP, LAST_UP) else "bold", f"{time.seconds:>6.2f} s")
    return f" {time.stage:<10}{took}{time.total:>7.1f} s   {what}"

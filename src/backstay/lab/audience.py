"""Audience: who the show is for, and how they see it.

* ``Terminal``: redrawn in place, on the terminal's second screen, so that what was there before
  comes back at the end, whatever ends it.
* ``Lines``: a line for each thing that happens, for a pipe, a log, or who wants to scroll.
* ``Nobody``: for a program that only wants the result.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TextIO

from backstay.lab import view
from backstay.lab.view import Frame, News, Paint

_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[?25h\x1b[?1049l"


class Audience(Protocol):
    """``draw`` comes several times a second, the others when something happens."""

    def draw(self, frame: Frame) -> None: ...

    def scene(self, frame: Frame) -> None:
        """What is going on has a new caption."""
        ...

    def hear(self, item: News) -> None: ...

    def look(self, frame: Frame) -> None:
        """A moment worth a look at everything."""
        ...


class Nobody:
    """See the module."""

    def draw(self, frame: Frame) -> None: ...

    def scene(self, frame: Frame) -> None: ...

    def hear(self, item: News) -> None: ...

    def look(self, frame: Frame) -> None: ...


class Lines:
    """See the module."""

    def __init__(self, out: TextIO, paint: Paint) -> None:
        self._out = out
        self._paint = paint

    def draw(self, frame: Frame) -> None: ...

    def scene(self, frame: Frame) -> None:
        heading = f" {frame.scene}"
        captions = [line for line in view.caption(frame.caption, self._paint) if line.strip()]
        self._write(["", self._paint("title", f"{heading:<{view.WIDTH}}"), *captions, ""])

    def hear(self, item: News) -> None:
        self._write(view.news(item, self._paint))

    def look(self, frame: Frame) -> None:
        lines = ["", *view.nodes(frame.picture.nodes, self._paint), ""]
        lines += [*view.comparison(frame.picture, self._paint), ""]
        if frame.stages:
            lines += [*view.stages(frame.stages, frame.speed, self._paint), ""]
        elif frame.picture.held:
            lines += view.held(frame.picture.held, self._paint)
        self._write(lines)

    def _write(self, lines: Sequence[str]) -> None:
        self._out.write("".join(f"{line.rstrip()}\n" for line in lines))
        self._out.flush()


class Terminal:
    """See the module. Made by ``on_terminal``."""

    def __init__(self, out: TextIO, paint: Paint) -> None:
        self._out = out
        self._paint = paint

    def draw(self, frame: Frame) -> None:
        lines = view.screen(frame, self._paint)
        self._out.write("\x1b[H" + "\x1b[K\r\n".join(lines) + "\x1b[K\x1b[J")
        self._out.flush()

    def scene(self, frame: Frame) -> None:
        self.draw(frame)

    def hear(self, item: News) -> None: ...

    def look(self, frame: Frame) -> None: ...


@contextmanager
def on_terminal(out: TextIO, paint: Paint) -> Iterator[Terminal]:
    out.write(_ENTER)
    out.flush()
    try:
        yield Terminal(out, paint)
    finally:
        out.write(_LEAVE)
        out.flush()

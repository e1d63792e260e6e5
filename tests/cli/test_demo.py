"""``backstay demo`` as a person has it: a process of its own, at a terminal, in real time."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

_ENTER, _LEAVE = "\x1b[?1049h", "\x1b[?25h\x1b[?1049l"


class Terminal:
    """The other side of a terminal of 80 by 24."""

    def __init__(self, process: subprocess.Popen[bytes], screen: int) -> None:
        self.process = process
        self.text = ""
        self._screen = screen

    def read_until(self, pattern: str) -> None:
        while not re.search(pattern, self.text):
            if not self._read():
                raise AssertionError(f"it ended without {pattern!r}: {self.text[-2000:]}")

    def read_to_the_end(self) -> int:
        """The exit code."""
        while self._read():
            pass
        return self.process.wait()

    def _read(self) -> bool:
        try:
            piece = os.read(self._screen, 65536)
        except OSError:
            # How a terminal says that nobody has it open any more.
            return False
        self.text += piece.decode(errors="replace")
        return bool(piece)


@contextmanager
def _at_a_terminal(*arguments: str) -> Iterator[Terminal]:
    screen, its_end = pty.openpty()
    fcntl.ioctl(its_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    program = [sys.executable, "-c", "from backstay.cli.main import main; main()", *arguments]
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
    with subprocess.Popen(
        program, stdin=its_end, stdout=its_end, stderr=its_end, env=environment
    ) as process:
        os.close(its_end)
        try:
            yield Terminal(process, screen)
        finally:
            process.kill()
            os.close(screen)


@pytest.mark.timeout(120)
def test_it_plays_to_its_end_and_leaves_the_terminal_as_it_was() -> None:
    with _at_a_terminal("demo", "--quick", "--speed", "25") as terminal:
        assert terminal.read_to_the_end() == 0
    drawn, _, after = terminal.text.partition(_LEAVE)
    assert drawn.startswith(_ENTER)
    assert "Lost: 4 held" in drawn
    assert "4 of 4 protected workloads recovered on other nodes" in after
    assert "broken 0" in after
    assert "\x1b[" not in after


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_at_once_and_restores_the_terminal(number: signal.Signals) -> None:
    with _at_a_terminal("demo") as terminal:
        terminal.read_until(r"on, \d running")
        terminal.process.send_signal(number)
        assert terminal.read_to_the_end() == 130
    _drawn, left, after = terminal.text.partition(_LEAVE)
    assert left
    assert after.split() == ["Interrupted."]

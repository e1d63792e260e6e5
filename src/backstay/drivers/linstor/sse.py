"""Server-sent events, as a parser without I/O: bytes in, cut anywhere, whole events out.

What the format says, and what it leaves to us:

* A line ends with CR, LF or CRLF. An empty one ends an event. Several ``data`` lines are one text.
* Comments, ``id``, ``retry`` and unknown fields mean nothing here; neither does an event without
  data. What the end of a stream cuts off is no event.
* An event that is larger than ``at_most`` is left out and counted; those after it are whole. What
  is held of it never grows beyond that, however long its lines are.
"""

from typing import NamedTuple

AT_MOST = 64 * 1024

_MARK = b"\xef\xbb\xbf"


class ServerSent(NamedTuple):
    """One event; ``name`` is ``message`` where the server gives none."""

    name: str
    data: bytes


class Parser:
    """Of one stream."""

    def __init__(self, *, at_most: int = AT_MOST) -> None:
        self.oversized = 0
        self._at_most = at_most
        self._line = bytearray()
        self._line_is_too_long = False
        self._after_cr = False
        self._first_line = True
        self._name = b""
        self._data: list[bytes] = []
        self._size = 0
        self._spoilt = False

    def feed(self, chunk: bytes) -> list[ServerSent]:
        """The events that end in ``chunk``."""
        if self._after_cr and chunk:
            # The line ended with its CR already; this is the other half of that.
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        events: list[ServerSent] = []
        for line in chunk.splitlines(keepends=True):
            if line[-1:] in (b"\n", b"\r"):
                self._end_line(line.rstrip(b"\r\n"), events)
            else:
                self._hold(line)
        if chunk:
            self._after_cr = chunk.endswith(b"\r")
        return events

    def _hold(self, piece: bytes) -> None:
        if self._line_is_too_long:
            return
        self._line += piece
        if len(self._line) > self._at_most:
            self._line.clear()
            self._line_is_too_long = self._spoilt = True

    def _end_line(self, line: bytes, events: list[ServerSent]) -> None:
        if self._line_is_too_long:
            self._line_is_too_long = False
            return
        if self._line:
            line = bytes(self._line + line)
            self._line.clear()
        if len(line) > self._at_most:
            self._spoilt = True
            return
        if self._first_line:
            line = line.removeprefix(_MARK)
            self._first_line = False
        if line:
            self._take(line)
        else:
            self._end_event(events)

    def _take(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            self._name = value
        elif field == b"data":
            self._size += len(value) + 1
            if self._size > self._at_most:
                self._spoilt = True
                self._data.clear()
            else:
                self._data.append(value)

    def _end_event(self, events: list[ServerSent]) -> None:
        if self._spoilt:
            self.oversized += 1
        elif self._data:
            name = self._name.decode("utf-8", "replace") or "message"
            events.append(ServerSent(name, b"\n".join(self._data)))
        self._name = b""
        self._data.clear()
        self._size = 0
        self._spoilt = False

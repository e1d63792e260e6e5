"""Lines of a stream: a watch is one JSON document a line, cut anywhere by the network.

A line ends with a newline and nothing else does: what the end of a stream cuts off is no line.
"""

from collections.abc import Callable

from backstay.kube.errors import KubeError, Undecodable
from backstay.seam.errors import TransportError
from backstay.seam.transport import Stream

MAX_LINE = 64 * 1024 * 1024


class Lines:
    """Reads whole lines, many at a time: at thousands of events a second each await counts."""

    def __init__(
        self,
        stream: Stream,
        *,
        call: str,
        failed: Callable[[TransportError], KubeError],
        max_line: int = MAX_LINE,
    ) -> None:
        self.call = call
        self._stream = stream
        self._failed = failed
        self._max_line = max_line
        # Not bytes, which would be copied for each piece of a large object, and not a list, which
        # would be many times as large as what is in it if a server sent byte by byte.
        self._unfinished = bytearray()

    async def read(self, timeout: float) -> list[bytes] | None:
        """The next complete lines, at least one, with their newlines, or None after a proper end.

        Empty ones are left out. An unfinished line at a proper end is dropped: nothing vouches
        that it is whole.
        """
        while True:
            try:
                pieces = await self._stream.pieces(timeout)
            except TransportError as error:
                raise self._failed(error) from error
            if not pieces:
                return None
            lines: list[bytes] = []
            for piece in pieces:
                # As a rule a piece is one line, as the server wrote it.
                if piece.find(b"\n") + 1 == len(piece) > 1 and not self._unfinished:
                    lines.append(piece)
                else:
                    lines += self._split(piece)
            if lines:
                return lines

    def _split(self, piece: bytes) -> list[bytes]:
        """The lines that end in ``piece``. The rest is held."""
        lines: list[bytes] = []
        since = 0
        # ``split`` looks at every byte by itself, which takes ten times as long as to find.
        while end := piece.find(b"\n", since) + 1:
            line = piece[since:end]
            if self._unfinished:
                line = bytes(self._unfinished + line)
                self._unfinished.clear()
            if line != b"\n":
                lines.append(line)
            since = end
        if since < len(piece):
            self._hold(piece[since:])
        return lines

    def _hold(self, piece: bytes) -> None:
        self._unfinished += piece
        if len(self._unfinished) > self._max_line:
            raise Undecodable(f"{self.call}: one line of the answer is over {self._max_line} bytes")

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
        # Pieces of an unfinished line are kept apart and joined once: appending 64 KB chunks to
        # one string would copy a 1.5 MB object two dozen times.
        self._pieces: list[bytes] = []
        self._held = 0

    async def read(self, timeout: float) -> list[bytes] | None:
        """The next complete lines (at least one, none of them empty), or None after a proper end.

        An unfinished line at a proper end is dropped: nothing vouches that it is whole.
        """
        while True:
            try:
                chunk = await self._stream.read(timeout)
            except TransportError as error:
                raise self._failed(error) from error
            if not chunk:
                return None
            if lines := self._split(chunk):
                return lines

    def _split(self, chunk: bytes) -> list[bytes]:
        """The lines that end in ``chunk``. What it leaves unfinished is held back."""
        lines: list[bytes] = []
        since = 0
        # ``split`` looks at every byte by itself, which takes ten times as long as to find.
        while (end := chunk.find(b"\n", since)) >= 0:
            line = chunk[since:end]
            if self._pieces:
                line = b"".join((*self._pieces, line))
                self._pieces, self._held = [], 0
            if line:
                lines.append(line)
            since = end + 1
        if since < len(chunk):
            self._hold(chunk[since:])
        return lines

    def _hold(self, piece: bytes) -> None:
        self._held += len(piece)
        if self._held > self._max_line:
            raise Undecodable(f"{self.call}: one line of the answer is over {self._max_line} bytes")
        self._pieces.append(piece)

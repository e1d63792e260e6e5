"""Lines of a stream: a watch is one JSON document a line, cut anywhere by the network.

A line ends with a newline and nothing else does: what the end of a stream cuts off is no line.
"""

import re
from collections.abc import Callable

from backstay.kube.errors import KubeError, Undecodable
from backstay.seam.errors import TransportError
from backstay.seam.transport import Stream

_NOTHING = re.compile(rb"\n*")

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

    async def read(self, timeout: float) -> bytes | None:
        """The next complete lines (at least one, none of them cut), or None after a proper end.

        An unfinished line at a proper end is dropped: nothing vouches that it is whole.
        """
        while True:
            try:
                chunk = await self._stream.read(timeout)
            except TransportError as error:
                raise self._failed(error) from error
            if not chunk:
                return None
            end = chunk.rfind(b"\n")
            if end < 0:
                self._hold(chunk)
                continue
            lines = b"".join((*self._pieces, chunk[:end])) if self._pieces else chunk[:end]
            self._pieces, self._held = [], 0
            if end + 1 < len(chunk):
                self._hold(chunk[end + 1 :])
            if not _NOTHING.fullmatch(lines):
                return lines

    def _hold(self, piece: bytes) -> None:
        self._held += len(piece)
        if self._held > self._max_line:
            raise Undecodable(f"{self.call}: one line of the answer is over {self._max_line} bytes")
        self._pieces.append(piece)

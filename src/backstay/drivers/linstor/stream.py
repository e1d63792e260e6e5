"""Promotions: who may be promoted, as LINSTOR's stream of events tells it, for ever.

An event is a **hint** to look and no more. Snapshots can follow newer changes, whoever connects
makes LINSTOR repeat everything to everybody, and a stream proves nothing about what it does not
say: to sort that out is the listener's affair, who had better ask (``client``).

* No failure is final. After one the next controller is tried at once; when all have failed, after
  a wait that grows to half a minute and starts anew once a stream has lasted.
* LINSTOR sends no heartbeat, so silence means nothing. A stream that was silent for
  ``renew_every`` is opened anew: what it then says first is the state of everything. One that
  is not silent, be it because others do the same, is opened anew after twice that time.
* The head of the answer may not come before the first event, which can take days: LINSTOR 1.33
  sends it at once, and what is in front of it need not. While it is awaited the same controller is
  asked for its version now and then. If it answers, we are connected and there is nothing to tell;
  if not, we go elsewhere.
* What cannot be read is counted and left out.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import NoReturn

from backstay.drivers.linstor import wire
from backstay.drivers.linstor.client import Linstor
from backstay.drivers.linstor.errors import Garbled, LinstorError, Refused, Unreachable
from backstay.drivers.linstor.refusals import one_line
from backstay.drivers.linstor.sse import Parser, ServerSent
from backstay.drivers.linstor.wire import Promotion
from backstay.kube.limits import Backoff
from backstay.seam.clock import Rng
from backstay.seam.errors import TimedOut, TransportError
from backstay.seam.tasks import Tasks
from backstay.seam.transport import Stream

RENEW_EVERY = 60.0

_PATH = "/v1/events/drbd/promotion"
_HEADERS = {
    "Accept": "text/event-stream",
    "Cache-Control": "no-cache",
    # Without it LINSTOR tells changes only, and not what there is to begin with.
    "Last-Event-ID": "current",
}
_CHANGE = "may-promote-change"
_ERROR = "error"

# The first burst is over when nothing has come for this long, or after the other at the latest.
_PAUSE = 1.0
_LONGEST_BURST = 10.0

# After how many times ``renew_every`` a stream is opened anew although it is not silent.
_AT_LATEST = 2

# How often, and for how long, a controller whose answer is awaited is asked for its version.
_KNOCK_EVERY = 5.0
_KNOCK_TIMEOUT = 5.0

# A stream that did not last as long as this was no success, whatever it brought.
_LASTING = 10.0

# How many different sentences about trouble are worth a line in the log, until it is over.
_SAY_AT_MOST = 16

# How many events are told, at most, before others have their turn.
_SLICE = 250

_log = logging.getLogger("backstay.linstor")


class Promotions:
    """See the module. ``connects`` counts streams that were opened, ``events`` what was told,
    ``unreadable`` what was left out. ``last_heard`` and ``last_renewed`` are ``loop.time()``: when
    anything came on a stream, and when one was through with telling the state of everything."""

    def __init__(self, linstor: Linstor, *, rng: Rng, renew_every: float = RENEW_EVERY) -> None:
        self.connected = False
        self.trouble = ""
        self.connects = 0
        self.events = 0
        self.unreadable = 0
        self.last_heard: float | None = None
        self.last_renewed: float | None = None
        self._linstor = linstor
        self._renew_every = renew_every
        self._backoff = Backoff(base=1.0, cap=30.0, rng=rng)
        self._well_since = 0.0
        self._said: set[str] = set()

    async def run(
        self, heard: Callable[[Promotion], None], renewed: Callable[[], None]
    ) -> NoReturn:
        """Until cancelled. ``heard`` is told each event; ``renewed``, that those which tell the
        state of everything have come."""
        while True:
            for controller in self._linstor.order():
                try:
                    while True:
                        await self._listen(controller, heard, renewed)
                except LinstorError as error:
                    self._note(error)
            await asyncio.sleep(self._backoff.next())

    async def _listen(
        self, controller: str, heard: Callable[[Promotion], None], renewed: Callable[[], None]
    ) -> None:
        """One stream, until the next one is due."""
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            stream = await self._open(controller, stack)
            self._is_well(controller)
            if stream is None:
                self._is_renewed(renewed)
                return
            self.connects += 1
            parser, opened_at, in_burst = Parser(), loop.time(), True
            while True:
                pieces = await _pieces(
                    stream, controller, _PAUSE if in_burst else self._renew_every
                )
                await self._tell(pieces, parser, heard, controller)
                lasted = loop.time() - opened_at
                if in_burst and (not pieces or lasted >= _LONGEST_BURST):
                    in_burst = False
                    self._is_renewed(renewed)
                elif not pieces or lasted >= _AT_LATEST * self._renew_every:
                    return

    async def _open(self, controller: str, stack: AsyncExitStack) -> Stream | None:
        """None if the controller is well, but had nothing to tell until the next one was due."""
        doubts: list[LinstorError] = []
        try:
            async with Tasks("promotions") as tasks, asyncio.timeout(self._renew_every) as patience:
                tasks.spawn(self._knock(controller, patience, doubts), name="knock")
                stream = await stack.enter_async_context(
                    self._linstor.stream(
                        controller, _PATH, headers=_HEADERS, timeout=2 * self._renew_every
                    )
                )
        except TimeoutError:
            if doubts:
                raise doubts[0] from None
            await self._linstor.version(of=controller, timeout=_KNOCK_TIMEOUT)
            return None
        if not stream.headers.get("content-type", "").lower().startswith(_HEADERS["Accept"]):
            raise Garbled(f"{controller} does not answer as LINSTOR does: it sends no events")
        return stream

    async def _knock(
        self, controller: str, patience: asyncio.Timeout, doubts: list[LinstorError]
    ) -> None:
        """Asks the controller for a sign of life again and again, and ends the wait for its answer
        when there is none."""
        while True:
            await asyncio.sleep(_KNOCK_EVERY)
            try:
                await self._linstor.version(of=controller, timeout=_KNOCK_TIMEOUT)
            except LinstorError as error:
                doubts.append(error)
                if not patience.expired():
                    patience.reschedule(asyncio.get_running_loop().time())
                return
            self._is_well(controller)

    async def _tell(
        self,
        pieces: list[bytes],
        parser: Parser,
        heard: Callable[[Promotion], None],
        controller: str,
    ) -> None:
        for piece in pieces:
            self.last_heard = asyncio.get_running_loop().time()
            oversized = parser.oversized
            for count, event in enumerate(parser.feed(piece), 1):
                self._take(event, heard, controller)
                if count % _SLICE == 0:
                    await asyncio.sleep(0)
            self.unreadable += parser.oversized - oversized
            # Also after a small piece: where bytes have arrived already, to read is not to wait.
            await asyncio.sleep(0)

    def _take(self, event: ServerSent, heard: Callable[[Promotion], None], controller: str) -> None:
        if event.name == _ERROR:
            said = next((each.message for each in wire.refusals_from(event.data)), "")
            why = f": {one_line(said)}" if said else ""
            raise Refused(f"LINSTOR at {controller} ends its stream of events with an error{why}")
        if event.name != _CHANGE:
            return
        try:
            promotion = wire.promotion_from(event.data)
        except wire.Unreadable:
            self.unreadable += 1
            return
        self.events += 1
        heard(promotion)

    # How it goes

    def _is_well(self, controller: str) -> None:
        self._linstor.answered(controller)
        if not self.connected:
            self._well_since = asyncio.get_running_loop().time()
            if self._said:
                _log.info("LINSTOR's events come from %s", controller)
        self.connected, self.trouble = True, ""
        self._said.clear()

    def _is_renewed(self, renewed: Callable[[], None]) -> None:
        self.last_renewed = asyncio.get_running_loop().time()
        renewed()

    def _note(self, error: LinstorError) -> None:
        lasted = asyncio.get_running_loop().time() - self._well_since
        if self.connected and lasted >= _LASTING:
            self._backoff.reset()
        self.connected, self.trouble = False, str(error)
        # Once per trouble, not once per attempt.
        if self.trouble not in self._said and len(self._said) < _SAY_AT_MOST:
            self._said.add(self.trouble)
            _log.warning("%s", self.trouble)


async def _pieces(stream: Stream, controller: str, timeout: float) -> list[bytes]:
    """What comes next; nothing if it does not come in time."""
    try:
        pieces = await stream.pieces(timeout)
    except TimedOut:
        return []
    except TransportError as error:
        raise Unreachable(f"LINSTOR: {error}") from None
    if not pieces:
        raise Unreachable(f"LINSTOR at {controller} ended its stream of events")
    return pieces

"""Refutations: what has become of somebody's word is written down at that very word.

A renewal leaves a trace in the API, an answer at a port does not: with the process that heard it,
it would be forgotten, and a word that was known to be wrong would count again. So it is kept

* at the DeathConfirmation, which is there before there is any incident, is read whenever the word
  is, and takes its refutation with it when a person deletes it,
* as soon as whoever leads knows of it, and once: one write for each word that was wrong,
* by whoever leads. What a standby has heard it tells the others while it lasts
  (``sources/views.py``), and keeps in mind for when it leads itself.

So it is with a word that came back with a backup of the API (``lapse``). The node may have booted
since it was given, which that API does not know, and whoever restores it once more makes it forget
that we knew. Whoever wants it to count says it again.

A write that fails holds nobody up: whoever knows of a refutation heeds it anyway, and the next look
tries again.
"""

import asyncio
import logging
from collections.abc import Callable

from backstay.apis.backstay import (
    CONFIRMATIONS,
    ConfirmationRow,
    ConfirmationStatus,
    confirmation_patch,
)
from backstay.decide.proof import Heard, refutations
from backstay.kube.client import KubeClient
from backstay.kube.errors import Conflict, KubeError, NotFound
from backstay.kube.lease import Term
from backstay.model.labels import MANAGER
from backstay.model.moments import time_text
from backstay.seam.clock import WallClock

_log = logging.getLogger("backstay.refutations")

_TIMEOUT = 5.0
_AGAIN, _SELDOM = 2.0, 60.0
"""Seconds until it is looked whether it stands there, at first and at the most."""


class Refutations:
    """See the module."""

    def __init__(self, client: KubeClient, *, wall: WallClock) -> None:
        self._client = client
        self._wall = wall

    async def keep(self, heard: Heard, *, term: Term) -> None:
        """Writes down those that are news."""
        for word, sign in refutations(heard):
            status = ConfirmationStatus(refuted=sign, refuted_at=self._now_text)
            await self._write(word.name, word.uid, status, term)

    async def lapse(self, words: Callable[[], list[ConfirmationRow] | None], term: Term) -> None:
        """Writes down of each of these that it counts no more, until there are none without that;
        None says that they are not known yet."""
        pause = _AGAIN
        while (due := words()) is None or due:
            for word in due or ():
                status = ConfirmationStatus(lapsed_at=self._now_text)
                await self._write(word.key, word.uid, status, term)
            await asyncio.sleep(pause)
            # Where our kinds are those of an older version, it never does.
            pause = min(2 * pause, _SELDOM) if due else _AGAIN

    @property
    def _now_text(self) -> str:
        return time_text(self._wall.now())

    async def _write(self, name: str, uid: str, status: ConfirmationStatus, term: Term) -> None:
        try:
            await self._client.merge_patch(
                CONFIRMATIONS, name, confirmation_patch(uid, status),
                subresource="status", manager=MANAGER, timeout=_TIMEOUT, not_after=term.require(),
            )  # fmt: skip
        except (NotFound, Conflict):
            # Taken back, or given anew by another: that one is looked at by itself.
            return
        except KubeError as error:
            _log.warning("that %s does not count cannot be kept there: %s", name, error)

"""Refutations: that life has contradicted somebody's word is written down at that very word.

A renewal leaves a trace in the API, an answer at a port does not: with the process that heard it,
it would be forgotten, and a word that was known to be wrong would count again. So it is kept

* at the DeathConfirmation, which is there before there is any incident, is read whenever the word
  is, and takes its refutation with it when a person deletes it,
* as soon as whoever leads knows of it, and once: one write for each word that was wrong,
* by whoever leads. What a standby has heard it tells the others while it lasts
  (``sources/views.py``), and keeps in mind for when it leads itself.

A write that fails holds nobody up: whoever knows of a refutation heeds it anyway, and the next look
tries again.
"""

import logging

from backstay.apis.backstay import CONFIRMATIONS, ConfirmationStatus, confirmation_patch
from backstay.decide.proof import Heard, refutations
from backstay.kube.client import KubeClient
from backstay.kube.errors import Conflict, KubeError, NotFound
from backstay.kube.lease import Term
from backstay.model.labels import MANAGER
from backstay.model.moments import time_text
from backstay.seam.clock import WallClock

_log = logging.getLogger("backstay.refutations")

_TIMEOUT = 5.0


class Refutations:
    """See the module."""

    def __init__(self, client: KubeClient, *, wall: WallClock) -> None:
        self._client = client
        self._wall = wall

    async def keep(self, heard: Heard, *, term: Term) -> None:
        """Writes down those that are news."""
        for word, sign in refutations(heard):
            status = ConfirmationStatus(refuted=sign, refuted_at=time_text(self._wall.now()))
            try:
                await self._client.merge_patch(
                    CONFIRMATIONS, word.name, confirmation_patch(word.uid, status),
                    subresource="status", manager=MANAGER, timeout=_TIMEOUT,
                    not_after=term.require(),
                )  # fmt: skip
            except (NotFound, Conflict):
                # Taken back, or given anew by another: that one is looked at by itself.
                continue
            except KubeError as error:
                _log.warning(
                    "that %s is alive cannot be kept at %s: %s", word.node, word.name, error
                )

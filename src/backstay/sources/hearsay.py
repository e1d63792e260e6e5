"""Hearsay: a controller that has seen the API go back in time tells the others.

Whoever leads may not have seen it: it was started later or had looked too long ago, and to it the
API that was restored is the only one there ever was. A standby that knows better does nothing by
itself, so it has to say so.

* It is said where controllers tell what they see (``views.py``), in an annotation of its own, for
  as long as it holds. There it outlives its author, and is read by whoever is started next.
* What is heard counts from the next look at the API's version on, without which nothing is done,
  and is then ours as if we had seen it; unless a person has armed since (``past.py``). Who knows of
  it already may have missed that it went back once more, and is told of that too.
* A watch that goes on across a restore, from a version which the restored API has not reached yet,
  is told nothing of what comes until then. So whoever begins to lead asks for what the others say,
  however long that takes, and who has something to say looks with its own eyes whether it stands
  there.
* It is never more than a reason to hold. Who could forge it could forge the lease of whoever leads.
"""

import asyncio
import logging
from typing import NoReturn

from backstay.kube.errors import KubeError
from backstay.kube.limits import until_answered
from backstay.kube.versions import is_older
from backstay.seam.clock import Rng
from backstay.sources.past import Past, rolled_back
from backstay.sources.views import ViewRow, Views

_log = logging.getLogger("backstay.hearsay")

_AGAIN = 5.0
"""Seconds until it is tried again, or seen to that it still stands there: somebody may restore the
API once more, to before it was said."""


class Hearsay:
    """See the module. ``trouble`` says why it is not known what the others say."""

    def __init__(self, past: Past, views: Views, *, rng: Rng) -> None:
        self.trouble = ""
        self._past = past
        self._views = views
        self._rng = rng
        self._has_said = False
        """One's own watch may not have told of that."""
        views.cache.subscribe(self._changed)

    async def run(self) -> NoReturn:
        while True:
            turn, remark = self._past.turn, self._past.remark
            done = await self._is_said()
            if not done:
                done = await self._views.remark(remark)
                self._has_said = remark is not None or not done
            await self._until(turn, lasting=done and self._past.remark is None)

    async def ask(self) -> None:
        """What stands there now, as soon as it can be read: without it nobody may act anyway."""
        remarks = until_answered(self._views.remarks, rng=self._rng, tell=self._complain)
        for remark in await remarks:
            self._hear(remark)

    async def _until(self, turn: asyncio.Event, *, lasting: bool) -> None:
        try:
            async with asyncio.timeout(None if lasting else _AGAIN):
                await turn.wait()
        except TimeoutError:
            pass

    async def _is_said(self) -> bool:
        """In whatever words: two controllers on one node have one place to say it. But it must be
        said of no less than we know of. What was found there is taken away no sooner than it has
        been judged."""
        if self._past.remark is None:
            stands = self._has_said or rolled_back(self._views.own_remark) is not None
            return self._past.is_in_doubt or not stands
        try:
            said = rolled_back(await self._views.own_remark_now())
            return said is not None and not is_older(said.found, self._past.restored)
        except KubeError:
            return False

    def _complain(self, because: str) -> None:
        self.trouble = because
        if because:
            _log.warning("what others have seen of the API is not known yet: %s", because)

    def _changed(self, _old: ViewRow | None, new: ViewRow | None) -> None:
        if new is not None:
            self._hear(new.remark)

    def _hear(self, remark: str) -> None:
        told = rolled_back(remark)
        if told is not None:
            self._past.hear(told)

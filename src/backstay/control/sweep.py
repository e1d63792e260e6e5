"""The sweep: what is told of incidents that are long over is removed, a little at a time.

Once an hour, by the leader alone. ``record/retention.py`` says what may go. Each removal names the
very version that was judged: an incident that somebody has touched since is left for another hour.
"""

import asyncio
import logging

from backstay.kube import errors
from backstay.kube.lease import Term
from backstay.record import retention
from backstay.record.blackbox import BlackBox
from backstay.record.incidents import IncidentBook
from backstay.seam.clock import WallClock

FIRST = 300.0
"""Seconds: whoever has just begun to lead has better things to do."""

INTERVAL = 3600.0
MOST = 100
"""So many removals of each kind at a time."""

_log = logging.getLogger("backstay.sweep")


class Sweeper:
    """``removed`` counts incidents."""

    def __init__(self, book: IncidentBook, box: BlackBox, *, wall: WallClock) -> None:
        self.removed = 0
        self._book = book
        self._box = box
        self._wall = wall

    async def run(self, term: Term) -> None:
        """Until the term is over."""
        await asyncio.sleep(FIRST)
        while not term.over:
            try:
                await self.sweep(term)
            except errors.KubeError as error:
                _log.warning("old incidents are not removed this time: %s", error)
            await asyncio.sleep(INTERVAL)

    async def sweep(self, term: Term) -> None:
        # The boxes first: an incident that is opened meanwhile has none among them.
        boxes = await self._box.kept()
        rows = await self._book.all()
        for row in retention.expendable(rows, self._wall.now())[:MOST]:
            try:
                await self._book.remove(row, not_after=term.require())
            except (errors.NotFound, errors.Conflict):
                continue
            rows.remove(row)
            self.removed += 1
        wanted = retention.with_decisions(rows)
        for box in [box for box in boxes if box.incident not in wanted][:MOST]:
            try:
                await self._box.remove(box, not_after=term.require())
            except (errors.NotFound, errors.Conflict):
                continue

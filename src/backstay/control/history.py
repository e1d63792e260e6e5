"""History: what was done of late, as far as it bears on what may be done next.

How many workloads were released in the last minute is known to whoever released them. How often
a workload was failed over stands in the incidents, and so is known to every leader.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from datetime import datetime, timedelta

from backstay.apis.backstay import IncidentRow
from backstay.model.incident import Progress
from backstay.model.moments import moment_of
from backstay.seam.clock import WallClock

_MINUTE = 60.0
Boot = tuple[str, str]
"""The uid of a node and its boot id."""

_MOVED = frozenset({Progress.RELEASED, Progress.RECOVERED, Progress.STAYS_DOWN})


class History:
    """See the module. Times of day are compared only to let an attempt grow old."""

    def __init__(self, wall: WallClock) -> None:
        self._wall = wall
        self._releases: deque[float] = deque()
        self._moves: dict[str, dict[Boot, datetime]] = {}

    def released(self, count: int) -> None:
        self._releases.extend([asyncio.get_running_loop().time()] * count)

    def released_lately(self) -> int:
        now = asyncio.get_running_loop().time()
        while self._releases and now - self._releases[0] > _MINUTE:
            self._releases.popleft()
        return len(self._releases)

    def read(self, rows: Iterable[IncidentRow]) -> None:
        """Takes in what these incidents tell of workloads that were moved."""
        for row in rows:
            opened = moment_of(row.status.opened_at)
            for record in row.status.workloads:
                if opened is not None and record.progress in _MOVED:
                    boot = (row.spec.node_uid, row.spec.boot_id)
                    self._moves.setdefault(record.workload, {})[boot] = opened

    def attempts(
        self, workloads: Iterable[str], *, within: float, apart_from: Boot
    ) -> dict[str, int]:
        """How often each was moved within so many seconds, other than from one boot."""
        if not self._moves:
            return {}
        since = self._wall.now() - timedelta(seconds=within)
        found = {}
        for key in workloads:
            moves = self._moves.get(key, {})
            count = sum(boot != apart_from and at >= since for boot, at in moves.items())
            if count:
                found[key] = count
        return found

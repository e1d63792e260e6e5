"""TellingCache: what a program of a node has of the API, which wakes it when that has changed.

It wakes it for every row that comes, changes or goes, and for every full picture, in which there
may be no row at all. That the server has nothing new to say is no reason to wake anybody.
"""

import asyncio

from backstay.kube.cache import Cache
from backstay.kube.projection import R


class TellingCache(Cache[R]):
    """See the module."""

    def __init__(self, news: asyncio.Event) -> None:
        super().__init__()
        self._news = news
        self._pictures = 0
        self.subscribe(lambda old, new: news.set())

    def heard(self, now: float, version: str = "") -> None:
        super().heard(now, version)
        if self.replacements != self._pictures:
            self._pictures = self.replacements
            self._news.set()

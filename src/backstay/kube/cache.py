"""Cache: what is known of one kind of object, and how old that knowledge is.

* Rows are found by key, by uid, and through named indexes that are kept up to date row by row.
* ``replace`` is atomic for readers: they see the old picture until the new one is complete. It
  is prepared in slices (``Replacement``), because comparing 100,000 rows at once would stop the
  loop for longer than a lease renewal may wait.
* Two rows are the same if uid and version are.
* An object that could not be read is *quarantined*: the last row that was good stays, and
  ``quarantine`` says that it is out of date and why. Nothing that we failed to read may look
  as if it were gone.
* ``synced`` is True once a full picture has been had; ``age`` says how long ago the server was
  last heard of. A decision that needs a fresh view asks ``age``, never ``synced`` alone.

One task writes (the reflector); everyone else reads, on the same loop.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Generic

from backstay.kube.projection import R, Unreadable

Listener = Callable[[R | None, R | None], None]
"""Called with (old, new) for every change: (None, row) appeared, (row, None) went."""

IndexFunction = Callable[[R], Iterable[str]]

_log = logging.getLogger("backstay.cache")


class Indexes(Generic[R]):
    """Named indexes over rows; each maps a value to the rows that have it, by key."""

    def __init__(self, functions: Mapping[str, IndexFunction[R]]) -> None:
        self._functions = functions
        self._buckets: dict[str, dict[str, dict[str, R]]] = {name: {} for name in functions}

    def add(self, row: R) -> None:
        for name, function in self._functions.items():
            buckets = self._buckets[name]
            for value in function(row):
                bucket = buckets.get(value)
                if bucket is None:
                    bucket = buckets[value] = {}
                bucket[row.key] = row

    def drop(self, row: R) -> None:
        for name, function in self._functions.items():
            buckets = self._buckets[name]
            for value in function(row):
                bucket = buckets.get(value)
                if bucket is not None and bucket.pop(row.key, None) is not None and not bucket:
                    del buckets[value]

    def rows(self, name: str, value: str) -> Iterator[R]:
        return iter(self._buckets[name].get(value, {}).values())

    def counts(self, name: str) -> dict[str, int]:
        return {value: len(bucket) for value, bucket in self._buckets[name].items()}


class Cache(Generic[R]):
    """See the module."""

    def __init__(self, indexes: Mapping[str, IndexFunction[R]] | None = None) -> None:
        self._functions = indexes or {}
        self._rows: dict[str, R] = {}
        self._by_uid: dict[str, R] = {}
        self._indexes = Indexes(self._functions)
        self._listeners: list[Listener[R]] = []
        self._quarantine: dict[str, Unreadable] = {}
        self._heard_at: float | None = None
        self.version = ""
        self.synced = False
        self.replacements = 0
        self.unreadable_total = 0
        self.listener_failures = 0

    # Reading

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[R]:
        return iter(self._rows.values())

    def get(self, key: str) -> R | None:
        return self._rows.get(key)

    def by_uid(self, uid: str) -> R | None:
        return self._by_uid.get(uid)

    def by_index(self, name: str, value: str) -> list[R]:
        """A list, so that the caller may await while going through it."""
        return list(self._indexes.rows(name, value))

    def counts(self, name: str) -> dict[str, int]:
        """How many rows each value of an index has."""
        return self._indexes.counts(name)

    @property
    def quarantine(self) -> Mapping[str, Unreadable]:
        return MappingProxyType(self._quarantine)

    def age(self, now: float) -> float:
        """Seconds since the server was last heard of; infinite before the first full picture."""
        if not self.synced or self._heard_at is None:
            return float("inf")
        return now - self._heard_at

    def subscribe(self, listener: Listener[R]) -> None:
        """Rows that are already there are announced to the newcomer as having appeared."""
        self._listeners.append(listener)
        for row in list(self._rows.values()):
            self._tell_one(listener, None, row)

    # Writing (the reflector's alone)

    def heard(self, now: float, version: str = "") -> None:
        """The server spoke, if only to say that nothing changed."""
        self._heard_at = now
        if version:
            self.version = version

    def put(self, row: R) -> None:
        old = self._rows.get(row.key)
        self._quarantine.pop(row.key, None)
        if old is not None:
            if old.uid == row.uid and old.version == row.version:
                return
            self._forget(old)
        self._remember(row)
        self._tell(old, row)

    def drop(self, key: str) -> None:
        self._quarantine.pop(key, None)
        old = self._rows.get(key)
        if old is not None:
            self._forget(old)
            self._tell(old, None)

    def set_aside(self, bad: Unreadable) -> None:
        """Quarantines an object; see the module."""
        self.unreadable_total += 1
        if bad.key not in self._quarantine:
            _log.warning("cannot read %s: %s", bad.key or "an object without a name", bad.why)
        self._quarantine[bad.key] = bad

    def replacement(self) -> "Replacement[R]":
        return Replacement(self, Indexes(self._functions))

    def _remember(self, row: R) -> None:
        self._rows[row.key] = row
        self._by_uid[row.uid] = row
        self._indexes.add(row)

    def _forget(self, row: R) -> None:
        del self._rows[row.key]
        if self._by_uid.get(row.uid) is row:
            del self._by_uid[row.uid]
        self._indexes.drop(row)

    def _swap(self, new: "Replacement[R]", version: str, now: float) -> None:
        self._rows, self._by_uid, self._indexes = new.rows, new.by_uid, new.indexes
        self._quarantine = {}
        for bad in new.unreadable:
            self.set_aside(bad)
        self.synced = True
        self.replacements += 1
        self.heard(now, version)

    def _tell(self, old: R | None, new: R | None) -> None:
        for listener in self._listeners:
            self._tell_one(listener, old, new)

    def _tell_one(self, listener: Listener[R], old: R | None, new: R | None) -> None:
        try:
            listener(old, new)
        except Exception:  # noqa: BLE001 - a listener's bug must not stop us from seeing the world
            self.listener_failures += 1
            row = new or old
            _log.exception("a listener failed on %s", row.key if row else "nothing")


class Replacement(Generic[R]):
    """A new full picture in the making. Each step is short; between them others may run.

    ``add`` pages as they come; then, once, go through ``settle`` to its end: it swaps the
    picture in and tells the listeners the difference, slice by slice.
    """

    def __init__(self, cache: Cache[R], indexes: Indexes[R]) -> None:
        self._cache = cache
        self.rows: dict[str, R] = {}
        self.by_uid: dict[str, R] = {}
        self.indexes = indexes
        self.unreadable: list[Unreadable] = []

    def add(self, rows: Iterable[R], unreadable: Iterable[Unreadable] = ()) -> None:
        """A row that did not change stays the very object that readers already hold."""
        for row in rows:
            old = self._cache.get(row.key)
            unchanged = old is not None and old.uid == row.uid and old.version == row.version
            self._hold(old if unchanged and old is not None else row)
        for bad in unreadable:
            self.unreadable.append(bad)
            last_good = self._cache.get(bad.key)
            if last_good is not None:
                self._hold(last_good)

    def drop(self, key: str) -> None:
        """A deletion that arrived among the initial events of a streaming list."""
        row = self.rows.pop(key, None)
        if row is not None:
            self.by_uid.pop(row.uid, None)
            self.indexes.drop(row)

    def settle(self, *, version: str, now: float, slice_size: int = 2000) -> Iterator[None]:
        """Yields between slices. The swap happens in one of them, for every reader at once."""
        changes: list[tuple[R | None, R | None]] = []
        for count, row in enumerate(self.rows.values(), 1):
            old = self._cache.get(row.key)
            if old is not row:
                changes.append((old, row))
            if count % slice_size == 0:
                yield
        for count, row in enumerate(self._cache, 1):
            if row.key not in self.rows:
                changes.append((row, None))
            if count % slice_size == 0:
                yield
        self._cache._swap(self, version, now)
        for count, (old, new) in enumerate(changes, 1):
            self._cache._tell(old, new)
            if count % slice_size == 0:
                yield

    def _hold(self, row: R) -> None:
        previous = self.rows.get(row.key)
        if previous is not None:
            self.by_uid.pop(previous.uid, None)
            self.indexes.drop(previous)
        self.rows[row.key] = row
        self.by_uid[row.uid] = row
        self.indexes.add(row)

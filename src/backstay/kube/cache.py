"""Cache: what is known of one kind of object, and how old that knowledge is.

* Rows are found by key, by uid, and through named indexes that are kept up to date row by row.
* A ``Replacement`` is atomic for readers: they see the old picture until the new one is
  complete. Listeners are told the difference in slices, because going through 100,000 rows at
  once would stop the loop for longer than a lease renewal may wait.
* Two rows are the same if uid and version are. A row that is the same stays the very object
  that readers already hold, and listeners do not hear of it.
* An object that could not be read is *quarantined*: the last row that was good stays, and
  ``quarantine`` says that it is out of date and why. Nothing that we failed to read may look
  as if it were gone.
* ``synced`` is True once a full picture has been had; ``age`` says how long ago the server was
  last heard of. A decision that needs a fresh view asks ``age``, never ``synced`` alone.

One task writes (the reflector); everyone else reads, on the same loop.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from types import MappingProxyType
from typing import Generic

from backstay.kube.projection import R, Unreadable

Listener = Callable[[R | None, R | None], None]
"""Called with (old, new) for every change: (None, row) appeared, (row, None) went."""

IndexFunction = Callable[[R], tuple[str, ...]]

_log = logging.getLogger("backstay.cache")


_Buckets = dict[str, dict[str, None]]
"""The keys under each value, in order: a dict for a set that keeps it."""


class Indexes(Generic[R]):
    """Named indexes over rows; each maps a value to the keys of the rows that have it.

    Keys and not rows: an object that changed, but is found where it was, changes nothing here.
    """

    def __init__(self, functions: Mapping[str, IndexFunction[R]]) -> None:
        self._buckets: dict[str, _Buckets] = {name: {} for name in functions}
        self._filled = [(function, self._buckets[name]) for name, function in functions.items()]

    def add(self, row: R) -> None:
        for function, buckets in self._filled:
            _enter(buckets, function(row), row.key)

    def drop(self, row: R) -> None:
        for function, buckets in self._filled:
            _leave(buckets, function(row), row.key)

    def exchange(self, old: R, new: R) -> None:
        """Like ``drop`` and ``add``, for two rows of one key."""
        for function, buckets in self._filled:
            before, after = function(old), function(new)
            if before != after:
                _leave(buckets, before, old.key)
                _enter(buckets, after, new.key)

    def keys(self, name: str, value: str) -> Iterable[str]:
        return self._buckets[name].get(value, ())

    def counts(self, name: str) -> dict[str, int]:
        return {value: len(bucket) for value, bucket in self._buckets[name].items()}


def _enter(buckets: _Buckets, values: tuple[str, ...], key: str) -> None:
    for value in values:
        bucket = buckets.get(value)
        if bucket is None:
            bucket = buckets[value] = {}
        bucket[key] = None


def _leave(buckets: _Buckets, values: tuple[str, ...], key: str) -> None:
    for value in values:
        bucket = buckets.get(value)
        if bucket is not None:
            bucket.pop(key, None)
            if not bucket:
                del buckets[value]


class Picture(Generic[R]):
    """Rows and the ways to find them, always in step with one another."""

    def __init__(self, functions: Mapping[str, IndexFunction[R]]) -> None:
        self.rows: dict[str, R] = {}
        self.by_uid: dict[str, R] = {}
        self.indexes = Indexes(functions)

    def hold(self, row: R, *, old: R | None) -> None:
        """In place of ``old``, which is what has this key now."""
        self.rows[row.key] = row
        if old is None:
            self.indexes.add(row)
        else:
            self.indexes.exchange(old, row)
            if old.uid != row.uid:
                self._forget_uid(old)
        self.by_uid[row.uid] = row

    def release(self, key: str) -> R | None:
        old = self.rows.pop(key, None)
        if old is not None:
            self._forget_uid(old)
            self.indexes.drop(old)
        return old

    def _forget_uid(self, row: R) -> None:
        if self.by_uid.get(row.uid) is row:
            del self.by_uid[row.uid]


class Cache(Generic[R]):
    """See the module."""

    def __init__(self, indexes: Mapping[str, IndexFunction[R]] | None = None) -> None:
        self._functions = indexes or {}
        self._picture = Picture(self._functions)
        # Never changed in place: who subscribes while listeners are being told is told the rows
        # that are there, and must not be told of the same change again.
        self._listeners: tuple[Listener[R], ...] = ()
        self._quarantine: dict[str, Unreadable] = {}
        self._heard_at: float | None = None
        self.version = ""
        self.synced = False
        self.replacements = 0
        self.unreadable_total = 0
        self.listener_failures = 0

    # Reading

    def __len__(self) -> int:
        return len(self._picture.rows)

    def __iter__(self) -> Iterator[R]:
        """Over the rows as they are now; whoever awaits in between makes a list first."""
        return iter(self._picture.rows.values())

    @property
    def keys(self) -> Set[str]:
        """Of the rows as they are now, in their order."""
        return self._picture.rows.keys()

    def get(self, key: str) -> R | None:
        return self._picture.rows.get(key)

    def by_uid(self, uid: str) -> R | None:
        return self._picture.by_uid.get(uid)

    def by_index(self, name: str, value: str) -> list[R]:
        """A list, so that the caller may await while going through it."""
        picture = self._picture
        # Not a comprehension, which is a call of its own: this is asked for thousands of times.
        return list(map(picture.rows.__getitem__, picture.indexes.keys(name, value)))

    def counts(self, name: str) -> dict[str, int]:
        """How many rows each value of an index has."""
        return self._picture.indexes.counts(name)

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
        self._listeners = (*self._listeners, listener)
        for row in list(self):
            self._tell((listener,), None, row)

    # Writing (the reflector's alone)

    def heard(self, now: float, version: str = "") -> None:
        """The server spoke, if only to say that nothing changed."""
        self._heard_at = now
        if version:
            self.version = version

    def put(self, row: R) -> None:
        key = row.key
        if self._quarantine:
            self._quarantine.pop(key, None)
        old = self._picture.rows.get(key)
        if old is not None and _is_same(old, row):
            return
        self._picture.hold(row, old=old)
        self._tell(self._listeners, old, row)

    def drop(self, key: str) -> None:
        self._quarantine.pop(key, None)
        old = self._picture.release(key)
        if old is not None:
            self._tell(self._listeners, old, None)

    def set_aside(self, bad: Unreadable) -> None:
        """Quarantines an object; see the module."""
        self.unreadable_total += 1
        if bad.key not in self._quarantine:
            _log.warning("cannot read %s: %s", bad.key, bad.why)
        self._quarantine[bad.key] = bad

    def replacement(self) -> "Replacement[R]":
        return Replacement(self, Picture(self._functions))

    def _swap(
        self, picture: Picture[R], unreadable: Mapping[str, Unreadable], version: str, as_of: float
    ) -> Picture[R]:
        old, self._picture = self._picture, picture
        for key in self._quarantine.keys() - unreadable.keys():
            del self._quarantine[key]
        for bad in unreadable.values():
            self.set_aside(bad)
        self.synced = True
        self.replacements += 1
        self.heard(as_of, version)
        return old

    def _tell(self, listeners: tuple[Listener[R], ...], old: R | None, new: R | None) -> None:
        for listener in listeners:
            try:
                listener(old, new)
            except Exception:  # noqa: BLE001 - a listener's bug must not stop us from seeing the world
                self.listener_failures += 1
                row = old if new is None else new
                _log.exception("a listener failed on %s", row.key if row is not None else "nothing")


class Replacement(Generic[R]):
    """A new full picture in the making. Each step is short; between them others may run.

    ``add`` pages as they come; then, once, go through ``settle`` to its end: it swaps the
    picture in and tells the listeners the difference, slice by slice.
    """

    def __init__(self, cache: Cache[R], picture: Picture[R]) -> None:
        self._cache = cache
        self._picture = picture
        self._unreadable: dict[str, Unreadable] = {}

    def add(self, rows: Iterable[R], unreadable: Iterable[Unreadable] = ()) -> None:
        for row in rows:
            key = row.key
            known = self._cache.get(key)
            kept = known if known is not None and _is_same(known, row) else row
            self._picture.hold(kept, old=self._picture.rows.get(key))
            self._unreadable.pop(key, None)
        for bad in unreadable:
            self._unreadable[bad.key] = bad
            last_good = self._cache.get(bad.key)
            if last_good is not None and bad.key not in self._picture.rows:
                self._picture.hold(last_good, old=None)

    def drop(self, key: str) -> None:
        """A deletion that arrived among the initial events of a streaming list."""
        self._picture.release(key)
        self._unreadable.pop(key, None)

    def settle(self, *, version: str, as_of: float, slice_size: int = 500) -> Iterator[None]:
        """Yields between slices; the swap comes first, for every reader at once.

        ``as_of`` is when the picture was asked for: it may have taken minutes to arrive.
        """
        cache, new = self._cache, self._picture
        listeners = cache._listeners
        old = cache._swap(new, self._unreadable, version, as_of)
        for count, row in enumerate(new.rows.values(), 1):
            before = old.rows.get(row.key)
            if before is not row:
                cache._tell(listeners, before, row)
            if count % slice_size == 0:
                yield
        for count, row in enumerate(old.rows.values(), 1):
            if row.key not in new.rows:
                cache._tell(listeners, row, None)
            if count % slice_size == 0:
                yield


def _is_same(one: R, other: R) -> bool:
    return one.uid == other.uid and one.version == other.version

"""Store: what is kept, under one version counter, with a history for watches and pages.

* Objects are immutable. A change is a new object that shares with the old one all that did not
  change, and it is encoded to JSON once, however many readers and watchers it has.
* Each commit takes the next version, for all kinds together, as etcd does it.
* The history is a ring of the latest commits. A watch resumes from it, a page that continues
  an older list is rebuilt from it, and what has fallen out of it is ``Expired``.
* Nobody waits in here and nothing fails half-way: checks come first, then one commit.
* Who follows it from within a process does so until that process ends. One that was killed cannot
  let go of anything itself.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from backstay.sim.api.kinds import Object
from backstay.sim.lane import Lane, current_lane

HISTORY = 10_000

_encode = msgspec.json.Encoder().encode

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped kinds) and name."""

EVERYWHERE: Key = ("", "")


class Expired(Exception):
    """The version asked for is older than the history."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {asked} ({oldest})")
        self.asked = asked
        self.oldest = oldest


class Stored:
    """An object as of one version, without its ``kind`` and ``apiVersion``: those belong to the
    version of the API in which somebody asks for it. Encoded once, however many ask."""

    __slots__ = ("_encoded", "_item", "key", "object", "version")

    def __init__(self, key: Key, obj: Object, version: int) -> None:
        self.key = key
        self.object = obj
        self.version = version
        self._item: bytes | None = None
        self._encoded: dict[bytes | tuple[bytes, bytes], bytes] = {}

    @property
    def item(self) -> bytes:
        """As the items of a list have it."""
        made = self._item
        if made is None:
            made = self._item = _encode(self.object)
        return made

    @staticmethod
    def items(found: "Iterable[Stored]") -> bytes:
        """As a list has them all. Most were encoded when they were listed the last time."""
        return b",".join([stored._item or stored.item for stored in found])

    def encoded(self, head: bytes) -> bytes:
        """As an answer; ``head`` is the beginning, with kind and apiVersion."""
        if head not in self._encoded:
            self._encoded[head] = head + self.item[1:]
        return self._encoded[head]

    def line(self, head: bytes, event: bytes) -> bytes:
        """As a line of a watch."""
        which = (head, event)
        if which not in self._encoded:
            self._encoded[which] = b'{"type":"%s","object":%s}\n' % (event, self.encoded(head))
        return self._encoded[which]


class Commit(msgspec.Struct, frozen=True):
    """One change. ``before`` is None for a creation; ``after`` is, for a deletion, the object's
    last state under the deletion's own version."""

    version: int
    storage: str
    before: Stored | None
    after: Stored
    deleted: bool = False


class Snapshot(msgspec.Struct, frozen=True):
    """All that there was at one version, as a backup has it."""

    version: int
    objects: dict[str, dict[Key, Stored]]


Follower = Callable[[Commit], None]


class _Following:
    """Somebody who is told, and the process that it is part of."""

    __slots__ = ("among", "ended", "lane", "name", "namespace", "told")

    def __init__(
        self,
        told: Follower,
        ended: Callable[[], None] | None,
        within: Key,
        among: "list[_Following]",
    ) -> None:
        self.told = told
        self.ended = ended
        self.namespace, self.name = within
        self.among = among
        self.lane: Lane | None = current_lane()

    @property
    def is_dead(self) -> bool:
        return self.lane is not None and self.lane.ended

    def release(self) -> None:
        if self in self.among:
            self.among.remove(self)


class Store:
    """All objects of all kinds."""

    def __init__(self, *, history: int = HISTORY, first_version: int = 1) -> None:
        self._objects: defaultdict[str, dict[Key, Stored]] = defaultdict(dict)
        self._sorted: dict[str, list[Key]] = {}
        self._listed: defaultdict[str, dict[str, Sequence[Stored]]] = defaultdict(dict)
        self._history: deque[Commit] = deque(maxlen=history)
        self._followers: defaultdict[str, list[_Following]] = defaultdict(list)
        self._everything: list[_Following] = []
        self._undelivered: deque[Commit] = deque()
        self._is_delivering = False
        self.version = first_version

    def get(self, storage: str, key: Key) -> Stored | None:
        return self._objects[storage].get(key)

    def all(self, storage: str, namespace: str = "") -> Sequence[Stored]:
        """In the order of their keys, as etcd lists them, of one namespace if it is named. The same
        sequence until there is a commit, because many ask and few change anything."""
        listed = self._listed[storage]
        if namespace not in listed:
            found = self._objects[storage]
            keys = self._sorted.get(storage)
            if keys is None:
                keys = self._sorted[storage] = sorted(found)
            listed[namespace] = tuple(
                [found[key] for key in keys if not namespace or key[0] == namespace]
            )
        return listed[namespace]

    def as_of(self, storage: str, version: int) -> Sequence[Stored]:
        """What ``all`` would have said at ``version``. Raises ``Expired``."""
        if version >= self.version:
            return self.all(storage)
        if version < (oldest := self._forgotten):
            raise Expired(version, oldest)
        then = dict(self._objects[storage])
        for commit in reversed(self._history):
            if commit.version <= version:
                break
            if commit.storage != storage:
                continue
            if commit.before is None:
                then.pop(commit.after.key, None)
            else:
                then[commit.after.key] = commit.before
        return [then[key] for key in sorted(then)]

    def since(self, storage: str, version: int) -> Iterator[Commit]:
        """The commits after ``version``. Raises ``Expired``."""
        if version < (oldest := self._forgotten):
            raise Expired(version, oldest)
        found: list[Commit] = []
        # From the end, because most who resume have missed little.
        for commit in reversed(self._history):
            if commit.version <= version:
                break
            if commit.storage == storage:
                found.append(commit)
        return reversed(found)

    @property
    def _forgotten(self) -> int:
        """The version up to which nothing is known of the past."""
        return self._history[0].version - 1 if self._history else self.version

    def next_version(self) -> int:
        """The version that the next commit will have; objects carry it inside."""
        return self.version + 1

    def put(self, storage: str, key: Key, obj: Object) -> Stored:
        """Commits a creation or change; ``obj`` must carry ``next_version`` already."""
        objects = self._objects[storage]
        before = objects.get(key)
        after = objects[key] = Stored(key, obj, self.version + 1)
        self._commit(Commit(after.version, storage, before, after))
        return after

    def remove(self, storage: str, key: Key, last: Object) -> Stored:
        """Commits a deletion; ``last`` is the final state, under ``next_version``."""
        before = self._objects[storage].pop(key)
        after = Stored(key, last, self.next_version())
        self._commit(Commit(after.version, storage, before, after, deleted=True))
        return after

    def compact(self) -> None:
        """Forgets the history, as etcd does every five minutes."""
        self._history.clear()

    def snapshot(self) -> Snapshot:
        return Snapshot(self.version, {each: dict(all) for each, all in self._objects.items()})

    def restore(self, snapshot: Snapshot, *, raised: int = 0) -> None:
        """Everything is as it was then, the version too: the next commits have numbers that others
        had before. Unless it is ``raised`` by so many, all before which are forgotten then, as etcd
        does it on demand. No follower is told; whoever remembers more than this has to begin
        anew."""
        self._objects.clear()
        self._objects.update({each: dict(all) for each, all in snapshot.objects.items()})
        self._sorted.clear()
        self._listed.clear()
        self._history.clear()
        self.version = snapshot.version + raised

    def follow_each(self, storages: Iterable[str], follower: Follower) -> Callable[[], None]:
        """``follow`` for several kinds. Most commits are of kinds that one does not care for."""
        releases = [self.follow(storage, follower) for storage in storages]

        def release() -> None:
            for each in releases:
                each()

        return release

    def follow(
        self,
        storage: str | None,
        follower: Follower,
        *,
        within: Key = EVERYWHERE,
        ended: Callable[[], None] | None = None,
    ) -> Callable[[], None]:
        """Calls ``follower`` in every later commit (of one kind, or of all) until released, and
        ``ended`` when the kind is no longer what it was. ``within`` narrows it down to a namespace,
        to a name, or to both."""
        among = self._everything if storage is None else self._followers[storage]
        following = _Following(follower, ended, within, among)
        among.append(following)
        return following.release

    def end(self, storage: str) -> None:
        """Tells those who follow a kind that it is no longer what it was."""
        for following in list(self._followers[storage]):
            if following.ended is not None and not following.is_dead:
                following.ended()

    def _commit(self, commit: Commit) -> None:
        self.version = commit.version
        if commit.before is None or commit.deleted:
            self._sorted.pop(commit.storage, None)
        self._history.append(commit)
        self._listed[commit.storage] = {}
        if self._is_delivering:
            # A follower has committed something itself; all see that after what it followed.
            self._undelivered.append(commit)
            return
        self._is_delivering = True
        try:
            self._tell(commit)
            while self._undelivered:
                self._tell(self._undelivered.popleft())
        finally:
            self._is_delivering = False

    def _tell(self, commit: Commit) -> None:
        namespace, name = commit.after.key
        for each in (*self._followers[commit.storage], *self._everything):
            if each.lane is not None and each.lane.ended:
                each.release()
            elif (not each.name or each.name == name) and (
                not each.namespace or each.namespace == namespace
            ):
                each.told(commit)

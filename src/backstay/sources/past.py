"""The API's past: whether the API has gone back in time.

Somebody restores its store from a backup. Then it lists pods that were removed since and knows
nothing of those that were started, and what people confirmed that day counts again. Each single
read looks sound. What gives it away is the store's version: it is lower than one that we have seen.
Or that of the lease by which we agree on who leads is, which whoever leads has just written.

* The highest version seen is kept outside of the API: in a file beside the flight recorder's, where
  there is a recorder, else in memory alone.
* Only a quorum read shows that the store went back, and it is compared with what had been seen when
  it *began*: what a cache answers is old and no more than that. Every such read counts, whatever it
  was made for (``compare``), and so does a write: whoever leads renews its lease every 2 s.
* Each kind has versions of its own: it may be kept in another store than the rest.
* Whoever restores a store for Kubernetes by the book has its versions go on from a much higher one
  (``etcdutl --bump-revision``), so that no watch goes on across it. What came back with the backup
  still has the versions of then. So whoever leads finds its lease older than it has written it, at
  the next renewal; and so does whoever is about to take one that it has seen (``Trace``), or that
  stands so on its disk. And nobody writes as much as is leapt over then: a leap by more than
  100,000,000 is a way back too.
* What people have confirmed by then may have come back with the backup, and be about another day.
  It counts no more: whoever knows of it compares versions (``restored``), and writes it down.
* Whatever was learned before is about another history: ``ApiWentBack`` ends a controller, which is
  then made anew and keeps nothing but this. So it is once more when the API is accepted, if another
  led meanwhile: it may have gone back again, which only that one has noticed.
* Once noticed, it holds everything until a person arms anew, which accepts the API as it is. Each
  arming leaves another stamp on the configuration, so that one from a backup is told from it: no
  stamp counts that was seen before, nor one that is found in an API that went back once more.
* Whoever leads says so on the lease, and whoever leads next takes it over from there. So it
  outlives a controller without a disk, and people see it (``backstay status``). A standby tells
  the others (``hearsay.py``): one that has not seen it takes their word for it.

A store that counts on from a version which is but a little higher, or has grown past the highest
one, does not show it before the next renewal. A backup that is younger than the last look of
everybody never does: each looks every 2 s, and every second once it went back, because who restores
an API often does it more than once. Of whoever is killed only those looks are left that were on its
disk by then, where one is put every 10 s; how long ago that was is not known, so no leap shows.
"""

import asyncio
import logging
import math
import posixpath
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NoReturn

import msgspec

from backstay.apis.backstay import CONFIGS
from backstay.kube.client import KubeClient
from backstay.kube.errors import KubeError
from backstay.kube.lease import Trace
from backstay.kube.resource import Resource
from backstay.kube.versions import is_older
from backstay.model.labels import ARMED
from backstay.seam.clock import Rng
from backstay.seam.files import Files
from backstay.seam.tasks import Tasks

_log = logging.getLogger("backstay.past")

_FILE = "past.json"
_EVERY = 2.0
_AGAIN = 1.0
"""Seconds between two looks; and while nobody answers, or nobody has accepted that the API went
back. Whoever restores a store stops the API for it, and may do so again: it is looked at as soon as
it is back, before it has outgrown what was seen."""
_AT_LEAST = 10.0
"""Seconds between two of them for whoever sees versions anyway, as one who renews a lease; and
until it is on disk."""
_LEAP = 100_000_000
_A_SECOND = 100_000
"""More than any API counts on by while nobody looks, and in each second."""
_TIMEOUT = 10.0
_DISK = 5.0
_MOST_ARMINGS = 16
_LONGEST = 19
"""Digits of a version."""
_LONGEST_STAMP = 256
"""So much of each is kept and told: who may arm can write anything. Ours begin with the time."""


class ApiWentBack(Exception):
    """What is known of the cluster is, or may be, of a time that has not been: whoever knows it
    begins anew."""


class RolledBack(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """From which version to which, the last time; ``armed`` is the last arming that the API knew
    of then, and ``others`` are those that it does not know of any more, or may know of again.
    ``found`` is a version up to which all may have come back with the backup."""

    highest: str
    found: str
    armed: str
    others: tuple[str, ...] = ()
    lease: tuple[str, str] | None = None
    """The versions of our lease, where it was that which showed it."""

    @property
    def words(self) -> str:
        if self.lease is None:
            then = "leapt to" if is_older(self.highest, self.found) else "then"
            return f"its version was {self.highest} before, and {then} {self.found}"
        before, now = self.lease
        return f"the version of our lease was {before} before, and then {now}"


class Memory(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What is kept. ``armings`` are the last that were seen, ``restored`` is the version that was
    found when the API had gone back the last time, accepted or not; ``lease`` is the highest of our
    lease since then, and only as of when it was written down."""

    highest: str = ""
    rolled_back: RolledBack | None = None
    armings: tuple[str, ...] = ()
    restored: str = ""
    lease: str = ""


def leaps(before: str, version: str, *, seconds: float) -> bool:
    """Whether no API writes so much in that time. The manual of etcd says to raise by a billion."""
    if len(version) > _LONGEST or not is_older(before, version):
        return False
    return int(version) - int(before) > _LEAP + _A_SECOND * seconds


def step(
    memory: Memory,
    *,
    before: str,
    version: str,
    armed: str,
    leapt: bool = False,
    lease: tuple[str, str] | None = None,
) -> Memory:
    """After a quorum read that began when ``before`` was the highest, and that showed ``version``
    and the stamp of the last arming; and after that ``leapt`` there, or the ``lease`` was seen to
    go back, if it was so."""
    held, others = memory.rolled_back, tuple(each for each in memory.armings if each != armed)
    armings = (*others, armed)[-_MOST_ARMINGS:] if armed else others
    if held is not None:
        if not _is_accepted(held, armed):
            return memory
        return Memory(version, armings=armings, restored=memory.restored)
    by_version = leapt or is_older(version, before)
    if lease is not None or by_version:
        shown = None if by_version else lease
        found = RolledBack(before, version, armed, others, shown)
        return Memory(memory.highest, found, armings, version)
    known = memory.highest and not is_older(memory.highest, version)
    highest = memory.highest if known else version
    return Memory(highest, armings=armings, restored=memory.restored)


def once_more(
    memory: Memory,
    *,
    before: str,
    version: str,
    armed: str,
    lease: tuple[str, str] | None,
) -> Memory:
    """It went back again, to where this was the last arming: that of a backup as well. What shows
    that is the ``lease``, or the versions."""
    held = memory.rolled_back
    if held is None:
        return memory
    others = (*held.others, armed) if _is_accepted(held, armed) else held.others
    found = RolledBack(before, version, held.armed, others[-_MOST_ARMINGS:], lease)
    return msgspec.structs.replace(memory, rolled_back=found, restored=version)


def told_by_another(memory: Memory, told: RolledBack) -> Memory:
    """It may have gone back once more since we saw it; or this is told by nobody but the backup,
    of a way back that is long known here."""
    held, is_news = memory.rolled_back, is_older(memory.restored, told.found)
    if held is not None:
        last, first = (told, held) if is_news else (held, told)
        known = dict.fromkeys((*first.others, first.armed, *last.others))
        others = tuple(each for each in known if each not in ("", last.armed))
        told = msgspec.structs.replace(last, others=others[-_MOST_ARMINGS:])
    memory = msgspec.structs.replace(memory, rolled_back=told)
    return _up_to(memory, told.found if is_news else memory.restored or told.found)


def within(memory: Memory, version: str) -> Memory:
    """What lies beyond the API's own version was of a history that somebody has ended since. It is
    not to lie ahead: what people say next would count for as old as the backup."""
    return _up_to(memory, version) if is_older(version, memory.restored) else memory


def _up_to(memory: Memory, version: str) -> Memory:
    held = memory.rolled_back
    if held is not None:
        held = msgspec.structs.replace(held, found=version)
    return msgspec.structs.replace(memory, rolled_back=held, restored=version)


def _is_accepted(held: RolledBack, armed: str) -> bool:
    """Whether a person has armed since."""
    return armed not in ("", held.armed, *held.others)


def rolled_back(text: str) -> RolledBack | None:
    """As it stands on a lease, if it can be read."""
    try:
        return msgspec.json.decode(text, type=RolledBack)
    except (msgspec.MsgspecError, RecursionError):
        return None


class _Meta(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None


class _Config(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Configs(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    items: list[_Config] | None = None


class Past:
    """See the module. ``directory`` is empty where nothing is to be kept on disk."""

    def __init__(self, client: KubeClient, files: Files, directory: str, *, rng: Rng) -> None:
        self.lease = Trace()
        """Of our lease, since the API went back the last time. Whoever follows that is made anew
        then, with the one that takes the place of this."""
        self.trouble = ""
        """Why it is not kept on disk, where it should be."""
        self._client = client
        self._files = files
        self._path = posixpath.join(directory, _FILE) if directory else ""
        self._rng = rng
        self._memory = Memory()
        self._saved = Memory()
        self._shown: tuple[str, str] | None = None
        """From which version to which it went back, by somebody else's read or write."""
        self._seen_at: dict[str, float] = {}
        """When the highest version of a kind was seen, as far as that was in this life."""
        self._noted_at = -math.inf
        """When somebody else's read or write has last shown a version."""
        self._inherits = False
        """What is known stood on the lease, and may have been accepted long ago: nobody has taken
        it off there yet."""
        self._held_at = ""
        self._held_seen_at = 0.0
        """The highest version since it went back, until that is accepted, and when it was seen."""
        self._beside: dict[str, str] = {}
        self._hearsay: set[RolledBack] = set()
        self._has_missed = False
        """Another has told of one more way back than we had seen."""
        self.turn = asyncio.Event()
        """Set, and replaced by another, when what is known of a way back has changed."""
        self._anew = asyncio.Event()
        self._loading = asyncio.Lock()
        self._loaded = not directory

    @property
    def rolled_back(self) -> RolledBack | None:
        return self._memory.rolled_back

    @property
    def words(self) -> str:
        """How it shows that the API was rolled back; empty if it was not."""
        known = self._memory.rolled_back
        return "" if known is None else known.words

    @property
    def remark(self) -> str | None:
        """What is to stand on the lease."""
        known = self._memory.rolled_back
        return None if known is None else msgspec.json.encode(known).decode()

    def inherit(self, remark: str) -> None:
        """What the last leader has left on the lease; the next look says whether it still holds."""
        told, held = rolled_back(remark) if remark else None, self.rolled_back
        if told is None:
            return
        if held is None:
            self._become(told_by_another(self._memory, told))
            self._inherits = True
        else:
            self.hear(told)

    @property
    def restored(self) -> str:
        """Up to which version all that the API has may have come back with a backup; empty if it
        never went back."""
        return self._memory.restored

    @property
    def is_in_doubt(self) -> bool:
        """Whether something was heard that has not been judged yet."""
        return bool(self._hearsay)

    def hear(self, told: RolledBack) -> None:
        """What another controller has seen; the next look says whether it still holds."""
        if self.rolled_back is None or is_older(self.restored, told.found):
            self._hearsay.add(told)

    async def unless_it_goes_back(self, work: Coroutine[Any, Any, None]) -> None:
        """Until the work ends; or ``ApiWentBack``, when it has been cancelled and has ended."""
        async with Tasks("past") as tasks:
            worker = tasks.spawn(work, name="work")
            alarm = tasks.spawn(self._anew.wait(), name="alarm")
            await asyncio.wait({worker, alarm}, return_when=asyncio.FIRST_COMPLETED)
            if worker.done():
                return worker.result()
        self._anew.clear()
        raise ApiWentBack(self.words)

    async def run(self) -> NoReturn:
        """Looks now and then, and writes down what it saw each time: whoever is killed in the very
        moment of a restore finds on its disk how far the API had come."""
        loop, looked_at, saved_at = asyncio.get_running_loop(), -math.inf, -math.inf
        while True:
            began, pause = loop.time(), _EVERY
            if self._is_due(looked_at):
                try:
                    await self.look()
                    looked_at = began
                except KubeError as error:
                    _log.debug("cannot look at the API's version: %s", error)
                    pause = _AGAIN
            if self.rolled_back is not None:
                pause = _AGAIN
            if began >= saved_at + _AT_LEAST or self.rolled_back != self._saved.rolled_back:
                saved_at = began
                await self._save()
            await asyncio.sleep(pause * (0.95 + 0.1 * self._rng.random()))

    def _is_due(self, looked_at: float) -> bool:
        now = asyncio.get_running_loop().time()
        sees = self.rolled_back is None and not self._hearsay and self._shown is None
        return not sees or now >= min(self._noted_at + _EVERY, looked_at + _AT_LEAST)

    def compare(self, kind: Resource = CONFIGS) -> Callable[[str], None]:
        """Before somebody else's quorum read, or write; what it returns is to be told the version
        that this showed. The next look, without which nothing is done, takes it into account."""
        return partial(self._note, kind, self._highest(kind), self.turn)

    def saw(self, kind: Resource, version: str) -> None:
        """What a cache answered: it may be old, but it was there."""
        highest = self._highest(kind)
        if self._memory.rolled_back is None and is_older(highest or "0", version):
            if self._leaps(highest, version, self._seen_at.get(kind.label)):
                self._shown = self._shown or (highest, version)
            self._raise(kind, version)

    def _note(self, kind: Resource, before: str, turn: asyncio.Event, version: str) -> None:
        if self.rolled_back is not None or turn is not self.turn:
            # Where it was accepted meanwhile, what was seen before counts no more.
            return
        self._noted_at = asyncio.get_running_loop().time()
        if is_older(version, before):
            self._shown = self._shown or (before, version)
        else:
            self.saw(kind, version)

    def _leaps(self, before: str, version: str, seen_at: float | None) -> bool:
        if seen_at is None:
            return False
        return leaps(before, version, seconds=asyncio.get_running_loop().time() - seen_at)

    def _highest(self, kind: Resource) -> str:
        return self._memory.highest if kind is CONFIGS else self._beside.get(kind.label, "")

    def _raise(self, kind: Resource, version: str) -> None:
        self._seen_at[kind.label] = asyncio.get_running_loop().time()
        if kind is CONFIGS:
            self._memory = msgspec.structs.replace(self._memory, highest=version)
        else:
            self._beside[kind.label] = version

    async def look(self) -> None:
        """A quorum read, before something is done. Raises ``KubeError``."""
        await self._load()
        before, held_at, lowered = self._memory.highest, self._held_at, self.lease.lowered
        restored = self.restored
        version, armed = await self._read()
        # Several may look at once: one of them takes it into account.
        lease = lowered if self.lease.lowered is lowered else None
        if self.restored == restored:
            self._become(within(self._memory, version))
        self._look_further_back(held_at, version, armed, lease)
        was = self.rolled_back
        self._look_back(before, version, armed, lease)
        self._believe(version, armed)
        noticed = was is None and self.rolled_back is not None
        accepted = was is not None and self.rolled_back is None and not self._inherits
        self._inherits = self._inherits and self.rolled_back is not None
        if noticed or (accepted and (self.lease.followed or self._has_missed)):
            self._has_missed = False
            self.lease = Trace()
            await self._save()
            self._anew.set()

    async def _read(self) -> tuple[str, str]:
        """The API's version, and the stamp of the last arming."""
        reply = await self._client.list(CONFIGS, limit=1, timeout=_TIMEOUT)
        page = reply.into(_Configs)
        annotations = [each.metadata.annotations or {} for each in page.items or ()]
        armed = annotations[0].get(ARMED, "")[:_LONGEST_STAMP] if annotations else ""
        return page.metadata.resource_version, armed

    def _look_back(
        self, before: str, version: str, armed: str, lease: tuple[str, str] | None
    ) -> None:
        leapt = self._leaps(before, version, self._seen_at.get(CONFIGS.label))
        if self._shown is not None:
            (before, version), self._shown = self._shown, None
            leapt = is_older(before, version)
        self._become(
            step(
                self._memory, before=before, version=version, armed=armed, leapt=leapt, lease=lease
            )
        )
        if self.rolled_back is None:
            self._seen_at[CONFIGS.label] = asyncio.get_running_loop().time()

    def _look_further_back(
        self, before: str, version: str, armed: str, lease: tuple[str, str] | None
    ) -> None:
        """Once is enough to hold everything; but who has begun anew since then, and finds that it
        went back once more, knows again what has not been."""
        now = asyncio.get_running_loop().time()
        leapt = self._leaps(before, version, self._held_seen_at)
        by_version = leapt or is_older(version, before)
        if self.rolled_back is None:
            self._held_at = ""
        elif lease is not None or by_version:
            self._held_at, self._held_seen_at = version, now
            shown = None if by_version else lease
            memory = once_more(
                self._memory, before=before, version=version, armed=armed, lease=shown
            )
            self._become(memory)
            self._inherits = False
            self.lease = Trace()
            self._anew.set()
        elif not is_older(version, self._held_at):
            self._held_at, self._held_seen_at = version, now

    def _believe(self, version: str, armed: str) -> None:
        """What others have seen is ours, unless somebody has armed since."""
        if not self._hearsay:
            return
        told = [each for each in self._hearsay if not _is_accepted(each, armed)]
        self._hearsay.clear()
        self._turn_around()
        memory = self._memory
        for each in sorted(told, key=lambda each: each.words):
            memory = within(told_by_another(memory, each), version)
        if memory != self._memory:
            self._has_missed = self.rolled_back is not None
            self._become(memory)

    def _turn_around(self) -> None:
        turn, self.turn = self.turn, asyncio.Event()
        turn.set()

    def _become(self, memory: Memory) -> None:
        was, self._memory = self._memory.rolled_back, memory
        if memory.rolled_back != was:
            self._beside.clear()
            self._seen_at.clear()
            self._turn_around()
        if memory.rolled_back is not None and was is None:
            _log.error(
                "the API was rolled back (%s): nothing is taken from any node until somebody "
                "arms Backstay again",
                memory.rolled_back.words,
            )
        elif memory.rolled_back is None and was is not None:
            _log.warning("armed anew: the API is accepted as it is now")

    # On disk. Whatever is wrong with it, looking goes on.

    async def _load(self) -> None:
        async with self._loading:
            if self._loaded:
                return
            self._loaded = True
            try:
                async with asyncio.timeout(_DISK):
                    data = await self._files.read(self._path)
                self._saved = msgspec.json.decode(data, type=Memory)
            except FileNotFoundError:
                return
            except (OSError, TimeoutError, msgspec.MsgspecError) as error:
                self._complain(error)
                return
            memory = self._saved
            self._inherits = self._inherits and memory.rolled_back is None
            if self.rolled_back is not None:
                memory = told_by_another(memory, self.rolled_back)
            self._become(memory)
            self.lease.knew(self._saved.lease)

    async def _save(self) -> None:
        memory = msgspec.structs.replace(self._memory, lease=self.lease.highest)
        if not self._path or not self._loaded or memory == self._saved:
            return
        try:
            async with asyncio.timeout(_DISK):
                await self._files.write(self._path, msgspec.json.encode(memory))
        except (OSError, TimeoutError) as error:
            self._complain(error)
            return
        self._saved, self.trouble = memory, ""

    def _complain(self, error: Exception) -> None:
        why = getattr(error, "strerror", None) or str(error) or "it took too long"
        if not self.trouble:
            _log.warning("the API's version cannot be kept in %s: %s", self._path, why)
        self.trouble = f"{self._path}: {why}"

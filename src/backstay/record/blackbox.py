"""The black box: the last decisions of an incident, kept beside it in the cluster.

A flight recorder is on the disk of one controller. These frames are where everybody can reach
them: ``backstay replay --incident NAME`` makes the same decisions again on any machine. There is
one ConfigMap for each incident, in our own namespace, with one entry for each frame.

* It is bounded: the newest 20 frames, and 200 KB of them. What would be larger is left out, and
  counted.
* It never gets in the way: ``note`` only packs a frame. What is new is written together, at most
  once in ten seconds for an incident, and once more when it is closed.
* Only the leader writes, and nothing leaves after its term. It adds to what its predecessor kept:
  a frame is its own entry, and a write names the version that it adds to.
* A frame holds names, numbers and reasons. What the objects of the cluster contain beyond that,
  such as a pod's environment, is never read into a snapshot, and so cannot stand here.
"""

import asyncio
import base64
import binascii
import gzip
import hashlib
import logging
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from backstay.kube import errors
from backstay.kube.client import KubeClient
from backstay.kube.lease import Term
from backstay.kube.projection import Meta, Projection
from backstay.kube.resource import CONFIG_MAPS
from backstay.model.labels import COMPONENT, FRAMES, INCIDENT, MANAGER
from backstay.model.moments import time_text
from backstay.record.frames import FORMAT, VERSION, Frame, Header
from backstay.record.replay import NotARecording, Recording, read_recording
from backstay.seam.clock import WallClock

MOST_FRAMES = 20
MOST_BYTES = 200_000
"""Of all frames of one incident, as they are stored."""

PAUSE = 10.0
_TIMEOUT = 10.0
_HEADER = "header.json"
_LARGEST_FRAME = 16_000_000
"""Unpacked: nobody can make us fill our memory with a small entry."""

_LONGEST_NAME = 253
_PREFIX = "frames-"

_log = logging.getLogger("backstay.blackbox")


class _BoxMeta(Meta, frozen=True, rename="camel"):
    annotations: dict[str, str] | None = None


class _Stored(msgspec.Struct, frozen=True, rename="camel"):
    metadata: _BoxMeta
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


class BoxRow(msgspec.Struct, frozen=True):
    """One that is kept in the cluster. ``frames`` are base64, by their numbers."""

    key: str
    uid: str
    version: str
    name: str
    incident: str
    header: str
    frames: Mapping[str, str]


def _row(stored: _Stored) -> BoxRow:
    meta = stored.metadata
    return BoxRow(
        key=meta.key,
        uid=meta.uid,
        version=meta.resource_version,
        name=meta.name,
        incident=(meta.annotations or {}).get(INCIDENT, ""),
        header=(stored.data or {}).get(_HEADER, ""),
        frames=stored.binary_data or {},
    )


_PROJECTION: Projection[_Stored, BoxRow] = Projection(_Stored, _row)


def box_name(incident: str) -> str:
    """``frames-n1-20261116-080512``; what is too long ends in a hash of itself."""
    name = f"{_PREFIX}{incident}"
    if len(name) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(incident.encode()).hexdigest()[:10]
    return f"{name[: _LONGEST_NAME - len(digest) - 1].rstrip('-.')}-{digest}"


class _Box:
    """The frames of one node that are still to be written, and what is there already."""

    def __init__(self) -> None:
        self.incident = ""
        self.fresh: list[str] = []
        self.there: BoxRow | None = None
        self.due_at = 0.0
        self.closing = False

    def add(self, packed: str) -> None:
        self.fresh.append(packed)
        while len(self.fresh) > MOST_FRAMES or sum(map(len, self.fresh)) > MOST_BYTES:
            del self.fresh[0]


class BlackBox:
    """See the module. ``lost`` counts frames that could not be kept."""

    def __init__(
        self, client: KubeClient, *, namespace: str, program: str, wall: WallClock
    ) -> None:
        self.lost = 0
        self._client = client
        self._namespace = namespace
        self._program = program
        self._wall = wall
        self._boxes: dict[str, _Box] = {}
        self._changed = asyncio.Event()
        self._said = ""

    def note(self, frame: Frame) -> None:
        """A decision was made that is to be kept, once its node has an incident."""
        packed = pack(frame)
        if len(packed) > MOST_BYTES:
            self.lost += 1
            return
        self._boxes.setdefault(frame.node, _Box()).add(packed)
        self._changed.set()

    def opened(self, node: str, incident: str) -> None:
        """From here on the frames of this node are those of this incident; told again, nothing
        changes."""
        box = self._boxes.setdefault(node, _Box())
        if box.incident != incident:
            box.incident, box.there, box.closing = incident, None, False
            self._changed.set()

    def closed(self, node: str) -> None:
        """What is left is written, and the node forgotten."""
        box = self._boxes.get(node)
        if box is not None:
            box.closing, box.due_at = True, 0.0
            self._changed.set()

    def forget(self, node: str) -> None:
        """There is nothing wrong with the node. What an incident waits for is still written."""
        box = self._boxes.get(node)
        if box is not None and not box.incident:
            del self._boxes[node]

    async def run(self, term: Term) -> None:
        """Write until the term is over."""
        self._boxes.clear()
        while not term.over:
            self._changed.clear()
            wait = await self._write_what_is_due(term)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    async def _write_what_is_due(self, term: Term) -> float | None:
        """Seconds until the next is due; None if nothing waits."""
        loop = asyncio.get_running_loop()
        for node, box in list(self._boxes.items()):
            if box.closing and not (box.incident and box.fresh):
                del self._boxes[node]
            elif box.incident and box.fresh and box.due_at <= loop.time():
                box.due_at = loop.time() + PAUSE
                await self._write(node, box, term)
        waiting = [b.due_at for b in self._boxes.values() if b.incident and b.fresh]
        return max(0.0, min(waiting) - loop.time()) if waiting else None

    async def _write(self, node: str, box: _Box, term: Term) -> None:
        fresh = list(box.fresh)
        try:
            box.there = box.there or await self._find(box.incident)
            box.there = await self._add(box, fresh, not_after=term.require())
        except (errors.Retryable, errors.Conflict, errors.AlreadyExists, errors.TooLate) as error:
            # Somebody else has written, or nobody knows: looked at again, and tried again.
            box.there = None
            self._say(str(error))
            return
        except errors.KubeError as error:
            self.lost += len(fresh)
            self._say(str(error))
        else:
            self._said = ""
        # What came meanwhile waits for its own turn.
        box.fresh = [each for each in box.fresh if each not in fresh]
        if box.closing and not box.fresh:
            self._boxes.pop(node, None)

    async def _find(self, incident: str) -> BoxRow | None:
        try:
            reply = await self._client.get(
                CONFIG_MAPS, box_name(incident), namespace=self._namespace, timeout=_TIMEOUT
            )
        except errors.NotFound:
            return None
        return _row(reply.into(_Stored))

    async def _add(self, box: _Box, fresh: Sequence[str], *, not_after: float) -> BoxRow:
        there = box.there
        before = there.frames if there is not None else {}
        entries = _bounded(before, fresh)
        if there is None:
            reply = await self._client.create(
                CONFIG_MAPS, self._new(box.incident, entries),
                namespace=self._namespace, manager=MANAGER, timeout=_TIMEOUT, not_after=not_after,
            )  # fmt: skip
        else:
            gone: dict[str, str | None] = dict.fromkeys(before.keys() - entries.keys())
            added = {key: entries[key] for key in entries.keys() - before.keys()}
            patch = {
                "metadata": {"resourceVersion": there.version, "uid": there.uid},
                "binaryData": gone | added,
            }
            reply = await self._client.merge_patch(
                CONFIG_MAPS, there.name, patch,
                namespace=self._namespace, manager=MANAGER, timeout=_TIMEOUT, not_after=not_after,
            )  # fmt: skip
        return _row(reply.into(_Stored))

    def _new(self, incident: str, entries: Mapping[str, str]) -> Mapping[str, object]:
        header = Header(FORMAT, VERSION, self._program, time_text(self._wall.now()))
        return {
            "apiVersion": CONFIG_MAPS.api_version,
            "kind": CONFIG_MAPS.kind,
            "metadata": {
                "name": box_name(incident),
                "labels": {COMPONENT: MANAGER, FRAMES: "true"},
                "annotations": {INCIDENT: incident},
            },
            "data": {_HEADER: msgspec.json.encode(header).decode()},
            "binaryData": entries,
        }

    def _say(self, trouble: str) -> None:
        if trouble != self._said:
            _log.warning("the last decisions of an incident are not kept: %s", trouble)
        self._said = trouble

    # Those that are kept

    async def kept(self) -> list[BoxRow]:
        """All of them, of every incident."""
        reply = await self._client.list(
            CONFIG_MAPS, namespace=self._namespace, labels=f"{FRAMES}=true", timeout=_TIMEOUT
        )
        return list(_PROJECTION.page(reply.body, call=reply.call).rows)

    async def remove(self, row: BoxRow, *, not_after: float) -> None:
        await self._client.delete(
            CONFIG_MAPS, row.name, namespace=self._namespace,
            conditions={"uid": row.uid, "resource_version": row.version},
            timeout=_TIMEOUT, not_after=not_after,
        )  # fmt: skip


def _bounded(before: Mapping[str, str], fresh: Sequence[str]) -> dict[str, str]:
    """The newest of them all. Numbers go on from the highest that was ever used."""
    numbers = [int(key) for key in before if key.isdecimal()]
    last = max(numbers, default=0)
    entries = {key: before[key] for key in sorted(before) if key.isdecimal()}
    entries |= {f"{last + n:08d}": packed for n, packed in enumerate(fresh, start=1)}
    while len(entries) > MOST_FRAMES or sum(map(len, entries.values())) > MOST_BYTES:
        del entries[next(iter(entries))]
    return entries


# Packing


def pack(frame: Frame) -> str:
    return base64.b64encode(gzip.compress(msgspec.json.encode(frame), 6, mtime=0)).decode()


def unpack(packed: str) -> bytes:
    """Raises ``ValueError``."""
    inflate = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        data = inflate.decompress(base64.b64decode(packed, validate=True), _LARGEST_FRAME)
    except (zlib.error, binascii.Error) as error:
        raise ValueError(str(error)) from None
    if not inflate.eof:
        raise ValueError("it is cut off, or larger than any frame")
    return data


async def read_frames(client: KubeClient, *, namespace: str, incident: str) -> Recording:
    """What was kept of an incident. Raises ``NotARecording``, and ``NotFound`` if nothing was."""
    reply = await client.get(CONFIG_MAPS, box_name(incident), namespace=namespace)
    row = _row(reply.into(_Stored))
    lines = [row.header.encode()]
    for key in sorted(row.frames):
        try:
            lines.append(unpack(row.frames[key]))
        except ValueError as error:
            raise NotARecording(f"{row.key} is damaged: its frame {key} ({error}).") from None
    return read_recording(row.key, b"".join(line + b"\n" for line in lines))

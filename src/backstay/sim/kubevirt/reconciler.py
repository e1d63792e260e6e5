"""Reconciler: a controller of KubeVirt's, beside the embedded API.

``sim.api.Controller`` does each piece of work in one step. That is not enough here: what KubeVirt
does to a VM takes several requests, others get in between, and users see the states in between.
So these controllers work as the real ones do:

* They hear of a change a moment after it was made, in order.
* What they found when they began is what they act on, also if it is outdated by the time of their
  last request; a refusal (a conflict, most of the time) ends the attempt, which is repeated soon.
* Every request takes its time. How long is a matter of chance, and so is who comes first.
* Several keys are worked on side by side, one key never twice at once.
* Whoever has no connection to the API is refused what it asks for, until it has.
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from typing import TypeAlias

from backstay.kube.limits import Backoff
from backstay.kube.resource import EVENTS, Resource
from backstay.seam.clock import Rng
from backstay.sim.api import patches
from backstay.sim.api.kinds import KindInfo, Object
from backstay.sim.api.operations import DeleteOptions, Operations, Write
from backstay.sim.api.requests import Target
from backstay.sim.api.status import Refusal
from backstay.sim.api.store import Commit, Key, Stored
from backstay.sim.kubevirt.hands import Hands
from backstay.sim.kubevirt.names import Json

_NAME = "virt-controller"
_REQUEST = (0.001, 0.008)
_NEWS = (0.0005, 0.006)
_PARALLEL = 10
_FIRST_RETRY = 0.005
_LAST_RETRY = 60.0

Connected: TypeAlias = Callable[[], bool]
"""Whether requests reach the API."""


class Reconciler(ABC):
    """``run`` works until it is cancelled. Keys are those of the objects that it looks after, and
    ``hears`` are the kinds that it hears of."""

    hears: tuple[Resource, ...]

    def __init__(
        self, name: str, operations: Operations, *, rng: Rng, connected: Connected
    ) -> None:
        self.name = name
        self.operations = operations
        self.store = operations.store
        self.rng = rng
        self._connected = connected
        self._hands: Hands | None = None
        self._backoffs: dict[Key, Backoff] = {}
        self._context: Context | None = None
        self._last_arrival = 0.0
        self._settling: tuple[str, Key] | None = None

    @abstractmethod
    def begin(self) -> None:
        """Adds what there is to do for everything that is there already."""

    @abstractmethod
    def hear(self, commit: Commit) -> None:
        """Adds what a change gives it to do."""

    @abstractmethod
    async def reconcile(self, key: Key) -> float | None:
        """Looks at one object and does what is due; in how many seconds to look again, if so."""

    def add(self, key: Key) -> None:
        if self._hands is not None:
            self._hands.add(key)

    async def run(self) -> None:
        release = self.store.follow_each((each.label for each in self.hears), self.note)
        self._hands, self._context = Hands(_PARALLEL, self._attempt), copy_context()
        self._backoffs.clear()
        try:
            await self._hands.run(self.begin)
        finally:
            self._hands = self._context = None
            release()

    def concerns(self, commit: Commit) -> bool:
        """Whether a change can give it anything to do, as things are when it is made. What makes it
        matter later is a change of its own."""
        return True

    def note(self, commit: Commit) -> None:
        """Is called in the commit itself, by whoever made it; it is heard of later."""
        if (
            self._context is not None
            and (commit.storage, commit.after.key) != self._settling
            and self.concerns(commit)
        ):
            self._context.run(self._send, commit)

    def _send(self, commit: Commit) -> None:
        loop = asyncio.get_running_loop()
        # By the clock of this process, in whichever it was committed.
        arrival = loop.call_later(self._between(*_NEWS), self._arrive, commit)
        if arrival.when() < self._last_arrival:
            # Nothing overtakes what was sent before it.
            arrival.cancel()
            loop.call_at(self._last_arrival, self._arrive, commit)
        else:
            self._last_arrival = arrival.when()

    def _arrive(self, commit: Commit) -> None:
        if self._context is not None:
            self.hear(commit)

    async def _attempt(self, key: Key) -> float | None:
        try:
            wait = await self.reconcile(key)
        except Refusal:
            if key not in self._backoffs:
                self._backoffs[key] = Backoff(base=_FIRST_RETRY, cap=_LAST_RETRY, rng=self.rng)
            return self._backoffs[key].next()
        self._backoffs.pop(key, None)
        return wait

    # Requests. What ``settles`` leaves it nothing more to do: it does not hear of that itself,
    # because half of all looks would be at what it has just written.

    async def create(self, resource: Resource, namespace: str, obj: Json) -> Object:
        await self._travel()
        sent = {k: v for k, v in obj.items() if k not in ("apiVersion", "kind")}
        target = Target(self._info(resource), namespace)
        return self.operations.create(target, sent, _WRITE).object

    async def replace(
        self,
        resource: Resource,
        key: Key,
        obj: Object,
        subresource: str = "",
        *,
        settles: bool = False,
    ) -> Object:
        """What is sent has the version at which it was read."""
        await self._travel()
        target = Target(self._info(resource), *key, subresource)
        self._settling = (resource.label, key) if settles else None
        try:
            return self.operations.replace(target, obj, _WRITE)[0].object
        finally:
            self._settling = None

    async def patch(
        self,
        resource: Resource,
        key: Key,
        steps: list[Json],
        subresource: str = "",
        *,
        settles: bool = False,
    ) -> Object:
        """A JSON patch."""
        await self._travel()
        target = Target(self._info(resource), *key, subresource)
        self._settling = (resource.label, key) if settles else None
        try:
            return self.operations.patch(
                target, lambda obj: patches.json_patch(obj, steps), _WRITE
            ).object
        finally:
            self._settling = None

    async def delete(self, resource: Resource, key: Key) -> None:
        """As the object itself wants to be deleted."""
        await self._travel()
        self.operations.delete(Target(self._info(resource), *key), DeleteOptions(), _WRITE)

    def tell(self, resource: Resource, about: Object, reason: str, message: str) -> None:
        """An Event, for people; nobody waits for it."""
        meta, now = about["metadata"], self.operations.now()
        namespace = meta.get("namespace") or "default"
        involved = {
            "apiVersion": resource.api_version, "kind": resource.kind, "name": meta["name"],
            "uid": meta["uid"], **({"namespace": namespace} if resource.namespaced else {}),
        }  # fmt: skip
        event: Object = {
            "metadata": {"name": f"{meta['name']}.{self.rng.token(16)}"},
            "involvedObject": involved, "reason": reason, "message": message, "type": "Normal",
            "source": {"component": self.name}, "reportingComponent": self.name,
            "firstTimestamp": now, "lastTimestamp": now, "count": 1,
        }  # fmt: skip
        # A namespace that is being emptied takes none.
        with contextlib.suppress(Refusal):
            self.operations.create(Target(self._info(EVENTS), namespace), event, _WRITE)

    def find(self, resource: Resource, key: Key) -> Object | None:
        stored = self.store.get(resource.label, key)
        return stored.object if stored is not None else None

    def all(self, resource: Resource) -> Sequence[Stored]:
        return self.store.all(resource.label)

    def _info(self, resource: Resource) -> KindInfo:
        info = self.operations.kinds.find(resource.group, resource.version, resource.plural)
        if info is None:
            raise Refusal(404, "NotFound", f"the server does not serve {resource.label}")
        return info

    async def _travel(self) -> None:
        await asyncio.sleep(self._between(*_REQUEST))
        if not self._connected():
            raise Refusal(503, "ServiceUnavailable", "the connection to the server was lost")

    def _between(self, low: float, high: float) -> float:
        return low + (high - low) * self.rng.random()


_WRITE = Write(_NAME)


def tested(path: str, before: object, after: object) -> list[Json]:
    """The steps of a JSON patch that changes a value only if it is still what it was."""
    return [
        {"op": "test", "path": path, "value": before},
        {"op": "replace", "path": path, "value": after},
    ]

"""KubeVirt's stand-in beside a real control plane: its controllers for VMs and VMIs, over a client.

They were made for the embedded API, whose store they look into (``sim/kubevirt/reconciler.py``).
Here they look into a mirror of the real one instead, which is told of what they write themselves
at once: what they have just made is never made a second time because no watch has told of it yet.
Everything else about them is the same, so the timelines that hold them to the real one hold here.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import msgspec

from backstay.kube.cache import Cache
from backstay.kube.calls import Reply
from backstay.kube.client import KubeClient
from backstay.kube.errors import AlreadyExists, ApiError, KubeError
from backstay.kube.projection import Projection
from backstay.kube.reflector import Reflector
from backstay.kube.resource import PODS, Resource
from backstay.seam.system import SystemClock, SystemRng
from backstay.seam.tasks import Tasks
from backstay.sim.api.kinds import Object
from backstay.sim.api.operations import Operations, stamp
from backstay.sim.api.status import Refusal
from backstay.sim.api.store import Commit, Follower, Key, Stored
from backstay.sim.kubevirt import definitions
from backstay.sim.kubevirt.names import MIGRATIONS, VMIS, VMS, Json
from backstay.sim.kubevirt.reconciler import Reconciler
from backstay.sim.kubevirt.vm_controller import VmController
from backstay.sim.kubevirt.vmi_controller import CLAIMS, VmiController
from harness.connect import until

_SEEN = (VMS, VMIS, PODS, CLAIMS, MIGRATIONS)
_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
    namespaced=False,
)  # fmt: skip


class _Row(msgspec.Struct, frozen=True):
    key: str
    uid: str
    version: str
    body: Json


def _row(body: Json) -> _Row:
    meta = body["metadata"]
    return _Row(f"{meta['namespace']}/{meta['name']}", meta["uid"], meta["resourceVersion"], body)


class Mirror:
    """What the controllers see of the API, in one namespace, and how they write to it."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self.client = client
        self.store = self
        self._namespace = namespace
        self._caches: dict[str, Cache[_Row]] = {each.label: Cache() for each in _SEEN}
        self._objects: dict[str, dict[Key, Stored]] = {each.label: {} for each in _SEEN}
        self._gone: set[str] = set()
        self._followers: list[tuple[frozenset[str], Follower]] = []
        self._clock = SystemClock()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for resource in _SEEN:
                cache = self._caches[resource.label]
                cache.subscribe(self._listener(resource.label))
                reflector = Reflector(
                    self.client, resource, Projection(dict, _row), cache,
                    rng=SystemRng(), namespace=self._namespace,
                )  # fmt: skip
                group.create_task(reflector.run())

    @property
    def synced(self) -> bool:
        return all(cache.synced for cache in self._caches.values())

    # As the embedded API and its store have it

    def now(self) -> str:
        return stamp(self._clock.now())

    def get(self, label: str, key: Key) -> Stored | None:
        return self._objects[label].get(key)

    def all(self, label: str) -> list[Stored]:
        return list(self._objects[label].values())

    def follow_each(self, labels: Iterable[str], told: Follower) -> Callable[[], None]:
        entry = (frozenset(labels), told)
        self._followers.append(entry)
        return lambda: self._followers.remove(entry)

    # What is heard, and what was written

    def learn(self, label: str, body: Json) -> None:
        """Of what is there; what is older than what is known is no news. The answer to a write that
        took the last finalizer off can come after the word that all of it is gone."""
        meta = body["metadata"]
        if meta["uid"] in self._gone:
            return
        after = Stored((meta["namespace"], meta["name"]), body, int(meta["resourceVersion"]))
        before = self._objects[label].get(after.key)
        if before is None or before.version < after.version:
            self._objects[label][after.key] = after
            self._tell(Commit(after.version, label, before, after))

    def repeat(self, label: str, before: Stored) -> None:
        """What became of it: a watch may have told of that before the answer came."""
        known, uid = self.get(label, before.key), before.object["metadata"]["uid"]
        if known is not None and known.object["metadata"]["uid"] == uid:
            self._tell(Commit(known.version, label, known, known))
        else:
            self._tell(Commit(before.version, label, before, before, deleted=True))

    def _forget(self, label: str, row: _Row) -> None:
        self._gone.add(row.uid)
        namespace, _, name = row.key.partition("/")
        known = self._objects[label].get((namespace, name))
        if known is not None and known.object["metadata"]["uid"] == row.uid:
            del self._objects[label][known.key]
            self._tell(Commit(known.version, label, known, known, deleted=True))

    def _listener(self, label: str) -> Callable[[_Row | None, _Row | None], None]:
        def told(old: _Row | None, new: _Row | None) -> None:
            if old is not None and (new is None or new.uid != old.uid):
                self._forget(label, old)
            if new is not None:
                self.learn(label, new.body)

        return told

    def _tell(self, commit: Commit) -> None:
        for labels, told in tuple(self._followers):
            if commit.storage in labels:
                told(commit)


class _AtLarge(Reconciler):
    """Sends what it asks for over the mirror's client, and hears of all of it."""

    async def create(self, resource: Resource, namespace: str, obj: Json) -> Object:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        return await self._sent(
            resource, lambda client: client.create(resource, body, namespace=namespace)
        )

    async def replace(
        self,
        resource: Resource,
        key: Key,
        obj: Object,
        subresource: str = "",
        *,
        settles: bool = False,
    ) -> Object:
        body = {**obj, "apiVersion": resource.api_version, "kind": resource.kind}
        return await self._sent(
            resource,
            lambda client: client.replace(
                resource, key[1], body, namespace=key[0], subresource=subresource or None
            ),
        )

    async def patch(
        self,
        resource: Resource,
        key: Key,
        steps: list[Json],
        subresource: str = "",
        *,
        settles: bool = False,
    ) -> Object:
        return await self._sent(
            resource,
            lambda client: client.json_patch(
                resource, key[1], steps, namespace=key[0], subresource=subresource or None
            ),
        )

    async def delete(self, resource: Resource, key: Key) -> None:
        before = self._mirror.get(resource.label, key)
        with suppress(KubeError):
            await self._mirror.client.delete(resource, key[1], namespace=key[0])
        if before is not None:
            self._mirror.repeat(resource.label, before)

    def tell(self, resource: Resource, about: Object, reason: str, message: str) -> None:
        """Nobody here reads it."""

    @property
    def _mirror(self) -> Mirror:
        return cast("Mirror", self.operations)

    async def _sent(self, resource: Resource, send: Callable[[KubeClient], Any]) -> Object:
        try:
            reply: Reply = await send(self._mirror.client)
        except KubeError as error:
            code = error.code if isinstance(error, ApiError) else 503
            raise Refusal(code, type(error).__name__, str(error)) from None
        body: Json = reply.json()
        self._mirror.learn(resource.label, body)
        return body


class _Vms(_AtLarge, VmController):
    pass


class _Vmis(_AtLarge, VmiController):
    pass


@asynccontextmanager
async def kubevirt_at_large(client: KubeClient, namespace: str) -> AsyncIterator[None]:
    """Until the end VMs of this namespace are run, on nodes that have a virt-handler."""
    for definition in definitions():
        with suppress(AlreadyExists):
            await client.create(_DEFINITIONS, definition)
    await until(client, _DEFINITIONS, lambda found: all(map(_is_served, found)))
    mirror = Mirror(client, namespace)
    operations = cast("Operations", mirror)
    controllers = [
        each(operations, rng=SystemRng(), connected=lambda: True) for each in (_Vms, _Vmis)
    ]
    async with Tasks("kubevirt") as tasks:
        tasks.spawn(mirror.run(), name="mirror")
        while not mirror.synced:  # noqa: ASYNC110 - caches tell nobody
            await asyncio.sleep(0.05)
        for controller in controllers:
            tasks.spawn(controller.run(), name=controller.name)
        yield


def _is_served(definition: Json) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

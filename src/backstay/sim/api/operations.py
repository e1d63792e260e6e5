"""Operations: the verbs that change something, each of them one step that happens or does not.

The order of checks is the server's: find, preconditions, mutate, defaults, admission, what may
not change, rules, validation, commit. Nothing in here awaits, so two requests can never be
half-way at once.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from backstay.seam.clock import Rng, WallClock
from backstay.sim.api import gotext, managed, names, status
from backstay.sim.api.admission import Admission
from backstay.sim.api.kinds import KindInfo, Kinds, Object
from backstay.sim.api.requests import Target
from backstay.sim.api.rules import KindRules
from backstay.sim.api.shapes import shape_of_kind
from backstay.sim.api.status import Cause
from backstay.sim.api.store import Store, Stored

_FOREGROUND = "foregroundDeletion"
_ORPHAN = "orphan"
_ATTEMPTS_AT_A_NAME = 8


class Write(msgspec.Struct, frozen=True):
    """Who writes, and whether in earnest."""

    manager: str
    dry_run: bool = False
    operation: str = "Update"


Mutator: TypeAlias = Callable[[Object, Object, Write], Object]
"""Of the object as it is, what was sent, and who sent it: what is to be taken for sent."""


class DeleteOptions(msgspec.Struct, frozen=True):
    """How to delete; ``propagation`` is Background, Foreground, Orphan or empty. Whether it is
    a dry run is said here by those who delete, and passed on in the ``Write``."""

    grace: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    propagation: str = ""
    dry_run: bool = False


class Deleted(msgspec.Struct, frozen=True):
    """What a deletion led to: ``gone``, or still there and on its way."""

    stored: Stored
    gone: bool


class Operations:
    """Changes to one store."""

    def __init__(
        self,
        store: Store,
        kinds: Kinds,
        rules: Callable[[KindInfo], KindRules],
        *,
        wall: WallClock,
        rng: Rng,
    ) -> None:
        self.store = store
        self.kinds = kinds
        self.rules = rules
        self._admission = Admission(store)
        self._wall = wall
        self._rng = rng
        self._mutators: dict[str, Mutator] = {}

    def mutate(self, storage: str, mutator: Mutator) -> None:
        """Asks what becomes of an update of this kind, as a mutating webhook is asked."""
        self._mutators[storage] = mutator

    def now(self) -> str:
        return stamp(self._wall.now())

    def find(self, target: Target) -> Stored:
        found = self.store.get(target.info.storage, target.key)
        if found is None:
            raise status.not_found(target.info, target.name)
        return found

    # Creating

    def create(self, target: Target, sent: Object, write: Write) -> Stored:
        """``sent`` is without kind and apiVersion; the target has no name yet."""
        info = target.info
        rules = self.rules(info)
        meta = _said(sent.get("metadata") or {})
        self._place(target, meta)
        self._name(info, target.namespace, meta)
        said = rules.defaulted(rules.complete({**sent, "metadata": meta}))
        named = sent.get("metadata") or {}
        shown = named.get("name") or named.get("generateName") or ""
        self._enter_namespace(info, target.namespace, shown)
        obj = rules.on_create(self._admission.create(target, said))
        meta = dict(obj["metadata"])
        obj = {**obj, "metadata": meta}
        causes = [
            *names.check(info, meta),
            *names.check_marks(meta, {}),
            *names.check_finalizers(info, meta, None),
            *rules.validate(obj, None),
        ]
        if causes:
            raise status.invalid(info, meta.get("name", ""), causes)
        key = (target.namespace, meta["name"])
        if self.store.get(info.storage, key) is not None:
            raise status.already_exists(info, key[1])
        if meta.get("resourceVersion"):
            raise status.Refusal(
                500, "", "resourceVersion should not be set on objects to be created"
            )
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            meta.pop(field, None)
        meta["uid"] = self._uid()
        now = meta["creationTimestamp"] = self.now()
        if rules.generation:
            meta["generation"] = 1
        else:
            meta.pop("generation", None)
        if write.operation != "Apply":
            tracked = self._tracked(target, rules, None, rules.as_stored(said), write, now)
            _take_managed_fields(meta, tracked["metadata"])
        return self._commit(target, key, None, rules.as_stored(obj), write)

    def _place(self, target: Target, meta: dict[str, Any]) -> None:
        if not target.info.namespaced:
            meta.pop("namespace", None)
            return
        names.check_namespace(target, meta)
        meta["namespace"] = target.namespace

    def _name(self, info: KindInfo, namespace: str, meta: dict[str, Any]) -> None:
        prefix = meta.get("generateName")
        if meta.get("name") or not prefix:
            return
        for _ in range(_ATTEMPTS_AT_A_NAME):
            meta["name"] = names.generated(prefix, self._rng)
            if self.store.get(info.storage, (namespace, meta["name"])) is None:
                return

    def _enter_namespace(self, info: KindInfo, namespace: str, name: str) -> None:
        if not info.namespaced:
            return
        holder = self.store.get("namespaces", ("", namespace))
        if holder is None:
            namespaces = self.kinds.find("", "v1", "namespaces")
            assert namespaces is not None
            raise status.not_found(namespaces, namespace)
        if holder.object["metadata"].get("deletionTimestamp"):
            why = (
                f"unable to create new content in namespace {namespace} because it is being "
                "terminated"
            )
            ending = Cause("NamespaceTerminating", f"namespace {namespace} is being terminated",
                           "metadata.namespace")  # fmt: skip
            raise status.forbidden(info, name, why, [ending])

    def _uid(self) -> str:
        digits = self._rng.token(32).translate(_HEX)
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    # Changing

    def replace(self, target: Target, sent: Object, write: Write) -> tuple[Stored, bool]:
        """The stored object, and whether it was created."""
        info = target.info
        rules = self.rules(info)
        meta = sent.get("metadata") or {}
        if not meta.get("name"):
            raise status.bad_request(
                f"the name of the object ({target.name} based on URL) was undeterminable: name "
                "must be provided"
            )
        names.check_against_url(target, meta)
        found = self.store.get(info.storage, target.key)
        if found is None:
            if not rules.create_on_update or target.subresource:
                raise status.not_found(info, target.name)
            collection = msgspec.structs.replace(target, name="")
            return self.create(collection, sent, write), True
        if not meta.get("resourceVersion") and not rules.blind_update:
            raise status.no_version(info, target.name)
        uid = meta.get("uid")
        if uid and uid != found.object["metadata"]["uid"]:
            raise _other_uid(target, uid, found.object["metadata"]["uid"])
        return self._update(target, found, sent, write), False

    def patch(self, target: Target, change: Callable[[Object], Object], write: Write) -> Stored:
        """``change`` sees the object with kind and apiVersion, as clients do."""
        found = self.find(target)
        changed = self._patched(target, change(self.full(target.info, found.object)))
        names.check_against_url(target, changed.get("metadata") or {})
        return self._update(target, found, changed, write)

    def apply(
        self, target: Target, applied: Object, write: Write, *, force: bool
    ) -> tuple[Stored, bool]:
        """Server-side apply: the stored object, and whether it was created."""
        found = self.store.get(target.info.storage, target.key)
        names.check_against_url(target, applied.get("metadata") or {})
        if found is None and target.subresource:
            raise status.not_found(target.info, target.name)
        uid = (applied.get("metadata") or {}).get("uid")
        if found is None and uid:
            why = (
                f"uid mismatch: the provided object specified uid {uid}, and no existing object "
                "was found"
            )
            raise status.conflict(target.info, target.name, why)
        merged = managed.apply(
            found.object if found else None, applied,
            manager=write.manager, force=force, subresource=target.subresource,
            now=self.now(), api_version=target.info.api_version,
            shape=shape_of_kind(target.info, self.kinds),
            kind=target.info.kind, built_in=target.info.built_in,
            reset=self.rules(target.info).kept(target.subresource),
        )  # fmt: skip
        if found is None:
            merged["metadata"]["name"] = target.name
            return self.create(msgspec.structs.replace(target, name=""), merged, write), True
        return self._update(target, found, merged, write), False

    def _patched(self, target: Target, obj: Object) -> Object:
        try:
            return strip(target.info, obj, self.kinds)
        except status.Refusal as refusal:
            if not target.info.built_in:
                raise
            why = refusal.message.partition(f" cannot be handled as a {target.info.kind}: ")[2]
            quoted = gotext.quoted(gotext.json_text(obj))
            cause = Cause("FieldValueInvalid", f"Invalid value: {quoted}: {why}", "patch")
            message = f' "" is invalid: patch: {cause.message}'
            raise status.Refusal(422, "Invalid", message, causes=[cause]) from None

    def full(self, info: KindInfo, obj: Object) -> Object:
        return {"apiVersion": info.api_version, "kind": info.kind, **obj}

    def _update(self, target: Target, found: Stored, sent: Object, write: Write) -> Stored:
        info, old, before = target.info, found.object, found.object["metadata"]
        rules = self.rules(info)
        _check_version(target, found, sent.get("metadata") or {})
        if (mutator := self._mutators.get(info.storage)) is not None:
            sent = mutator(old, sent, write)
        said = sent.get("metadata") or {}
        causes: list[Cause] = []
        if said is before:
            # Nothing is said of it, so there is nothing to keep and nothing to check.
            new = self._changed(target, rules, {**sent, "metadata": dict(before)}, old)
        else:
            meta = _kept_meta(before, said)
            if write.operation == "Update" and "managedFields" in before:
                meta["managedFields"] = before["managedFields"]
            new = self._changed(target, rules, {**sent, "metadata": meta}, old)
            causes += _immutable_uid(said, before)
            causes += names.check_marks(new["metadata"], before)
            causes += names.check_finalizers(info, new["metadata"], before)
        causes += rules.validate(new, old)
        if causes:
            raise status.invalid(info, target.name, causes)
        if (
            rules.generation
            and target.subresource != "status"
            and rules.spec_of(new) != rules.spec_of(old)
        ):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        new = self._tracked(target, rules, old, rules.as_stored(new), write, self.now())
        if new == old:
            return found
        meta = new["metadata"]
        waits = meta.get("finalizers") or meta.get("deletionGracePeriodSeconds")
        if meta.get("deletionTimestamp") and not waits and not rules.is_held(new):
            return self._remove(target, found, new, write)
        return self._commit(target, target.key, found, new, write)

    def _changed(self, target: Target, rules: KindRules, new: Object, old: Object) -> Object:
        """What becomes of an update, by what may be changed where it was sent."""
        if target.subresource == "status":
            return rules.on_status_update(new, old)
        new = rules.defaulted(rules.complete(new))
        if target.subresource:
            return rules.on_subresource_update(target.subresource, new, old)
        return rules.on_update(self._admission.update(target, new, old), old)

    # Deleting

    def delete(self, target: Target, options: DeleteOptions, write: Write) -> Deleted:
        found = self.find(target)
        rules = self.rules(target.info)
        self._check_deletion(target, found, options)
        meta = dict(found.object["metadata"])
        if not meta.get("deletionTimestamp"):
            begun = rules.begin_deletion(found.object, self.now())
            if begun is not None:
                return Deleted(self._commit(target, target.key, found, begun, write), False)
        elif rules.is_held(found.object):
            return Deleted(found, False)
        grace = rules.grace(found.object, options.grace)
        finalizers = _finalizers_for(meta.get("finalizers") or [], options.propagation)
        changed = dict(found.object)
        changed["metadata"] = meta
        if finalizers:
            meta["finalizers"] = finalizers
        else:
            meta.pop("finalizers", None)
        if not grace and not finalizers:
            if rules.graceful:
                self._mark_deleting(meta, grace)
            return Deleted(self._remove(target, found, changed, write), True)
        self._mark_deleting(meta, grace)
        if meta == found.object["metadata"]:
            return Deleted(found, False)
        return Deleted(self._commit(target, target.key, found, changed, write), False)

    def _check_deletion(self, target: Target, found: Stored, options: DeleteOptions) -> None:
        meta = found.object["metadata"]
        for what, asked, actual, perhaps in (
            ("UID", options.uid, meta["uid"], "deleted and then recreated"),
            ("ResourceVersion", options.resource_version, meta["resourceVersion"], "modified"),
        ):
            if asked is not None and asked != actual:
                raise status.precondition(target.info, target.name, (
                    f"the {what} in the precondition ({asked}) does not match the {what} in "
                    f"record ({actual}). The object might have been {perhaps}"
                ))  # fmt: skip

    def _mark_deleting(self, meta: dict[str, Any], grace: int) -> None:
        """A deletion can be hurried by a later one, never delayed."""
        before = meta.get("deletionGracePeriodSeconds")
        if meta.get("deletionTimestamp"):
            if before is None or grace >= before:
                return
            began = parse_stamp(meta["deletionTimestamp"]) - timedelta(seconds=before)
            meta["deletionTimestamp"] = stamp(began + timedelta(seconds=grace))
        else:
            meta["deletionTimestamp"] = stamp(self._wall.now() + timedelta(seconds=grace))
            if meta.get("generation"):
                meta["generation"] += 1
        meta["deletionGracePeriodSeconds"] = grace

    # Committing

    def enact(self, target: Target, found: Stored, obj: Object, write: Write) -> Stored:
        """A change of the server's own, which no rule looks at and nobody comes to own."""
        return self._commit(target, target.key, found, obj, write)

    def _tracked(
        self,
        target: Target,
        rules: KindRules,
        old: Object | None,
        new: Object,
        write: Write,
        now: str,
    ) -> Object:
        if write.operation == "Apply":
            return new
        return managed.track_update(
            old, new,
            manager=write.manager, operation="Update", api_version=target.info.api_version,
            subresource=target.subresource, now=now,
            shape=shape_of_kind(target.info, self.kinds), reset=rules.kept(target.subresource),
        )  # fmt: skip

    def _commit(
        self, target: Target, key: tuple[str, str], found: Stored | None, obj: Object, write: Write
    ) -> Stored:
        if write.dry_run:
            return Stored(key, obj, found.version if found else 0)
        return self.store.put(target.info.storage, key, self._versioned(obj))

    def _remove(self, target: Target, found: Stored, last: Object, write: Write) -> Stored:
        if write.dry_run:
            return Stored(found.key, last, found.version)
        return self.store.remove(target.info.storage, found.key, self._versioned(last))

    def _versioned(self, obj: Object) -> Object:
        version = str(self.store.next_version())
        return {**obj, "metadata": {**obj["metadata"], "resourceVersion": version}}


_SERVER_OWNED = (
    "name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation",
    "deletionTimestamp", "deletionGracePeriodSeconds", "generateName",
)  # fmt: skip

_HEX = str.maketrans("ghijklmnopqrstuvwxyz", "0123456789abcdef0123")


# Where a kind is kept, if not under its own name.
_REGISTRY = {"nodes": "minions", "services": "services/specs", "endpoints": "services/endpoints"}


def _other_uid(target: Target, asked: str, actual: str) -> status.Refusal:
    plural = target.info.plural
    place = "/".join(filter(None, (_REGISTRY.get(plural, plural), *target.key)))
    why = (
        f"StorageError: invalid object, Code: 4, Key: /registry/{place}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {asked}, UID in object "
        f"meta: {actual}"
    )
    return status.conflict(target.info, target.name, why)


def _check_version(target: Target, found: Stored, said: dict[str, Any]) -> None:
    version = said.get("resourceVersion")
    if not version or version == found.object["metadata"]["resourceVersion"]:
        return
    if not version.isdecimal():
        why = f'strconv.ParseUint: parsing "{version}": invalid syntax'
        raise status.Refusal(500, "", why)
    raise status.stale(target.info, target.name)


def _said(meta: dict[str, Any]) -> dict[str, Any]:
    """What a client says of the metadata: what is empty says nothing."""
    return {k: v for k, v in meta.items() if v or (v is not None and v != {} and v != [])}


def _kept_meta(old: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    """The same, except for what is not a client's to say."""
    meta = _said(said)
    for field in _SERVER_OWNED:
        if field in old:
            meta[field] = old[field]
        elif field in meta:
            del meta[field]
    return meta


def _immutable_uid(sent: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    uid = sent.get("uid")
    if not uid or uid == old["uid"]:
        return []
    return [Cause("FieldValueInvalid", f'Invalid value: "{uid}": field is immutable',
                  "metadata.uid")]  # fmt: skip


def strip(info: KindInfo, obj: Object, kinds: Kinds) -> Object:
    """An object as it is stored: without kind and apiVersion, which must be this kind's."""
    version, kind = obj.get("apiVersion"), obj.get("kind")
    if info.built_in and ((version or info.api_version), (kind or info.kind)) != (
        info.api_version,
        info.kind,
    ):
        raise _another_kind(info, version or info.api_version, kind or info.kind, kinds)
    if version and version != info.api_version:
        raise status.bad_request(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({info.api_version})"
        )
    if kind and kind != info.kind:
        raise status.other_kind(info, (obj.get("metadata") or {}).get("name", ""), kind)
    return {k: v for k, v in obj.items() if k not in ("apiVersion", "kind")}


def _another_kind(info: KindInfo, version: str, kind: str, kinds: Kinds) -> status.Refusal:
    if any((k.api_version, k.kind) == (version, kind) for k in kinds):
        short, internal = version.rpartition("/")[2], info.group.partition(".")[0] or "core"
        why = f"converting ({short}.{kind}) to ({internal}.{info.kind}): unknown conversion"
    else:
        why = (
            f'no kind "{kind}" is registered for version "{version}" in scheme '
            '"pkg/runtime/scheme.go:111"'
        )
    return status.bad_request(
        f'{kind} in version "{version}" cannot be handled as a {info.kind}: {why}'
    )


def _take_managed_fields(meta: dict[str, Any], tracked: dict[str, Any]) -> None:
    meta.pop("managedFields", None)
    if "managedFields" in tracked:
        meta["managedFields"] = tracked["managedFields"]


_SECONDS = tuple(f"{second:02}Z" for second in range(60))


def stamp(moment: datetime) -> str:
    # Every write has a stamp, and most are of the minute of the last one.
    begin = _minute(moment.year, moment.month, moment.day, moment.hour, moment.minute)
    return begin + _SECONDS[moment.second]


@lru_cache(maxsize=256)
def _minute(year: int, month: int, day: int, hour: int, minute: int) -> str:
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:"


def parse_stamp(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _finalizers_for(finalizers: list[str], propagation: str) -> list[str]:
    """Foreground and orphan deletion are finalizers that the garbage collector takes off."""
    kept = [f for f in finalizers if f not in (_FOREGROUND, _ORPHAN)] if propagation else finalizers
    if propagation == "Foreground":
        return [*kept, _FOREGROUND]
    if propagation == "Orphan":
        return [*kept, _ORPHAN]
    return list(kept)

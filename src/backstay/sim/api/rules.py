"""Rules: what each kind does of its own when it is written or deleted.

``KindRules`` is how most kinds behave; ``kind_rules.py`` has those that differ, one class each,
in one table. A rule sees whole objects and returns new ones; it never reads the store.
"""

from collections.abc import Sequence

from backstay.sim.api import fieldsets
from backstay.sim.api.fieldsets import FieldSet
from backstay.sim.api.kinds import KindInfo, Object, facts
from backstay.sim.api.status import Cause

_STATUS = fieldsets.of([("status",)])


class KindRules:
    """The rules of one kind.

    ``generation``: whether a change of the spec raises ``metadata.generation``.
    ``create_on_update``: whether a PUT may create. ``blind_update``: whether a PUT may come
    without a resourceVersion. ``returns_deleted``: whether DELETE answers with the object.
    ``graceful``: whether what is deleted is marked so first, even if it goes at once.
    ``kept_by_status``: what an update of the status subresource cannot change.
    """

    generation = False
    create_on_update = False
    blind_update = True
    returns_deleted = False
    graceful = False
    kept_by_status: FieldSet = fieldsets.of([("spec",)])

    def __init__(self, info: KindInfo) -> None:
        self.info = info
        self.has_status = "status" in info.subresources
        self._parts = _parts(info)
        of_object = _STATUS if self.has_status else fieldsets.EMPTY
        self._kept = {"": of_object, "status": self.kept_by_status}

    def kept(self, subresource: str) -> FieldSet:
        """The fields that a write to this subresource cannot change, and nobody comes to own."""
        return self._kept.get(subresource, fieldsets.EMPTY)

    def complete(self, obj: Object) -> Object:
        """With the parts that every object of the kind has, empty if need be."""
        if not self._parts:
            return obj
        missing: Object = {part: {} for part in self._parts if obj.get(part) is None}
        return {**obj, **missing} if missing else obj

    def defaulted(self, obj: Object) -> Object:
        """With what the server fills in where a writer was silent. The writer owns that."""
        return obj

    def on_create(self, obj: Object) -> Object:
        """Away with what a creator may not say (such as a status), and what the server adds of
        its own. Nobody owns that."""
        return self.complete(with_field(obj, "status", None)) if self.has_status else obj

    def on_update(self, new: Object, old: Object) -> Object:
        """What an update of the main resource may not change stays as it was."""
        return with_field(new, "status", old.get("status")) if self.has_status else new

    def on_status_update(self, new: Object, old: Object) -> Object:
        """What an update of the status subresource may not change stays as it was."""
        return with_field(new, "spec", old.get("spec"))

    def on_subresource_update(self, subresource: str, new: Object, old: Object) -> Object:
        """What an update of another subresource may not change stays as it was."""
        return self.on_update(new, old)

    def validate(self, new: Object, old: Object | None) -> Sequence[Cause]:
        """Every reason why ``new`` cannot be; ``old`` is None for a creation."""
        return ()

    def grace(self, obj: Object, requested: int | None) -> int:
        """Seconds between a deletion and the end; 0 is at once."""
        return 0

    def begin_deletion(self, obj: Object, now: str) -> Object | None:
        """What a first DELETE makes of an object that more than its metadata keeps; None for
        those that nothing else keeps. May raise a ``Refusal``."""
        return None

    def is_held(self, obj: Object) -> bool:
        """Whether more than its metadata keeps an object whose deletion has begun."""
        return False

    def as_stored(self, obj: Object) -> Object:
        """An object that has passed every check, in the form in which it is kept."""
        return obj

    def unknown_fields(self, obj: Object) -> Sequence[str]:
        """The fields that the kind does not have, as paths."""
        return ()

    def spec_of(self, obj: Object) -> object:
        """What ``generation`` counts changes of."""
        return obj.get("spec")


def _parts(info: KindInfo) -> tuple[str, ...]:
    schema = facts().types.get(info.type) if info.built_in else None
    fields = (schema.fields if schema is not None else None) or {}
    return tuple(
        name
        for name, each in fields.items()
        if name != "metadata" and each.always and each.default == {}
    )


def with_field(obj: Object, field: str, value: object) -> Object:
    """A copy with one field as given; None takes it away."""
    if obj.get(field) is value:
        return obj
    changed = dict(obj)
    if value is None:
        changed.pop(field, None)
    else:
        changed[field] = value
    return changed

"""Managed fields: who owns which field of an object, and server-side apply, which goes by that.

Each entry of ``metadata.managedFields`` belongs to a manager, an operation and a subresource.

* Whoever writes a value by create, update or patch (``track_update``) owns it from then on, and
  everybody else loses it. A removed field is nobody's.
* Whoever applies (``apply``) says everything that it wants to own. A field that it said the last
  time and does not say now is removed, unless somebody else owns it. A value that is not what
  its other owner wants is a conflict, and with ``force`` that owner loses it. Values on which
  all agree have several owners.
* An entry's time is when its manager last changed the object, so an apply that changes nothing
  leaves everything as it was.

Objects of all versions of a kind are taken to have the same fields.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from backstay.sim.api import fieldsets, gotext, structured
from backstay.sim.api.fieldsets import EMPTY, FieldSet, difference, intersection, union
from backstay.sim.api.kinds import Object
from backstay.sim.api.patches import same
from backstay.sim.api.shapes import Shape
from backstay.sim.api.status import Cause, Refusal, bad_request

UPDATE = "Update"
APPLY = "Apply"

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_MOST_UPDATERS = 10
_KUBECTL = "kubectl"

# What the server itself sets, or what says which object it is; nobody owns that.
_NOBODYS = fieldsets.of(
    [("apiVersion",), ("kind",), ("metadata",)]
    + [
        ("metadata", field)
        for field in (
            "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName",
            "generation", "managedFields", "resourceVersion",
        )
    ]
)  # fmt: skip


class Owner(NamedTuple):
    """What makes two entries the same one. Appliers stay the same in every version."""

    manager: str
    operation: str
    version: str
    subresource: str


class Claim(NamedTuple):
    """What an owner owns, and since when; ``time`` is empty if it never changed anything."""

    version: str
    time: str
    fields: FieldSet


Claims = dict[Owner, Claim]


class ApplyConflicts(Refusal):
    """Others own fields that were applied with another value."""

    def __init__(self, conflicts: Mapping[Owner, FieldSet]) -> None:
        by_name = sorted(conflicts.items(), key=lambda conflict: _identifier(conflict[0]))
        found = [(owner, path) for owner, fields in by_name for path in fieldsets.paths(fields)]
        super().__init__(
            409,
            "Conflict",
            _conflict_message(found),
            causes=[
                Cause("FieldManagerConflict", f"conflict with {_described(owner)}", path)
                for owner, path in found
            ],
        )


def _conflict_message(found: list[tuple[Owner, str]]) -> str:
    if len(found) == 1:
        owner, path = found[0]
        return f"Apply failed with 1 conflict: conflict with {_described(owner)}: {path}"
    lines = []
    for index, (owner, path) in enumerate(found):
        if index == 0 or found[index - 1][0] != owner:
            lines.append(f"conflicts with {_described(owner)}:")
        lines.append(f"- {path}")
    return f"Apply failed with {len(found)} conflicts: " + "\n".join(lines)


def _described(owner: Owner) -> str:
    text = gotext.quoted(owner.manager)
    if owner.subresource:
        text += f" with subresource {gotext.quoted(owner.subresource)}"
    return f"{text} using {owner.version}" if owner.operation == UPDATE else text


def _identifier(owner: Owner) -> bytes:
    """By this text the server sorts owners."""
    named = {"manager": owner.manager, "operation": owner.operation, "apiVersion": owner.version,
             "subresource": owner.subresource}  # fmt: skip
    return msgspec.json.encode({key: value for key, value in named.items() if value})


# Entries


def _read(entries: Any) -> Claims:
    return {
        _owner_of(entry): Claim(
            entry["apiVersion"], entry.get("time", ""), entry.get("fieldsV1", EMPTY)
        )
        for entry in entries or ()
    }


def _owner_of(entry: Object) -> Owner:
    operation: str = entry["operation"]
    return Owner(
        entry.get("manager", ""),
        operation,
        entry["apiVersion"] if operation == UPDATE else "",
        entry.get("subresource", ""),
    )


def _is_of(entry: Object, updater: Owner) -> bool:
    """The same as to compare its owner, for one that is asked for at every write."""
    return bool(
        entry["manager"] == updater.manager
        and entry["operation"] == UPDATE
        and entry["apiVersion"] == updater.version
        and entry.get("subresource", "") == updater.subresource
    )


def _read_sent(entries: Any) -> list[Object] | None:
    """Entries as a client sent them, in our form; None if they are not valid."""
    try:
        for entry in entries:
            if entry["operation"] not in (UPDATE, APPLY) or entry["fieldsType"] != "FieldsV1":
                return None
            if not entry["apiVersion"]:
                return None
        read = [{**entry, "fieldsV1": fieldsets.read(entry["fieldsV1"])} for entry in entries]
        return _written(_read(read))
    except (KeyError, TypeError, ValueError):
        return None


def _written(claims: Claims) -> list[Object]:
    entries = [_entry(owner, claim) for owner, claim in claims.items()]
    entries.sort(key=_place)
    return entries


def _place(entry: Object) -> tuple[str, ...]:
    """By this the server orders entries: appliers first, then by time, then by name."""
    return (
        entry["operation"],
        entry.get("time", ""),
        entry["manager"],
        entry["apiVersion"],
        entry.get("subresource", ""),
    )


def _entry(owner: Owner, claim: Claim) -> Object:
    entry: Object = {
        "manager": owner.manager,
        "operation": owner.operation,
        "apiVersion": claim.version,
    }
    if claim.time:
        entry["time"] = claim.time
    entry["fieldsType"] = "FieldsV1"
    entry["fieldsV1"] = claim.fields
    if owner.subresource:
        entry["subresource"] = owner.subresource
    return entry


def _managed(obj: Object, entries: list[Object]) -> Object:
    """The object with these entries; the same object if it has them already."""
    meta = _meta(obj)
    if meta.get("managedFields") == (entries or None):
        return obj
    meta = dict(meta)
    meta.pop("managedFields", None)
    if entries:
        meta["managedFields"] = entries
    return {**obj, "metadata": meta}


def _without(claims: Claims, fields: FieldSet) -> Claims:
    """What remains to everybody when these fields are no longer theirs."""
    if not fields:
        return claims
    remaining: Claims = {}
    for owner, claim in claims.items():
        kept = difference(claim.fields, fields)
        if kept:
            remaining[owner] = claim if kept is claim.fields else claim._replace(fields=kept)
    return remaining


# Create, update and patch


def track_update(
    before: Object | None,
    after: Object,
    *,
    manager: str,
    operation: str,
    api_version: str,
    subresource: str,
    now: str,
    shape: Shape,
    reset: FieldSet = EMPTY,
) -> Object:
    """``after`` with the managed fields that follow from its difference to ``before``.

    ``reset`` are fields that this request cannot change, such as the status.
    """
    kept = before["metadata"].get("managedFields") if before is not None else None
    entries = _entries_for_update(kept or [], after, subresource)
    if not entries and before is not None:
        # Somebody has asked for an object without managed fields.
        return _managed(after, [])
    try:
        put, gone = _changes(before, after, shape, reset)
    except structured.Mismatch:
        # A list has items that nothing identifies: then nobody can keep account.
        return _managed(after, [])
    owner = Owner(manager or "unknown", operation, api_version, subresource)
    return _managed(after, _handed_over(entries, owner, put, gone, now))


def _handed_over(
    entries: list[Object], owner: Owner, put: FieldSet, gone: FieldSet, now: str
) -> list[Object]:
    """The entries once an owner has put some fields and others are gone. They are changed as they
    are, because most writes change one of them, and most of those nothing but its time."""
    mine = difference(put, _NOBODYS)
    kept: list[Object] = []
    for entry in entries:
        fields = entry["fieldsV1"]
        left = difference(fields, gone) if gone else fields
        if mine and _is_of(entry, owner):
            mine = union(left, mine)
            continue
        left = difference(left, put)
        if left is fields:
            kept.append(entry)
        elif left:
            kept.append({**entry, "fieldsV1": left})
    if mine:
        kept.append(_entry(owner, Claim(owner.version, now, mine)))
        # Whoever wrote last is last, unless somebody else wrote in the same second.
        if len(kept) > 1 and kept[-2].get("time", "") >= now:
            kept.sort(key=_place)
    return kept if len(kept) <= _MOST_UPDATERS else _written(_capped(_read(kept)))


def _changes(
    before: Object | None, after: Object, shape: Shape, reset: FieldSet
) -> tuple[FieldSet, FieldSet]:
    """The fields that were written, and those that were removed."""
    if before is None:
        put, gone = structured.created(after, shape), EMPTY
    else:
        put, gone = structured.changes(before, after, shape)
    if reset:
        put = fieldsets.without(put, reset)
        gone = fieldsets.without(gone, reset) if gone else gone
    return put, gone


def _entries_for_update(kept: list[Object], after: Object, subresource: str) -> list[Object]:
    """Clients that know nothing of managed fields drop them, and others may edit them."""
    sent = after["metadata"].get("managedFields")
    if sent is None or sent is kept or sent == kept or subresource:
        return kept
    if sent in ([], [{}]):
        return []
    read = _read_sent(sent)
    return kept if read is None else read


def _capped(claims: Claims) -> Claims:
    """The oldest updaters become one, so that their number stays small."""
    updaters = [owner for owner in claims if owner.operation == UPDATE]
    excess = len(updaters) - _MOST_UPDATERS
    if excess <= 0:
        return claims
    updaters.sort(key=lambda owner: (claims[owner].time, _identifier(owner)))
    claims = dict(claims)
    first: dict[str, Owner] = {}
    for owner in updaters:
        claim = claims[owner]
        if claim.version not in first:
            first[claim.version] = owner
            continue
        bucket = Owner("ancient-changes", UPDATE, claim.version, "")
        if bucket not in claims:
            claims[bucket] = claims.pop(first[claim.version])
        claims[bucket] = claim._replace(fields=union(claim.fields, claims[bucket].fields))
        del claims[owner]
        excess -= 1
        if excess == 0:
            break
    return claims


# Apply


class Intent(NamedTuple):
    """What somebody wants an object to say, and to own of it. See ``apply`` for the rest."""

    config: Object
    owner: Owner
    mine: Claim
    shape: Shape
    has_blank: bool
    kind: str
    built_in: bool
    reset: FieldSet


def apply(
    live: Object | None,
    applied: Object,
    *,
    manager: str,
    force: bool,
    subresource: str,
    now: str,
    api_version: str,
    shape: Shape,
    kind: str = "",
    built_in: bool = True,
    reset: FieldSet = EMPTY,
) -> Object:
    """What applying a configuration makes of the live object; the live one itself if nothing.

    Raises ``ApplyConflicts``, and ``Refusal`` for a configuration that does not fit the schema.
    What comes out is as decoded into its type, if the kind is ``built_in`` and has one.
    ``reset`` are fields that this request cannot change, such as the status.
    """
    config = {key: v for key, v in applied.items() if key not in ("apiVersion", "kind")}
    if _meta(config).get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    what = f"{_group_version(api_version)}, Kind={kind}"
    owned, has_blank = _owned(config, shape, what)
    owner = Owner(manager, APPLY, "", subresource)
    mine = Claim(api_version, now, fieldsets.without(owned, reset) if reset else owned)
    if live is None:
        made = structured.decoded(config, shape) if has_blank and built_in else config
        return _managed(made, _written(_claimed({}, owner, mine)))
    intent = Intent(config, owner, mine, shape, has_blank, kind, built_in, reset)
    try:
        return _applied(live, intent, force=force)
    except structured.Mismatch:
        raise _untyped("live", live, what, structured.violations(live, shape)) from None


def _applied(live: Object, intent: Intent, *, force: bool) -> Object:
    config, owner, mine, shape, *_ = intent
    claims = _read(_meta(live).get("managedFields")) or _past(live, intent)
    merged: Object = structured.merged(live, config, shape)
    abandoned = _abandoned(claims, owner, mine, shape)
    result = (structured.removed(merged, abandoned, shape) or {}) if abandoned else merged
    put, gone = _changes(live, result, shape, intent.reset)
    last = claims.pop(owner, None)
    if not force:
        _refuse_conflicts(live, claims, put, intent)
    claims = _without(_without(claims, put), gone)
    if same(result, live):
        mine = mine._replace(time=last.time if last else "")
        return _managed(live, _written(_claimed(claims, owner, mine)))
    if intent.built_in and (abandoned or intent.has_blank):
        result = structured.decoded(result, shape, live)
    if owner.manager == _KUBECTL:
        named = {"apiVersion": mine.version, "kind": intent.kind}
        result = _annotated(result, {**named, **config})
    result = _managed(result, _written(_claimed(claims, owner, mine)))
    return live if intent.has_blank and _only_times_differ(live, result) else result


def _owned(config: Object, shape: Shape, what: str) -> tuple[FieldSet, bool]:
    """What the configuration claims, and whether there is a null or something empty in it."""
    ownership = structured.Ownership()
    try:
        return ownership.of(config, shape) or EMPTY, ownership.saw_blank
    except structured.Mismatch:
        raise _untyped("patch", config, what, structured.violations(config, shape)) from None


def _untyped(which: str, obj: Object, what: str, violations: Iterable[str]) -> Refusal:
    meta, found = _meta(obj), list(violations)
    listed = found[0] if len(found) == 1 else "\n  ".join(["errors:", *found])
    named = f"{meta.get('namespace', '')}/{meta.get('name', '')}; {what}"
    return Refusal(500, "", f"failed to create typed {which} object ({named}): {listed}")


def _meta(obj: Object) -> Object:
    meta = obj.get("metadata")
    return meta if type(meta) is dict else {}


def _group_version(api_version: str) -> str:
    return api_version if "/" in api_version else f"/{api_version}"


def _claimed(claims: Claims, owner: Owner, mine: Claim) -> Claims:
    fields = difference(mine.fields, _NOBODYS)
    return {**claims, owner: mine._replace(fields=fields)} if fields else claims


def _past(live: Object, intent: Intent) -> Claims:
    """Where nobody has kept account so far, everything belongs to the past."""
    mine = intent.mine
    fields = fieldsets.without(structured.created(live, intent.shape), intent.reset)
    owner = Owner("before-first-apply", UPDATE, mine.version, intent.owner.subresource)
    return _claimed({}, owner, mine._replace(fields=fields))


def _refuse_conflicts(live: Object, claims: Claims, put: FieldSet, intent: Intent) -> None:
    found = ((other, intersection(put, claim.fields)) for other, claim in claims.items())
    conflicts = {other: fields for other, fields in found if fields}
    if conflicts and intent.owner.manager == _KUBECTL:
        conflicts = _not_from_client(live, conflicts, intent.shape, intent.mine.version)
    if conflicts:
        raise ApplyConflicts(conflicts)


def _abandoned(claims: Claims, owner: Owner, mine: Claim, shape: Shape) -> FieldSet:
    """What the owner claimed the last time, and what now nobody claims."""
    last = claims.get(owner)
    if last is None or not difference(last.fields, mine.fields):
        return EMPTY
    claimed = mine.fields
    for other, claim in claims.items():
        if other != owner:
            claimed = union(claimed, claim.fields)
    return structured.given_up(last.fields, mine.fields, claimed, shape)


def _only_times_differ(live: Object, result: Object) -> bool:
    def timeless(entries: Iterable[Object]) -> list[Object]:
        return [{**entry, "time": ""} for entry in entries]

    before, after = _meta(live), _meta(result)
    if timeless(before.get("managedFields", ())) != timeless(after.get("managedFields", ())):
        return False
    entries = {"managedFields": None}
    return same({**live, "metadata": before | entries}, {**result, "metadata": after | entries})


# Client-side apply


def _not_from_client(
    live: Object, conflicts: dict[Owner, FieldSet], shape: Shape, api_version: str
) -> dict[Owner, FieldSet]:
    """The conflicts about fields that are not as kubectl itself has set them without the server."""
    text = (_meta(live).get("annotations") or {}).get(LAST_APPLIED)
    try:
        last = msgspec.json.decode(text or "", type=dict)
        if last.pop("apiVersion", "") != api_version:
            return conflicts
        last.pop("kind", None)
        fields = structured.Ownership().of(last, shape) or EMPTY
    except (msgspec.MsgspecError, structured.Mismatch):
        return conflicts
    put, gone = structured.changes(last, live, shape)
    agreed = difference(difference(fields, put), gone)
    found = ((owner, difference(theirs, agreed)) for owner, theirs in conflicts.items())
    return {owner: theirs for owner, theirs in found if theirs}


def _annotated(obj: Object, config: Object) -> Object:
    """What kubectl noted of its last apply, brought up to date where there is such a note."""
    annotations = _meta(obj).get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return obj
    meta = dict(_meta(config))
    if meta.get("annotations"):
        meta["annotations"] = {k: v for k, v in meta["annotations"].items() if k != LAST_APPLIED}
    text = gotext.json_text({**config, "metadata": meta}) + "\n"
    changed = {**obj["metadata"], "annotations": {**annotations, LAST_APPLIED: text}}
    return {**obj, "metadata": changed}

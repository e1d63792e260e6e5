"""Renewals: the short way for whoever says the same again, but for one value.

Most of what is written in a quiet cluster are leases: the request of the last time, with another
``renewTime`` (or another text in the one annotation that its writer keeps there), and with the
version that it was read at. What becomes of it needs no second thought: the object as it is, with
that value and the next version, and with the time of now in its writer's entry of managed fields.

So that the short way leads where the long one does, it is *learnt* and never assumed:

* It is learnt from a request that went the long way, and only if the short one would have led to
  the same bytes.
* It is taken for the same request, byte for byte but for the value and the version, and only while
  the object is still the one that the last request like it has made.
* The value must be one that the long way takes as it is: a time in its usual form, or a short text
  where there is no other that counts with it towards a limit. The clock must not have gone back.

Everything else goes the long way, and so does whatever has to be refused.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from backstay.seam.serve import Inbound
from backstay.sim.api import values
from backstay.sim.api.kinds import Object
from backstay.sim.api.operations import Operations
from backstay.sim.api.requests import Target
from backstay.sim.api.store import Stored

KIND = "leases.coordination.k8s.io"

_RENEWED = "renewTime"
_LONGEST_TEXT = 4096

_encode = msgspec.json.Encoder().encode
_decode_text = msgspec.json.Decoder(str).decode


class _Form(msgspec.Struct, frozen=True):
    """A body with a gap for the value, and one for the version before it, if that is said."""

    begin: bytes
    between: bytes | None
    end: bytes

    def pattern(self) -> re.Pattern[bytes]:
        """What the bodies of this form match, and no other."""
        version = b"" if self.between is None else b"(.*?)" + re.escape(self.between)
        return re.compile(re.escape(self.begin) + version + b"(.*)" + re.escape(self.end), re.S)


class _Known(msgspec.Struct):
    """A request that is repeated. ``annotation`` is empty if it renews the lease itself, and
    ``stored`` is what the last one made."""

    inbound: Inbound
    head: bytes
    matches: Callable[[bytes], re.Match[bytes] | None]
    annotation: str
    stored: Stored


class Renewals:
    """See the module. ``taken`` counts the short ways."""

    def __init__(self, operations: Operations) -> None:
        self.taken = 0
        self._operations = operations
        self._store = operations.store
        self._known: dict[str, _Known] = {}

    def again(self, inbound: Inbound) -> bytes | None:
        """The answer to a patch, if it could go the short way."""
        known = self._known.get(inbound.path)
        if known is None:
            return None
        last, stored = known.inbound, known.stored
        if inbound.headers != last.headers or inbound.query != last.query:
            return None
        if self._store.get(KIND, stored.key) is not stored:
            return None
        filled = known.matches(inbound.body)
        value = filled and _value(known, *reversed(filled.groups()))
        if not value:
            return None
        now = self._operations.now()
        if now < _last_entry(stored.object)["time"]:
            return None
        again = _restated(stored.object, known.annotation, value, self._store.next_version(), now)
        known.stored = self._store.put(KIND, stored.key, again)
        self.taken += 1
        return known.stored.encoded(known.head)

    def learn(self, target: Target, inbound: Inbound, before: Stored, after: Stored) -> None:
        """From what came of a patch that went the long way."""
        known = self._learnt(target, inbound, before, after)
        if known is None:
            self._known.pop(inbound.path, None)
        else:
            self._known[inbound.path] = known

    def _learnt(
        self, target: Target, inbound: Inbound, before: Stored, after: Stored
    ) -> _Known | None:
        if after is before or self._store.get(KIND, after.key) is not after:
            return None
        meta, old_spec = after.object["metadata"], before.object.get("spec") or {}
        spec, annotations = after.object.get("spec") or {}, meta.get("annotations") or {}
        if not meta.get("managedFields") or "deletionTimestamp" in meta:
            return None
        if spec.get(_RENEWED) != old_spec.get(_RENEWED):
            annotation, value = "", spec.get(_RENEWED)
        elif len(annotations) == 1:
            ((annotation, value),) = annotations.items()
        else:
            return None
        now = _last_entry(after.object).get("time")
        if type(value) is not str or now is None or not _has_place(before.object, annotation):
            return None
        short = _restated(before.object, annotation, value, after.version, now)
        form = _form(inbound.body, annotation, value, str(before.version))
        if form is None or _encode(short) != after.item:
            return None
        matches = form.pattern().fullmatch
        return _Known(inbound, target.info.head, matches, annotation, after)


def _value(known: _Known, sent: bytes, version: bytes | None = None) -> str | None:
    """What is to be put, if the long way would take it for exactly that."""
    if version is not None and version != b"%d" % known.stored.version:
        return None
    obj = known.stored.object
    if len(sent) > _LONGEST_TEXT:
        return None
    try:
        value = _decode_text(b'"%s"' % sent)
        if known.annotation:
            return value if value != obj["metadata"]["annotations"][known.annotation] else None
        usual = values.micro_time(value) == value
    except (msgspec.MsgspecError, UnicodeDecodeError, values.Unreadable):
        return None
    return value if usual and value != obj["spec"][_RENEWED] else None


def _restated(obj: Object, annotation: str, value: str, version: int, now: str) -> Object:
    meta = dict(obj["metadata"])
    meta["resourceVersion"] = str(version)
    *others, mine = meta["managedFields"]
    meta["managedFields"] = [*others, {**mine, "time": now}]
    if annotation:
        meta["annotations"] = {**meta["annotations"], annotation: value}
        return {**obj, "metadata": meta}
    return {**obj, "metadata": meta, "spec": {**obj["spec"], _RENEWED: value}}


def _last_entry(obj: Object) -> dict[str, Any]:
    """Of the managed fields. They are in the order of their times, so that whoever writes again
    after everybody else stays the last."""
    entry: dict[str, Any] = obj["metadata"]["managedFields"][-1]
    return entry


def _has_place(obj: Object, annotation: str) -> bool:
    """Whether the value was there before: putting it for the first time is more than a change."""
    if not obj["metadata"].get("managedFields"):
        return False
    if annotation:
        return annotation in (obj["metadata"].get("annotations") or {})
    return _RENEWED in (obj.get("spec") or {})


def _form(body: bytes, annotation: str, value: str, version: str) -> _Form | None:
    """The body with a gap where the value is, and another where the version is."""
    begin, found, end = body.partition(_encode(value))
    if not found:
        return None
    begin, end = begin + b'"', b'"' + end
    between: bytes | None = None
    marked = begin.partition(b'"resourceVersion":"%s"' % version.encode())
    if marked[1]:
        begin, between = marked[0] + b'"resourceVersion":"', b'"' + marked[2]
    form = _Form(begin, between, end)
    return form if _is_where_it_belongs(form, annotation) else None


def _is_where_it_belongs(form: _Form, annotation: str) -> bool:
    """The same bytes might have stood somewhere else in the body: fill the gaps and see."""
    version = b"" if form.between is None else b"0" + form.between
    try:
        probe = msgspec.json.decode(form.begin + version + b"?" + form.end)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    meta = probe.get("metadata") or {}
    if meta.get("resourceVersion") != (None if form.between is None else "0"):
        return False
    place = (meta.get("annotations") or {}) if annotation else (probe.get("spec") or {})
    return bool(place.get(annotation or _RENEWED) == "?")

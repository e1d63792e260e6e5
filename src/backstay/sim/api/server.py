"""ApiServer: requests in, answers out. It is a ``Handler``; see the package for where it stands.

Every request becomes a read or one of the ``operations``, all of it in one step that nothing can
interrupt; only a watch goes on. Whatever is refused on the way becomes a Status body.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from backstay.seam.clock import Rng, WallClock
from backstay.seam.serve import Answer, Inbound
from backstay.sim.api import patches, status
from backstay.sim.api.custom import CustomKinds
from backstay.sim.api.documents import Documents
from backstay.sim.api.kind_rules import RuleBook
from backstay.sim.api.kinds import Kinds, Object
from backstay.sim.api.operations import Deleted, DeleteOptions, Operations, Write, strip
from backstay.sim.api.reading import Page, Reader, head
from backstay.sim.api.requests import Query, Target, decode, field_manager, media_type, route
from backstay.sim.api.status import Refusal
from backstay.sim.api.store import Store, Stored

_JSON = {"content-type": "application/json"}
_encode = msgspec.json.Encoder().encode

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


class ApiServer:
    """One API server over one store. Several may share a store, as real ones share an etcd."""

    def __init__(
        self, *, wall: WallClock, rng: Rng, store: Store | None = None, kinds: Kinds | None = None
    ) -> None:
        self.kinds = kinds or Kinds()
        self.store = store or Store()
        self.rules = RuleBook()
        self.operations = Operations(self.store, self.kinds, self.rules, wall=wall, rng=rng)
        self.reader = Reader(self.store)
        self.custom = CustomKinds(self.operations, self.rules)
        self._documents = Documents(self.kinds)

    async def handle(self, inbound: Inbound) -> Answer:
        try:
            return self._answer(inbound)
        except Refusal as refusal:
            headers = dict(_JSON)
            if refusal.retry_after is not None:
                headers["retry-after"] = str(refusal.retry_after)
            return Answer(status=refusal.code, headers=headers, body=_encode(refusal.body()))

    def _answer(self, inbound: Inbound) -> Answer:
        document = self._documents.answer(inbound)
        if document is not None:
            return document
        target = route(self.kinds, inbound.path)
        query = Query(inbound.query)
        match inbound.method:
            case "GET" if query.flag("watch"):
                return Answer(headers=_JSON, body=self.reader.watch(target, query))
            case "GET" if target.name:
                return _whole(target, self.operations.find(target))
            case "GET":
                return _listed(target, self.reader.page(target, query))
            case "POST":
                return self._create(target, query, inbound)
            case "PUT" if target.name:
                return self._replace(target, query, inbound)
            case "PATCH" if target.name:
                return self._patch(target, query, inbound)
            case "DELETE" if target.name:
                return self._delete(target, query, inbound)
            case "DELETE":
                return self._delete_all(target, query, inbound)
        raise status.method_not_allowed()

    def _create(self, target: Target, query: Query, inbound: Inbound) -> Answer:
        if target.name or (target.info.namespaced and not target.namespace):
            raise status.method_not_allowed()
        sent = _object(target, decode(inbound))
        return _whole(target, self.operations.create(target, sent, _write(query, inbound)), 201)

    def _replace(self, target: Target, query: Query, inbound: Inbound) -> Answer:
        sent = _object(target, decode(inbound))
        made, created = self.operations.replace(target, sent, _write(query, inbound))
        return _whole(target, made, 201 if created else 200)

    def _patch(self, target: Target, query: Query, inbound: Inbound) -> Answer:
        kind = media_type(inbound)
        if kind == APPLY:
            return self._apply(target, query, inbound)
        change = self._change(target, kind, decode(inbound))
        return _whole(target, self.operations.patch(target, change, _write(query, inbound)))

    def _change(self, target: Target, kind: str, sent: Any) -> Callable[[Object], Object]:
        if kind == MERGE:
            return lambda obj: patches.merge_patch(obj, sent)
        if kind == JSON_PATCH:
            return lambda obj: patches.json_patch(obj, sent)
        if kind == STRATEGIC and target.info.built_in:
            schema, types = self.kinds.schema(target.info), self.kinds.types
            return lambda obj: patches.strategic_patch(obj, sent, schema, types)
        raise status.unsupported_media([JSON_PATCH, MERGE, APPLY])

    def _apply(self, target: Target, query: Query, inbound: Inbound) -> Answer:
        if not query.text("fieldManager"):
            raise status.missing_field_manager()
        write = Write(query.text("fieldManager"), query.dry_run, "Apply")
        made, created = self.operations.apply(
            target, _object(target, decode(inbound)), write, force=query.flag("force")
        )
        return _whole(target, made, 201 if created else 200)

    def _delete(self, target: Target, query: Query, inbound: Inbound) -> Answer:
        options = _delete_options(query, inbound)
        deleted = self.operations.delete(target, options, _write(query, inbound))
        return self._deleted(target, deleted)

    def _delete_all(self, target: Target, query: Query, inbound: Inbound) -> Answer:
        options = _delete_options(query, inbound)
        write = _write(query, inbound)
        page = self.reader.page(target, query)
        for stored in page.items:
            namespace, name = stored.key
            one = msgspec.structs.replace(target, namespace=namespace, name=name)
            self.operations.delete(one, options, write)
        return _listed(target, page)

    def _deleted(self, target: Target, deleted: Deleted) -> Answer:
        if not deleted.gone or self.rules(target.info).returns_deleted:
            return _whole(target, deleted.stored)
        details = {
            "name": target.name,
            "group": target.info.group,
            "kind": target.info.plural,
            "uid": deleted.stored.object["metadata"]["uid"],
        }
        body = {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {key: value for key, value in details.items() if value},
        }  # fmt: skip
        return Answer(headers=_JSON, body=_encode(body))


def _object(target: Target, sent: Any) -> Object:
    if not isinstance(sent, dict):
        raise status.bad_request("the object provided is unrecognized (must be of type " +
                                 f"{target.info.kind})")  # fmt: skip
    return strip(target.info, sent)


def _write(query: Query, inbound: Inbound) -> Write:
    return Write(field_manager(query, inbound.headers), query.dry_run)


def _whole(target: Target, stored: Stored, code: int = 200) -> Answer:
    return Answer(status=code, headers=_JSON, body=stored.encoded(head(target.info)))


def _listed(target: Target, page: Page) -> Answer:
    info = target.info
    meta: dict[str, Any] = {"resourceVersion": str(page.version)}
    if page.token:
        meta |= {"continue": page.token, "remainingItemCount": page.remaining}
    start = b'{"kind":"%sList","apiVersion":"%s","metadata":%s,"items":[' % (
        info.kind.encode(), info.api_version.encode(), _encode(meta),
    )  # fmt: skip
    # The items of built-in kinds come without kind and apiVersion; those of custom ones, with.
    begin = b"" if info.built_in else head(info)
    items = b",".join([stored.encoded(begin) for stored in page.items])
    return Answer(headers=_JSON, body=b"%s%s]}" % (start, items))


def _delete_options(query: Query, inbound: Inbound) -> DeleteOptions:
    """From the body, as clients send them, or from the query, as people type them."""
    sent: Mapping[str, Any] = {}
    if inbound.body:
        decoded = decode(inbound)
        sent = decoded if isinstance(decoded, dict) else {}
    preconditions = sent.get("preconditions") or {}
    grace = sent.get("gracePeriodSeconds")
    return DeleteOptions(
        grace=query.number("gracePeriodSeconds") if grace is None else grace,
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        propagation=sent.get("propagationPolicy") or query.text("propagationPolicy"),
    )

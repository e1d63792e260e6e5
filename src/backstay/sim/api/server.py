"""ApiServer: requests in, answers out. It is a ``Handler``; see the package for where it stands.

Every request becomes a read or one of the ``operations``, all of it in one step that nothing can
interrupt; only a watch goes on. Whatever is refused on the way becomes a Status body. Every answer
says how late it is by the server's clock.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from email.utils import format_datetime
from typing import Any

import msgspec

from backstay.seam.clock import Rng, WallClock
from backstay.seam.serve import Answer, Inbound
from backstay.sim.api import decoding, event_versions, gotext, patches, status, tables
from backstay.sim.api.custom import CustomKinds
from backstay.sim.api.documents import Documents
from backstay.sim.api.eviction import Intercept
from backstay.sim.api.kind_rules import RuleBook
from backstay.sim.api.kinds import Kinds, Object
from backstay.sim.api.operations import Deleted, DeleteOptions, Operations, Write, strip
from backstay.sim.api.rbac import MASTERS, Rbac, User
from backstay.sim.api.reading import Page, Reader
from backstay.sim.api.renewals import KIND as RENEWED
from backstay.sim.api.renewals import Renewals
from backstay.sim.api.requests import (
    JSON,
    NotDecodable,
    Query,
    Target,
    decode,
    field_manager,
    media_type,
    query_of,
    route,
    shown,
)
from backstay.sim.api.reviews import REVIEWED, Reviews, Tokens
from backstay.sim.api.status import Cause, Refusal
from backstay.sim.api.store import Store, Stored
from backstay.sim.api.subresources import BINDINGS, PLAIN, Subresources
from backstay.sim.doorkeeper import prompt

_JSON = {"content-type": "application/json"}

# How the server calls the part of an object that says what it is.
_HEAD = (
    'struct { APIVersion string "json:"apiVersion,omitempty""; '
    'Kind string "json:"kind,omitempty"" }'
)
_encode = msgspec.json.Encoder().encode

ADMIN = User("admin", (MASTERS,))
"""Whoever is not said to be somebody else."""

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
        self.renewals = Renewals(self.operations)
        self.custom = CustomKinds(self.operations, self.rules)
        self.rbac = Rbac(self.store)
        self.tokens = Tokens(wall=wall, rng=rng)
        self._reviews = Reviews(self.rbac, self.tokens, wall)
        self._subresources = Subresources(self.operations)
        self._views = tables.Views(self.rules, wall)
        self._documents = Documents(self.kinds)
        self._aggregated: dict[str, Callable[[Inbound], Answer]] = {}
        self._wall = wall
        self._dated = -1, _JSON

    def aggregate(self, group: str, answer: Callable[[Inbound], Answer]) -> None:
        """Leaves what is asked of a group to somebody else, as an APIService does. It is not
        listed among the groups: what is served there is no kind of object."""
        self._aggregated[group] = answer

    def intercept_evictions(self, intercept: Intercept) -> None:
        """Asks before a pod is evicted, as a validating webhook is asked."""
        self._subresources.evictions.intercept(intercept)

    @prompt
    async def handle(self, inbound: Inbound, user: User = ADMIN) -> Answer:
        """Does what is asked. Whether ``user`` may is for others to say (see ``access``)."""
        try:
            answer = self._answer(inbound, user)
        except Refusal as refusal:
            answer = refused(refusal)
        return Answer(status=answer.status, headers=self._date(answer.headers), body=answer.body)

    def _date(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        second = int(asyncio.get_running_loop().time())
        if self._dated[0] != second:
            # Once a second: it has no finer grain.
            date = format_datetime(self._wall.now(), usegmt=True)
            self._dated = second, {**_JSON, "date": date}
        dated = self._dated[1]
        return dated if headers == _JSON else {**headers, "date": dated["date"]}

    def _answer(self, inbound: Inbound, user: User) -> Answer:
        if inbound.method == "PATCH" and (renewed := self.renewals.again(inbound)) is not None:
            return Answer(headers=_JSON, body=renewed)
        target: Target | None = self.kinds.paths.get(inbound.path)
        if target is None:
            # Nobody was led to an object by it yet, so it may be something else's.
            other = self._elsewhere(inbound) or self._documents.answer(inbound)
            if other is not None:
                return other
            target = route(self.kinds, inbound.path)
        if target.info.group == event_versions.GROUP:
            return event_versions.from_core(self._answer(event_versions.as_core(inbound), user))
        query = query_of(inbound.query)
        _check_verb(target, inbound.method, query)
        if target.subresource not in PLAIN:
            return self._subresource(target, query, inbound)
        if inbound.method == "GET":
            return self._read(target, query, tables.view_of(inbound))
        if target.info.group in REVIEWED:
            asked, _ = self._object(target, query, inbound)
            body = self._reviews.answer(target, asked, user)
            return Answer(status=201, headers=_JSON, body=_encode(body))
        return self._change_something(target, query, inbound)

    def _elsewhere(self, inbound: Inbound) -> Answer | None:
        """What an aggregated group says."""
        if not inbound.path.startswith("/apis/"):
            return None
        answer = self._aggregated.get(inbound.path.split("/")[2])
        return answer(inbound) if answer is not None else None

    def _read(self, target: Target, query: Query, view: str) -> Answer:
        info = target.info
        if target.name:
            # The way to watch one object is a field selector.
            query.version(listing=False)
            found = self.operations.find(target)
            return self._views.one(info, found, view, query) if view else _whole(target, found)
        if query.is_watch:
            lines = self.reader.watch(target, query)
            body = self._views.watch(info, lines, view, query) if view else lines
            return Answer(headers=_JSON, body=body)
        page = self.reader.page(target, query)
        return self._views.page(info, page, view, query) if view else _listed(target, page)

    def _change_something(self, target: Target, query: Query, inbound: Inbound) -> Answer:
        match inbound.method:
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

    def _object(self, target: Target, query: Query, inbound: Inbound) -> tuple[Object, list[str]]:
        """What was sent, and what of it nobody knows."""
        sent = self._sent(target, inbound)
        obj = strip(target.info, sent, self.kinds)
        if target.info.built_in:
            obj, unknown = decoding.decoded(target.info, obj, self.kinds)
        else:
            unknown = list(self.rules(target.info).unknown_fields(obj))
        if unknown and query.text("fieldValidation") == "Strict":
            raise status.strict_decoding(target.info, unknown)
        return obj, _worth_a_warning(query, unknown)

    def _sent(self, target: Target, inbound: Inbound) -> Object:
        beginning = (
            f"the object provided is unrecognized (must be of type {target.info.kind}): couldn't "
            "get version/kind; json parse error: "
        )
        try:
            sent = decode(inbound)
        except NotDecodable as error:
            if media_type(inbound) != JSON:
                raise
            raise status.bad_request(f"{beginning}{error.why} ({shown(inbound.body)})") from None
        if not isinstance(sent, dict):
            wrong = f"json: cannot unmarshal {gotext.json_kind(sent)} into Go value of type {_HEAD}"
            raise status.bad_request(f"{beginning}{wrong} ({shown(inbound.body)})")
        return sent

    def _subresource(self, target: Target, query: Query, inbound: Inbound) -> Answer:
        """Those that are more than a part of their object."""
        write = _write(query, inbound)
        if target.subresource in ("eviction", "binding"):
            return self._subresources.post(target, inbound, write)
        if target.subresource == "token":
            account = self.operations.find(target).object
            body = self.tokens.request(account, decode(inbound) or {})
            return Answer(status=201, headers=_JSON, body=_encode(body))
        if target.subresource != "scale":
            raise status.no_such_resource()
        if inbound.method == "GET":
            return self._subresources.scale(target)
        sent, kind = decode(inbound), media_type(inbound)
        if inbound.method == "PUT":
            return self._subresources.rescale(target, lambda _: sent, write)
        if kind == APPLY:
            write = _applying(query)
            force = query.flag("force")
            return self._subresources.apply_scale(target, sent, write, force=force)
        return self._subresources.rescale(target, self._change(target, kind, sent), write)

    def _create(self, target: Target, query: Query, inbound: Inbound) -> Answer:
        if target.name or (target.info.namespaced and not target.namespace):
            raise status.method_not_allowed()
        if target.info.storage == BINDINGS:
            return self._subresources.post_binding(target, inbound, _write(query, inbound))
        sent, unknown = self._object(target, query, inbound)
        made = self.operations.create(target, sent, _write(query, inbound))
        return _whole(target, made, 201, unknown)

    def _replace(self, target: Target, query: Query, inbound: Inbound) -> Answer:
        sent, unknown = self._object(target, query, inbound)
        made, created = self.operations.replace(target, sent, _write(query, inbound))
        return _whole(target, made, 201 if created else 200, unknown)

    def _patch(self, target: Target, query: Query, inbound: Inbound) -> Answer:
        kind = media_type(inbound)
        if kind == APPLY:
            return self._apply(target, query, inbound)
        if query.text("force"):
            why = "Forbidden: may not be specified for non-apply patch"
            cause = Cause("FieldValueForbidden", why, "force")
            raise status.invalid_options("PatchOptions", cause)
        sent, unknown = _patch_of(kind, inbound), list[str]()
        if kind in (MERGE, STRATEGIC) and isinstance(sent, dict):
            # Before it is merged, because all that is stored was looked at already.
            sent = self._known(target, query, sent, unknown)
        change = self._change(target, kind, sent)
        if kind == JSON_PATCH:
            # What such a patch leads to can be said only when it is done.
            apply = change
            change = lambda obj: self._known(target, query, apply(obj), unknown)  # noqa: E731
        before = self.store.get(target.info.storage, target.key)
        made = self.operations.patch(target, change, _write(query, inbound))
        if target.info.storage == RENEWED and kind == MERGE and before and not unknown:
            self.renewals.learn(target, inbound, before, made)
        return _whole(target, made, unknown=unknown and _worth_a_warning(query, unknown))

    def _known(self, target: Target, query: Query, sent: Object, unknown: list[str]) -> Object:
        """An object or a patch of one, without what the kind does not have."""
        kept = sent
        try:
            if target.info.built_in:
                kept = decoding.known(target.info, sent, self.kinds, unknown)
            else:
                unknown += self.rules(target.info).unknown_fields(sent)
        except decoding.Mismatch as error:
            raise status.undecodable_patch(str(error)) from None
        if unknown and query.text("fieldValidation") == "Strict":
            raise status.strict_patch(unknown)
        return kept

    def _change(self, target: Target, kind: str, sent: Any) -> Callable[[Object], Object]:
        if kind == MERGE:
            return lambda obj: patches.merge_patch(obj, sent)
        if kind == JSON_PATCH:
            return lambda obj: patches.json_patch(obj, sent)
        if kind == STRATEGIC and target.info.built_in:
            schema, types = self.kinds.schema(target.info), self.kinds.types
            return lambda obj: patches.strategic_patch(obj, sent, schema, types)
        if not target.info.built_in:
            raise status.unsupported_media([JSON_PATCH, MERGE, APPLY])
        if kind == STRATEGIC:
            raise status.unsupported_media([JSON_PATCH, MERGE, APPLY])
        raise status.Refusal(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})

    def _applied(self, target: Target, inbound: Inbound) -> Object:
        sent = self._sent(target, inbound)
        kind, version = sent.get("kind", ""), sent.get("apiVersion", "")
        if (version, kind) != (target.info.api_version, target.info.kind):
            group, _, short = version.rpartition("/")
            raise status.bad_request(f"invalid object type: {group}/{short}, Kind={kind}")
        return strip(target.info, sent, self.kinds)

    def _apply(self, target: Target, query: Query, inbound: Inbound) -> Answer:
        write = _applying(query)
        made, created = self.operations.apply(
            target, self._applied(target, inbound), write, force=query.flag("force")
        )
        return _whole(target, made, 201 if created else 200)

    def _delete(self, target: Target, query: Query, inbound: Inbound) -> Answer:
        options = _delete_options(query, inbound)
        write = Write(field_manager(query, inbound.headers, "DeleteOptions"), options.dry_run)
        deleted = self.operations.delete(target, options, write)
        return self._deleted(target, deleted)

    def _delete_all(self, target: Target, query: Query, inbound: Inbound) -> Answer:
        options = _delete_options(query, inbound)
        write = Write(field_manager(query, inbound.headers, "DeleteOptions"), options.dry_run)
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


def _worth_a_warning(query: Query, unknown: list[str]) -> list[str]:
    return [] if query.text("fieldValidation") == "Ignore" else unknown


def _patch_of(kind: str, inbound: Inbound) -> Any:
    if kind not in (MERGE, JSON_PATCH, STRATEGIC):
        return None
    try:
        return decode(inbound)
    except NotDecodable as error:
        prefix = "" if kind == STRATEGIC else "error decoding patch: "
        raise status.bad_request(f"{prefix}{error.why}") from None


def _check_verb(target: Target, method: str, query: Query) -> None:
    if target.subresource:
        known = target.info.subresources[target.subresource].verbs
    else:
        known = target.info.verbs
    if method == "GET":
        verb = "watch" if query.is_watch else "get" if target.name else "list"
    elif method == "DELETE":
        verb = "delete" if target.name else "deletecollection"
    else:
        verb = {"POST": "create", "PUT": "update", "PATCH": "patch"}.get(method, "")
    if verb not in known:
        raise status.method_not_allowed()


_OPTIONS = {
    "POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions",
    "DELETE": "DeleteOptions",
}  # fmt: skip


def _write(query: Query, inbound: Inbound) -> Write:
    options = _OPTIONS.get(inbound.method, "")
    return Write(field_manager(query, inbound.headers, options), query.dry_run(options))


def _applying(query: Query) -> Write:
    if not query.text("fieldManager"):
        raise status.missing_field_manager()
    manager = field_manager(query, {}, "PatchOptions")
    return Write(manager, query.dry_run("PatchOptions"), "Apply")


def _whole(target: Target, stored: Stored, code: int = 200, unknown: Sequence[str] = ()) -> Answer:
    headers = _JSON
    if unknown:
        said = (gotext.quoted(f'unknown field "{field}"') for field in unknown)
        headers = {**_JSON, "warning": ", ".join(f"299 - {each}" for each in said)}
    return Answer(status=code, headers=headers, body=stored.encoded(target.info.head))


def _listed(target: Target, page: Page) -> Answer:
    info = target.info
    meta = b'{"resourceVersion":"%d"' % page.version
    if page.token:
        # A token is made of characters that JSON takes as they are.
        meta += b',"continue":"%s"' % page.token.encode()
        if page.remaining:
            meta += b',"remainingItemCount":%d' % page.remaining
    elif not info.built_in:
        meta += b',"continue":""'
    # The items of built-in kinds come without kind and apiVersion; those of custom ones, with.
    if info.built_in:
        items = Stored.items(page.items)
    else:
        items = b",".join([stored.encoded(info.head) for stored in page.items])
    body = b'%s%s},"items":[%s]}' % (info.head_of_lists, meta, items)
    return Answer(headers=_JSON, body=body)


_POLICIES = frozenset({"", "Foreground", "Background", "Orphan"})


def _delete_options(query: Query, inbound: Inbound) -> DeleteOptions:
    """From the body, as clients send them, or from the query, as people type them."""
    sent: Mapping[str, Any] = {}
    if inbound.body:
        try:
            decoded = decode(inbound)
        except NotDecodable as error:
            why = f"couldn't get version/kind; json parse error: {error.why}"
            raise status.bad_request(why) from None
        sent = decoded if isinstance(decoded, dict) else {}
    else:
        # A server that is given a body looks nowhere else.
        sent = {
            "gracePeriodSeconds": query.number("gracePeriodSeconds"),
            "propagationPolicy": query.text("propagationPolicy"),
            "dryRun": query.dry_run("DeleteOptions"),
        }
    policy = sent.get("propagationPolicy") or ""
    if policy not in _POLICIES:
        why = (
            f'Unsupported value: "{policy}": supported values: "Foreground", "Background", '
            '"Orphan", "nil"'
        )
        cause = Cause("FieldValueNotSupported", why, "propagationPolicy")
        raise status.invalid_options("DeleteOptions", cause)
    preconditions = sent.get("preconditions") or {}
    return DeleteOptions(
        grace=sent.get("gracePeriodSeconds"),
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        propagation=policy,
        dry_run=bool(sent.get("dryRun")),
    )


def refused(refusal: Refusal) -> Answer:
    """A refusal as an answer."""
    if refusal.page:
        page = {"content-type": "text/plain; charset=utf-8"}
        return Answer(status=refusal.code, headers=page, body=refusal.page.encode())
    headers = dict(_JSON)
    if refusal.retry_after is not None:
        headers["retry-after"] = str(refusal.retry_after)
    return Answer(status=refusal.code, headers=headers, body=_encode(refusal.body()))

"""AccessControl: bearer tokens and RBAC in front of the embedded API.

Roles and bindings are ordinary objects in the store, read anew for every request, so a test can
take a permission away while a controller runs. What is not allowed is refused in the server's
words, which name the verb and the resource. Discovery, health and the questions about oneself
(SelfSubjectReview, SelfSubjectAccessReview) are open to everybody who is known.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from backstay.seam.serve import Answer, Inbound
from backstay.sim.api.kinds import Object
from backstay.sim.api.requests import Query, Target, decode, route
from backstay.sim.api.server import ApiServer, refused
from backstay.sim.api.status import Refusal

_JSON = {"content-type": "application/json"}
_ROLES = "rbac.authorization.k8s.io"
_MASTERS = "system:masters"
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_encode = msgspec.json.Encoder().encode


class User(msgspec.Struct, frozen=True):
    """Who asks."""

    name: str
    groups: tuple[str, ...] = ()

    @property
    def all_groups(self) -> tuple[str, ...]:
        return (*self.groups, "system:authenticated")


class Attempt(msgspec.Struct, frozen=True):
    """What somebody wants to do, in RBAC's terms."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


class AccessControl:
    """A ``Handler`` around an API server; ``users`` maps bearer tokens to people."""

    def __init__(self, server: ApiServer, users: Mapping[str, User]) -> None:
        self._server = server
        self._users = users

    async def handle(self, inbound: Inbound) -> Answer:
        try:
            user = self._identify(inbound)
            if review := self._review(inbound, user):
                return review
            self._authorize(inbound, user)
        except Refusal as refusal:
            return refused(refusal)
        return await self._server.handle(inbound)

    def allows(self, user: User, attempt: Attempt) -> bool:
        if _MASTERS in user.groups:
            return True
        return any(_matches(rule, attempt) for rule in self._rules(user, attempt.namespace))

    def _identify(self, inbound: Inbound) -> User:
        scheme, _, token = inbound.headers.get("authorization", "").partition(" ")
        user = self._users.get(token) if scheme.lower() == "bearer" else None
        if user is None:
            raise Refusal(401, "Unauthorized", "Unauthorized")
        return user

    def _authorize(self, inbound: Inbound, user: User) -> None:
        try:
            target = route(self._server.kinds, inbound.path)
        except Refusal:
            # Not a resource: a document, or a 404 that the server words itself.
            return
        attempt = _attempt(inbound, target)
        if not self.allows(user, attempt):
            raise _forbidden(user, attempt)

    def _rules(self, user: User, namespace: str) -> Iterator[Object]:
        store = self._server.store
        for stored in store.all(f"clusterrolebindings.{_ROLES}"):
            if _names(stored.object, user):
                yield from self._role(stored.object, "")
        for stored in store.all(f"rolebindings.{_ROLES}"):
            if stored.key[0] == namespace and _names(stored.object, user):
                yield from self._role(stored.object, namespace)

    def _role(self, binding: Object, namespace: str) -> Sequence[Object]:
        reference = binding.get("roleRef") or {}
        cluster_wide = reference.get("kind") == "ClusterRole"
        storage = f"{'clusterroles' if cluster_wide else 'roles'}.{_ROLES}"
        key = ("" if cluster_wide else namespace, reference.get("name", ""))
        found = self._server.store.get(storage, key)
        return (found.object.get("rules") or ()) if found else ()

    def _review(self, inbound: Inbound, user: User) -> Answer | None:
        if inbound.method != "POST":
            return None
        kind = inbound.path.rpartition("/")[2]
        if kind == "selfsubjectreviews":
            about = {"username": user.name, "groups": user.all_groups}
            status: dict[str, Any] = {"userInfo": about}
            return _created("authentication.k8s.io/v1", "SelfSubjectReview", {}, status)
        if kind == "selfsubjectaccessreviews":
            spec = (decode(inbound) or {}).get("spec") or {}
            asked = spec.get("resourceAttributes") or {}
            attempt = Attempt(
                asked.get("verb", ""), asked.get("group", ""), asked.get("resource", ""),
                asked.get("namespace", ""), asked.get("name", ""),
            )  # fmt: skip
            status = {"allowed": self.allows(user, attempt)}
            return _created("authorization.k8s.io/v1", "SelfSubjectAccessReview", spec, status)
        return None


def _attempt(inbound: Inbound, target: Target) -> Attempt:
    info = target.info
    resource = f"{info.plural}/{target.subresource}" if target.subresource else info.plural
    namespace = target.name if info.storage == "namespaces" else target.namespace
    return Attempt(_verb(inbound, target), info.group, resource, namespace, target.name)


def _verb(inbound: Inbound, target: Target) -> str:
    if inbound.method == "GET":
        if Query(inbound.query).flag("watch"):
            return "watch"
        return "get" if target.name else "list"
    if inbound.method == "DELETE":
        return "delete" if target.name else "deletecollection"
    return _VERBS.get(inbound.method, inbound.method.lower())


def _names(binding: Object, user: User) -> bool:
    for subject in binding.get("subjects") or ():
        kind, name = subject.get("kind"), subject.get("name")
        if kind == "User" and name == user.name:
            return True
        if kind == "Group" and name in user.all_groups:
            return True
        account = f"system:serviceaccount:{subject.get('namespace')}:{name}"
        if kind == "ServiceAccount" and account == user.name:
            return True
    return False


def _matches(rule: Object, attempt: Attempt) -> bool:
    names = rule.get("resourceNames") or ()
    return (
        _has(rule.get("verbs"), attempt.verb)
        and _has(rule.get("apiGroups"), attempt.group)
        and _has_resource(rule.get("resources") or (), attempt.resource)
        and (not names or attempt.name in names)
    )


def _has(listed: Sequence[str] | None, wanted: str) -> bool:
    return any(entry in ("*", wanted) for entry in listed or ())


def _has_resource(listed: Sequence[str], wanted: str) -> bool:
    _, slash, subresource = wanted.partition("/")
    wild = f"*/{subresource}" if slash else "*"
    return any(entry in ("*", wanted, wild) for entry in listed)


def _forbidden(user: User, attempt: Attempt) -> Refusal:
    resource, _, _ = attempt.resource.partition("/")
    label = f"{resource}.{attempt.group}" if attempt.group else resource
    named = f' "{attempt.name}"' if attempt.name else ""
    where = (
        f'in the namespace "{attempt.namespace}"' if attempt.namespace else "at the cluster scope"
    )
    message = (
        f'{label}{named} is forbidden: User "{user.name}" cannot {attempt.verb} resource '
        f'"{attempt.resource}" in API group "{attempt.group}" {where}'
    )
    details = {"name": attempt.name, "group": attempt.group, "kind": resource}
    return Refusal(
        403, "Forbidden", message, details={key: value for key, value in details.items() if value}
    )


def _created(api_version: str, kind: str, spec: Object, status: Object) -> Answer:
    body = {"kind": kind, "apiVersion": api_version, "metadata": {}, "spec": spec, "status": status}
    return Answer(status=201, headers=_JSON, body=_encode(body))

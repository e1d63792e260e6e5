"""Rbac: what roles and their bindings allow.

They are ordinary objects in the store, read anew for every question, so a test can take a
permission away while a controller runs. Whoever is known may ask about itself and about the
server, as the roles say that every cluster has.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from backstay.sim.api.store import Store

Json = Mapping[str, Any]

MASTERS = "system:masters"
_ROLES = "rbac.authorization.k8s.io"

_EVERYTHING: Sequence[Json] = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)
_ABOUT_ONESELF: Json = {
    "verbs": ["create"],
    "apiGroups": ["authorization.k8s.io", "authentication.k8s.io"],
    "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"],
}
_ABOUT_THE_SERVER: Json = {
    "verbs": ["get"],
    "nonResourceURLs": [
        "/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*",
        "/readyz", "/version", "/version/",
    ],
}  # fmt: skip


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


class Rbac:
    """Who may do what, by the roles and bindings that are in a store at the moment."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def allows(self, user: User, attempt: Attempt) -> bool:
        return any(_matches(rule, attempt) for rule in self.rules(user, attempt.namespace))

    def allows_path(self, user: User, verb: str, path: str) -> bool:
        return any(_covers(rule, verb, path) for rule in self.rules(user, ""))

    def rules(self, user: User, namespace: str) -> Iterator[Json]:
        """Everything that somebody may do there."""
        if MASTERS in user.groups:
            yield from _EVERYTHING
        yield _ABOUT_ONESELF
        yield _ABOUT_THE_SERVER
        for stored in self._store.all(f"clusterrolebindings.{_ROLES}"):
            if _names(stored.object, user):
                yield from self._role(stored.object, "")
        for stored in self._store.all(f"rolebindings.{_ROLES}"):
            if stored.key[0] == namespace and _names(stored.object, user):
                yield from self._role(stored.object, namespace)

    def _role(self, binding: Json, namespace: str) -> Sequence[Json]:
        reference = binding.get("roleRef") or {}
        cluster_wide = reference.get("kind") == "ClusterRole"
        storage = f"{'clusterroles' if cluster_wide else 'roles'}.{_ROLES}"
        key = ("" if cluster_wide else namespace, reference.get("name", ""))
        found = self._store.get(storage, key)
        return (found.object.get("rules") or ()) if found else ()


def _covers(rule: Json, verb: str, path: str) -> bool:
    if not _has(rule.get("verbs"), verb):
        return False
    return any(
        path.startswith(each[:-1]) if each.endswith("*") else path == each
        for each in rule.get("nonResourceURLs") or ()
    )


def _names(binding: Json, user: User) -> bool:
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


def _matches(rule: Json, attempt: Attempt) -> bool:
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

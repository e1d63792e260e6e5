"""AccessControl: bearer tokens and RBAC in front of the embedded API.

Whoever is known by a token, given or requested for a service account, may do what ``rbac`` says.
What is not allowed is refused in the server's words, which name the verb and the resource.
Discovery and health are open to everybody who is known.
"""

from collections.abc import Mapping

from backstay.seam.serve import Answer, Inbound
from backstay.sim.api.rbac import Attempt, User
from backstay.sim.api.requests import Target, query_of, route
from backstay.sim.api.server import ApiServer, refused
from backstay.sim.api.status import Refusal
from backstay.sim.doorkeeper import prompt

__all__ = ["AccessControl", "Attempt", "User"]

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


class AccessControl:
    """A ``Handler`` around an API server; ``users`` maps bearer tokens to people."""

    def __init__(self, server: ApiServer, users: Mapping[str, User]) -> None:
        self._server = server
        self._users = users

    @prompt
    async def handle(self, inbound: Inbound) -> Answer:
        try:
            user = self._identify(inbound)
            self._authorize(inbound, user)
        except Refusal as refusal:
            return refused(refusal)
        return await self._server.handle(inbound, user)

    def allows(self, user: User, attempt: Attempt) -> bool:
        return self._server.rbac.allows(user, attempt)

    def _identify(self, inbound: Inbound) -> User:
        scheme, _, token = inbound.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            user = self._users.get(token) or self._server.tokens.user(token)
            if user is not None:
                return user
        raise Refusal(401, "Unauthorized", "Unauthorized")

    def _authorize(self, inbound: Inbound, user: User) -> None:
        try:
            target = route(self._server.kinds, inbound.path)
        except Refusal:
            # Not a resource: a document, or a 404 that the server words itself.
            return
        attempt = _attempt(inbound, target)
        if not self.allows(user, attempt):
            raise _forbidden(user, attempt)


def _attempt(inbound: Inbound, target: Target) -> Attempt:
    info = target.info
    resource = f"{info.plural}/{target.subresource}" if target.subresource else info.plural
    name = target.name or _selected(inbound)
    namespace = target.name if info.storage == "namespaces" else target.namespace
    return Attempt(_verb(inbound, target), info.group, resource, namespace, name)


def _selected(inbound: Inbound) -> str:
    """The one name that a field selector leaves: to list just that is to ask for it by name."""
    for term in query_of(inbound.query).text("fieldSelector").split(","):
        field, _, name = term.partition("=")
        if field == "metadata.name" and name:
            return name.removeprefix("=")
    return ""


def _verb(inbound: Inbound, target: Target) -> str:
    if inbound.method == "GET":
        if query_of(inbound.query).is_watch:
            return "watch"
        return "get" if target.name else "list"
    if inbound.method == "DELETE":
        return "delete" if target.name else "deletecollection"
    return _VERBS.get(inbound.method, inbound.method.lower())


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

"""Reviews: questions that are asked by creating an object, and answered in its status.

May I do this, what may I do here, who am I: ``kubectl auth`` asks that, and so do programs before
they begin. Nothing is stored. TokenRequest is the odd one: its answer is a token with which a
service account is known from then on.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from backstay.seam.clock import Rng, WallClock
from backstay.sim.api import causes, names
from backstay.sim.api.kinds import Object
from backstay.sim.api.operations import stamp
from backstay.sim.api.rbac import Attempt, Rbac, User
from backstay.sim.api.requests import Target
from backstay.sim.api.status import Cause, Refusal, bad_request

Json = Mapping[str, Any]

REVIEWED = frozenset({"authorization.k8s.io", "authentication.k8s.io"})
"""The groups in which whatever is created is a question."""

_AUDIENCE = "https://kubernetes.default.svc"
_USUAL_SECONDS = 3600
_ONE_OF = "exactly one of nonResourceAttributes or resourceAttributes must be specified"


class Tokens:
    """The tokens that were requested, and who they make known."""

    def __init__(self, *, wall: WallClock, rng: Rng) -> None:
        self._wall = wall
        self._rng = rng
        self._users: dict[str, User] = {}

    def user(self, token: str) -> User | None:
        return self._users.get(token)

    def request(self, account: Object, sent: Json) -> Object:
        """Answers a TokenRequest for a service account."""
        meta, spec = account["metadata"], sent.get("spec") or {}
        namespace, name = meta["namespace"], meta["name"]
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
        token = ".".join(self._rng.token(length) for length in (24, 64, 43))
        self._users[token] = User(f"system:serviceaccount:{namespace}:{name}", groups)
        seconds = spec.get("expirationSeconds") or _USUAL_SECONDS
        ends = self._wall.now() + timedelta(seconds=seconds)
        fields = ("name", "namespace", "uid", "creationTimestamp")
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {field: meta[field] for field in fields},
            "spec": {
                "audiences": spec.get("audiences") or [_AUDIENCE],
                "expirationSeconds": seconds,
                "boundObjectRef": spec.get("boundObjectRef"),
            },
            "status": {"token": token, "expirationTimestamp": stamp(ends)},
        }


class Reviews:
    """Answers them."""

    def __init__(self, rbac: Rbac, tokens: Tokens, wall: WallClock) -> None:
        self._rbac = rbac
        self._tokens = tokens
        self._wall = wall

    def answer(self, target: Target, sent: Object, user: User) -> Object:
        """The object with its status. Raises a ``Refusal``."""
        info, spec = target.info, sent.get("spec") or {}
        meta = dict(sent.get("metadata") or {})
        meta.pop("creationTimestamp", None)
        if target.namespace:
            names.check_namespace(target, meta)
            meta["namespace"] = target.namespace
        made: Object = {"kind": info.kind, "apiVersion": info.api_version, "metadata": meta}
        match info.kind:
            case "SelfSubjectReview":
                meta["creationTimestamp"] = stamp(self._wall.now())
                return {**made, "status": {"userInfo": _about(user)}}
            case "TokenReview":
                return {**made, "spec": spec, "status": self._token(spec.get("token") or "")}
            case "SelfSubjectRulesReview":
                return {**made, "spec": {}, "status": self._rules(user, spec)}
            case "SelfSubjectAccessReview":
                return {**made, "spec": spec, "status": self._access(user, spec)}
        asked = User(spec.get("user") or "", tuple(spec.get("groups") or ()))
        return {**made, "spec": spec, "status": self._access(asked, spec)}

    def _access(self, user: User, spec: Json) -> Object:
        wanted, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        if (wanted is None) == (path is None):
            cause = causes.invalid("spec.resourceAttributes", wanted, _ONE_OF)
            raise _invalid(cause)
        if path is not None:
            verb, place = path.get("verb", ""), path.get("path", "")
            return {"allowed": self._rbac.allows_path(user, verb, place)}
        assert wanted is not None
        part = wanted.get("subresource")
        attempt = Attempt(
            wanted.get("verb", ""),
            wanted.get("group", ""),
            f"{wanted.get('resource', '')}/{part}" if part else wanted.get("resource", ""),
            wanted.get("namespace", ""),
            wanted.get("name", ""),
        )
        return {"allowed": self._rbac.allows(user, attempt)}

    def _rules(self, user: User, spec: Json) -> Object:
        namespace = spec.get("namespace")
        if not namespace:
            raise bad_request("no namespace on request")
        rules = list(self._rbac.rules(user, namespace))
        return {
            "resourceRules": [rule for rule in rules if rule.get("resources")],
            "nonResourceRules": [rule for rule in rules if rule.get("nonResourceURLs")],
            "incomplete": False,
        }

    def _token(self, token: str) -> Object:
        user = self._tokens.user(token)
        if user is None:
            return {"user": {}, "error": "invalid bearer token"}
        return {"authenticated": True, "user": _about(user), "audiences": [_AUDIENCE]}


def _about(user: User) -> Object:
    return {"username": user.name, "groups": list(user.all_groups)}


def _invalid(cause: Cause) -> Refusal:
    """Here the server does not name the kind."""
    message = f'.authorization.k8s.io "" is invalid: {cause.field}: {cause.message}'
    details = {"group": "authorization.k8s.io"}
    return Refusal(422, "Invalid", message, details=details, causes=[cause])

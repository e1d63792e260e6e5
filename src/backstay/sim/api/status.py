"""Refusals, worded as a real API server words them.

A ``Refusal`` is raised anywhere below the request handler and becomes the answer's Status body.
Tests of the client and of kubectl compare these words, so they are the server's and not ours.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from backstay.sim.api.kinds import KindInfo, built_in_groups

_SUMMARY = 30


class Cause(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of ``details.causes``."""

    reason: str = ""
    message: str = ""
    field: str = ""


class Refusal(Exception):
    """An answer that is not success."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        causes: Sequence[Cause] = (),
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.continue_token = ""
        self.page = ""
        self.details = dict(details or {})
        if causes:
            self.details["causes"] = list(causes)
        if retry_after is not None:
            self.details["retryAfterSeconds"] = retry_after
        self._has_details = details is not None or bool(self.details)

    def body(self) -> dict[str, Any]:
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_token} if self.continue_token else {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self._has_details:
            status["details"] = self.details
        status["code"] = self.code
        return status


def _of(info: KindInfo, name: str = "", **more: Any) -> dict[str, Any]:
    details = {"name": name, "group": info.group, "kind": info.plural, **more}
    return {key: value for key, value in details.items() if value}


def invalid_options(kind: str, cause: Cause) -> Refusal:
    """What a request asks for besides its object cannot be."""
    return Refusal(
        422, "Invalid", f'{kind}.meta.k8s.io "" is invalid: {cause.field}: {cause.message}',
        details={"group": "meta.k8s.io", "kind": kind}, causes=[cause],
    )  # fmt: skip


def bad_request(message: str) -> Refusal:
    return Refusal(400, "BadRequest", message)


def no_such_resource() -> Refusal:
    message = "the server could not find the requested resource"
    return Refusal(404, "NotFound", message, details={})


def nothing_there(group: str | None) -> Refusal:
    """A path that leads nowhere. Groups of the server's own answer as an API does; behind all
    other paths (None for those without a group) nobody speaks its language."""
    refusal = no_such_resource()
    if group is None or (group and group not in built_in_groups()):
        refusal.page = "404 page not found\n"
    return refusal


def strict_decoding(info: KindInfo, unknown: Sequence[str]) -> Refusal:
    """Fields that nobody knows, from a client that wants to be told."""
    listed = ", ".join(f'unknown field "{field}"' for field in unknown)
    return bad_request(
        f'{info.kind} in version "{info.version}" cannot be handled as a {info.kind}: '
        f"strict decoding error: {listed}"
    )


def not_found(info: KindInfo, name: str) -> Refusal:
    message = f'{info.storage} "{name}" not found'
    return Refusal(404, "NotFound", message, details=_of(info, name))


def already_exists(info: KindInfo, name: str) -> Refusal:
    message = f'{info.storage} "{name}" already exists'
    return Refusal(409, "AlreadyExists", message, details=_of(info, name))


def conflict(info: KindInfo, name: str, why: str) -> Refusal:
    message = f'Operation cannot be fulfilled on {info.storage} "{name}": {why}'
    return Refusal(409, "Conflict", message, details=_of(info, name))


def precondition(info: KindInfo, name: str, why: str) -> Refusal:
    """A condition of a deletion does not hold; here the server names the kind."""
    kind = f"{info.kind}.{info.group}" if info.group else info.kind
    message = f'Operation cannot be fulfilled on {kind} "{name}": {why}'
    details = {"name": name, "group": info.group, "kind": info.kind}
    return Refusal(409, "Conflict", message, details={k: v for k, v in details.items() if v})


def stale(info: KindInfo, name: str) -> Refusal:
    return conflict(
        info,
        name,
        "the object has been modified; please apply your changes to the latest version and "
        "try again",
    )


def forbidden(info: KindInfo, name: str, why: str, causes: Sequence[Cause] = ()) -> Refusal:
    message = f'{info.storage} "{name}" is forbidden: {why}'
    return Refusal(403, "Forbidden", message, details=_of(info, name), causes=causes)


def method_not_allowed() -> Refusal:
    message = "the server does not allow this method on the requested resource"
    return Refusal(405, "MethodNotAllowed", message, details={})


def unsupported_media(accepted: Sequence[str]) -> Refusal:
    listed = ", ".join(accepted)
    message = (
        f"the body of the request was in an unknown format - accepted media types include: {listed}"
    )
    return Refusal(415, "UnsupportedMediaType", message)


def invalid(info: KindInfo, name: str, causes: Sequence[Cause]) -> Refusal:
    """A 422 with every cause, the message listing them as ``field.ErrorList`` does."""
    said = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    listed = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    details = {"name": name, "group": info.group, "kind": info.kind}
    return Refusal(
        422,
        "Invalid",
        f'{info.kind}{"." + info.group if info.group else ""} "{name}" is invalid: {listed}',
        details={key: value for key, value in details.items() if value},
        causes=causes,
    )


def other_kind(info: KindInfo, name: str, kind: str) -> Refusal:
    """A custom resource that claims to be of another kind."""
    cause = Cause("FieldValueInvalid", f'Invalid value: "{kind}": must be {info.kind}', "kind")
    return invalid(msgspec.structs.replace(info, kind=kind), name, [cause])


def no_version(info: KindInfo, name: str) -> Refusal:
    """An update that does not say what it is an update of."""
    why = "Invalid value: 0: must be specified for an update"
    cause = Cause("FieldValueInvalid", why, "metadata.resourceVersion")
    return invalid(msgspec.structs.replace(info, kind=info.plural), name, [cause])


def kindless(info: KindInfo, body: bytes) -> Refusal:
    """A custom resource that does not say of what kind it is."""
    text = body.decode(errors="replace")
    short = f"{text[:_SUMMARY]} ..." if len(text) > _SUMMARY else text
    return bad_request(
        f"the object provided is unrecognized (must be of type {info.kind}): Object 'Kind' is "
        f"missing in '{text}' ({short})"
    )


def undecodable_patch(why: str) -> Refusal:
    """A patch after which the object would make no sense. It is not repeated here."""
    why = f'Invalid value: "": {why}'
    cause = Cause("FieldValueInvalid", why, "patch")
    return Refusal(422, "Invalid", f' "" is invalid: patch: {why}', causes=[cause])


def strict_patch(unknown: Sequence[str]) -> Refusal:
    """A patch that would add fields that nobody knows. The object is not repeated here."""
    listed = ", ".join(f'unknown field "{field}"' for field in unknown)
    why = f'Invalid value: "": strict decoding error: {listed}'
    cause = Cause("FieldValueInvalid", why, "patch")
    return Refusal(422, "Invalid", f' "" is invalid: patch: {why}', causes=[cause])


def missing_field_manager() -> Refusal:
    why = "Required value: is required for apply patch"
    return invalid_options("PatchOptions", Cause("FieldValueRequired", why, "fieldManager"))


def expired(message: str) -> Refusal:
    return Refusal(410, "Expired", message)

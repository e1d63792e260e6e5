"""Refusals, worded as a real API server words them.

A ``Refusal`` is raised anywhere below the request handler and becomes the answer's Status body.
Tests of the client and of kubectl compare these words, so they are the server's and not ours.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from backstay.sim.api.kinds import KindInfo


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


def bad_request(message: str) -> Refusal:
    return Refusal(400, "BadRequest", message)


def no_such_resource() -> Refusal:
    message = "the server could not find the requested resource"
    return Refusal(404, "NotFound", message, details={})


def not_found(info: KindInfo, name: str) -> Refusal:
    message = f'{info.storage} "{name}" not found'
    return Refusal(404, "NotFound", message, details=_of(info, name))


def already_exists(info: KindInfo, name: str) -> Refusal:
    message = f'{info.storage} "{name}" already exists'
    return Refusal(409, "AlreadyExists", message, details=_of(info, name))


def conflict(info: KindInfo, name: str, why: str) -> Refusal:
    message = f'Operation cannot be fulfilled on {info.storage} "{name}": {why}'
    return Refusal(409, "Conflict", message, details=_of(info, name))


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
    return Refusal(415, "UnsupportedMediaType", message, details={})


def invalid(info: KindInfo, name: str, causes: Sequence[Cause]) -> Refusal:
    """A 422 with every cause, the message listing them as ``field.ErrorList`` does."""
    said = [f"{cause.field}: {cause.message}" for cause in causes]
    listed = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    details = {"name": name, "group": info.group, "kind": info.kind}
    return Refusal(
        422,
        "Invalid",
        f'{info.kind}{"." + info.group if info.group else ""} "{name}" is invalid: {listed}',
        details={key: value for key, value in details.items() if value},
        causes=causes,
    )


def missing_field_manager() -> Refusal:
    why = "Required value: is required for apply patch"
    return Refusal(
        422, "Invalid", f'PatchOptions.meta.k8s.io "" is invalid: fieldManager: {why}',
        details={"group": "meta.k8s.io", "kind": "PatchOptions"},
        causes=[Cause("FieldValueRequired", why, "fieldManager")],
    )  # fmt: skip


def expired(message: str) -> Refusal:
    return Refusal(410, "Expired", message)

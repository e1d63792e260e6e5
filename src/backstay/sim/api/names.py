"""Names: which ones an object may have, and how the server makes them up."""

import re
from typing import Any

from backstay.seam.clock import Rng
from backstay.sim.api.kinds import KindInfo
from backstay.sim.api.requests import Target
from backstay.sim.api.status import Cause, bad_request

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")

NOT_A_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_NOT_A_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)

# Kinds whose names become DNS labels or path segments of their own.
_LABEL_KINDS = frozenset({"namespaces", "services"})
_PATH_KINDS = frozenset({"roles", "rolebindings", "clusterroles", "clusterrolebindings"})

_GENERATED_LENGTH = 5
_LONGEST_PREFIX = 58


def is_subdomain(name: str) -> bool:
    return _SUBDOMAIN.match(name) is not None


def generated(prefix: str, rng: Rng) -> str:
    return prefix[:_LONGEST_PREFIX] + rng.token(_GENERATED_LENGTH)


def check(info: KindInfo, meta: dict[str, Any]) -> list[Cause]:
    """What is wrong with an object's name."""
    name = meta.get("name") or ""
    if not name:
        why = "Required value: name or generateName is required"
        return [Cause("FieldValueRequired", why, "metadata.name")]
    if info.plural in _PATH_KINDS:
        return []
    if info.plural in _LABEL_KINDS:
        pattern, longest, why = _LABEL, 63, _NOT_A_LABEL
    else:
        pattern, longest, why = _SUBDOMAIN, 253, NOT_A_SUBDOMAIN
    if len(name) > longest:
        why = f"must be no more than {longest} characters"
    elif pattern.match(name):
        return []
    return [Cause("FieldValueInvalid", f'Invalid value: "{name}": {why}', "metadata.name")]


def check_against_url(target: Target, meta: dict[str, Any]) -> None:
    """A body that names another object than the URL does is refused."""
    said = meta.get("name")
    if said and said != target.name:
        raise bad_request(
            f"the name of the object ({said}) does not match the name on the URL ({target.name})"
        )
    namespace = meta.get("namespace")
    if namespace and target.info.namespaced and namespace != target.namespace:
        raise bad_request(
            f"the namespace of the object ({namespace}) does not match the namespace on the URL "
            f"({target.namespace})"
        )

"""Names: which ones an object may have, and how the server makes them up."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from backstay.seam.clock import Rng
from backstay.sim.api import causes
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

_KEY = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\Z")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?\Z")
_NOT_A_KEY = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_NOT_A_LABEL_KEY = (
    "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex "
    "used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS "
    "subdomain prefix and '/' (e.g. 'example.com/MyName')"
)
_NOT_A_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    "or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_LONGEST_VALUE = 63

_GENERATED_LENGTH = 5
_LONGEST_PREFIX = 58


def is_subdomain(name: str) -> bool:
    return _SUBDOMAIN.match(name) is not None


def generated(prefix: str, rng: Rng) -> str:
    return prefix[:_LONGEST_PREFIX] + rng.token(_GENERATED_LENGTH)


def check_marks(meta: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """What is wrong with an object's labels and annotations, but for those that it had before."""
    found: list[Cause] = []
    labels, annotations = meta.get("labels"), meta.get("annotations")
    if labels and labels is not old.get("labels"):
        found += _check_labels(labels)
    if annotations and annotations is not old.get("annotations"):
        for key in annotations:
            if problems := _key_problems(key.lower()):
                found += [causes.invalid("metadata.annotations", key, why) for why in problems]
    return found


def _check_labels(labels: dict[str, str]) -> list[Cause]:
    found = []
    for key, value in labels.items():
        if problems := _key_problems(key):
            found += [causes.invalid("metadata.labels", key, why) for why in problems]
        if len(value) > _LONGEST_VALUE:
            why = f"must be no more than {_LONGEST_VALUE} bytes"
            found.append(causes.invalid("metadata.labels", value, why))
        if not _VALUE.match(value):
            found.append(causes.invalid("metadata.labels", value, _NOT_A_VALUE))
    return found


@lru_cache(maxsize=4096)
def _key_problems(key: str) -> tuple[str, ...]:
    """Asked once, because most objects have the same few keys."""
    return tuple(_wrong_with_key(key))


def _wrong_with_key(key: str) -> Iterator[str]:
    """``prefix/name`` or just a name."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        yield _NOT_A_LABEL_KEY
        return
    if slash and not prefix:
        yield "prefix part must be non-empty"
    elif slash and not is_subdomain(prefix):
        yield f"prefix part {NOT_A_SUBDOMAIN}"
    if not name:
        yield "name part must be non-empty"
    elif len(name) > _LONGEST_VALUE:
        yield f"name part must be no more than {_LONGEST_VALUE} bytes"
    if not _KEY.match(name):
        yield f"name part {_NOT_A_KEY}"


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
    if info.plural == "namespaces" and "." in name:
        why = "must not contain dots"
    elif len(name) > longest:
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
    check_namespace(target, meta)


def check_namespace(target: Target, meta: dict[str, Any]) -> None:
    said = meta.get("namespace")
    if said and target.info.namespaced and said != target.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


_STANDARD_FINALIZERS = frozenset({"kubernetes", "foregroundDeletion", "orphan"})


# Where a finalizer need not say whose it is.
_FREE_FINALIZERS = frozenset({"apiextensions.k8s.io", "apiregistration.k8s.io"})


def check_finalizers(
    info: KindInfo, new: dict[str, Any], old: dict[str, Any] | None
) -> list[Cause]:
    """Finalizers belong to somebody, and nobody comes to hold what is on its way out."""
    found = []
    if old is not None and old.get("deletionTimestamp"):
        added = [f for f in new.get("finalizers") or () if f not in (old.get("finalizers") or ())]
        if added:
            listed = ", ".join(f'"{each}"' for each in sorted(added))
            why = (
                "Forbidden: no new finalizers can be added if the object is being deleted, found "
                f"new finalizers []string{{{listed}}}"
            )
            found.append(Cause("FieldValueForbidden", why, "metadata.finalizers"))
    if not info.built_in or info.group in _FREE_FINALIZERS:
        return found
    for index, each in enumerate(new.get("finalizers") or ()):
        if "/" not in each and each not in _STANDARD_FINALIZERS:
            why = (
                f'Invalid value: "{each}": name is neither a standard finalizer name nor is it '
                "fully qualified"
            )
            found.append(Cause("FieldValueInvalid", why, f"metadata.finalizers[{index}]"))
    return found

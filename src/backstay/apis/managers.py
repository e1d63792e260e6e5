"""Field managers: which program has written a field, as far as the API server keeps account.

A manager is the name that a program gives itself, or the beginning of its user agent. It is no
identity and proves nothing: a script can call itself kubectl. It tells an honest tool from an
honest controller, and no more is asked of it.
"""

from collections.abc import Sequence
from typing import Any

import msgspec


class _Entry(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    manager: str = ""
    fields_v1: dict[str, Any] = msgspec.field(default={}, name="fieldsV1")


_DECODER: msgspec.json.Decoder[list[_Entry]] = msgspec.json.Decoder(list[_Entry])


def managers_of(managed: msgspec.Raw, path: Sequence[str]) -> tuple[str, ...]:
    """Who owns the field at this path (``spec``, ``taints``), each once; empty if nobody is known
    to."""
    if not bytes(managed):
        return ()
    try:
        entries = _DECODER.decode(managed)
    except msgspec.MsgspecError:
        return ()
    return tuple(dict.fromkeys(each.manager for each in entries if _owns(each.fields_v1, path)))


def _owns(fields: object, path: Sequence[str]) -> bool:
    for name in path:
        if not isinstance(fields, dict) or f"f:{name}" not in fields:
            return False
        fields = fields[f"f:{name}"]
    return True

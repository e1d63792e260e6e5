"""What a request says before anybody has looked at it: its body, whether it is a dry run, and which
guest it is about where that is no object of the API's own."""

from collections.abc import Mapping
from typing import Any

import msgspec

from backstay.seam.serve import Inbound
from backstay.sim.api.store import Key

Json = Mapping[str, Any]


def body_of(inbound: Inbound) -> Json:
    """Empty where it is not a JSON object."""
    try:
        body = msgspec.json.decode(inbound.body or b"{}")
    except msgspec.DecodeError:
        return {}
    return body if isinstance(body, dict) else {}


def is_dry(inbound: Inbound, body: Json) -> bool:
    if "dryRun=All" in inbound.query:
        return True
    if b'"dryRun"' not in inbound.body:
        # As almost always, and this is asked of every request.
        return False
    return bool((body.get("deleteOptions") or {}).get("dryRun") or body.get("dryRun"))


def asked_of_kubevirt(inbound: Inbound) -> tuple[str, Key, str] | None:
    """What virt-api is asked to do with a guest: its kind, its key, and the verb."""
    match inbound.path.strip("/").split("/"):
        case ["apis", "subresources.kubevirt.io", _, "namespaces", namespace, plural, name, *verb]:
            return f"{plural}.kubevirt.io", (namespace, name), "/".join(verb)
    return None

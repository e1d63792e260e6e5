"""Taints: whether ours is on a node, as it stands in the API or in what somebody writes."""

from collections.abc import Mapping
from typing import Any

from backstay.model.labels import TAINT


def has_our_taint(node: Mapping[str, Any]) -> bool:
    taints = (node.get("spec") or {}).get("taints") or ()
    return any(each.get("key") == TAINT for each in taints)

"""Label selectors as objects have them: ``matchLabels`` and ``matchExpressions``."""

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]


def selects(selector: Json | None, labels: Mapping[str, str]) -> bool:
    """An empty selector selects everything, and none selects nothing."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(name) != value for name, value in wanted.items()):
        return False
    return all(_holds(each, labels) for each in selector.get("matchExpressions") or ())


def _holds(requirement: Json, labels: Mapping[str, str]) -> bool:
    key, values = requirement["key"], requirement.get("values") or ()
    match requirement["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False


def as_text(selector: Json | None) -> str:
    """As a query writes it; empty for one that selects everything."""
    parts = {name: f"{name}={value}" for name, value in _labels(selector).items()}
    listed = [*parts.items(), *((each["key"], _text(each)) for each in _expressions(selector))]
    return ",".join(text for _, text in sorted(listed, key=lambda part: part[0]))


def _labels(selector: Json | None) -> Mapping[str, str]:
    return (selector or {}).get("matchLabels") or {}


def _expressions(selector: Json | None) -> list[Json]:
    return (selector or {}).get("matchExpressions") or []


def _text(requirement: Json) -> str:
    key, values = requirement["key"], ",".join(sorted(requirement.get("values") or ()))
    match requirement["operator"]:
        case "In":
            return f"{key} in ({values})"
        case "NotIn":
            return f"{key} notin ({values})"
        case "Exists":
            return str(key)
    return f"!{key}"

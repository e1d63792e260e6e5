"""Kubeconfig files for tests: one context, varied by what the test is about."""

import json
from pathlib import Path
from typing import Any

SERVER = "https://192.0.2.1:6443"


def one_context(
    *,
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    context: dict[str, Any] | None = None,
) -> dict[str, Any]:
    context = {"cluster": "east", "user": "ann"} | (context or {})
    return {
        "current-context": "prod",
        "contexts": [{"name": "prod", "context": context}],
        "clusters": [{"name": "east", "cluster": {"server": SERVER} | (cluster or {})}],
        "users": [{"name": "ann", "user": user or {}}],
    }


def write(path: Path, content: dict[str, Any]) -> str:
    """Written as JSON, which is YAML too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return str(path)

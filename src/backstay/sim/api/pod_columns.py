"""What ``kubectl get pods`` says of a pod in READY, STATUS and RESTARTS.

STATUS is the phase, unless something more telling is known: why an init container does not get
on, why a container waits or how it ended, or that the pod is going.
"""

from collections.abc import Callable, Mapping
from typing import Any

Json = Mapping[str, Any]
Since = Callable[[str | None], str]

_UNREACHABLE = "NodeLost"


class _Story:
    """What has been found out so far."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.ready = 0
        self.restarts = 0
        self.last_restart = ""

    def count(self, container: Json) -> None:
        self.restarts += container.get("restartCount") or 0
        ended = ((container.get("lastState") or {}).get("terminated") or {}).get("finishedAt")
        self.last_restart = max(self.last_restart, ended or "")


def pod_cells(pod: Json, since: Since) -> tuple[str, str, str]:
    """READY, STATUS and RESTARTS."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    inits = spec.get("initContainers") or []
    sidecars = {c["name"] for c in inits if c.get("restartPolicy") == "Always"}
    total = len(spec.get("containers") or ()) + len(sidecars)
    story = _Story(_from_phase(status))
    still_starting = _follow_inits(story, status, sidecars, len(inits))
    if not still_starting or _condition(status, "Initialized") == "True":
        story = _main_part(story, status, sidecars)
    reason = _at_the_end(pod, status, story.reason)
    restarts = str(story.restarts)
    if story.restarts and story.last_restart:
        restarts += f" ({since(story.last_restart)} ago)"
    return f"{story.ready}/{total}", reason, restarts


def _from_phase(status: Json) -> str:
    gated = any(
        c["type"] == "PodScheduled" and c.get("reason") == "SchedulingGated"
        for c in status.get("conditions") or ()
    )
    return "SchedulingGated" if gated else status.get("reason") or status.get("phase") or ""


def _condition(status: Json, kind: str) -> str:
    conditions = status.get("conditions") or ()
    return next((c["status"] for c in conditions if c["type"] == kind), "")


def _follow_inits(story: _Story, status: Json, sidecars: set[str], count: int) -> bool:
    """Whether an init container is still at it, which then is what there is to say."""
    for index, container in enumerate(status.get("initContainerStatuses") or ()):
        story.count(container)
        state = container.get("state") or {}
        ended, waits = state.get("terminated"), state.get("waiting") or {}
        if ended is not None and not ended.get("exitCode"):
            continue
        if container["name"] in sidecars and container.get("started"):
            story.ready += bool(container.get("ready"))
            continue
        if ended is not None:
            story.reason = "Init:" + _how_it_ended(ended)
        elif waits.get("reason") not in (None, "", "PodInitializing"):
            story.reason = f"Init:{waits['reason']}"
        else:
            story.reason = f"Init:{index}/{count}"
        return True
    return False


def _main_part(before: _Story, status: Json, sidecars: set[str]) -> _Story:
    """The containers proper. Of the restarts before, only those of sidecars count."""
    story = _Story(before.reason)
    story.ready = before.ready
    for container in status.get("initContainerStatuses") or ():
        if container["name"] in sidecars:
            story.count(container)
    failed = ""
    before_them = story.ready
    for container in reversed(status.get("containerStatuses") or ()):
        story.count(container)
        state = container.get("state") or {}
        ended, waits = state.get("terminated"), state.get("waiting") or {}
        if waits.get("reason"):
            story.reason = waits["reason"]
        elif ended is not None:
            story.reason = _how_it_ended(ended)
            failed = story.reason if ended.get("exitCode") else failed
        elif container.get("ready") and state.get("running") is not None:
            story.ready += 1
    if story.reason == "Completed":
        is_ready = _condition(status, "Ready") == "True"
        story.reason = _partly_completed(story.ready > before_them, is_ready, failed)
    return story


def _partly_completed(runs: bool, is_ready: bool, failed: str) -> str:
    """One container has completed; others may tell another story."""
    if runs and is_ready:
        return "Running"
    return failed or ("NotReady" if runs else "Completed")


def _how_it_ended(ended: Json) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"


def _at_the_end(pod: Json, status: Json, reason: str) -> str:
    if not (pod.get("metadata") or {}).get("deletionTimestamp"):
        return reason
    if status.get("reason") == _UNREACHABLE:
        return "Unknown"
    return reason if status.get("phase") in ("Succeeded", "Failed") else "Terminating"

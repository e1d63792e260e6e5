"""The status that a kubelet writes for a pod, from what its runtime knows.

A pure function, so that the kubelet can tell at any time whether the API still says what it
would say itself: that is how Ready comes back after others took it away.
"""

import enum
from dataclasses import dataclass
from datetime import datetime

from backstay.sim.nodes.runtime import Ended
from backstay.sim.nodes.wire import Container, Json, Pod


class Step(enum.Enum):
    """Where a pod is in its life on this node."""

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(frozen=True)
class Facts:
    """What the kubelet and its runtime know about one pod."""

    step: Step
    running_since: datetime | None
    ended: Ended | None
    restarts: int
    host_ip: str
    pod_ips: tuple[str, ...]
    """None as long as it has no network."""


_NO_TIMES = {"startedAt": None, "finishedAt": None}


def pod_status(pod: Pod, facts: Facts, *, now: datetime) -> Json:
    """The part of the status that is a kubelet's to write."""
    phase = _phase(pod, facts)
    ready = facts.step in (Step.RUNNING, Step.STOPPING)
    status: Json = {
        "phase": phase,
        "hostIP": facts.host_ip,
        "hostIPs": [{"ip": facts.host_ip}],
        **_addresses(pod, facts),
        "startTime": pod.status.get("startTime") or stamp(now),
        "conditions": _conditions(pod, facts, phase=phase, ready=ready, now=now),
        "containerStatuses": [
            _container(pod, container, facts, ready=ready) for container in pod.spec.containers
        ],
    }
    if pod.spec.init_containers:
        status["initContainerStatuses"] = [
            _init_container(pod, container, facts, now=now)
            for container in pod.spec.init_containers
        ]
    return status


def _addresses(pod: Pod, facts: Facts) -> Json:
    ips = (facts.host_ip,) if pod.spec.host_network else facts.pod_ips
    if facts.step is Step.ENDED:
        ips = tuple(each["ip"] for each in pod.status.get("podIPs") or ()) or ips
    return {"podIP": ips[0], "podIPs": [{"ip": each} for each in ips]} if ips else {}


def differs(wanted: Json, actual: Json) -> bool:
    """Whether the API says something else than the kubelet would; others' conditions are theirs."""
    if (
        wanted["phase"] != actual.get("phase")
        or wanted.get("podIP") != actual.get("podIP")
        or wanted["containerStatuses"] != actual.get("containerStatuses")
    ):
        return True
    said = {each["type"]: each["status"] for each in actual.get("conditions") or ()}
    return any(said.get(each["type"]) != each["status"] for each in wanted["conditions"])


def _phase(pod: Pod, facts: Facts) -> str:
    if pod.over:
        return pod.phase
    if facts.step is Step.ENDED:
        return "Succeeded" if facts.ended and facts.ended.code == 0 else "Failed"
    if facts.step is Step.STARTING and facts.ended is None:
        return "Pending"
    return "Running"


def _conditions(pod: Pod, facts: Facts, *, phase: str, ready: bool, now: datetime) -> list[Json]:
    readiness = (ready, "" if ready else _not_ready_because(phase))
    up = facts.step not in (Step.STARTING, Step.ENDED)
    initialized = facts.step is not Step.STARTING or not pod.spec.init_containers
    wanted = {
        "PodReadyToStartContainers": (up, ""),
        "Initialized": (initialized, "" if initialized else "ContainersNotInitialized"),
        "Ready": readiness,
        "ContainersReady": readiness,
        "PodScheduled": (True, ""),
    }
    had = {
        (each["type"], each["status"]): each.get("lastTransitionTime")
        for each in pod.status.get("conditions") or ()
    }
    moment = stamp(now)
    return [
        {
            "type": kind,
            "status": (status := "True" if true else "False"),
            "lastTransitionTime": had.get((kind, status)) or moment,
            # An earlier reason goes only if the patch says so.
            "reason": reason or None,
        }
        for kind, (true, reason) in wanted.items()
    ]


def _not_ready_because(phase: str) -> str:
    return {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "ContainersNotReady")


def _container(pod: Pod, container: Container, facts: Facts, *, ready: bool) -> Json:
    if facts.step is Step.ENDED and facts.ended is None:
        return _lost_container(pod, container)
    status = _bare_container(container, _state(pod, container, facts))
    status |= {"ready": ready, "started": ready, "restartCount": facts.restarts}
    if facts.running_since or facts.ended:
        status["containerID"] = _container_id(pod, container, facts)
    if facts.ended and facts.step not in (Step.ENDED, Step.RESTARTING):
        status["lastState"] = {"terminated": _terminated(pod, container, facts, facts.ended)}
    return status


def _bare_container(container: Container, state: Json) -> Json:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": False,
        "started": False,
        "restartCount": 0,
        "lastState": {},
        "state": state,
    }


def _state(pod: Pod, container: Container, facts: Facts) -> Json:
    if facts.running_since:
        return {"running": {"startedAt": stamp(facts.running_since)}}
    if facts.ended and facts.step is not Step.STARTING:
        return {"terminated": _terminated(pod, container, facts, facts.ended)}
    return {"waiting": {"reason": "ContainerCreating"}}


def _lost_container(pod: Pod, container: Container) -> Json:
    """One that this machine's disk knows nothing of: what the API remembers has to do."""
    for known in pod.status.get("containerStatuses") or ():
        if known["name"] == container.name:
            status: Json = known | {"ready": False, "started": False}
            if "running" in known.get("state", {}):
                unknown = {"exitCode": 137, "reason": "ContainerStatusUnknown"}
                status["state"] = {"terminated": unknown | _NO_TIMES}
            return status
    return _bare_container(container, {"waiting": {"reason": "ContainerCreating"}})


def _terminated(pod: Pod, container: Container, facts: Facts, ended: Ended) -> Json:
    return {
        "exitCode": ended.code,
        "reason": ended.reason,
        "startedAt": stamp(ended.started_at),
        "finishedAt": stamp(ended.finished_at),
        "containerID": _container_id(pod, container, facts),
    }


def _init_container(pod: Pod, container: Container, facts: Facts, *, now: datetime) -> Json:
    """Init containers take no time and never fail; those that are sidecars run with the rest."""
    if container.restart_policy == "Always":
        ready = facts.running_since is not None
        return _container(pod, container, facts, ready=ready)
    for before in pod.status.get("initContainerStatuses") or ():
        if before["name"] == container.name and "terminated" in before.get("state", {}):
            done: Json = before
            return done
    if facts.step is Step.STARTING:
        return _bare_container(container, {"waiting": {"reason": "PodInitializing"}})
    finished = stamp(facts.running_since or now)
    completed = {"exitCode": 0, "reason": "Completed", "startedAt": finished}
    state = {"terminated": completed | {"finishedAt": finished}}
    return _bare_container(container, state) | {"ready": True}


def _container_id(pod: Pod, container: Container, facts: Facts) -> str:
    return f"hollow://{pod.uid}/{container.name}/{facts.restarts}"


def stamp(moment: datetime) -> str:
    """As Kubernetes writes times: whole seconds, UTC."""
    return moment.replace(tzinfo=None).isoformat(timespec="seconds") + "Z"

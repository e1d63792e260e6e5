"""Defaults: what the server fills in where a creator was silent.

``filled(obj, defaults)`` adds what is missing and never touches what was said. What is complete
already comes back as the very same object, because every write goes through here. The tables hold
what a real server was seen to fill in; the ``real`` tests compare them with one again.
"""

from collections.abc import Callable, Mapping
from typing import Any

from backstay.sim.api.kinds import Object

PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}

POD_SPEC: Mapping[str, Any] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
}

DEPLOYMENT_SPEC: Mapping[str, Any] = {
    "replicas": 1,
    "strategy": {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
    },
    "revisionHistoryLimit": 10,
    "progressDeadlineSeconds": 600,
}

STATEFUL_SET_SPEC: Mapping[str, Any] = {
    "replicas": 1,
    "podManagementPolicy": "OrderedReady",
    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
    "revisionHistoryLimit": 10,
    "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
}

DAEMON_SET_SPEC: Mapping[str, Any] = {
    "updateStrategy": {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
    },
    "revisionHistoryLimit": 10,
}

JOB_SPEC: Mapping[str, Any] = {
    "parallelism": 1,
    "completions": 1,
    "backoffLimit": 6,
    "completionMode": "NonIndexed",
    "suspend": False,
    "podReplacementPolicy": "TerminatingOrFailed",
    "manualSelector": False,
}

NODE_INFO: Mapping[str, Any] = dict.fromkeys(
    ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion",
     "kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture"),
    "",
)  # fmt: skip

NODE_STATUS: Mapping[str, Any] = {
    "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
    "nodeInfo": NODE_INFO,
}

_SOURCES: Mapping[str, Mapping[str, Any]] = {
    "configMap": {"defaultMode": 420},
    "downwardAPI": {"defaultMode": 420},
    "projected": {"defaultMode": 420},
    "secret": {"defaultMode": 420},
    "hostPath": {"type": ""},
}

TOLERATIONS = tuple(
    {
        "key": f"node.kubernetes.io/{state}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for state in ("not-ready", "unreachable")
)


def filled(obj: Mapping[str, Any] | None, defaults: Mapping[str, Any]) -> Object:
    """With what was missing; the very same object if nothing was."""
    said = obj if isinstance(obj, dict) else {}
    missing = {k: v for k, v in defaults.items() if said.get(k) is None}
    return {**said, **missing} if missing else said


def each_filled(items: list[Object], fill: Callable[[Object], Object]) -> list[Object]:
    """The same list if nothing was missing in any of its items."""
    made = [fill(item) for item in items]
    return items if all(map(_is, made, items)) else made


def _is(left: object, right: object) -> bool:
    return left is right


def _filled_lists(obj: Object, fills: Mapping[str, Callable[[Object], Object]]) -> Object:
    for field, fill in fills.items():
        items = obj.get(field)
        if items and (made := each_filled(items, fill)) is not items:
            obj = {**obj, field: made}
    return obj


def conditions(obj: Object, *times: str) -> Object:
    """With the times of its conditions, which are there even if unknown."""
    status = obj.get("status") or {}
    unknown: Object = dict.fromkeys(times)

    def timed(condition: Object) -> Object:
        complete = unknown.keys() <= condition.keys()
        return condition if complete else {**unknown, **condition}

    held = status.get("conditions")
    if not held or (made := each_filled(held, timed)) is held:
        return obj
    return {**obj, "status": {**status, "conditions": made}}


def template(obj: Object) -> Object:
    """What makes pods, with its template filled in."""
    held = obj.get("template") or {}
    if not held.get("spec"):
        return obj
    spec = pod_spec(held["spec"])
    return obj if spec is held["spec"] else {**obj, "template": {**held, "spec": spec}}


def pod_spec(spec: Object) -> Object:
    """A pod's spec, or that of a template."""
    made = filled(spec, POD_SPEC)
    account = made.get("serviceAccountName") or made.get("serviceAccount")
    if account:
        # The second is an old name of the first.
        made = filled(made, {"serviceAccountName": account, "serviceAccount": account})
    container = _container_on_host if spec.get("hostNetwork") else _container
    fills = {"containers": container, "initContainers": container, "volumes": _volume}
    return _filled_lists(made, fills)


def requests(spec: Object) -> Object:
    """Whoever limits a resource and asks for none of it, asks for as much as the limit."""
    return _filled_lists(spec, {"containers": _requests, "initContainers": _requests})


def _requests(container: Object) -> Object:
    resources = container.get("resources") or {}
    limits, asked = resources.get("limits") or {}, resources.get("requests") or {}
    wanted = filled(asked, limits)
    if wanted is asked or not limits:
        return container
    return {**container, "resources": {**resources, "requests": wanted}}


def _container(container: Object) -> Object:
    image = container.get("image") or ""
    tag = image.rpartition("/")[2].partition(":")[2]
    made = filled(
        container,
        {
            "resources": {},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "imagePullPolicy": "Always" if tag in ("", "latest") else "IfNotPresent",
        },
    )
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if made.get(probe) and (full := _probe(made[probe])) is not made[probe]:
            made = {**made, probe: full}
    return _filled_lists(made, {"ports": _port, "env": _variable})


def _container_on_host(container: Object) -> Object:
    return _filled_lists(_container(container), {"ports": _port_on_host})


def _port(port: Object) -> Object:
    return filled(port, {"protocol": "TCP"})


def _port_on_host(port: Object) -> Object:
    return filled(port, {"hostPort": port.get("containerPort")})


def _variable(variable: Object) -> Object:
    source = variable.get("valueFrom") or {}
    field = source.get("fieldRef")
    if not field or field.get("apiVersion"):
        return variable
    return {**variable, "valueFrom": {**source, "fieldRef": {**field, "apiVersion": "v1"}}}


def _probe(probe: Object) -> Object:
    made = filled(probe, PROBE)
    asked = made.get("httpGet")
    if asked and (full := filled(asked, {"path": "/", "scheme": "HTTP"})) is not asked:
        return {**made, "httpGet": full}
    return made


def _volume(volume: Object) -> Object:
    if not any(value is not None for field, value in volume.items() if field != "name"):
        return {**volume, "emptyDir": {}}
    for source, usual in _SOURCES.items():
        held = volume.get(source)
        if held is not None and (full := filled(held, usual)) is not held:
            return {**volume, source: full}
    return volume


def quality_of_service(spec: Object) -> str:
    """The QoS class: Guaranteed, Burstable or BestEffort."""
    containers = [*spec.get("containers", ()), *spec.get("initContainers", ())]
    resources = [container.get("resources") or {} for container in containers]
    if not any(r.get("limits") or r.get("requests") for r in resources):
        return "BestEffort"
    for each in resources:
        limits = each.get("limits") or {}
        requests = {**limits, **(each.get("requests") or {})}
        if not {"cpu", "memory"} <= set(limits) or requests != limits:
            return "Burstable"
    return "Guaranteed"

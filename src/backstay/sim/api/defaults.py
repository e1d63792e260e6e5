"""Defaults: what the server fills in where a creator was silent.

``filled(obj, defaults)`` adds what is missing and never touches what was said. The tables hold
what a real server was seen to fill in; the ``real`` tests compare them with one again.
"""

from collections.abc import Mapping
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

SERVICE_SPEC: Mapping[str, Any] = {
    "type": "ClusterIP",
    "sessionAffinity": "None",
    "ipFamilies": ["IPv4"],
    "ipFamilyPolicy": "SingleStack",
    "internalTrafficPolicy": "Cluster",
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
    """A copy with what was missing."""
    said = obj or {}
    return {**said, **{k: v for k, v in defaults.items() if said.get(k) is None}}


def pod_spec(spec: Object) -> Object:
    """A pod's spec, or that of a template."""
    made = filled(spec, POD_SPEC)
    for field in ("containers", "initContainers"):
        if spec.get(field):
            made[field] = [_container(container) for container in spec[field]]
    if spec.get("volumes"):
        made["volumes"] = [_volume(volume) for volume in spec["volumes"]]
    return made


def _container(container: Object) -> Object:
    image = container.get("image", "")
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
    if container.get("ports"):
        made["ports"] = [filled(port, {"protocol": "TCP"}) for port in container["ports"]]
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(probe):
            made[probe] = _probe(container[probe])
    return made


def _probe(probe: Object) -> Object:
    made = filled(probe, PROBE)
    if probe.get("httpGet"):
        made["httpGet"] = filled(probe["httpGet"], {"path": "/", "scheme": "HTTP"})
    return made


def _volume(volume: Object) -> Object:
    for source in ("configMap", "secret", "projected", "downwardAPI"):
        if source in volume:
            return {**volume, source: filled(volume[source], {"defaultMode": 420})}
    if "hostPath" in volume:
        return {**volume, "hostPath": filled(volume["hostPath"], {"type": ""})}
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

"""The pods of a large cluster, the same ones every time.

A few hundred shapes are built in detail (containers, environment, probes, volumes, conditions,
managed fields); each pod is one of them with its own identity filled in. Five pods share an owner,
as the replicas of one ReplicaSet do, and with it a shape. That makes 100,000 pods of 9 KB a matter
of a second or two, so nothing has to be stored.
"""

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from random import Random
from typing import Any

import msgspec

PER_OWNER = 5
FIRST_VERSION = 700_000_000

_SHAPES = 256
_NODES = 5_000
_OWNERS_PER_NAMESPACE = 50

_Json = dict[str, Any]

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # what Kubernetes draws name suffixes from
_APPS = (
    "api", "billing", "cart", "catalog", "checkout", "consumer", "cron", "exporter",
    "frontend", "gateway", "identity", "inventory", "ledger", "mailer", "notifier",
    "orders", "payment", "proxy", "ranking", "reporting", "scheduler", "search", "session",
    "shipping",
)  # fmt: skip
_CONDITIONS = (
    "PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled",
)  # fmt: skip
_SIDECARS = ("log-shipper", "envoy", "metrics-exporter", "config-reloader", "vault-agent")


def page(first: int, limit: int, total: int) -> list[bytes]:
    """The answer to a LIST from pod number ``first`` on, in the pieces that a server writes.

    The token to go on with is the number of the next pod.
    """
    last = min(first + limit, total)
    meta: _Json = {"resourceVersion": str(FIRST_VERSION + total)}
    if last < total:
        meta |= {"continue": str(last), "remainingItemCount": total - last}
    head = b'{"kind":"PodList","apiVersion":"v1","metadata":' + msgspec.json.encode(meta)
    items = [pod(number, FIRST_VERSION + number) for number in range(first, last)]
    return [head + b',"items":[', *(item + b"," for item in items[:-1]), *items[-1:], b"]}\n"]


def pages(total: int, limit: int = 500) -> Iterator[bytes]:
    for first in range(0, total, limit):
        yield b"".join(page(first, limit, total))


def event(number: int, version: int, *, known: bool) -> bytes:
    """A line of a watch."""
    kind = b"MODIFIED" if known else b"ADDED"
    return b'{"type":"%b","object":%b}\n' % (kind, pod(number, version))


def pod(number: int, version: int) -> bytes:
    owner, replica = divmod(number, PER_OWNER)
    identity = _replicas(owner)[replica]
    return (_shape(owner % _SHAPES) % {**identity, "version": version}).encode()


@lru_cache(maxsize=64)
def _replicas(number: int) -> list[dict[str, object]]:
    """What distinguishes the pods of one owner from all others."""
    chance = Random(number)
    app = f"{_APPS[number % len(_APPS)]}-{number // len(_APPS)}"
    hashed = _draw(chance, 10)
    owner = {
        "app": app,
        "hash": hashed,
        "owner": f"{app}-{hashed}",
        "owner_uid": _uid(chance),
        "namespace": f"team-{number // _OWNERS_PER_NAMESPACE:03d}",
    }
    return [{**owner, **_replica(chance)} for _ in range(PER_OWNER)]


def _replica(chance: Random) -> dict[str, object]:
    node = chance.randrange(_NODES)
    bits = chance.getrandbits(256)
    return {
        "suffix": _draw(chance, 5),
        "uid": _uid(chance),
        "node": f"worker-{node:04d}.example.com",
        "node_ip": f"10.{node >> 8}.{node & 255}.10",
        "ip": f"10.{128 + (bits & 63)}.{bits >> 8 & 255}.{bits >> 16 & 255}",
        "access": _draw(chance, 5),
        "digest": f"{bits:064x}",
    }


def _draw(chance: Random, length: int) -> str:
    return "".join(chance.choices(_LETTERS, k=length))


def _uid(chance: Random) -> str:
    text = f"{chance.getrandbits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"


@cache
def _shape(number: int) -> str:
    """A template of a whole pod: ``{{slot}}`` in the values becomes ``%(slot)s``."""
    chance = Random(-1 - number)
    count = chance.choices((1, 2, 3), weights=(7, 2, 1))[0]
    names = ["{{app}}", *chance.sample(_SIDECARS, count - 1)]
    mounts = _volumes(chance)
    spec = _spec([_container(chance, name, mounts) for name in names], mounts)
    status = _status(chance, names)
    whole = {
        "metadata": {
            "name": "{{owner}}-{{suffix}}",
            "generateName": "{{owner}}-",
            "namespace": "{{namespace}}",
            "uid": "{{uid}}",
            "resourceVersion": "{{version}}",
            "creationTimestamp": _moment(chance),
            "labels": _labels(chance),
            "annotations": _annotations(),
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": "{{owner}}",
                    "uid": "{{owner_uid}}",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [
                _managed(chance, "kube-controller-manager", {"spec": spec}),
                _managed(chance, "kubelet", {"status": status}, subresource="status"),
            ],
        },
        "spec": {**spec, "nodeName": "{{node}}"},
        "status": status,
    }
    text = msgspec.json.encode(whole).decode().replace("%", "%%")
    return re.sub(r"\{\{(\w+)\}\}", r"%(\1)s", text)


def _labels(chance: Random) -> _Json:
    return {
        "app.kubernetes.io/name": "{{app}}",
        "app.kubernetes.io/instance": "{{app}}-{{namespace}}",
        "app.kubernetes.io/version": f"{chance.randrange(9)}.{chance.randrange(40)}.0",
        "app.kubernetes.io/managed-by": "Helm",
        "pod-template-hash": "{{hash}}",
        "topology.example.com/tier": chance.choice(("gold", "silver", "bronze")),
    }


def _annotations() -> _Json:
    network = [{"name": "cluster", "interface": "eth0", "ips": ["{{ip}}"], "default": True}]
    return {
        "checksum/config": "{{digest}}",
        "cni.projectcalico.org/podIP": "{{ip}}/32",
        "k8s.v1.cni.cncf.io/network-status": msgspec.json.encode(network).decode(),
        "kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu, memory request for container",
        "prometheus.io/scrape": "true",
    }


def _volumes(chance: Random) -> list[_Json]:
    token: _Json = {
        "name": "kube-api-access-{{access}}",
        "projected": {
            "defaultMode": 420,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {
                    "configMap": {
                        "name": "kube-root-ca.crt",
                        "items": [{"key": "ca.crt", "path": "ca.crt"}],
                    }
                },
            ],
        },
    }
    volumes: list[_Json] = [
        {"name": "config", "configMap": {"name": "{{app}}-config", "defaultMode": 420}},
        {"name": "scratch", "emptyDir": {}},
        token,
    ]
    if chance.random() < 0.3:
        claim = {"claimName": "{{app}}-data-{{suffix}}"}
        volumes.insert(0, {"name": "data", "persistentVolumeClaim": claim})
    return volumes


def _container(chance: Random, name: str, volumes: list[_Json]) -> _Json:
    port = chance.randrange(8000, 9000)
    return {
        "name": name,
        "image": f"registry.example.com/shop/{name}:v{chance.randrange(40)}.{chance.randrange(9)}",
        "imagePullPolicy": "IfNotPresent",
        "args": [f"--listen=:{port}", "--config=/etc/service/config.yaml", "--log=json"],
        "ports": [{"containerPort": port, "name": "http", "protocol": "TCP"}],
        "env": [_variable(chance, n) for n in range(chance.randrange(1, 6))],
        "resources": {
            "requests": {"cpu": "100m", "memory": f"{chance.choice((64, 128, 256))}Mi"},
            "limits": {"memory": "512Mi"},
        },
        "livenessProbe": _probe("/healthz", port, delay=15),
        "readinessProbe": _probe("/readyz", port, delay=3),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": [{"name": v["name"], "mountPath": f"/mnt/{v['name']}"} for v in volumes],
    }


def _variable(chance: Random, number: int) -> _Json:
    if chance.random() < 0.3:
        field = {"apiVersion": "v1", "fieldPath": "status.podIP"}
        return {"name": f"FIELD_{number}", "valueFrom": {"fieldRef": field}}
    return {"name": f"SETTING_{number}", "value": f"https://{_draw(chance, 12)}.example.com"}


def _probe(path: str, port: int, *, delay: int) -> _Json:
    return {
        "httpGet": {"path": path, "port": port, "scheme": "HTTP"},
        "initialDelaySeconds": delay,
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }


def _spec(containers: list[_Json], volumes: list[_Json]) -> _Json:
    seconds = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    return {
        "volumes": volumes,
        "containers": containers,
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "{{app}}",
        "serviceAccount": "{{app}}",
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "schedulerName": "default-scheduler",
        "tolerations": [
            {"key": "node.kubernetes.io/not-ready", **seconds},
            {"key": "node.kubernetes.io/unreachable", **seconds},
        ],
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }


def _status(chance: Random, names: list[str]) -> _Json:
    started = _moment(chance)
    return {
        "phase": "Running",
        "conditions": [
            {"type": t, "status": "True", "lastProbeTime": None, "lastTransitionTime": started}
            for t in _CONDITIONS
        ],
        "hostIP": "{{node_ip}}",
        "hostIPs": [{"ip": "{{node_ip}}"}],
        "podIP": "{{ip}}",
        "podIPs": [{"ip": "{{ip}}"}],
        "startTime": started,
        "containerStatuses": [
            {
                "name": name,
                "state": {"running": {"startedAt": started}},
                "lastState": {},
                "ready": True,
                "restartCount": chance.randrange(3),
                "image": f"registry.example.com/shop/{name}:v1",
                "imageID": f"registry.example.com/shop/{name}@sha256:{{{{digest}}}}",
                "containerID": "containerd://{{digest}}",
                "started": True,
            }
            for name in names
        ],
        "qosClass": "Burstable",
    }


def _managed(chance: Random, manager: str, part: _Json, *, subresource: str = "") -> _Json:
    entry = {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": _moment(chance),
        "fieldsType": "FieldsV1",
        "fieldsV1": _owned(part),
    }
    return entry | ({"subresource": subresource} if subresource else {})


def _owned(value: object) -> _Json:
    """The field set of an object, as server-side apply writes it down."""
    if isinstance(value, dict):
        return {f"f:{key}": _owned(inner) for key, inner in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        keyed = ((next(iter(item.items())), item) for item in value)
        return {
            "k:" + msgspec.json.encode({key: name}).decode(): {".": {}, **_owned(item)}
            for (key, name), item in keyed
            if isinstance(name, str)
        }
    return {}


def _moment(chance: Random) -> str:
    return (
        f"2026-{chance.randrange(1, 12):02d}-{chance.randrange(1, 28):02d}"
        f"T{chance.randrange(24):02d}:{chance.randrange(60):02d}:{chance.randrange(60):02d}Z"
    )

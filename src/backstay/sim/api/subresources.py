"""Subresources that are more than a part of their object: scale, binding and eviction.

A scale is a view of an object that has replicas; to write it is to write the object's number.
A binding gives a pod its node, once. An eviction is a deletion that a budget has to allow.
``status`` and ``finalize`` are plain updates, see ``KindRules``.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from backstay.seam.serve import Answer, Inbound
from backstay.sim.api import causes
from backstay.sim.api.custom import CustomResources, Scale, at, put_at
from backstay.sim.api.eviction import Evictions
from backstay.sim.api.kinds import Object
from backstay.sim.api.label_selectors import as_text
from backstay.sim.api.operations import Operations, Write
from backstay.sim.api.requests import Target, decode
from backstay.sim.api.status import Cause, Refusal, bad_request
from backstay.sim.api.store import Stored

Json = Mapping[str, Any]
Change = Callable[[Object], Object]

BINDINGS = "bindings"
PLAIN = frozenset({"", "status", "finalize", "resize", "ephemeralcontainers"})

_JSON = {"content-type": "application/json"}
_encode = msgspec.json.Encoder().encode

_BUILT_IN = Scale(".spec.replicas", ".status.replicas")


class Subresources:
    """Answers for them."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self.evictions = Evictions(operations)

    def post(self, target: Target, inbound: Inbound, write: Write) -> Answer:
        """Evictions and bindings."""
        sent = decode(inbound)
        if not isinstance(sent, dict):
            raise bad_request(f"the object provided is unrecognized (must be of type "
                              f"{target.info.subresources[target.subresource].kind})")  # fmt: skip
        _check_kind(target, sent)
        if target.subresource == "eviction":
            self.evictions.evict(target, sent, write)
        else:
            self.bind(target, sent, write)
        body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                "code": 201}  # fmt: skip
        return Answer(status=201, headers=_JSON, body=_encode(body))

    def post_binding(self, target: Target, inbound: Inbound, write: Write) -> Answer:
        """A binding by its old address, where only the body says of which pod."""
        sent = decode(inbound)
        name = (sent.get("metadata") or {}).get("name") if isinstance(sent, dict) else ""
        if not name:
            raise bad_request("Name parameter required.")
        pods = self._operations.kinds.find("", "v1", "pods")
        assert pods is not None
        return self.post(Target(pods, target.namespace, name, "binding"), inbound, write)

    # Scale

    def scale(self, target: Target) -> Answer:
        return self._shown(target, self._operations.find(target))

    def rescale(self, target: Target, change: Change, write: Write) -> Answer:
        """``change`` makes of the scale that is there the one that is wanted."""
        paths = self._paths(target)
        found = self._operations.find(target)
        wanted = change(_scale(found, paths))
        meta, spec = wanted.get("metadata") or {}, wanted.get("spec") or {}
        replicas = spec.get("replicas") or 0
        self._check_scale(target, meta, replicas)

        def rescaled(obj: Object) -> Object:
            version = meta.get("resourceVersion") or obj["metadata"]["resourceVersion"]
            scaled = put_at(obj, paths.spec_replicas_path, replicas)
            return {**scaled, "metadata": {**obj["metadata"], "resourceVersion": version}}

        return self._shown(target, self._operations.patch(target, rescaled, write))

    def apply_scale(self, target: Target, applied: Object, write: Write, *, force: bool) -> Answer:
        paths = self._paths(target)
        replicas = at(applied, ".spec.replicas")
        wanted = put_at({}, paths.spec_replicas_path, replicas) if replicas is not None else {}
        wanted["metadata"] = {"name": target.name, "namespace": target.namespace}
        made, _ = self._operations.apply(target, wanted, write, force=force)
        return self._shown(target, made)

    def _paths(self, target: Target) -> Scale:
        rules = self._operations.rules(target.info)
        scale = rules.scale if isinstance(rules, CustomResources) else _BUILT_IN
        assert scale is not None, "only kinds with a scale are routed here"
        return scale

    def _shown(self, target: Target, stored: Stored) -> Answer:
        return Answer(headers=_JSON, body=_encode(_scale(stored, self._paths(target))))

    def _check_scale(self, target: Target, meta: Json, replicas: Any) -> None:
        name = meta.get("name")
        if name and name != target.name:
            raise bad_request(f"the name of the object ({name}) does not match the name on the "
                              f"URL ({target.name})")  # fmt: skip
        if type(replicas) is not int:
            raise bad_request('Scale in version "v1" cannot be handled as a Scale: json: cannot '
                              "unmarshal into Go struct field ScaleSpec.spec.replicas of type "
                              "int32")  # fmt: skip
        if replicas < 0 and target.info.built_in:
            why = "must be greater than or equal to 0"
            raise _invalid_scale(target.name, causes.invalid("spec.replicas", replicas, why))

    # Binding

    def bind(self, target: Target, sent: Json, write: Write) -> None:
        """Gives a pod its node, as a scheduler does. Raises a ``Refusal``."""
        meta, node = sent.get("metadata") or {}, sent.get("target") or {}
        if meta.get("name") != target.name:
            raise bad_request("name in URL does not match name in Binding object")
        kind = node.get("kind") or ""
        if kind not in ("", "Node"):
            raise _unbound(causes.not_supported("target.kind", kind, ("Node", "<empty>")))
        if not node.get("name"):
            raise _unbound(causes.required("target.name"))
        pod = self._operations.find(target)
        self._check_unbound(pod, meta)
        main = Target(target.info, target.namespace, target.name)
        bound = _bound(pod.object, node["name"], meta, self._operations.now())
        self._operations.enact(main, pod, bound, write)

    def _check_unbound(self, pod: Stored, sent: Json) -> None:
        meta, spec = pod.object["metadata"], pod.object["spec"]
        name = meta["name"]
        for what, field in (("UID", "uid"), ("ResourceVersion", "resourceVersion")):
            asked = sent.get(field)
            if asked and asked != meta[field]:
                why = (
                    "StorageError: invalid object, Code: 4, Key: /registry/pods/"
                    f"{'/'.join(pod.key)}, ResourceVersion: 0, AdditionalErrorMsg: Precondition "
                    f"failed: {what} in precondition: {asked}, {what} in object meta: {meta[field]}"
                )
                raise _conflict("pods", name, why)
        if meta.get("deletionTimestamp"):
            why = f"pod {name} is being deleted, cannot be assigned to a host"
            raise _conflict("pods/binding", name, why)
        if spec.get("nodeName"):
            why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
            raise _conflict("pods/binding", name, why)
        if spec.get("schedulingGates"):
            raise _conflict("pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")


def _check_kind(target: Target, sent: Json) -> None:
    wanted = target.info.subresources[target.subresource].kind
    kind = sent.get("kind")
    if kind and kind != wanted:
        version = sent.get("apiVersion", "").rpartition("/")[2]
        group = "policy" if wanted == "Eviction" else "core"
        raise bad_request(
            f'{kind} in version "{version}" cannot be handled as a {wanted}: converting '
            f"({version}.{kind}) to ({group}.{wanted}): unknown conversion"
        )


def _scale(stored: Stored, paths: Scale) -> Object:
    obj, meta = stored.object, stored.object["metadata"]
    fields = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    replicas = at(obj, paths.spec_replicas_path) or 0
    made: Object = {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {field: meta[field] for field in fields if field in meta},
        "spec": {"replicas": replicas} if replicas else {},
        "status": {"replicas": at(obj, paths.status_replicas_path) or 0},
    }
    if paths is _BUILT_IN:
        selector = _built_in_selector(at(obj, ".spec.selector"))
    else:
        selector = at(obj, paths.label_selector_path) if paths.label_selector_path else ""
    if selector:
        made["status"]["selector"] = selector
    return made


def _built_in_selector(selector: Any) -> str:
    """A ReplicationController still has plain labels."""
    is_modern = {"matchLabels", "matchExpressions"} & set(selector or ())
    return as_text(selector if is_modern else {"matchLabels": selector or {}})


def _invalid_scale(name: str, cause: Cause) -> Refusal:
    return Refusal(
        422, "Invalid", f'Scale.autoscaling "{name}" is invalid: {cause.field}: {cause.message}',
        details={"name": name, "group": "autoscaling", "kind": "Scale"}, causes=[cause],
    )  # fmt: skip


def _bound(pod: Object, node: str, sent: Json, now: str) -> Object:
    meta = dict(pod["metadata"])
    for field in ("annotations", "labels"):
        if sent.get(field):
            meta[field] = {**(meta.get(field) or {}), **sent[field]}
    status = dict(pod.get("status") or {})
    status.pop("nominatedNodeName", None)
    others = [c for c in status.get("conditions") or () if c["type"] != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None,
                 "lastTransitionTime": now}  # fmt: skip
    return {
        **pod,
        "metadata": meta,
        "spec": {**pod["spec"], "nodeName": node},
        "status": {**status, "conditions": [*others, scheduled]},
    }


def _unbound(cause: Cause) -> Refusal:
    return Refusal(500, "", f"{cause.field}: {cause.message}")


def _conflict(kind: str, name: str, why: str) -> Refusal:
    return Refusal(
        409, "Conflict", f'Operation cannot be fulfilled on {kind} "{name}": {why}',
        details={"name": name, "kind": kind},
    )  # fmt: skip

"""Services: what they are filled with, what is wrong with them, and their addresses and ports.

Nothing routes to an address here; it is there because others read it. Addresses and node ports
are given out in order, each one once, and stay with their service for as long as it needs them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from backstay.sim.api import causes
from backstay.sim.api.defaults import filled
from backstay.sim.api.kinds import Object
from backstay.sim.api.rules import KindRules, with_field
from backstay.sim.api.status import Cause, Refusal
from backstay.sim.api.store import Store

SERVICES = "services"
HEADLESS = "None"

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_WITH_ADDRESS = frozenset({"ClusterIP", "LoadBalancer", "NodePort"})
_WITH_PORTS = frozenset({"LoadBalancer", "NodePort"})
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_ADDRESSES = tuple(f"10.0.0.{number}" for number in range(10, 255))
_NODE_PORTS = range(30000, 32768)
_HIGHEST_PORT = 65535
_AFFINITY_SECONDS = 10800
_OF_ADDRESS = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy")

Json = Mapping[str, Any]


class Services(KindRules):
    """The rules of Services."""

    returns_deleted = True

    def defaulted(self, obj: Object) -> Object:
        spec = filled(obj.get("spec"), {"sessionAffinity": "None", "type": "ClusterIP"})
        kind = spec["type"]
        more: Object = {}
        if spec["sessionAffinity"] == "ClientIP":
            more["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": _AFFINITY_SECONDS}}
        if kind in _WITH_ADDRESS:
            more["internalTrafficPolicy"] = "Cluster"
        if kind in _WITH_PORTS:
            more["externalTrafficPolicy"] = "Cluster"
        if kind == "LoadBalancer":
            more["allocateLoadBalancerNodePorts"] = True
        spec = filled(spec, more)
        ports = spec.get("ports")
        if ports and not all(port.get("protocol") and port.get("targetPort") for port in ports):
            spec = {**spec, "ports": [_port(port) for port in ports]}
        return with_field(obj, "spec", spec)

    def on_create(self, obj: Object) -> Object:
        return {**obj, "status": {"loadBalancer": {}}}

    def validate(self, new: Object, old: Object | None) -> Sequence[Cause]:
        found = list(_problems(new["spec"]))
        if old is not None:
            found = [*_moved(new["spec"], old["spec"]), *found]
        if (new.get("status") or {}).get("loadBalancer", {}).get("ingress"):
            found += _with_balancer(new["spec"])
        return found


def _port(port: Object) -> Object:
    return filled(port, {"protocol": "TCP", "targetPort": port.get("port", 0)})


# What is wrong


def _problems(spec: Json) -> Iterator[Cause]:
    kind, ports = spec["type"], spec.get("ports") or ()
    headless = spec.get("clusterIP") == HEADLESS
    if not ports and not headless and kind != "ExternalName":
        yield causes.required("spec.ports")
    if kind == "ExternalName" and not spec.get("externalName"):
        yield causes.required("spec.externalName")
    names: set[str] = set()
    for index, port in enumerate(ports):
        yield from _port_problems(port, f"spec.ports[{index}]", len(ports) > 1, names)
    if kind not in _TYPES:
        yield causes.not_supported("spec.type", kind, _TYPES)


def _port_problems(port: Json, place: str, needs_name: bool, names: set[str]) -> Iterator[Cause]:
    name = port.get("name") or ""
    if needs_name and not name:
        yield causes.required(f"{place}.name")
    elif name in names:
        yield causes.duplicate(f"{place}.name", name)
    elif name:
        names.add(name)
    for field in ("port", "targetPort"):
        value = port.get(field, 0)
        if type(value) is int and not 1 <= value <= _HIGHEST_PORT:
            why = f"must be between 1 and {_HIGHEST_PORT}, inclusive"
            yield causes.invalid(f"{place}.{field}", value, why)
    if port["protocol"] not in _PROTOCOLS:
        yield causes.not_supported(f"{place}.protocol", port["protocol"], _PROTOCOLS)


def _moved(new: Json, old: Json) -> Iterator[Cause]:
    """An address is kept, unless the service had none or is to have none."""
    if "ExternalName" in (new["type"], old["type"]):
        return
    now, then = new.get("clusterIPs") or [], old.get("clusterIPs") or []
    if then and now[:1] != then[:1]:
        yield causes.invalid("spec.clusterIPs[0]", now, "may not change once set")


def _with_balancer(spec: Json) -> Iterator[Cause]:
    if spec["type"] != "LoadBalancer":
        why = "may only be used when `spec.type` is 'LoadBalancer'"
        yield causes.forbidden("status.loadBalancer.ingress", why)


# Addresses and ports


def allocated(store: Store, new: Object, old: Object | None) -> Object:
    """With what it needs and does not have, and without what it no longer needs."""
    spec = new.get("spec") or {}
    if spec.get("type") in _WITH_ADDRESS:
        spec = _addressed(store, spec, old["spec"] if old is not None else {})
    elif old is not None:
        spec = {k: v for k, v in spec.items() if k not in _OF_ADDRESS}
    return with_field(new, "spec", _with_node_ports(store, spec, old))


def _addressed(store: Store, spec: Object, old: Json) -> Object:
    address, before = spec.get("clusterIP"), old.get("clusterIP")
    if not address:
        address = before or _free_address(store)
    listed = spec.get("clusterIPs") or [address]
    if address != before and listed[:1] == (old.get("clusterIPs") or [])[:1]:
        listed = [address]
    bare = address == HEADLESS and not spec.get("selector")
    families = ["IPv4", "IPv6"] if bare else ["IPv4"]
    policy = "RequireDualStack" if bare else "SingleStack"
    usual = {"ipFamilies": families, "ipFamilyPolicy": policy}
    return filled({**spec, "clusterIP": address, "clusterIPs": listed}, usual)


def _free_address(store: Store) -> str:
    taken = {each.object["spec"].get("clusterIP") for each in store.all(SERVICES)}
    free = next((address for address in _ADDRESSES if address not in taken), None)
    if free is None:
        raise Refusal(500, "InternalError", "Internal error occurred: failed to allocate a "
                      "serviceIP: range is full")  # fmt: skip
    return free


def _with_node_ports(store: Store, spec: Object, old: Object | None) -> Object:
    ports = spec.get("ports") or []
    if spec.get("type") in _WITH_PORTS and spec.get("allocateLoadBalancerNodePorts", True):
        if all(port.get("nodePort") for port in ports):
            return spec
        taken = {
            port.get("nodePort")
            for each in store.all(SERVICES)
            for port in each.object["spec"].get("ports") or ()
        }
        free = (number for number in _NODE_PORTS if number not in taken)
        return {**spec, "ports": [p if p.get("nodePort") else _on(p, next(free)) for p in ports]}
    if old is None or not any(port.get("nodePort") for port in ports):
        return spec
    kept = [{k: v for k, v in port.items() if k != "nodePort"} for port in ports]
    dropped = {"externalTrafficPolicy", "allocateLoadBalancerNodePorts"}
    return {**{k: v for k, v in spec.items() if k not in dropped}, "ports": kept}


def _on(port: Object, number: int) -> Object:
    return {**port, "nodePort": number}

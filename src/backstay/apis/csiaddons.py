"""Network fences of csi-addons: a storage is told to refuse a node's addresses.

``spec.fenceState`` is what is wanted, ``status`` what became of the last operation. There is one
result for both directions, and only its message says which of the two it belongs to. To delete a
fence does not lift it: it has to be unfenced first.

CSIAddonsNodes tell which driver can do it, and in newer versions by which addresses the storage
knows a node (``networkFenceClientStatus``).
"""

import ipaddress
from collections.abc import Iterable

import msgspec

from backstay.kube.projection import Meta, Projection
from backstay.kube.resource import Resource

GROUP, VERSION = "csiaddons.openshift.io", "v1alpha1"

NETWORK_FENCES = Resource(GROUP, VERSION, "networkfences", "NetworkFence", namespaced=False)
ADDONS_NODES = Resource(GROUP, VERSION, "csiaddonsnodes", "CSIAddonsNode")

FENCED, UNFENCED = "Fenced", "Unfenced"
SUCCEEDED, FAILED = "Succeeded", "Failed"

_FENCING_DONE = "fencing operation successful"
_UNFENCING_DONE = "unfencing operation successful"

CLUSTER_ID = "clusterID"
"""The parameter, and the attribute of a volume, by which Ceph's clusters are told apart."""


class _FenceMeta(Meta, frozen=True, rename="camel"):
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class _FenceSpec(msgspec.Struct, frozen=True, rename="camel"):
    driver: str = ""
    network_fence_class_name: str = ""
    fence_state: str = FENCED
    cidrs: list[str] | None = None
    parameters: dict[str, str] | None = None


class _FenceStatus(msgspec.Struct, frozen=True):
    result: str = ""
    message: str = ""


class FenceWire(msgspec.Struct, frozen=True):
    metadata: _FenceMeta
    spec: _FenceSpec = _FenceSpec()
    status: _FenceStatus = _FenceStatus()


class FenceRow(msgspec.Struct, frozen=True):
    key: str
    uid: str
    version: str
    annotations: dict[str, str]
    driver: str
    cluster: str
    state: str
    cidrs: tuple[str, ...]
    result: str
    message: str
    deleting: bool

    @property
    def holds(self) -> bool:
        """Whether the storage has said that it refuses these addresses, and was told nothing else
        since."""
        done = self.result == SUCCEEDED and self.message == _FENCING_DONE
        return self.state == FENCED and done and not self.deleting

    @property
    def is_lifted(self) -> bool:
        done = self.result == SUCCEEDED and self.message == _UNFENCING_DONE
        return self.state == UNFENCED and done

    def covers(self, addresses: Iterable[str]) -> bool:
        """Whether all of these are refused, and there are any."""
        wanted = list(addresses)
        return bool(wanted) and all(map(self._contains, wanted))

    def _contains(self, address: str) -> bool:
        try:
            asked = ipaddress.ip_network(address, strict=False)
        except ValueError:
            return False
        return any(_is_within(asked, cidr) for cidr in self.cidrs)


def _is_within(asked: ipaddress.IPv4Network | ipaddress.IPv6Network, cidr: str) -> bool:
    try:
        network = ipaddress.ip_network(cidr, strict=False)
    except ValueError:
        return False
    same = asked.version == network.version and asked.prefixlen >= network.prefixlen
    return same and asked.network_address in network


def fence_row(fence: FenceWire) -> FenceRow:
    meta, spec = fence.metadata, fence.spec
    return FenceRow(
        key=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        annotations=meta.annotations or {},
        driver=spec.driver,
        cluster=(spec.parameters or {}).get(CLUSTER_ID, ""),
        state=spec.fence_state,
        cidrs=tuple(spec.cidrs or ()),
        result=fence.status.result,
        message=fence.status.message,
        deleting=meta.deletion_timestamp is not None,
    )


class _Driver(msgspec.Struct, frozen=True, rename={"node_id": "nodeID"}):
    name: str = ""
    node_id: str = ""


class _NodeSpec(msgspec.Struct, frozen=True):
    driver: _Driver = _Driver()


class _Client(msgspec.Struct, frozen=True):
    cidrs: list[str] | None = None


class _ClientStatus(msgspec.Struct, frozen=True, rename={"client_details": "ClientDetails"}):
    client_details: list[_Client] | None = None


class _NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    network_fence_client_status: list[_ClientStatus] | None = None


class AddonsNodeWire(msgspec.Struct, frozen=True):
    metadata: Meta
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


class AddonsNodeRow(msgspec.Struct, frozen=True):
    """``clients`` are the addresses by which the storage knows the node, if it says so."""

    key: str
    uid: str
    version: str
    driver: str
    node: str
    clients: tuple[str, ...]


def addons_node_row(wire: AddonsNodeWire) -> AddonsNodeRow:
    meta, driver = wire.metadata, wire.spec.driver
    clients = (
        cidr
        for status in wire.status.network_fence_client_status or ()
        for client in status.client_details or ()
        for cidr in client.cidrs or ()
    )
    return AddonsNodeRow(
        key=meta.key,
        uid=meta.uid,
        version=meta.resource_version,
        driver=driver.name,
        node=driver.node_id,
        clients=tuple(dict.fromkeys(clients)),
    )


FENCE_PROJECTION: Projection[FenceWire, FenceRow] = Projection(FenceWire, fence_row)
ADDONS_NODE_PROJECTION: Projection[AddonsNodeWire, AddonsNodeRow] = Projection(
    AddonsNodeWire, addons_node_row
)

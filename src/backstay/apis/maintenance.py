"""NodeMaintenance, the kind by which people ask for a node to be drained."""

from backstay.kube.resource import Resource

NODE_MAINTENANCES = Resource(
    "nodemaintenance.medik8s.io", "v1beta1", "nodemaintenances", "NodeMaintenance", namespaced=False
)

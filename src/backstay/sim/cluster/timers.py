"""Timers: how long everything takes in an embedded cluster, with Kubernetes' own defaults.

``scaled`` makes a cluster that goes through the same steps faster or slower. Objects say some
times in whole seconds (tolerations, grace periods); those are not rewritten but last ``second``
each.
"""

from dataclasses import dataclass, fields, replace

from backstay.sim.nodes.kubelet import Pace


@dataclass(frozen=True)
class Timers:
    """In seconds."""

    lease: float = 10.0
    """Between two renewals of a node's lease."""
    lease_duration: float = 40.0
    status: float = 10.0
    """Between two looks of a kubelet at its own node."""
    report: float = 300.0
    """How long a kubelet says nothing if there is nothing new to say."""

    monitor: float = 5.0
    """Between two looks of the node lifecycle controller at all nodes."""
    monitor_grace: float = 50.0
    """How long a node may be silent."""
    startup_grace: float = 60.0
    """The same for one that never said anything."""
    taint_pass: float = 0.1
    """Between two turns in which NoExecute taints are put on."""
    taint_interval: float = 10.0
    """Between two nodes that are given such a taint."""
    disrupted_taint_interval: float = 100.0
    """The same while most nodes of a large cluster are not ready."""

    pod_gc: float = 20.0
    orphan_quarantine: float = 40.0
    """How long a node must be gone before its pods are."""

    attach_pass: float = 0.1
    """Between a change and the turn in which volumes are attached and detached."""
    force_detach: float = 360.0
    """How long a volume stays attached to a node that is not ready and still uses it."""
    attachment_sync: float = 60.0
    """Between two comparisons of what is attached with what is thought to be."""
    attach: float = 0.2
    detach: float = 0.2
    """How long the storage takes for it."""

    start: float = 0.0
    stop: float = 0.0
    """How long containers take to start, and to stop when they are told to."""
    mount_retry: float = 0.5
    longest_mount_retry: float = 122.0
    network_retry: float = 10.0
    """Until a kubelet asks again for addresses that a pod was refused."""

    second: float = 1.0
    """How long a second lasts that an object speaks of."""

    def scaled(self, factor: float) -> "Timers":
        return replace(
            self, **{each.name: getattr(self, each.name) * factor for each in fields(self)}
        )

    @property
    def pace(self) -> Pace:
        """The kubelets' part of it."""
        return Pace(
            start=self.start,
            stop=self.stop,
            lease=self.lease,
            lease_duration=max(1, round(self.lease_duration)),
            status=self.status,
            report=self.report,
            mount_retry=self.mount_retry,
            longest_mount_retry=self.longest_mount_retry,
            network_retry=self.network_retry,
            second=self.second,
        )

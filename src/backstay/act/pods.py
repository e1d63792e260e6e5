"""Deleting pods: exactly the one that was decided on, at the version that was looked at.

Both verbs name uid and resourceVersion, so that whatever changed in between makes them fail.
"""

from backstay.kube.calls import Preconditions
from backstay.kube.client import KubeClient
from backstay.kube.resource import PODS
from backstay.model.workload import PodRef


async def mark(client: KubeClient, pod: PodRef, *, not_after: float) -> None:
    """The graceful deletion: from here on no kubelet that lists pods will start it.

    A pod whose own grace period is 0 is granted a second, without which this would be its removal.
    """
    conditions: Preconditions = {"uid": pod.uid, "resource_version": pod.version}
    if pod.graceless:
        conditions["grace"] = 1
    await client.delete(
        PODS, pod.name, namespace=pod.namespace, conditions=conditions, not_after=not_after
    )


async def remove(client: KubeClient, pod: PodRef, *, not_after: float) -> None:
    """The removal from the API, without waiting for a kubelet."""
    await client.delete(
        PODS,
        pod.name,
        namespace=pod.namespace,
        conditions={"uid": pod.uid, "resource_version": pod.version, "grace": 0},
        not_after=not_after,
    )

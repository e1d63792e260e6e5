"""Asking pods to leave: by an eviction, which budgets and KubeVirt have a say in, or without.

Each names the uid of the pod that was looked at, so that another of its name stays where it is.
"""

from backstay.kube.calls import Preconditions, write
from backstay.kube.client import KubeClient
from backstay.kube.resource import PODS, Resource
from backstay.model.drain import PodSight

GUEST_SUBRESOURCES = Resource(
    "subresources.kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance"
)


async def evict(
    client: KubeClient,
    pod: PodSight,
    *,
    grace: int = -1,
    dry_run: bool = False,
    not_after: float | None = None,
) -> None:
    await client.evict(
        pod.name,
        namespace=pod.namespace,
        conditions=_exactly(pod, grace),
        dry_run=dry_run,
        not_after=not_after,
    )


async def delete(
    client: KubeClient,
    pod: PodSight,
    *,
    grace: int = -1,
    dry_run: bool = False,
    not_after: float | None = None,
) -> None:
    """Without asking anybody, as ``--disable-eviction`` has it."""
    await client.delete(
        PODS,
        pod.name,
        namespace=pod.namespace,
        conditions=_exactly(pod, grace),
        dry_run=dry_run,
        not_after=not_after,
    )


async def cancel_evacuation(
    client: KubeClient, namespace: str, guest: str, *, not_after: float | None
) -> None:
    """Asks KubeVirt to forget that the guest was to leave. Raises ``NotFound`` where it has no such
    request."""
    path = GUEST_SUBRESOURCES.path(namespace=namespace, name=guest, subresource="evacuate")
    await client.send(write("PUT", GUEST_SUBRESOURCES, f"{path}/cancel", {}, not_after=not_after))


def _exactly(pod: PodSight, grace: int) -> Preconditions:
    """A pod whose own grace period is 0 is granted a second. Without it the pod would be out of the
    API at once, also where its node is cut off and it runs on, and another would be made."""
    conditions: Preconditions = {"uid": pod.uid}
    if grace >= 0:
        conditions["grace"] = grace
    elif pod.grace == 0:
        conditions["grace"] = 1
    return conditions

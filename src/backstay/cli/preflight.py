"""Before a controller starts: is everything there that it takes?

What is missing is one sentence with the command that brings it, before anything has begun; a
controller that finds out later would fail when it is needed. An API that cannot be reached right
now is no such thing: it is waited for, because nobody may be there to start us again. Neither is a
right that only a policy could make use of, and perhaps none ever does: that is said, and no more.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import click
import msgspec

from backstay.apis.apps import STATEFUL_SETS
from backstay.apis.backstay import AVAILABILITY_POLICIES, CONFIGS, CONFIRMATIONS, INCIDENTS
from backstay.apis.drains import BUDGETS, DAEMON_SETS
from backstay.apis.kubevirt import INSTANCES, VIRTUAL_MACHINES
from backstay.apis.machines import (
    INSTANCE_SETS,
    KUBEVIRTS,
    MIGRATIONS,
    POOLS,
    SUBRESOURCES,
)
from backstay.apis.maintenance import NODE_MAINTENANCES
from backstay.apis.storage import ATTACHMENTS, CLAIMS, VOLUMES
from backstay.cli.piraeus import NAMESPACE
from backstay.kube import errors
from backstay.kube.client import KubeClient
from backstay.kube.discovery import serves
from backstay.kube.limits import Backoff
from backstay.kube.resource import CONFIG_MAPS, EVENTS, LEASES, NODES, PODS, Resource
from backstay.model.labels import LEASE_NAMESPACE
from backstay.record.callers import ACCESS_REVIEWS, TOKEN_REVIEWS
from backstay.seam.clock import Rng
from backstay.settings import Settings

T = TypeVar("T")

_TIMEOUT = 5.0

_ACCESS_REVIEW = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview",
    namespaced=False,
)  # fmt: skip

_log = logging.getLogger("backstay.run")


class Need(msgspec.Struct, frozen=True):
    """Something that a controller must be allowed to do. ``name`` narrows it to one object."""

    verb: str
    resource: Resource
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        what = self.resource.label + (f"/{self.subresource}" if self.subresource else "")
        return f"{self.verb} {what}" + (f" in {self.namespace}" if self.namespace else "")


def needs(namespace: str, lease: str, *, reachable: bool) -> list[Need]:
    """Everything, for a controller whose ``lease`` is in ``namespace``. One that others can
    reach over HTTP must also be able to ask who they are."""
    read = [
        *((verb, resource) for resource in
          (NODES, CONFIGS, AVAILABILITY_POLICIES, CONFIRMATIONS, INCIDENTS)
          for verb in ("get", "list", "watch")),
        *((verb, resource) for resource in (PODS, INSTANCES) for verb in ("get", "list")),
        *(("get", resource) for resource in (VIRTUAL_MACHINES, STATEFUL_SETS, CLAIMS, VOLUMES)),
    ]  # fmt: skip
    written = [
        ("patch", NODES), ("delete", PODS), ("list", ATTACHMENTS), ("delete", ATTACHMENTS),
        ("create", INCIDENTS), ("delete", INCIDENTS), ("create", EVENTS), ("patch", EVENTS),
        ("list", KUBEVIRTS), ("get", INSTANCE_SETS), ("get", POOLS), ("list", MIGRATIONS),
    ]  # fmt: skip
    return [
        *(Need(verb, resource) for verb, resource in (*read, *written)),
        *(Need("patch", each, "status") for each in (INCIDENTS, CONFIRMATIONS)),
        *(Need(verb, LEASES, namespace=LEASE_NAMESPACE) for verb in ("get", "list")),
        *(Need(v, LEASES, namespace=namespace) for v in ("list", "watch", "create", "patch")),
        Need("get", LEASES, namespace=namespace, name=lease),
        *(
            Need(verb, CONFIG_MAPS, namespace=namespace)
            for verb in ("get", "list", "create", "patch", "delete")
        ),
        *(Need("create", review) for review in (TOKEN_REVIEWS, ACCESS_REVIEWS) if reachable),
    ]


def wishes() -> list[Need]:
    """What some policies take in addition: to migrate, stop and start guests."""
    return [
        Need("create", MIGRATIONS),
        *(Need("update", SUBRESOURCES, verb) for verb in ("start", "restart")),
    ]


def maintaining() -> list[Need]:
    """What node maintenance takes in addition, where its kind is installed."""
    return [
        *(Need(verb, NODE_MAINTENANCES) for verb in ("get", "list", "watch", "patch")),
        Need("patch", NODE_MAINTENANCES, "status"),
        *(Need(verb, BUDGETS) for verb in ("list", "watch")),
        Need("watch", PODS),
        Need("create", PODS, "eviction"),
        Need("get", DAEMON_SETS),
    ]


async def reached(ask: Callable[[], Awaitable[T]], *, rng: Rng) -> T:
    """The answer, however long the API takes to be there. What makes it stay away is said once."""
    backoff = Backoff(base=1.0, cap=10.0, rng=rng)
    said = ""
    while True:
        try:
            return await ask()
        except errors.Retryable as error:
            if str(error) != said:
                _log.warning("waiting for the API: %s", error)
            said = str(error)
        await asyncio.sleep(backoff.next())


async def check(client: KubeClient, settings: Settings, *, drop_in: bool = False) -> None:
    """Ends the command, with one sentence for all that is missing of one sort. ``drop_in`` says
    that it was started like the Piraeus HA controller, and is likely to have that one's rights."""
    gaps: list[str] = []
    if not await _knows_our_kinds(client):
        brings = _KINDS_BESIDE_PIRAEUS if drop_in else _KINDS
        gaps.append(f"Backstay's kinds are not installed on this cluster. NEXT: {brings}")
    wanted = needs(settings.namespace, settings.lease, reachable=settings.is_reachable)
    missing = await _refused(client, wanted)
    if missing:
        brings = _rights_beside_piraeus(settings.namespace) if drop_in else _EVERYTHING
        gaps.append(
            f"This identity ({client.access.origin}) may not {', '.join(map(str, missing))}. "
            f"NEXT: {brings}"
        )
    if gaps:
        raise click.ClickException("\n".join(gaps))
    if refused := await _refused(client, wishes()):
        _log.info(
            "policies that ask to migrate, stop or start guests have no effect: this identity may "
            "not %s", ", ".join(map(str, refused)),
        )  # fmt: skip

    if not await serves(client, NODE_MAINTENANCES, timeout=_TIMEOUT):
        return
    if refused := await _refused(client, maintaining()):
        _log.info(
            "node maintenances have no effect: this identity may not %s",
            ", ".join(map(str, refused)),
        )


_KINDS = "backstay crds | kubectl apply -f -"
_EVERYTHING = "backstay manifests | kubectl apply -f -"
_KINDS_BESIDE_PIRAEUS = "kubectl apply -f deploy/crds.yaml"


def _rights_beside_piraeus(namespace: str) -> str:
    """The file is for the namespace of that controller's own manifest."""
    command = "kubectl apply -f deploy/linstor-rights.yaml"
    if namespace == NAMESPACE:
        return command
    return f"{command}, with {namespace} in the place of the namespace {NAMESPACE}"


async def _knows_our_kinds(client: KubeClient) -> bool:
    """By discovery, which is open to everybody: whoever may not list a kind is refused whether or
    not there is such a kind."""
    for resource in (CONFIGS, AVAILABILITY_POLICIES, CONFIRMATIONS, INCIDENTS):
        if not await serves(client, resource, timeout=_TIMEOUT):
            return False
    return True


async def _refused(client: KubeClient, wanted: Sequence[Need]) -> list[Need]:
    return [need for need in wanted if not await _is_allowed(client, need)]


class _Verdict(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _Verdict = _Verdict()


async def _is_allowed(client: KubeClient, need: Need) -> bool:
    resource = need.resource
    attributes = {
        "verb": need.verb, "group": resource.group, "resource": resource.plural,
        "subresource": need.subresource, "namespace": need.namespace, "name": need.name,
    }  # fmt: skip
    body = {
        "apiVersion": _ACCESS_REVIEW.api_version,
        "kind": _ACCESS_REVIEW.kind,
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    reply = await client.create(_ACCESS_REVIEW, body, timeout=_TIMEOUT)
    return reply.into(_Review).status.allowed

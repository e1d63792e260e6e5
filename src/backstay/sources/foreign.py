"""Others: whoever else acts on dead nodes in this cluster.

Two programs that do the same to one node get into each other's way, and one that acts without
proof undoes what another is careful about. So everybody who is known to do it is looked for, with
the job that he does; at arming that job is left to him unless somebody says otherwise.

* A program that is installed may be idle: kinds without objects and settings that are off do
  nothing, and are said to be so.
* What could not be looked up is said. It never counts as "nobody is there".
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from backstay.kube import errors
from backstay.kube.client import KubeClient
from backstay.kube.discovery import Catalogue, discover
from backstay.kube.resource import Resource
from backstay.model.policy import Job

T = TypeVar("T")

_TIMEOUT = 10.0

_PROGRAMS = (
    Resource("apps", "v1", "deployments", "Deployment"),
    Resource("apps", "v1", "daemonsets", "DaemonSet"),
)


class Actor(msgspec.Struct, frozen=True):
    """Somebody who acts, or would if he were switched on. ``jobs`` are what he does."""

    name: str
    does: str
    jobs: tuple[Job, ...]
    active: bool
    found: str
    """How it is known, for whoever wants to look."""

    def __str__(self) -> str:
        idle = "" if self.active else "; it is installed but idle"
        return f"{self.name}: {self.does} ({self.found}{idle})"


class Survey(msgspec.Struct, frozen=True):
    actors: tuple[Actor, ...] = ()
    problems: tuple[str, ...] = ()

    def claimed(self) -> Mapping[Job, tuple[Actor, ...]]:
        """The jobs that somebody else does at present."""
        return {
            job: doing
            for job in Job
            if (doing := tuple(a for a in self.actors if a.active and job in a.jobs))
        }


class _ByKind(msgspec.Struct, frozen=True):
    """Known by a kind of its own; it does something once there is an object of it."""

    name: str
    does: str
    jobs: tuple[Job, ...]
    kind: str


class _BySetting(msgspec.Struct, frozen=True):
    """Known by a setting that switches it on; ``idle`` are the values that do not."""

    name: str
    does: str
    jobs: tuple[Job, ...]
    kind: str
    setting: str
    idle: tuple[str, ...]


class _ByImage(msgspec.Struct, frozen=True):
    """Known by the name of its image."""

    name: str
    does: str
    jobs: tuple[Job, ...]
    image: str


_BY_KIND = (
    _ByKind(
        "Node Health Check", "has unhealthy nodes remediated",
        (Job.FAILOVER, Job.FENCING), "nodehealthchecks.remediation.medik8s.io",
    ),
    _ByKind(
        "Self Node Remediation", "reboots unhealthy nodes and deletes their pods",
        (Job.FAILOVER, Job.FENCING, Job.DETACH),
        "selfnoderemediations.self-node-remediation.medik8s.io",
    ),
    _ByKind(
        "Fence Agents Remediation", "power-cycles unhealthy nodes and deletes their pods",
        (Job.FAILOVER, Job.FENCING, Job.DETACH),
        "fenceagentsremediations.fence-agents-remediation.medik8s.io",
    ),
    _ByKind(
        "MachineHealthCheck", "replaces the machines of unhealthy nodes",
        (Job.FAILOVER, Job.FENCING), "machinehealthchecks.machine.openshift.io",
    ),
    _ByKind(
        "Rook", "fences the storage of nodes that are out of service",
        (Job.FENCING,), "cephclusters.ceph.rook.io",
    ),
)  # fmt: skip

_BY_SETTING = (
    _BySetting(
        "Harvester", "force-deletes the VMs of nodes that are down, without proof",
        (Job.FAILOVER, Job.DETACH), "settings.harvesterhci.io", "vm-force-reset-policy",
        idle=('"enable":false', '"enable": false'),
    ),
    _BySetting(
        "Longhorn", "force-deletes pods on nodes that are down, without proof",
        (Job.FAILOVER, Job.DETACH), "settings.longhorn.io", "node-down-pod-deletion-policy",
        idle=("do-nothing",),
    ),
)  # fmt: skip

_BY_IMAGE = (
    # Its kind says nothing: we serve that, too.
    _ByImage(
        "Node Maintenance Operator", "cordons and drains nodes",
        (Job.MAINTENANCE,), "node-maintenance-operator",
    ),
    _ByImage(
        "Piraeus HA controller", "deletes pods whose volumes have lost their node",
        (Job.FAILOVER, Job.DETACH), "piraeus-ha-controller",
    ),
    _ByImage(
        "KubeVirt node-fail controller", "force-deletes VMIs of nodes that are down, without proof",
        (Job.FAILOVER, Job.ADDRESSES), "kubevirt-node-fail-controller",
    ),
)  # fmt: skip


async def survey(client: KubeClient) -> Survey:
    """Whoever is there. Raises nothing: what could not be looked up is among the problems."""
    try:
        catalogue = await discover(client)
    except errors.KubeError as error:
        return Survey(problems=(f"nobody could be looked for: {error}",))
    look = _Look(client, catalogue)
    questions: list[Awaitable[Sequence[Actor]]] = [
        *(look.attempt(look.by_kind, each) for each in _BY_KIND),
        *(look.attempt(look.by_setting, each) for each in _BY_SETTING),
        *(look.attempt(look.by_image, each) for each in _PROGRAMS),
    ]
    found = [actor for actors in await asyncio.gather(*questions) for actor in actors]
    silent = [f"{group} does not answer" for group in catalogue.silent_groups]
    return Survey(tuple(found), (*look.problems, *silent))


class _Named(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _Container(msgspec.Struct, frozen=True):
    image: str = ""


class _PodSpec(msgspec.Struct, frozen=True):
    containers: tuple[_Container, ...] = ()


class _Template(msgspec.Struct, frozen=True):
    spec: _PodSpec = _PodSpec()


class _ProgramSpec(msgspec.Struct, frozen=True):
    template: _Template = _Template()
    replicas: int | None = None


class _Program(msgspec.Struct, frozen=True):
    metadata: _Named = _Named()
    spec: _ProgramSpec = _ProgramSpec()


class _Programs(msgspec.Struct, frozen=True):
    items: tuple[_Program, ...] = ()


class _Objects(msgspec.Struct, frozen=True):
    items: tuple[msgspec.Raw, ...] = ()


class _Setting(msgspec.Struct, frozen=True):
    value: str = ""
    default: str = ""


class _Settings(msgspec.Struct, frozen=True):
    items: tuple[_Setting, ...] = ()


class _Look:
    """Asks, and keeps account of what could not be asked."""

    def __init__(self, client: KubeClient, catalogue: Catalogue) -> None:
        self.problems: list[str] = []
        self._client = client
        self._catalogue = catalogue

    async def attempt(
        self, question: Callable[[T], Awaitable[Sequence[Actor]]], about: T
    ) -> Sequence[Actor]:
        try:
            return await question(about)
        except errors.KubeError as error:
            self.problems.append(str(error))
            return ()

    async def by_kind(self, sign: _ByKind) -> Sequence[Actor]:
        kind = self._catalogue.find(sign.kind)
        if kind is None:
            return ()
        try:
            listing = await self._client.list(kind.resource, limit=1, timeout=_TIMEOUT)
        except errors.Forbidden:
            hidden = f"{sign.kind}, which we may not list"
            return (Actor(sign.name, sign.does, sign.jobs, active=True, found=hidden),)
        busy = bool(listing.into(_Objects).items)
        return (Actor(sign.name, sign.does, sign.jobs, busy, sign.kind),)

    async def by_setting(self, sign: _BySetting) -> Sequence[Actor]:
        kind = self._catalogue.find(sign.kind)
        if kind is None:
            return ()
        for name in await self._everywhere(kind.resource, sign.setting):
            value = name.value or name.default
            busy = bool(value) and not any(word in value for word in sign.idle)
            found = f"{sign.setting} is {value or 'empty'}"
            return (Actor(sign.name, sign.does, sign.jobs, busy, found),)
        return ()

    async def _everywhere(self, resource: Resource, name: str) -> Sequence[_Setting]:
        """A setting by its name, in whatever namespace its program lives."""
        fields = f"metadata.name={name}"
        reply = await self._client.list(resource, fields=fields, timeout=_TIMEOUT)
        return reply.into(_Settings).items

    async def by_image(self, resource: Resource) -> Sequence[Actor]:
        reply = await self._client.list(resource, timeout=_TIMEOUT)
        return tuple(_programs(resource, reply.into(_Programs).items))


def _programs(resource: Resource, programs: Iterable[_Program]) -> Iterable[Actor]:
    for program in programs:
        images = [container.image for container in program.spec.template.spec.containers]
        for sign in _BY_IMAGE:
            if any(_is_called(image, sign.image) for image in images):
                where = f"{resource.kind} {program.metadata.namespace}/{program.metadata.name}"
                busy = program.spec.replicas != 0
                yield Actor(sign.name, sign.does, sign.jobs, busy, where)


def _is_called(image: str, name: str) -> bool:
    """By the last part of its path, whatever registry, tag or digest."""
    last = image.rpartition("/")[2]
    return last.partition("@")[0].partition(":")[0] == name

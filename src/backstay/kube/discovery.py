"""Discovery: which version the server is, and which kinds of objects it stores.

One request for each of the two roots where the server can tell all at once (Kubernetes 1.26
and later); else one for each version of each group. A group whose own server is down is named:
its absence must not be mistaken for "not installed".
"""

import msgspec

from backstay.kube import errors
from backstay.kube.calls import JSON, Call, Reply
from backstay.kube.client import KubeClient
from backstay.kube.resource import Resource

_AGGREGATED = ",".join(
    [f"{JSON};g=apidiscovery.k8s.io;v={v};as=APIGroupDiscoveryList" for v in ("v2", "v2beta1")]
    + [JSON]
)


class ServerVersion(msgspec.Struct, frozen=True, rename="camel"):
    """As ``/version`` says it. Some distributions add a plus sign to the minor version."""

    git_version: str = ""
    major: str = ""
    minor: str = ""


class Kind(msgspec.Struct, frozen=True):
    """A kind that the server stores, with what can be done to it."""

    resource: Resource
    verbs: tuple[str, ...]
    short_names: tuple[str, ...]
    subresources: tuple[str, ...]


class Catalogue(msgspec.Struct, frozen=True):
    """Every kind in its preferred version, and what could not be asked (``group/version``)."""

    kinds: tuple[Kind, ...]
    silent_groups: tuple[str, ...]

    def find(self, label: str) -> Kind | None:
        """By plural name and group, as people write it: ``virtualmachines.kubevirt.io``."""
        return next((kind for kind in self.kinds if kind.resource.label == label), None)


async def server_version(client: KubeClient, *, timeout: float = 10.0) -> ServerVersion:
    return (await client.send(Call(method="GET", path="/version", timeout=timeout))).into(
        ServerVersion
    )


async def serves(client: KubeClient, resource: Resource, *, timeout: float = 10.0) -> bool:
    """Whether the server stores objects of this kind, in this very version."""
    path = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    try:
        reply = await client.send(Call(method="GET", path=path, timeout=timeout))
    except errors.NotFound:
        return False
    found = reply.into(_LegacyResources).resources or ()
    return any(each.name == resource.plural for each in found)


async def discover(client: KubeClient, *, timeout: float = 10.0) -> Catalogue:
    """Everything that the server stores."""
    kinds: list[Kind] = []
    silent: list[str] = []
    for root in ("/api", "/apis"):
        reply = await client.send(
            Call(method="GET", path=root, accept=_AGGREGATED, timeout=timeout)
        )
        head = reply.into(_Head)
        if head.kind == "APIGroupDiscoveryList":
            _read_aggregated(reply, kinds, silent)
        else:
            await _ask_each(client, root, reply, kinds, silent, timeout)
    return Catalogue(tuple(kinds), tuple(silent))


class _Head(msgspec.Struct, frozen=True):
    kind: str = ""


class _Name(msgspec.Struct, frozen=True):
    name: str = ""


class _KindName(msgspec.Struct, frozen=True):
    kind: str = ""


class _Subresource(msgspec.Struct, frozen=True):
    subresource: str = ""


class _Found(msgspec.Struct, frozen=True, rename="camel"):
    resource: str = ""
    scope: str = ""
    response_kind: _KindName | None = None
    verbs: list[str] | None = None
    short_names: list[str] | None = None
    subresources: list[_Subresource] | None = None


class _Version(msgspec.Struct, frozen=True):
    version: str = ""
    resources: list[_Found] | None = None
    freshness: str = "Current"


class _Group(msgspec.Struct, frozen=True):
    metadata: _Name = _Name()
    versions: list[_Version] | None = None


class _Groups(msgspec.Struct, frozen=True):
    items: list[_Group] | None = None


def _read_aggregated(reply: Reply, kinds: list[Kind], silent: list[str]) -> None:
    for group in reply.into(_Groups).items or ():
        seen: set[str] = set()
        # Versions come in the server's order of preference; a kind counts in its first.
        for version in group.versions or ():
            if version.freshness != "Current":
                silent.append("/".join(filter(None, (group.metadata.name, version.version))))
            for found in version.resources or ():
                if found.resource not in seen:
                    seen.add(found.resource)
                    kinds.append(_kind(group.metadata.name, version.version, found))


def _kind(group: str, version: str, found: _Found) -> Kind:
    kind = found.response_kind.kind if found.response_kind else ""
    return Kind(
        Resource(group, version, found.resource, kind, found.scope == "Namespaced"),
        tuple(found.verbs or ()),
        tuple(found.short_names or ()),
        tuple(sub.subresource for sub in found.subresources or ()),
    )


class _GroupVersion(msgspec.Struct, frozen=True, rename="camel"):
    group_version: str = ""


class _LegacyGroup(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    preferred_version: _GroupVersion = _GroupVersion()
    versions: list[_GroupVersion] | None = None


class _LegacyGroups(msgspec.Struct, frozen=True):
    """The answer at either root: core has versions, everything else has groups."""

    groups: list[_LegacyGroup] | None = None
    versions: list[str] | None = None


class _LegacyResource(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespaced: bool = False
    kind: str = ""
    verbs: list[str] | None = None
    short_names: list[str] | None = None


class _LegacyResources(msgspec.Struct, frozen=True):
    resources: list[_LegacyResource] | None = None


async def _ask_each(
    client: KubeClient,
    root: str,
    reply: Reply,
    kinds: list[Kind],
    silent: list[str],
    timeout: float,
) -> None:
    seen: set[tuple[str, str]] = set()
    for path in _paths(reply.into(_LegacyGroups)):
        try:
            answer = await client.send(Call(method="GET", path=f"{root}/{path}", timeout=timeout))
            found = answer.into(_LegacyResources).resources or []
        except (errors.ApiError, errors.Undecodable):
            silent.append(path)
            continue
        for kind in _legacy_kinds(path, found):
            key = (kind.resource.group, kind.resource.plural)
            if key not in seen:
                seen.add(key)
                kinds.append(kind)


def _paths(listing: _LegacyGroups) -> list[str]:
    """Every version of every group, the preferred one of each before its others."""
    paths = list(listing.versions or ())
    for group in listing.groups or ():
        paths.append(group.preferred_version.group_version)
        paths.extend(version.group_version for version in group.versions or ())
    return list(dict.fromkeys(filter(None, paths)))


def _legacy_kinds(path: str, found: list[_LegacyResource]) -> list[Kind]:
    group, _, version = path.rpartition("/")
    subresources: dict[str, list[str]] = {}
    for item in found:
        parent, slash, name = item.name.partition("/")
        if slash:
            subresources.setdefault(parent, []).append(name)
    return [
        Kind(
            Resource(group, version, item.name, item.kind, item.namespaced),
            tuple(item.verbs or ()),
            tuple(item.short_names or ()),
            tuple(subresources.get(item.name, ())),
        )
        for item in found
        if "/" not in item.name
    ]

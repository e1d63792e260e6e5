"""Resources and their paths: which URL an object has, and nothing else.

A name in a path may come from a person or from another object, so it is checked before it is
used. Quoting alone is not enough: an API server unquotes a path before it splits it, and
``web%2Fstatus`` would reach the status of ``web``. Kubernetes itself allows no such names.
"""

from functools import cached_property, lru_cache
from urllib.parse import quote

import msgspec


class Resource(msgspec.Struct, frozen=True, dict=True, cache_hash=True):
    """A kind of object that an API server stores. ``group`` is empty for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def label(self) -> str:
        """As people write it: ``pods``, ``leases.coordination.k8s.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(
        self,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str | None = None,
    ) -> str:
        """The URL path: of one object, or without a ``name`` of all of them.

        Raises ``ValueError`` for what can be nobody's name, and where a part is missing.
        """
        return _path(self, namespace, name, subresource)


# Whoever polls, renews or follows asks for the same few again and again.
@lru_cache(maxsize=4096)
def _path(
    resource: Resource, namespace: str | None, name: str | None, subresource: str | None
) -> str:
    group, version = resource.group, resource.version
    parts = [f"/apis/{group}/{version}" if group else f"/api/{version}"]
    if namespace is not None and resource.namespaced:
        parts += ["namespaces", _segment(namespace, "a namespace")]
    parts.append(resource.plural)
    if name is not None:
        if resource.namespaced and namespace is None:
            raise ValueError(f"{resource.label} {name!r} needs a namespace")
        parts.append(_segment(name, f"one of the {resource.label}"))
    if subresource is not None:
        if name is None:
            raise ValueError(f"the {subresource} of {resource.label} needs a name")
        parts.append(_segment(subresource, f"a subresource of {resource.label}"))
    return "/".join(parts)


def _segment(name: str, of_what: str) -> str:
    if name in ("", ".", "..") or "/" in name or "%" in name:
        raise ValueError(f"{name!r} is not the name of {of_what}")
    return quote(name, safe="")


NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
EVENTS = Resource("", "v1", "events", "Event")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")

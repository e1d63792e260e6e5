"""Calico's kinds, in the group that most installations store them in, or in the newer one.

The schemas are open, as those of older releases were.
"""

from dataclasses import dataclass

from backstay.kube.resource import Resource
from backstay.sim.api.operations import Write
from backstay.sim.api.requests import Target
from backstay.sim.api.server import ApiServer
from backstay.sim.calico.blocks import Json


@dataclass(frozen=True)
class Group:
    """Where the objects are kept."""

    name: str
    version: str
    settings_kind: str

    @property
    def blocks(self) -> Resource:
        return self._resource("IPAMBlock")

    @property
    def handles(self) -> Resource:
        return self._resource("IPAMHandle")

    @property
    def settings(self) -> Resource:
        return self._resource(self.settings_kind)

    def _resource(self, kind: str) -> Resource:
        return Resource(self.name, self.version, f"{kind.lower()}s", kind, namespaced=False)


V1 = Group("crd.projectcalico.org", "v1", "IPAMConfig")
V3 = Group("projectcalico.org", "v3", "IPAMConfiguration")


def named(resource: Resource, body: Json) -> Json:
    """An object as it is sent to be created: a custom resource says what it is."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}


def install(server: ApiServer, group: Group = V1) -> None:
    """Has an embedded API serve Calico's kinds."""
    info = server.kinds.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    assert info is not None
    for definition in definitions(group):
        sent = {k: v for k, v in definition.items() if k not in ("apiVersion", "kind")}
        server.operations.create(Target(info), sent, Write("tigera-operator"))


def definitions(group: Group = V1) -> list[Json]:
    """As they are sent to an API server, a real one too."""
    return [_definition(each) for each in (group.blocks, group.handles, group.settings)]


def _definition(resource: Resource) -> Json:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.label},
        "spec": {
            "group": resource.group,
            "scope": "Cluster",
            "names": {
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
            },
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }

"""Backstay installed on a control plane, and clients that may do what a role may, and no more.

The manifests of deploy/ are applied as they are, by the real kubectl. What acts on a control plane
in a test should act as a user who has only the roles that it would have on a cluster:

    async def test_it(installed: Installed) -> None:
        async with installed.client("controller") as client:
            ...                                  # as the controller's own service account
        path = installed.kubeconfig("confirmer") # for ``backstay --kubeconfig`` and kubectl

Roles are ``controller``, ``viewer``, ``operator``, ``confirmer``, ``replayer``,
``metrics-reader`` and ``stranger``. An operator, a confirmer and a replayer may also view, as
deploy/people-rbac.yaml asks for; a stranger may do nothing. ``drop-in`` is the account of the
Piraeus HA controller, which may do nothing either before its manifest is applied.
Each acts by impersonation, which the API server authorises as if that user had come himself.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from backstay.cli.documents import as_yaml
from backstay.cli.manifests import manifests
from backstay.kube.access import GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.kube.resource import Resource
from backstay.seam.aiohttp_transport import AiohttpTransport
from harness.cluster import ControlPlane
from harness.connect import access
from tests.support import piraeus

Json = dict[str, Any]
_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview",
    namespaced=False,
)  # fmt: skip

USERS: Mapping[str, str] = {
    "controller": "system:serviceaccount:backstay-system:backstay-controller",
    "viewer": "vera",
    "operator": "olaf",
    "confirmer": "carla",
    "replayer": "rita",
    "metrics-reader": "mona",
    "stranger": "simon",
    "drop-in": piraeus.USER,
}
"""The user behind each role; the commands show these names."""

BOUND: Mapping[str, tuple[str, ...]] = {
    "backstay-viewer": ("vera", "olaf", "carla", "rita"),
    "backstay-operator": ("olaf",),
    "backstay-confirmer": ("carla",),
    "backstay-metrics-reader": ("mona",),
}


def bindings() -> list[Json]:
    """As an administrator would bind the roles to people: without our label."""
    return [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"people-{role}"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role,
            },
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
                for user in users
            ],
        }
        for role, users in BOUND.items()
    ] + [_within_our_namespace("backstay-replayer", "rita")]  # fmt: skip


def _within_our_namespace(role: str, user: str) -> Json:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"people-{role}", "namespace": "backstay-system"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }


@dataclass(frozen=True)
class Installed:
    """A control plane with our kinds, roles and policies."""

    plane: ControlPlane

    @asynccontextmanager
    async def client(self, role: str) -> AsyncIterator[KubeClient]:
        """Our client, as the user of that role."""
        admin = await access(self.plane).grant()
        grant = Grant(headers={"Impersonate-User": USERS[role]}, tls=admin.tls)
        transport = AiohttpTransport()
        try:
            yield KubeClient(transport, GivenAccess(self.plane.url, grant), user_agent="backstay")
        finally:
            await transport.close()

    def kubeconfig(self, role: str) -> Path:
        """A file by which commands act as the user of that role."""
        config = yaml.safe_load(self.plane.kubeconfig.read_text())
        for entry in config["users"]:
            entry["user"]["as"] = USERS[role]
        path = self.plane.directory / f"kubeconfig-{role}"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config))
        return path


async def install(plane: ControlPlane, *, running: bool) -> Installed:
    """Applies the manifests and binds the roles; ``running`` says whether the Deployment too.

    On a control plane that tests share it must not: its pods would turn up among theirs.
    """
    wanted = [one for one in manifests() if running or one["kind"] != "Deployment"]
    await plane.kubectl("apply", "-f", "-", stdin=as_yaml([*wanted, *bindings()]))
    names = [f"crd/{one['metadata']['name']}" for one in wanted if _is_definition(one)]
    await plane.kubectl("wait", "--for=condition=Established", *names, "--timeout=30s")
    return Installed(plane)


async def allowed(client: KubeClient, verb: str, group: str, resource: str, **more: str) -> bool:
    """Whether this user may; ``more`` are ``namespace``, ``name`` and ``subresource``."""
    asked = {"verb": verb, "group": group, "resource": resource, **more}
    return await _reviewed(client, {"resourceAttributes": asked})


async def allowed_path(client: KubeClient, verb: str, path: str) -> bool:
    """Whether this user may do that to what is no resource, such as ``/metrics``."""
    return await _reviewed(client, {"nonResourceAttributes": {"verb": verb, "path": path}})


async def _reviewed(client: KubeClient, spec: Json) -> bool:
    body = {"apiVersion": _REVIEWS.api_version, "kind": _REVIEWS.kind, "spec": spec}
    reply = await client.create(_REVIEWS, body)
    status: Json = msgspec.json.decode(reply.body)["status"]
    return bool(status["allowed"])


def _is_definition(document: Json) -> bool:
    return bool(document["kind"] == "CustomResourceDefinition")

"""Who may do what, in front of the embedded API and in front of a real one."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from backstay.kube.calls import Call
from backstay.kube.errors import Forbidden
from backstay.seam.serve import Inbound
from backstay.seam.system import SystemRng
from backstay.sim.api.access import AccessControl, User
from backstay.sim.api.server import ApiServer
from backstay.sim.clock import LoopClock
from harness.cluster import ControlPlane
from harness.connect import connect

Ask = Callable[..., Awaitable[tuple[int, dict[str, Any]]]]

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def embedded() -> Ask:
    server = ApiServer(wall=LoopClock(), rng=SystemRng(1))
    users = {"admin": User("admin", ("system:masters",)), "jane": User("jane", ("shop",))}
    control = AccessControl(server, users)

    async def ask(
        method: str, path: str, body: object = None, *, token: str = "jane"
    ) -> tuple[int, dict[str, Any]]:
        path, _, query = path.partition("?")
        sent = b"" if body is None else msgspec.json.encode(body)
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        answer = await control.handle(
            Inbound(method=method, path=path, query=query, headers=headers, body=sent)
        )
        assert isinstance(answer.body, bytes)
        return answer.status, msgspec.json.decode(answer.body)

    return ask


async def grant(ask: Ask, *rules: dict[str, Any], namespace: str = "") -> None:
    """Lets jane do what the rules say, in a namespace or everywhere."""
    kind, place = ("Role", f"/namespaces/{namespace}") if namespace else ("ClusterRole", "")
    plural = f"{kind.lower()}s"
    role = {"metadata": {"name": "r"}, "rules": list(rules)}
    binding = {
        "metadata": {"name": "b"},
        "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": kind, "name": "r", "apiGroup": "rbac.authorization.k8s.io"},
    }
    if namespace:
        await ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}, token="admin")
    assert (await ask("POST", f"{RBAC}{place}/{plural}", role, token="admin"))[0] == 201
    bindings = plural.replace("roles", "rolebindings")
    assert (await ask("POST", f"{RBAC}{place}/{bindings}", binding, token="admin"))[0] == 201


READ_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}


async def test_a_token_that_nobody_knows_is_unauthorized() -> None:
    code, body = await embedded()("GET", "/api/v1/pods", token="x")
    assert (code, body["reason"], body["message"]) == (401, "Unauthorized", "Unauthorized")


async def test_without_a_role_nothing_is_allowed_and_the_words_name_it() -> None:
    code, body = await embedded()("GET", "/api/v1/pods")
    assert code == 403
    assert body["message"] == (
        'pods is forbidden: User "jane" cannot list resource "pods" in API group "" at the '
        "cluster scope"
    )


async def test_a_cluster_role_allows_just_its_verbs() -> None:
    ask = embedded()
    await grant(ask, READ_PODS)
    assert (await ask("GET", "/api/v1/pods"))[0] == 200
    assert (await ask("GET", "/api/v1/pods?watch=1"))[0] == 403
    assert (await ask("DELETE", "/api/v1/namespaces/default/pods/p"))[0] == 403


async def test_a_role_ends_where_its_namespace_ends() -> None:
    ask = embedded()
    await grant(ask, READ_PODS, namespace="shop")
    assert (await ask("GET", "/api/v1/namespaces/shop/pods"))[0] == 200
    assert (await ask("GET", "/api/v1/namespaces/default/pods"))[0] == 403
    assert (await ask("GET", "/api/v1/pods"))[0] == 403


async def test_a_role_for_one_name_is_for_that_one_only() -> None:
    ask = embedded()
    await grant(ask, {**READ_PODS, "resources": ["nodes"], "resourceNames": ["n1"]})
    assert (await ask("GET", "/api/v1/nodes/n1"))[0] == 404
    assert (await ask("GET", "/api/v1/nodes/n2"))[0] == 403
    assert (await ask("GET", "/api/v1/nodes"))[0] == 403


@pytest.mark.parametrize("more", ["", "&watch=1"])
async def test_to_select_one_name_is_to_ask_for_that_one(more: str) -> None:
    ask = embedded()
    rule = {"apiGroups": [""], "resources": ["nodes"], "resourceNames": ["n1"]}
    await grant(ask, {**rule, "verbs": ["list"]})
    allowed = 403 if more else 200
    for selector in (
        "metadata.name=n1",
        "metadata.name%3D%3Dn1",
        "spec.unschedulable=false,metadata.name=n1",
    ):
        assert (await ask("GET", f"/api/v1/nodes?fieldSelector={selector}{more}"))[0] == allowed
    for selector in ("metadata.name=n2", "metadata.name!=n1", "spec.unschedulable=false"):
        assert (await ask("GET", f"/api/v1/nodes?fieldSelector={selector}{more}"))[0] == 403


async def test_a_subresource_is_a_permission_of_its_own() -> None:
    ask = embedded()
    await grant(ask, {"apiGroups": [""], "resources": ["nodes"], "verbs": ["*"]})
    assert (await ask("PATCH", "/api/v1/nodes/n1", {}))[0] != 403
    assert (await ask("PATCH", "/api/v1/nodes/n1/status", {}))[0] == 403


async def test_a_permission_that_is_taken_away_is_gone_at_once() -> None:
    ask = embedded()
    await grant(ask, READ_PODS)
    assert (await ask("GET", "/api/v1/pods"))[0] == 200
    await ask("DELETE", f"{RBAC}/clusterrolebindings/b", token="admin")
    assert (await ask("GET", "/api/v1/pods"))[0] == 403


async def test_everybody_known_may_ask_who_they_are_and_what_they_may() -> None:
    ask = embedded()
    await grant(ask, READ_PODS)
    _, said = await ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert said["status"]["userInfo"]["username"] == "jane"
    for verb, expected in (("list", True), ("delete", False)):
        spec = {"resourceAttributes": {"verb": verb, "resource": "pods"}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        _, said = await ask("POST", path, {"spec": spec})
        assert said["status"]["allowed"] is expected


@pytest.mark.real
@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/nodes/n1",
        "/api/v1/pods",
        "/api/v1/namespaces/default/pods",
        "/apis/coordination.k8s.io/v1/namespaces/default/leases",
        "/api/v1/namespaces/default",
        "/api/v1/nodes?fieldSelector=metadata.name%3Dn1",
        "/api/v1/nodes?fieldSelector=metadata.name%21%3Dn1",
    ],
)
async def test_a_real_server_refuses_in_the_same_words(
    control_plane: ControlPlane, path: str
) -> None:
    _, ours = await embedded()("GET", path)
    async with connect(control_plane, user="ordinary") as client:
        with pytest.raises(Forbidden) as caught:
            await client.send(Call(method="GET", path=path))
    assert ours["message"].replace("jane", "ordinary") == caught.value.status.message
    assert ours["reason"] == caught.value.reason

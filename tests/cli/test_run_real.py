"""``backstay run`` on a real control plane, with the controller's own role and with too little."""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from backstay.cli.preflight import needs, wishes
from backstay.kube.client import KubeClient
from backstay.kube.resource import LEASES, Resource
from backstay.seam.transport import Request
from tests.cli.controllers import free_port, running, transport
from tests.support.exposition import parse
from tests.support.installed import Installed, allowed

pytestmark = pytest.mark.real

REACHABLE = "127.1"
"""A way to write 127.0.0.1 that is not taken for one, as any name is not."""

ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding",
    namespaced=False,
)  # fmt: skip


async def test_the_role_that_is_installed_is_enough_and_the_lease_is_given_up(
    installed: Installed,
) -> None:
    kubeconfig = str(installed.kubeconfig("controller"))
    async with running("--kubeconfig", kubeconfig) as controller:
        await controller.says("leading under epoch")
        controller.send(signal.SIGTERM)
        assert await controller.ends() == 0
    assert controller.said("released the lease")
    async with installed.client("controller") as client:
        lease = await client.get(LEASES, "backstay-controller", namespace="backstay-system")
    assert lease.json()["spec"].get("holderIdentity", "") == ""


async def test_whatever_it_asks_for_the_role_grants(installed: Installed) -> None:
    async with installed.client("controller") as client:
        wanted = needs("backstay-system", "backstay-controller", reachable=True)
        for need in [*wanted, *wishes()]:
            more = {
                "namespace": need.namespace, "name": need.name, "subresource": need.subresource,
            }  # fmt: skip
            named = {key: value for key, value in more.items() if value}
            resource = need.resource
            assert await allowed(client, need.verb, resource.group, resource.plural, **named), need


async def test_an_identity_that_may_only_look_is_told_what_is_missing(
    installed: Installed,
) -> None:
    kubeconfig = str(installed.kubeconfig("viewer"))
    async with running("--kubeconfig", kubeconfig) as controller:
        assert await controller.ends() == 1
    last = controller.lines[-1]
    assert "may not" in last
    assert "patch nodes" in last
    assert "delete pods" in last
    assert "list nodes" not in last
    assert "tokenreviews" not in last
    assert last.endswith("NEXT: backstay manifests | kubectl apply -f -")


async def test_who_can_be_reached_must_be_able_to_ask_who_calls(installed: Installed) -> None:
    kubeconfig = str(installed.kubeconfig("viewer"))
    address = ("--metrics-address", f"{REACHABLE}:0")
    async with running("--kubeconfig", kubeconfig, *address) as controller:
        assert await controller.ends() == 1
    last = controller.lines[-1]
    assert "create tokenreviews.authentication.k8s.io" in last
    assert "create subjectaccessreviews.authorization.k8s.io" in last


# Who is answered


@asynccontextmanager
async def robot(
    client: KubeClient, namespace: str, name: str, *, role: str = ""
) -> AsyncIterator[str]:
    """The token of a new service account, which is bound to the role meanwhile."""
    await client.create(ACCOUNTS, {"metadata": {"name": name}}, namespace=namespace)
    reply = await client.create(
        ACCOUNTS, {"spec": {"expirationSeconds": 600}}, namespace=namespace, name=name,
        subresource="token",
    )  # fmt: skip
    token = reply.json()["status"]["token"]
    if not role:
        yield token
        return
    binding = {
        "metadata": {"name": f"{namespace}-{name}"},
        "roleRef": {"apiGroup": BINDINGS.group, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": name}],
    }
    await client.create(BINDINGS, binding)
    try:
        yield token
    finally:
        await client.delete(BINDINGS, f"{namespace}-{name}")


async def test_it_answers_those_whom_the_cluster_allows_it(
    installed: Installed, client: KubeClient, namespace: str
) -> None:
    port = free_port()
    kubeconfig, address = str(installed.kubeconfig("controller")), f"{REACHABLE}:{port}"
    async with (
        robot(client, namespace, "reader", role="backstay-metrics-reader") as reader,
        robot(client, namespace, "other") as other,
        running("--kubeconfig", kubeconfig, "--metrics-address", address) as controller,
        transport() as opened,
    ):

        async def ask(path: str, token: str = "") -> tuple[int, str]:
            headers = {"authorization": f"Bearer {token}"} if token else {}
            url = f"http://127.0.0.1:{port}{path}"
            request = Request(method="GET", url=url, headers=headers, timeout=10.0)
            answer = await opened.request(request)
            return answer.status, answer.body.decode()

        await controller.says("leading under epoch")
        assert (await ask("/healthz"))[0] == 200
        assert (await ask("/metrics"))[0] == 401
        assert (await ask("/metrics", "made.up.token"))[0] == 401
        status, sentence = await ask("/metrics", other)
        assert status == 403
        assert sentence.startswith(f"system:serviceaccount:{namespace}:other may not get /metrics")
        status, numbers = await ask("/metrics", reader)
        assert status == 200
        assert parse(numbers.encode()).value("backstay_leading") == 1
        assert (await ask("/status", reader))[0] == 200
        controller.send(signal.SIGTERM)
        assert await controller.ends() == 0
    for token in (reader, other, "made.up.token"):
        assert token not in controller.text

"""``backstay run`` on a real control plane, with the controller's own role and with too little."""

import signal

import pytest

from backstay.cli.preflight import needs
from backstay.kube.resource import LEASES
from tests.cli.controllers import running
from tests.support.installed import Installed, allowed

pytestmark = pytest.mark.real


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
        for need in needs("backstay-system", "backstay-controller", reachable=True):
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
    assert last.endswith("NEXT: backstay manifests | kubectl apply -f -")

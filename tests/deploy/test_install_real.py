"""From nothing to installed to nothing, on a control plane of its own, with the real kubectl."""

import json
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from backstay import __version__
from backstay.apis.backstay import CONFIGS, CONFIRMATIONS
from backstay.apis.definitions import definitions
from backstay.cli.documents import as_yaml
from backstay.cli.manifests import beyond_piraeus, drop_in, manifests
from backstay.kube import errors
from backstay.kube.resource import NODES, PODS
from backstay.model.labels import COMPONENT, TAINT
from harness.build import ensure_binaries
from harness.cluster import FAST, ControlPlane
from harness.connect import connect, until
from tests.cli.controllers import running
from tests.support import piraeus
from tests.support.installed import Installed, install
from tests.support.small_cluster import at_terminal, node_info, run

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane() -> AsyncIterator[ControlPlane]:
    async with ControlPlane(ensure_binaries(), timers=FAST) as plane:
        yield plane


async def test_a_server_takes_the_manifests_as_they_are_and_starts_the_controller(
    plane: ControlPlane,
) -> None:
    namespace = [one for one in manifests() if one["kind"] == "Namespace"]
    await plane.kubectl("apply", "-f", "-", stdin=as_yaml(namespace))
    tried = await plane.kubectl("apply", "--dry-run=server", "-f", "-", stdin=as_yaml(manifests()))
    assert len(tried.splitlines()) == len(manifests())
    assert await plane.kubectl("get", "crds", "-o", "name") == ""
    await install(plane, running=True)
    async with connect(plane) as admin:
        pods = await until(admin, PODS, lambda found: len(found) == 2, namespace="backstay-system")
    assert {pod["spec"]["priorityClassName"] for pod in pods} == {"system-cluster-critical"}
    assert {pod["spec"]["serviceAccountName"] for pod in pods} == {"backstay-controller"}


async def test_to_apply_them_again_changes_nothing(plane: ControlPlane) -> None:
    before = await generations(plane)
    await plane.kubectl("apply", "-f", "-", stdin=as_yaml(manifests()))
    assert await generations(plane) == before


async def generations(plane: ControlPlane) -> dict[str, int | None]:
    listed = await plane.kubectl("get", "-o", "json", "-f", "-", stdin=as_yaml(manifests()))
    return {
        f"{item['kind']} {item['metadata'].get('namespace')} {item['metadata']['name']}":
            item["metadata"].get("generation")
        for item in json.loads(listed)["items"]
    }  # fmt: skip


async def test_a_confirmer_confirms_and_withdraws_and_nobody_else_can(plane: ControlPlane) -> None:
    installed = Installed(plane)
    node = await plane.call(
        "POST", "/api/v1/nodes",
        {"metadata": {"name": "n1"}, "status": {"nodeInfo": node_info("the-boot")}},
    )  # fmt: skip
    confirm = ("confirm-dead", "n1", "--watch", "0")
    for role in ("viewer", "operator"):
        said = await run(installed.kubeconfig(role), *confirm, "--yes=n1")
        assert said.code == 1
        assert 'cannot create resource "deathconfirmations"' in said.err
    question = "If n1 is off, type its name: "
    said = await at_terminal(
        installed.kubeconfig("confirmer"), *confirm, answers=[(question, "n1\n")]
    )
    assert said.code == 0, said.out
    async with installed.client("viewer") as viewer:
        spec = (await viewer.get(CONFIRMATIONS, "n1")).json()["spec"]
        assert spec == {
            "node": "n1", "nodeUID": node["metadata"]["uid"], "bootID": "the-boot",
            "by": "carla", "reason": "no reason given", "lastRenewal": "", "lastHeartbeat": "",
            "lastStatus": "",
        }  # fmt: skip
        said = await run(installed.kubeconfig("confirmer"), "confirm-dead", "n1", "--withdraw")
        assert said.code == 0, said.err
        with pytest.raises(errors.NotFound):
            await viewer.get(CONFIRMATIONS, "n1")


async def test_an_operator_arms_and_disarms(plane: ControlPlane) -> None:
    installed = Installed(plane)
    path = installed.kubeconfig("operator")
    said = await run(path, "arm", "--yes")
    assert said.code == 0, said.err
    said = await run(path, "disarm", "--for", "1h", "--reason", "works")
    assert said.code == 0, said.err
    async with installed.client("viewer") as viewer:
        spec = (await viewer.get(CONFIGS, "cluster")).json()["spec"]
    assert (spec["mode"], spec["disarmed"]["by"]) == ("Armed", "olaf")


async def test_uninstalling_leaves_nothing_behind(plane: ControlPlane) -> None:
    await plane.kubectl(
        "taint", "node", "n1", f"{TAINT}=:NoSchedule", "example.com/theirs=:NoSchedule"
    )
    restricted = await run(Installed(plane).kubeconfig("viewer"), "uninstall", "--yes")
    assert restricted.code == 1
    assert 'cannot patch resource "nodes"' in " ".join(restricted.out.split())
    said = await run(plane.kubeconfig, "uninstall", "--yes")
    assert said.code == 0, said.out
    async with connect(plane) as admin:
        node = (await admin.get(NODES, "n1")).json()
        keys = {taint["key"] for taint in node["spec"]["taints"]}
        assert TAINT not in keys
        assert "example.com/theirs" in keys
    everything = "crd,ns,clusterroles,clusterrolebindings,validatingadmissionpolicies"
    left = await plane.kubectl("get", everything, "-A", "-l", f"{COMPONENT}=backstay", "-o", "name")
    assert left == ""
    roles = await plane.kubectl("get", "roles,rolebindings", "-A", "-l", f"{COMPONENT}=backstay")
    assert roles == ""


# In the place of the Piraeus HA controller

ARGUMENTS = piraeus.arguments(name="ha-1")


async def test_its_manifest_with_our_image_alone_says_what_is_missing(plane: ControlPlane) -> None:
    theirs = as_yaml(piraeus.manifest(f"backstay:{__version__}"))
    await plane.kubectl("apply", "-f", "-", stdin=theirs)
    kubeconfig = str(Installed(plane).kubeconfig("drop-in"))
    async with running("--kubeconfig", kubeconfig, *ARGUMENTS) as controller:
        assert await controller.ends() == 1
    kinds, rights = controller.lines[-2:]
    assert kinds.endswith("NEXT: kubectl apply -f deploy/crds.yaml")
    assert rights.endswith("NEXT: kubectl apply -f deploy/linstor-rights.yaml")


async def test_what_that_says_is_enough_and_to_apply_the_manifest_again_changes_nothing(
    plane: ControlPlane,
) -> None:
    await plane.kubectl("apply", "-f", "-", stdin=as_yaml(definitions()))
    kinds = [f"crd/{one['metadata']['name']}" for one in definitions()]
    await plane.kubectl("wait", "--for=condition=Established", *kinds, "--timeout=30s")
    said = await plane.kubectl("apply", "-f", "-", stdin=as_yaml(beyond_piraeus()))
    assert {line.rpartition(" ")[2] for line in said.splitlines()} == {"created"}
    theirs = as_yaml(piraeus.manifest(f"backstay:{__version__}"))
    said = await plane.kubectl("apply", "-f", "-", stdin=theirs)
    assert {line.rpartition(" ")[2] for line in said.splitlines()} == {"unchanged"}
    kubeconfig = str(Installed(plane).kubeconfig("drop-in"))
    async with running("--kubeconfig", kubeconfig, *ARGUMENTS) as controller:
        await controller.says("the mode is Armed")
        await controller.says("leading under epoch")
        controller.send(signal.SIGTERM)
        assert await controller.ends() == 0
    assert controller.said("released the lease ha-controller/piraeus-ha-controller")
    assert "forbidden" not in controller.text.lower()
    assert controller.said("policies that ask to migrate, stop or start guests have no effect")


def one_is_ours(pods: list[dict[str, Any]]) -> bool:
    return any("NODE_NAME" in str(pod["spec"]["containers"][0]["env"]) for pod in pods)


async def test_our_own_manifest_takes_the_place_of_its(plane: ControlPlane) -> None:
    said = await plane.kubectl("apply", "-f", "-", stdin=as_yaml(drop_in()))
    assert "deployment.apps/piraeus-ha-controller configured" in said
    assert len(said.splitlines()) == len(drop_in())
    async with connect(plane) as admin:
        # One after the other; without nodes it stays at the first.
        await until(admin, PODS, one_is_ours, namespace="ha-controller")

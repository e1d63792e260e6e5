"""KubeVirt's kinds as an API serves them, and as kubectl shows them."""

from typing import Any

import pytest

from backstay.sim.kubevirt import install, virtual_machine
from backstay.sim.kubevirt.names import MIGRATIONS, VMIS, VMS
from tests.support.both_apis import MERGE, TABLE, Embedded

Json = dict[str, Any]


@pytest.fixture
async def api() -> Embedded:
    embedded = Embedded()
    await embedded.call("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}})
    install(embedded.server)
    return embedded


async def table(api: Embedded, path: str) -> tuple[list[str], list[list[Any]]]:
    shown = (await api.call("GET", path, accept=TABLE)).body
    columns = [each["name"] for each in shown["columnDefinitions"] if not each["priority"]]
    return columns, [row["cells"] for row in shown["rows"]]


async def test_a_vm_is_shown_with_its_word_for_people(api: Embedded) -> None:
    path = VMS.path(namespace="default")
    await api.call("POST", path, virtual_machine("vm"))
    ready = {"type": "Ready", "status": "True"}
    status = {"status": {"printableStatus": "Running", "conditions": [ready]}}
    await api.call("PATCH", f"{path}/vm/status", status, content=MERGE)
    columns, rows = await table(api, path)
    assert columns == ["Name", "Age", "Status", "Ready"]
    assert [[row[0], *row[2:]] for row in rows] == [["vm", "Running", "True"]]


async def test_a_vmi_is_shown_with_its_place(api: Embedded) -> None:
    path = VMIS.path(namespace="default")
    status = {
        "phase": "Running", "nodeName": "n1", "interfaces": [{"ipAddress": "10.0.0.7"}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }  # fmt: skip
    await api.call("POST", path, {"metadata": {"name": "vm"}, "status": status})
    columns, rows = await table(api, path)
    assert columns == ["Name", "Age", "Phase", "IP", "NodeName", "Ready"]
    assert [[row[0], *row[2:6]] for row in rows] == [["vm", "Running", "10.0.0.7", "n1", "True"]]


async def test_the_status_of_a_vmi_is_written_with_the_rest_of_it(api: Embedded) -> None:
    path = VMIS.path(namespace="default")
    await api.call("POST", path, {"metadata": {"name": "vm"}})
    failed = {"status": {"phase": "Failed"}}
    assert (await api.call("PATCH", f"{path}/vm/status", failed, content=MERGE)).status == 404
    await api.call("PATCH", f"{path}/vm?fieldManager=virt-handler", failed, content=MERGE)
    assert (await api.call("GET", f"{path}/vm")).body["status"] == {"phase": "Failed"}


@pytest.mark.parametrize("resource", [VMS, MIGRATIONS], ids=lambda each: each.plural)
async def test_the_status_of_others_has_a_path_of_its_own(api: Embedded, resource: Any) -> None:
    path = resource.path(namespace="default")
    body = {"metadata": {"name": "it"}, "status": {"phase": "ignored"}}
    assert "status" not in (await api.call("POST", path, body)).body
    said = {"status": {"phase": "Running"}}
    assert (await api.call("PATCH", f"{path}/it/status", said, content=MERGE)).status == 200


async def test_the_old_version_is_served_too(api: Embedded) -> None:
    await api.call("POST", VMS.path(namespace="default"), virtual_machine("vm"))
    found = await api.call(
        "GET", "/apis/kubevirt.io/v1alpha3/namespaces/default/virtualmachines/vm"
    )
    assert found.body["apiVersion"] == "kubevirt.io/v1alpha3"

"""Spec and status are written apart, on every target (one is pytest.mark.real)."""

from tests.conformance.objects import named, pod
from tests.conformance.targets import APPLY, STRATEGIC, Api, Json


async def test_a_write_to_an_object_does_not_touch_its_status(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    patch = {"status": {"phase": "Failed"}, "metadata": {"labels": {"x": "y"}}}
    changed = await api.change(api.at("pods", "a"), patch)
    assert changed["status"]["phase"] == "Pending"
    assert changed["metadata"]["labels"]["x"] == "y"


async def test_a_write_to_a_status_does_not_touch_the_spec(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    patch = {"spec": {"nodeName": "other"}, "status": {"phase": "Running"}}
    changed = await api.change(api.at("pods", "a", "status"), patch)
    assert changed["spec"]["nodeName"] == "nowhere"
    assert changed["status"]["phase"] == "Running"


async def test_a_write_to_a_status_may_change_labels(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    patch = {"metadata": {"labels": {"x": "y"}}, "status": {"phase": "Running"}}
    changed = await api.change(api.at("pods", "a", "status"), patch)
    assert changed["metadata"]["labels"] == {"app": "web", "x": "y"}


async def test_a_write_to_a_status_is_no_new_generation(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    changed = await api.change(api.at("pods", "a", "status"), {"status": {"phase": "Running"}})
    assert changed["metadata"]["generation"] == 1


async def test_a_change_of_the_spec_is_a_new_generation(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    patch = {"spec": {"containers": [{"name": "main", "image": "none:2"}]}}
    changed = await api.change(api.at("pods", "a"), patch, STRATEGIC)
    assert changed["metadata"]["generation"] == 2


async def test_a_change_of_labels_is_no_new_generation(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    changed = await api.change(api.at("pods", "a"), {"metadata": {"labels": {"x": "y"}}})
    assert changed["metadata"]["generation"] == 1


async def test_the_status_of_what_is_not_there_is_not_found(api: Api) -> None:
    got = await api.patch(api.at("pods", "nope", "status"), {"status": {"phase": "Running"}})
    assert got.refusal == (404, "NotFound", 'pods "nope" not found')


async def test_a_status_can_be_read_on_its_own(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    assert await api.read(api.at("pods", "a", "status")) == await api.read(api.at("pods", "a"))


async def test_a_stale_status_is_a_conflict(api: Api) -> None:
    made = await api.make(api.at("pods"), pod("a"))
    await api.change(api.at("pods", "a"), {"metadata": {"labels": {"x": "y"}}})
    got = await api.put(api.at("pods", "a", "status"), made)
    assert got.refusal[:2] == (409, "Conflict")


async def test_who_wrote_a_status_is_written_down_apart(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    changed = await api.change(api.at("pods", "a", "status"), {"status": {"phase": "Running"}})
    entries = changed["metadata"]["managedFields"]
    assert [e.get("subresource", "") for e in entries] == ["", "status"]
    assert entries[1]["fieldsV1"] == {"f:status": {"f:phase": {}}}


async def test_a_kind_without_a_status_has_no_path_for_it(api: Api) -> None:
    await api.make(api.at("configmaps"), named("a"))
    got = await api.get(api.at("configmaps", "a", "status"))
    words = "the server could not find the requested resource"
    assert got.refusal == (404, "NotFound", words)


async def test_almost_nothing_of_a_pods_spec_may_change(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    got = await api.patch(api.at("pods", "a"), {"spec": {"nodeName": "other"}})
    assert got.refusal[:2] == (422, "Invalid")
    assert got.message.startswith(
        'Pod "a" is invalid: spec: Forbidden: pod updates may not change fields other than '
        "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
        "`spec.tolerations` (only additions to existing tolerations),"
        "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously "
        "negative)"
    )


async def test_whoever_applies_owns_only_what_it_can_change(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    whole = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": {"x": "y"}},
        "status": {"reason": "told"},
    }
    for part in ("status", ""):
        await api.change(api.at("pods", "a", part) + f"?fieldManager=me-{part}", whole, APPLY)
    found = await api.read(api.at("pods", "a"))
    assert found["status"]["reason"] == "told"
    owned = {
        entry["manager"]: entry["fieldsV1"]
        for entry in found["metadata"]["managedFields"]
        if entry["operation"] == "Apply"
    }
    labels: Json = {"f:metadata": {"f:labels": {"f:x": {}}}}
    assert owned == {"me-": labels, "me-status": {**labels, "f:status": {"f:reason": {}}}}


async def test_what_an_object_is_applied_with_is_no_conflict_with_its_status(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    await api.change(api.at("pods", "a", "status"), {"status": {"reason": "told"}})
    other = {"apiVersion": "v1", "kind": "Pod", "status": {"reason": "another"}}
    changed = await api.change(api.at("pods", "a") + "?fieldManager=me", other, APPLY)
    assert changed["status"]["reason"] == "told"

"""A dry run answers as if it had happened, and it has not (one target: pytest.mark.real)."""

from tests.conformance.objects import applied, config, pod
from tests.conformance.targets import APPLY, Api


async def test_a_dry_creation_makes_nothing(api: Api) -> None:
    got = await api.post(api.at("configmaps") + "?dryRun=All", config("a", x="1"))
    assert (got.status, got.json["data"]) == (201, {"x": "1"})
    assert got.json["metadata"]["uid"]
    assert "resourceVersion" not in got.json["metadata"]
    assert (await api.get(api.at("configmaps", "a"))).status == 404


async def test_a_dry_creation_of_a_taken_name_is_refused(api: Api) -> None:
    await api.make(api.at("configmaps"), config("a"))
    got = await api.post(api.at("configmaps") + "?dryRun=All", config("a"))
    assert got.refusal[:2] == (409, "AlreadyExists")


async def test_a_dry_patch_changes_nothing(api: Api) -> None:
    made = await api.make(api.at("configmaps"), config("a", x="1"))
    got = await api.patch(api.at("configmaps", "a") + "?dryRun=All", {"data": {"x": "2"}})
    assert (got.status, got.json["data"]) == (200, {"x": "2"})
    assert await api.read(api.at("configmaps", "a")) == made


async def test_a_dry_replacement_changes_nothing(api: Api) -> None:
    made = await api.make(api.at("configmaps"), config("a", x="1"))
    got = await api.put(api.at("configmaps", "a") + "?dryRun=All", config("a", x="2"))
    assert (got.status, got.json["data"]) == (200, {"x": "2"})
    assert await api.read(api.at("configmaps", "a")) == made


async def test_a_dry_apply_makes_nothing(api: Api) -> None:
    path = api.at("configmaps", "a")
    got = await api.patch(f"{path}?dryRun=All&fieldManager=ann", applied("a", x="1"), APPLY)
    assert got.status == 201
    assert (await api.get(path)).status == 404


async def test_a_dry_deletion_asked_for_in_the_body_deletes_nothing(api: Api) -> None:
    await api.make(api.at("configmaps"), config("a"))
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]}
    assert (await api.delete(api.at("configmaps", "a"), options)).status == 200
    assert (await api.get(api.at("configmaps", "a"))).status == 200


async def test_a_dry_deletion_asked_for_in_the_query_deletes_nothing(api: Api) -> None:
    await api.make(api.at("configmaps"), config("a"))
    assert (await api.delete(api.at("configmaps", "a") + "?dryRun=All")).status == 200
    assert (await api.get(api.at("configmaps", "a"))).status == 200


async def test_a_body_hides_a_dry_run_that_the_query_asks_for(api: Api) -> None:
    await api.make(api.at("configmaps"), config("a"))
    options = {"apiVersion": "v1", "kind": "DeleteOptions"}
    assert (await api.delete(api.at("configmaps", "a") + "?dryRun=All", options)).status == 200
    assert (await api.get(api.at("configmaps", "a"))).status == 404


async def test_a_dry_graceful_deletion_does_not_begin(api: Api) -> None:
    made = await api.make(api.at("pods"), pod("a"))
    await api.delete(api.at("pods", "a") + "?dryRun=All")
    assert await api.read(api.at("pods", "a")) == made


async def test_a_dry_run_of_something_else_is_refused(api: Api) -> None:
    got = await api.post(api.at("configmaps") + "?dryRun=Some", config("a"))
    words = (
        'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported '
        'values: "All"'
    )
    assert got.refusal == (422, "Invalid", words)

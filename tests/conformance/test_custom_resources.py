"""Kinds that a definition brings, on every target (one is pytest.mark.real)."""

import asyncio
from dataclasses import dataclass

import pytest

from tests.conformance.targets import STRATEGIC, TIMEOUT, Api, Json

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

SCHEMA: Json = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1},
                "mode": {"type": "string", "default": "slow", "enum": ["slow", "fast"]},
                "replicas": {"type": "integer"},
            },
        },
        "status": {
            "type": "object",
            "properties": {"replicas": {"type": "integer"}, "ready": {"type": "boolean"}},
        },
    },
}


@dataclass(frozen=True)
class Things:
    """A kind of our own, in a group that nobody else has."""

    group: str
    path: str

    def thing(self, name: str, **spec: object) -> Json:
        return {
            "apiVersion": f"{self.group}/v1",
            "kind": "Thing",
            "metadata": {"name": name},
            "spec": {"size": 1, **spec},
        }


async def define(api: Api, group: str, schema: Json | None = None, **more_names: str) -> Things:
    """Makes the kind, unless it is there already."""
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "shortNames": ["tg"]}
    names |= more_names
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}, "scale": scale},
        "schema": {"openAPIV3Schema": schema or SCHEMA},
    }
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    definition = {"metadata": {"name": f"things.{group}"}, "spec": spec}
    assert (await api.post(DEFINITIONS, definition)).status in (201, 409)
    made = Things(group, api.at("things", group=f"{group}/v1"))
    # A real server begins to serve it in stages, and says nothing of it.
    async with asyncio.timeout(TIMEOUT):
        while (await api.post(made.path + "?dryRun=All", made.thing("probe"))).status != 201:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return made


@pytest.fixture
async def things(api: Api) -> Things:
    """One kind for all tests: a real server takes seconds to begin with a new one."""
    return await define(api, "conformance.test")


async def test_a_definition_brings_a_kind(api: Api, things: Things) -> None:
    made = await api.make(things.path, things.thing("a"))
    assert (made["kind"], made["apiVersion"]) == ("Thing", f"{things.group}/v1")
    assert made["metadata"]["generation"] == 1
    listed = await api.read(things.path)
    assert (listed["kind"], listed["items"]) == ("ThingList", [made])


async def test_a_custom_object_is_pruned_and_filled(api: Api, things: Things) -> None:
    body = {**things.thing("a", bogus=1), "status": {"ready": True}}
    made = await api.make(things.path, body)
    assert made["spec"] == {"size": 1, "mode": "slow"}
    assert "status" not in made


INVALID: dict[str, tuple[Json, str]] = {
    "too small": (
        {"size": 0},
        "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
    ),
    "not among the allowed": (
        {"mode": "x"},
        'spec.mode: Unsupported value: "x": supported values: "slow", "fast"',
    ),
    "of the wrong type": (
        {"size": "x"},
        'spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"',
    ),
}


@pytest.mark.parametrize("case", INVALID)
async def test_a_custom_object_is_checked(api: Api, things: Things, case: str) -> None:
    spec, why = INVALID[case]
    got = await api.post(things.path, things.thing("a", **spec))
    assert got.refusal == (422, "Invalid", f'Thing.{things.group} "a" is invalid: {why}')


async def test_what_a_custom_object_must_have_is_demanded(api: Api, things: Things) -> None:
    body = things.thing("a")
    del body["spec"]["size"]
    got = await api.post(things.path, body)
    words = f'Thing.{things.group} "a" is invalid: spec.size: Required value'
    assert got.refusal == (422, "Invalid", words)


async def test_unknown_fields_of_a_custom_object_can_be_refused(api: Api, things: Things) -> None:
    got = await api.post(things.path + "?fieldValidation=Strict", things.thing("a", bogus=1))
    words = (
        'Thing in version "v1" cannot be handled as a Thing: strict decoding error: unknown field '
        '"spec.bogus"'
    )
    assert got.refusal == (400, "BadRequest", words)


async def test_the_status_of_a_custom_object_is_written_apart(api: Api, things: Things) -> None:
    await api.make(things.path, things.thing("a"))
    patch = {"spec": {"size": 9}, "status": {"ready": True}}
    changed = await api.change(f"{things.path}/a/status", patch)
    assert (changed["spec"]["size"], changed["status"]) == (1, {"ready": True})
    assert changed["metadata"]["generation"] == 1


async def test_a_change_of_a_custom_spec_is_a_new_generation(api: Api, things: Things) -> None:
    await api.make(things.path, things.thing("a"))
    changed = await api.change(f"{things.path}/a", {"spec": {"size": 2}})
    assert changed["metadata"]["generation"] == 2


async def test_a_custom_object_can_be_scaled(api: Api, things: Things) -> None:
    await api.make(things.path, things.thing("a", replicas=1))
    scaled = await api.change(f"{things.path}/a/scale", {"spec": {"replicas": 3}})
    assert (scaled["kind"], scaled["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (await api.read(f"{things.path}/a"))["spec"]["replicas"] == 3


async def test_custom_objects_refuse_strategic_patches(api: Api, things: Things) -> None:
    await api.make(things.path, things.thing("a"))
    got = await api.patch(f"{things.path}/a", {"spec": {"size": 2}}, STRATEGIC)
    words = (
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    )
    assert got.refusal == (415, "UnsupportedMediaType", words)


async def test_a_custom_object_is_not_replaced_without_a_version(api: Api, things: Things) -> None:
    await api.make(things.path, things.thing("a"))
    got = await api.put(f"{things.path}/a", things.thing("a"))
    why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    assert got.refusal == (422, "Invalid", f'things.{things.group} "a" is invalid: {why}')


async def test_another_version_of_a_custom_object_is_refused(api: Api, things: Things) -> None:
    body = {**things.thing("a"), "apiVersion": f"{things.group}/v2"}
    got = await api.post(things.path, body)
    words = (
        f"the API version in the data ({things.group}/v2) does not match the expected API version "
        f"({things.group}/v1)"
    )
    assert got.refusal == (400, "BadRequest", words)


async def test_a_custom_kind_is_discovered(api: Api, things: Things) -> None:
    found = (await api.read(f"/apis/{things.group}/v1"))["resources"]
    assert [entry["name"] for entry in found] == ["things", "things/status", "things/scale"]
    assert (found[0]["kind"], found[0]["shortNames"]) == ("Thing", ["tg"])


async def test_a_definition_says_what_lists_are_called(api: Api) -> None:
    things = await define(api, "lists.conformance.test", listKind="ManyThings")
    listed = await api.read(things.path)
    assert (listed["kind"], listed["items"]) == ("ManyThings", [])


async def test_custom_objects_go_with_their_definition(api: Api) -> None:
    things = await define(api, f"{api.namespace}.test")
    await api.make(things.path, things.thing("a"))
    async with api.watch(f"{things.path}?watch=1&resourceVersion=0") as events:
        assert await events.names(1) == [("ADDED", "a")]
        await api.delete(f"{DEFINITIONS}/things.{things.group}")
        assert await events.names(1) == [("DELETED", "a")]
    await api.until(things.path, 404)

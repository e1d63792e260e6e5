"""Requests that make no sense, and what is said about them (one target: pytest.mark.real)."""

import pytest

from tests.conformance.objects import config, named
from tests.conformance.targets import Api

UNRECOGNIZED = (
    "the object provided is unrecognized (must be of type Secret): couldn't get version/kind; "
    "json parse error: "
)
NOT_ALLOWED = (
    405,
    "MethodNotAllowed",
    "the server does not allow this method on the requested resource",
)

MALFORMED = {
    b'{"metadata": ': 'unexpected end of JSON input ({"metadata": )',
    b"": "unexpected end of JSON input (<empty>)",
    b"not json": "invalid character 'o' in literal null (expecting 'u') (6e6f74206a736f6e)",
    b"zz": "invalid character 'z' looking for beginning of value (7a7a)",
}


@pytest.mark.parametrize("body", MALFORMED)
async def test_a_body_that_is_no_json_is_refused(api: Api, body: bytes) -> None:
    got = await api.request("POST", api.at("secrets"), body, {"content-type": "application/json"})
    assert got.refusal == (400, "BadRequest", UNRECOGNIZED + MALFORMED[body])


async def test_a_body_that_is_a_list_is_refused(api: Api) -> None:
    got = await api.post(api.at("secrets"), b"[]")
    assert got.refusal[:2] == (400, "BadRequest")
    beginning = UNRECOGNIZED + "json: cannot unmarshal array into Go value of type struct {"
    assert got.message.startswith(beginning)


async def test_another_kind_is_refused(api: Api) -> None:
    got = await api.post(api.at("secrets"), {"kind": "ConfigMap", "apiVersion": "v1", **named("a")})
    words = (
        'ConfigMap in version "v1" cannot be handled as a Secret: converting (v1.ConfigMap) to '
        "(core.Secret): unknown conversion"
    )
    assert got.refusal == (400, "BadRequest", words)


async def test_a_kind_that_nobody_knows_is_refused(api: Api) -> None:
    got = await api.post(api.at("secrets"), {"kind": "Nope", "apiVersion": "v1", **named("a")})
    words = (
        'Nope in version "v1" cannot be handled as a Secret: no kind "Nope" is registered for '
        'version "v1" in scheme "pkg/runtime/scheme.go:111"'
    )
    assert got.refusal == (400, "BadRequest", words)


async def test_another_version_is_refused(api: Api) -> None:
    got = await api.post(api.at("secrets"), {"kind": "Secret", "apiVersion": "v2", **named("a")})
    words = (
        'Secret in version "v2" cannot be handled as a Secret: no kind "Secret" is registered for '
        'version "v2" in scheme "pkg/runtime/scheme.go:111"'
    )
    assert got.refusal == (400, "BadRequest", words)


async def test_a_value_of_the_wrong_type_is_refused(api: Api) -> None:
    got = await api.post(api.at("configmaps"), {**named("a"), "data": {"x": 1}})
    words = (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number '
        "into Go struct field ConfigMap.data of type string"
    )
    assert got.refusal == (400, "BadRequest", words)


async def test_metadata_that_are_no_object_are_refused(api: Api) -> None:
    got = await api.post(api.at("configmaps"), {"metadata": "x"})
    words = (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal string '
        "into Go struct field ConfigMap.metadata of type v1.ObjectMeta"
    )
    assert got.refusal == (400, "BadRequest", words)


async def test_a_body_of_an_unknown_type_is_refused(api: Api) -> None:
    headers = {"content-type": "text/plain"}
    got = await api.request("POST", api.at("secrets"), b"x", headers)
    words = (
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    )
    assert got.refusal == (415, "UnsupportedMediaType", words)


async def test_yaml_is_accepted(api: Api) -> None:
    headers = {"content-type": "application/yaml"}
    got = await api.request("POST", api.at("secrets"), b"metadata:\n  name: a\n", headers)
    assert got.status == 201


async def test_a_body_that_is_too_large_is_refused(api: Api) -> None:
    got = await api.post(api.at("configmaps"), config("a", x="x" * (3 * 1024 * 1024)))
    words = "Request entity too large: limit is 3145728"
    assert got.refusal == (413, "RequestEntityTooLarge", words)


async def test_an_unknown_resource_is_not_found(api: Api) -> None:
    got = await api.get("/api/v1/nopes")
    words = "the server could not find the requested resource"
    assert got.refusal == (404, "NotFound", words)


@pytest.mark.parametrize("path", ["/apis/nope.io/v1/nopes", "/nope"])
async def test_behind_other_paths_there_is_no_api(api: Api, path: str) -> None:
    got = await api.get(path)
    assert (got.status, got.body) == (404, b"404 page not found\n")


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_a_collection_cannot_be_changed(api: Api, method: str) -> None:
    headers = {"content-type": "application/merge-patch+json"} if method == "PATCH" else {}
    got = await api.request(method, api.at("secrets"), {}, headers)
    assert got.refusal == NOT_ALLOWED


async def test_nothing_is_posted_to_an_object(api: Api) -> None:
    await api.make(api.at("secrets"), named("a"))
    assert (await api.post(api.at("secrets", "a"), named("a"))).refusal == NOT_ALLOWED


async def test_nothing_is_created_in_all_namespaces(api: Api) -> None:
    assert (await api.post("/api/v1/secrets", named("a"))).refusal == NOT_ALLOWED


async def test_a_read_of_a_version_that_is_no_number_is_refused(api: Api) -> None:
    await api.make(api.at("secrets"), named("a"))
    got = await api.get(api.at("secrets", "a") + "?resourceVersion=x")
    words = 'resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax'
    assert got.refusal == (500, "", words)


async def test_an_answer_in_no_known_form_is_refused(api: Api) -> None:
    got = await api.request("GET", api.at("secrets"), None, {"accept": "text/html"})
    assert got.refusal[:2] == (406, "NotAcceptable")
    assert "application/json" in got.message

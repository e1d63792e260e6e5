"""What is made of values of the wrong type or form, on every target (one is pytest.mark.real)."""

import pytest

from tests.conformance.objects import config, named, pod
from tests.conformance.targets import JSON_PATCH, MERGE, STRATEGIC, Api, Json


def refused_pod(why: str) -> tuple[int, str, str]:
    return 400, "BadRequest", f'Pod in version "v1" cannot be handled as a Pod: {why}'


NUMBERS: dict[str, tuple[Json, str]] = {
    "a long one that is text": (
        {"activeDeadlineSeconds": "5"},
        "json: cannot unmarshal string into Go struct field PodSpec.spec.activeDeadlineSeconds of "
        "type int64",
    ),
    "a short one that is text": (
        {"priority": "5"},
        "json: cannot unmarshal string into Go struct field PodSpec.spec.priority of type int32",
    ),
    "a short one that is too long": (
        {"priority": 3_000_000_000},
        "json: cannot unmarshal number 3000000000 into Go struct field PodSpec.spec.priority of "
        "type int32",
    ),
    "one with a fraction": (
        {"priority": 1.5},
        "json: cannot unmarshal number 1.5 into Go struct field PodSpec.spec.priority of type "
        "int32",
    ),
}


@pytest.mark.parametrize("case", NUMBERS)
async def test_a_number_has_a_width(api: Api, case: str) -> None:
    spec, why = NUMBERS[case]
    got = await api.post(api.at("pods"), pod("a", **spec))
    assert got.refusal == refused_pod(why)


async def test_what_a_json_patch_leads_to_is_checked(api: Api) -> None:
    await api.make(api.at("configmaps"), config("a", x="1"))
    patch = [{"op": "replace", "path": "/data/x", "value": 5}]
    got = await api.patch(api.at("configmaps", "a"), patch, JSON_PATCH)
    assert got.refusal[:2] == (422, "Invalid")
    assert got.message.startswith(' "" is invalid: patch: Invalid value: ')
    why = "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
    assert got.message.endswith(why)
    assert (await api.read(api.at("configmaps", "a")))["data"] == {"x": "1"}


UNKNOWN: dict[str, object] = {
    MERGE: {"bogus": 5},
    STRATEGIC: {"bogus": 5},
    JSON_PATCH: [{"op": "add", "path": "/bogus", "value": 5}],
}


@pytest.mark.parametrize("kind", UNKNOWN)
async def test_a_patch_with_an_unknown_field_is_warned_of(api: Api, kind: str) -> None:
    await api.make(api.at("configmaps"), config("a", x="1"))
    got = await api.patch(api.at("configmaps", "a"), UNKNOWN[kind], kind)
    assert (got.status, "bogus" in got.json) == (200, False)
    assert got.headers["warning"] == '299 - "unknown field \\"bogus\\""'


@pytest.mark.parametrize("kind", UNKNOWN)
async def test_a_patch_with_an_unknown_field_can_be_refused(api: Api, kind: str) -> None:
    await api.make(api.at("configmaps"), config("a", x="1"))
    path = api.at("configmaps", "a") + "?fieldValidation=Strict"
    got = await api.patch(path, UNKNOWN[kind], kind)
    assert got.refusal[:2] == (422, "Invalid")
    assert got.message.endswith('strict decoding error: unknown field "bogus"')


async def test_a_time_is_kept_in_utc(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    patch = {"status": {"startTime": "2026-01-02T05:04:05+02:00"}}
    changed = await api.change(api.at("pods", "a", "status"), patch)
    assert changed["status"]["startTime"] == "2026-01-02T03:04:05Z"


BAD_LABELS: dict[str, tuple[Json, str]] = {
    "a key with a blank": (
        {"bad key": "x"},
        "Invalid value: \"bad key\": name part must consist of alphanumeric characters, '-', "
        "'_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or "
        "'my.name',  or '123-abc', regex used for validation is "
        "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
    ),
    "a key without a name": (
        {"x.test/": "x"},
        'Invalid value: "x.test/": name part must be non-empty',
    ),
    "a value with a blank": (
        {"key": "bad value"},
        'Invalid value: "bad value": a valid label must be an empty string or consist of '
        "alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
        "character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
        "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
    ),
    "a value that is too long": (
        {"key": "x" * 64},
        f'Invalid value: "{"x" * 64}": must be no more than 63 bytes',
    ),
}


@pytest.mark.parametrize("case", BAD_LABELS)
async def test_labels_are_checked(api: Api, case: str) -> None:
    labels, why = BAD_LABELS[case]
    got = await api.post(api.at("configmaps"), named("a", labels=labels))
    assert got.refusal[:2] == (422, "Invalid")
    assert f"metadata.labels: {why}" in got.message


async def test_the_keys_of_annotations_are_checked(api: Api) -> None:
    got = await api.post(api.at("configmaps"), named("a", annotations={"a/b/c": "x"}))
    words = (
        'ConfigMap "a" is invalid: metadata.annotations: Invalid value: "a/b/c": a valid label key '
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
        "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
        "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain "
        "prefix and '/' (e.g. 'example.com/MyName')"
    )
    assert got.refusal == (422, "Invalid", words)

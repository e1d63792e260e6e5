"""Label and field selectors, and what is wrong with some (one target: pytest.mark.real)."""

from urllib.parse import quote

import pytest

from tests.conformance.objects import named, pod
from tests.conformance.targets import Api

LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',"
    "  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
LABEL_NAME = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
NO_OPERATOR = "expected: in, notin, =, ==, !=, gt, lt"

SELECTED = {
    "app=web": "s1 s3",
    "app==web": "s1 s3",
    "app!=web": "bare s0 s2",
    "app in (web,db)": "s0 s1 s2 s3",
    "app notin (web)": "bare s0 s2",
    "app": "s0 s1 s2 s3",
    "!app": "bare",
    "n>1": "s2 s3",
    "n<1": "s0",
    "app=web,n!=1": "s3",
    "app in (web), n in (1,2)": "s1",
    "app=": "",
    "app in ()": "",
    "app in (a,,b)": "",
    "in": "",
    "": "bare s0 s1 s2 s3",
}

REFUSED = {
    "app=web=x": "found '=', expected: ',' or 'end of string'",
    "app in web": "unable to parse requirement: found 'web' expected: '('",
    "app in (web": "unable to parse requirement: found '', expected: ',' or ')'",
    "app,,x": "found ',', expected: identifier after ','",
    "app=web,": "found '', expected: identifier after ','",
    "(": "found '(', expected: !, identifier, or 'end of string'",
    ",": "found ',', expected: !, identifier, or 'end of string'",
    "=x": "found '=', expected: !, identifier, or 'end of string'",
    "app!": f"unable to parse requirement: found '!', {NO_OPERATOR}",
    "a b": f"unable to parse requirement: found 'b', {NO_OPERATOR}",
    "_x=1": f'unable to parse requirement: <nil>: Invalid value: "_x": {LABEL_NAME}',
    "/b=1": (
        'unable to parse requirement: <nil>: Invalid value: "/b": prefix part must be non-empty'
    ),
    "a=-x-": f'unable to parse requirement: values[0][a]: Invalid value: "-x-": {LABEL_VALUE}',
    "n>x": (
        "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' "
        "operators, the value must be an integer"
    ),
}

FIELDS = {
    "metadata.name=s1": "s1",
    "metadata.name==s1": "s1",
    "metadata.name!=s1": "bare s0 s2 s3",
    "metadata.name=s1,": "s1",
    "type=Opaque": "bare s0 s1 s2 s3",
    "metadata.name=a\\,b": "",
    "=": "bare s0 s1 s2 s3",
}

FIELDS_REFUSED = {
    "bogus=1": "field label not supported: bogus",
    "metadata.labels.app=web": "field label not supported: metadata.labels.app",
    "metadata.name": "invalid selector: 'metadata.name'; can't understand 'metadata.name'",
    "metadata.name=a\\b": "invalid field selector: invalid escape sequence: \\b",
}


async def some_secrets(api: Api) -> str:
    path = api.at("secrets")
    for n in range(4):
        labels = {"n": str(n), "app": "web" if n % 2 else "db"}
        await api.make(path, named(f"s{n}", labels=labels))
    await api.make(path, named("bare"))
    return path


async def test_each_operator_selects_by_labels(api: Api) -> None:
    path = await some_secrets(api)
    for selector, expected in SELECTED.items():
        names = await api.names(f"{path}?labelSelector={quote(selector)}")
        assert names == expected.split(), selector


@pytest.mark.parametrize("selector", REFUSED)
async def test_a_label_selector_that_makes_no_sense_is_refused(api: Api, selector: str) -> None:
    got = await api.get(f"{api.at('secrets')}?labelSelector={quote(selector)}")
    assert got.refusal == (400, "BadRequest", REFUSED[selector])


async def test_fields_select_too(api: Api) -> None:
    path = await some_secrets(api)
    for selector, expected in FIELDS.items():
        names = await api.names(f"{path}?fieldSelector={quote(selector)}")
        assert names == expected.split(), selector


@pytest.mark.parametrize("selector", FIELDS_REFUSED)
async def test_a_field_selector_that_makes_no_sense_is_refused(api: Api, selector: str) -> None:
    got = await api.get(f"{api.at('secrets')}?fieldSelector={quote(selector)}")
    assert got.refusal == (400, "BadRequest", FIELDS_REFUSED[selector])


async def test_pods_are_selected_by_node_and_phase(api: Api) -> None:
    await api.make(api.at("pods"), pod("a", nodeName="one"))
    await api.make(api.at("pods"), pod("b", nodeName="two"))
    await api.change(api.at("pods", "b", "status"), {"status": {"phase": "Failed"}})
    path = api.at("pods") + "?fieldSelector="
    assert await api.names(path + quote("spec.nodeName=one")) == ["a"]
    assert await api.names(path + quote("status.phase!=Failed")) == ["a"]
    assert await api.names(path + quote("spec.nodeName=two,status.phase=Failed")) == ["b"]


async def test_both_kinds_of_selectors_must_match(api: Api) -> None:
    path = await some_secrets(api)
    query = "?labelSelector=app%3Dweb&fieldSelector=metadata.name%21%3Ds1"
    assert await api.names(path + query) == ["s3"]

"""Lists in pages, and lists of a certain version (one target: pytest.mark.real)."""

import base64
from urllib.parse import quote

import pytest

from tests.conformance.objects import named
from tests.conformance.targets import Api, Json


async def some_secrets(api: Api, count: int = 5) -> str:
    for n in range(count):
        await api.make(api.at("secrets"), named(f"s{n}"))
    return api.at("secrets")


def names(page: Json) -> list[str]:
    return [item["metadata"]["name"] for item in page["items"]]


def token(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


async def test_pages_together_are_the_whole_list(api: Api) -> None:
    path = await some_secrets(api)
    seen, remaining, more = [], [], ""
    while True:
        page = await api.read(f"{path}?limit=2{more}")
        seen += names(page)
        remaining.append(page["metadata"].get("remainingItemCount"))
        if not page["metadata"].get("continue"):
            break
        more = "&continue=" + quote(page["metadata"]["continue"])
    assert seen == ["s0", "s1", "s2", "s3", "s4"]
    assert remaining == [3, 1, None]


async def test_all_pages_are_of_the_version_of_the_first(api: Api) -> None:
    path = await some_secrets(api)
    first = await api.read(path + "?limit=2")
    await api.delete(path + "/s2")
    await api.make(path, named("s3a"))
    rest = await api.read(path + "?continue=" + quote(first["metadata"]["continue"]))
    assert names(rest) == ["s2", "s3", "s4"]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_a_page_of_a_selection_does_not_know_how_much_remains(api: Api) -> None:
    path = await some_secrets(api)
    page = await api.read(path + "?limit=2&fieldSelector=type%3DOpaque")
    assert page["metadata"]["continue"]
    assert "remainingItemCount" not in page["metadata"]


async def test_pages_of_a_selection_are_the_whole_selection(api: Api) -> None:
    path = await some_secrets(api)
    query = "?limit=2&fieldSelector=metadata.name%21%3Ds1"
    first = await api.read(path + query)
    rest = await api.read(f"{path}{query}&continue={quote(first['metadata']['continue'])}")
    assert names(first) + names(rest) == ["s0", "s2", "s3", "s4"]


async def test_a_limit_that_is_not_reached_has_no_next_page(api: Api) -> None:
    path = await some_secrets(api, 2)
    page = await api.read(path + "?limit=2")
    assert len(page["items"]) == 2
    assert "continue" not in page["metadata"]


async def test_a_negative_limit_is_none(api: Api) -> None:
    path = await some_secrets(api, 3)
    assert len((await api.read(path + "?limit=-1"))["items"]) == 3


async def test_a_limit_that_is_no_number_is_refused(api: Api) -> None:
    got = await api.get(api.at("secrets") + "?limit=x")
    assert got.refusal == (400, "BadRequest", 'strconv.ParseInt: parsing "x": invalid syntax')


async def test_a_next_page_is_not_of_another_version(api: Api) -> None:
    path = await some_secrets(api, 3)
    more = quote((await api.read(path + "?limit=2"))["metadata"]["continue"])
    got = await api.get(f"{path}?limit=2&resourceVersion=1&continue={more}")
    words = "specifying resource version is not allowed when using continue"
    assert got.refusal == (400, "BadRequest", words)


BAD_TOKENS = {
    "!!!": "illegal base64 data at input byte 0",
    "e30=": "illegal base64 data at input byte 3",
    "e30xx": "illegal base64 data at input byte 4",
    token("nonsense"): "invalid character 'o' in literal null (expecting 'u')",
    token('{"v":'): "unexpected end of JSON input",
    token("[]"): "json: cannot unmarshal array into Go value of type storage.continueToken",
    token('{"v":"meta.k8s.io/v1","rv":"1","start":"a"}'): (
        "json: cannot unmarshal string into Go struct field continueToken.rv of type int64"
    ),
    token('{"v":"meta.k8s.io/v1","start":"a"}'): (
        "incorrect encoded start resourceVersion (version meta.k8s.io/v1)"
    ),
    token('{"v":"meta.k8s.io/v1","rv":1}'): ("encoded start key empty (version meta.k8s.io/v1)"),
    token('{"v":"meta.k8s.io/v1","rv":1,"start":"../pods"}'): "../pods",
    token("{}"): "server does not recognize this encoded version ",
    token('{"v":"x","rv":1,"start":"a"}'): "server does not recognize this encoded version x",
}


@pytest.mark.parametrize("bad", BAD_TOKENS)
async def test_a_token_that_no_server_gave_is_refused(api: Api, bad: str) -> None:
    got = await api.get(f"{api.at('secrets')}?limit=2&continue={quote(bad)}")
    words = f"invalid continue token: continue key is not valid: {BAD_TOKENS[bad]}"
    assert got.refusal == (400, "BadRequest", words)


async def test_a_list_can_be_of_exactly_one_version(api: Api) -> None:
    path = await some_secrets(api, 2)
    version = (await api.read(path))["metadata"]["resourceVersion"]
    await api.delete(path + "/s0")
    query = f"?resourceVersionMatch=Exact&resourceVersion={version}"
    then = await api.read(path + query)
    assert names(then) == ["s0", "s1"]
    assert then["metadata"]["resourceVersion"] == version


async def test_a_list_can_be_not_older_than_a_version(api: Api) -> None:
    path = await some_secrets(api, 2)
    version = (await api.read(path))["metadata"]["resourceVersion"]
    await api.delete(path + "/s0")
    await api.make(path, named("s2"))
    query = f"?resourceVersionMatch=NotOlderThan&resourceVersion={version}"
    assert "s1" in await api.names(path + query)


async def test_the_version_of_a_list_is_not_before_its_items(api: Api) -> None:
    path = await some_secrets(api, 3)
    listed = await api.read(path)
    versions = [int(item["metadata"]["resourceVersion"]) for item in listed["items"]]
    assert int(listed["metadata"]["resourceVersion"]) >= max(versions)


async def test_a_version_that_is_still_to_come_is_waited_for_in_vain(api: Api) -> None:
    got = await api.get(api.at("secrets") + "?resourceVersion=999999999")
    assert got.refusal[:2] == (504, "Timeout")
    assert got.message.startswith("Timeout: Too large resource version: 999999999, current: ")
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    assert got.details == {"causes": causes, "retryAfterSeconds": 1}


INVALID = {
    "resourceVersionMatch=Exact": (
        "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
    ),
    "resourceVersion=0&resourceVersionMatch=Exact": (
        'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
    ),
    "resourceVersion=1&resourceVersionMatch=Bogus": (
        'Unsupported value: "Bogus": supported values: "Exact", "NotOlderThan", ""'
    ),
    "resourceVersion=1&resourceVersionMatch=Exact&continue=abc": (
        "Forbidden: resourceVersionMatch is forbidden when continue is provided"
    ),
}


@pytest.mark.parametrize("query", INVALID)
async def test_a_list_whose_options_contradict_each_other_is_refused(api: Api, query: str) -> None:
    got = await api.get(f"{api.at('secrets')}?{query}")
    words = f'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: {INVALID[query]}'
    assert got.refusal == (422, "Invalid", words)


async def test_initial_events_are_not_for_lists(api: Api) -> None:
    got = await api.get(api.at("secrets") + "?sendInitialEvents=true")
    words = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"
    assert got.refusal == (422, "Invalid", f'ListOptions.meta.k8s.io "" is invalid: {words}')


async def test_a_version_of_a_list_that_is_no_number_is_refused(api: Api) -> None:
    got = await api.get(api.at("secrets") + "?resourceVersion=x")
    words = (
        'invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: '
        'parsing "x": invalid syntax'
    )
    assert got.refusal == (400, "BadRequest", words)

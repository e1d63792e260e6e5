"""Questions to LINSTOR's controllers, some of which do not answer, and what is said about it."""

import asyncio
import logging
from urllib.parse import parse_qs

import pytest

from backstay.drivers.linstor.errors import (
    Garbled,
    LinstorError,
    Misconfigured,
    NotServed,
    NotThere,
    Refused,
    Unreachable,
)
from backstay.drivers.linstor.wire import QUORUM, TWO_PRIMARIES, Definition, Options
from backstay.seam.serve import Answer, Inbound
from backstay.sim.fate import Fate
from tests.drivers.linstor.controllers import (
    NEVER,
    PROPERTIES,
    VERSION,
    Controller,
    Json,
    Scene,
    json,
    not_found,
    scene,
)
from tests.support.virtual import virtual_time

REPLICAS = "/v1/resource-definitions/pvc-1/resources"


def now() -> float:
    return asyncio.get_running_loop().time()


# What is asked


@virtual_time
async def test_the_replicas_of_a_resource_are_asked_for_by_its_name() -> None:
    s = await scene()
    s["a"].answers[REPLICAS] = json([{"name": "PVC-1", "node_name": "Node-A"}])
    (replica,) = await s.linstor.replicas("PVC-1")
    assert (replica.resource, replica.node) == ("pvc-1", "node-a")
    assert s["a"].seen[0].headers["accept"] == "application/json"
    assert s["a"].seen[0].headers["accept-encoding"] == "gzip"


@virtual_time
async def test_satellites_a_definition_and_the_version_are_read() -> None:
    s = await scene()
    s["a"].answers["/v1/nodes"] = json([{"name": "Node-A", "connection_status": "ONLINE"}])
    s["a"].answers["/v1/resource-definitions/pvc-1"] = json({"name": "pvc-1"})
    assert [each.node for each in await s.linstor.satellites() if each.online] == ["node-a"]
    assert await s.linstor.definition("PVC-1") == Definition("pvc-1", "", {})
    assert await s.linstor.version() == "1.33.3"


@pytest.mark.parametrize("name", ["", ".", "..", "../nodes", "a/b", "a?b", "a b", "a\r\nb", "é"])
@virtual_time
async def test_what_can_be_no_name_is_not_even_asked_for(name: str) -> None:
    s = await scene()
    for question in (s.linstor.replicas, s.linstor.definition, s.linstor.options):
        with pytest.raises(NotThere, match="LINSTOR can have no resource with the name"):
            await question(name)
    assert [each for each in s["a"].seen if "resource-definitions" in each.path] == []


# What is in effect


def with_definitions(controller: Controller, *definitions: Json) -> None:
    """The list, which is filtered as LINSTOR does, and each by itself."""

    async def listed(inbound: Inbound) -> Answer:
        asked = parse_qs(inbound.query)["resource_definitions"]
        return json([each for each in definitions if each["name"].lower() in asked])

    controller.answers["/v1/resource-definitions"] = listed
    for each in definitions:
        controller.answers[f"/v1/resource-definitions/{each['name'].lower()}"] = json(each)


def furnished(s: Scene) -> None:
    in_group = {"resource_group_name": "SC-1"}
    with_definitions(
        s["a"],
        {"name": "own", "props": {QUORUM: "off", TWO_PRIMARIES: "no"}, **in_group},
        {"name": "Grouped", "props": {}, **in_group},
        {"name": "alone", "props": {TWO_PRIMARIES: "yes"}},
    )
    s["a"].answers["/v1/resource-groups/SC-1"] = json({"name": "sc-1", "props": {QUORUM: "all"}})
    s["a"].answers[PROPERTIES] = json({QUORUM: "majority", TWO_PRIMARIES: "no"})


@virtual_time
async def test_what_is_in_effect_is_set_for_the_resource_its_group_or_the_controller() -> None:
    s = await scene()
    furnished(s)
    assert await s.linstor.options_of(["own", "GROUPED", "alone"]) == {
        "own": Options("off", False),
        "grouped": Options("all", False),
        "alone": Options("majority", True),
    }
    assert await s.linstor.options("Grouped") == Options("all", False)


@virtual_time
async def test_what_many_have_in_common_is_read_once_and_anew_each_time() -> None:
    s = await scene()
    names = [f"pvc-{number}" for number in range(200)]
    group = {"resource_group_name": "sc-1"}
    with_definitions(s["a"], *({"name": name, "props": {}, **group} for name in names))
    s["a"].answers["/v1/resource-groups/sc-1"] = json({"name": "sc-1", "props": {QUORUM: "all"}})
    s["a"].answers[PROPERTIES] = json({})
    found = await s.linstor.options_of(names)
    assert set(found) == set(names)
    assert set(found.values()) == {Options("all", False)}
    # Four lists of at most 64, a group, the controller, and the connections: of each and of nodes.
    assert len(s["a"].seen) == 6 + 200 + 1
    s["a"].answers["/v1/resource-groups/sc-1"] = json({"name": "sc-1", "props": {QUORUM: "off"}})
    assert await s.linstor.options("pvc-7") == Options("off", False)


# As LINSTOR 1.33.3 was seen to send it.
NOT_SERVED = Answer(
    status=404,
    headers={"Content-Type": "application/json"},
    body=b'[{"ret_code":-4611686018427386906,"message":"Path \'/v1/nope\' not found on server.",'
    b'"details":"HTTP 404 Not Found","created_at":"2026-11-16T15:16:21.922198813Z"}]',
)
IMPOSSIBLE = Answer(
    status=500,
    headers={"Content-Type": "application/json", "Connection": "close"},
    body=b'[{"ret_code":-4611686018427387702,"message":"The specified resource name \'1abc\' is '
    b'invalid.","created_at":"2026-11-16T15:27:39.929493358Z"}]',
)
OF_RESOURCE = Answer(
    body=b'[{"node_a":"node-1","node_b":"node-3"},{"node_a":"node-1","node_b":"Node-B",'
    b'"props":{"DrbdOptions/Net/allow-two-primaries":"yes"}},{"node_a":"node-3","node_b":"Node-B"}]'
)
OF_NODES = Answer(
    body=b'[{"node_a":"Node-B","node_b":"node-1",'
    b'"props":{"DrbdOptions/Net/allow-two-primaries":"yes"}}]'
)
NODE_CONNECTIONS = "/v1/node-connections"


@virtual_time
async def test_one_connection_that_allows_two_primaries_is_enough() -> None:
    s = await scene()
    furnished(s)
    s["a"].answers["/v1/resource-definitions/own/resource-connections"] = OF_RESOURCE
    found = await s.linstor.options_of(["own", "grouped"])
    assert found == {"own": Options("off", True), "grouped": Options("all", False)}


@virtual_time
async def test_a_connection_of_nodes_counts_for_the_resources_that_have_it() -> None:
    s = await scene()
    furnished(s)
    for name, nodes in (("own", ("node-1", "node-b")), ("grouped", ("node-1", "node-3"))):
        pair = {"node_a": nodes[0], "node_b": nodes[1]}
        s["a"].answers[f"/v1/resource-definitions/{name}/resource-connections"] = json([pair])
    s["a"].answers[NODE_CONNECTIONS] = OF_NODES
    found = await s.linstor.options_of(["own", "grouped"])
    assert found == {"own": Options("off", True), "grouped": Options("all", False)}


@virtual_time
async def test_connections_that_cannot_be_read_leave_nothing_known() -> None:
    s = await scene()
    furnished(s)
    s["a"].answers[NODE_CONNECTIONS] = json([{"node_a": "a"}])
    with pytest.raises(Garbled, match="the list of connections cannot be read"):
        await s.linstor.options("own")


@virtual_time
async def test_a_linstor_from_before_connections_of_nodes_has_none() -> None:
    s = await scene()
    furnished(s)
    s["a"].answers[NODE_CONNECTIONS] = NOT_SERVED
    assert await s.linstor.options("own") == Options("off", False)


@virtual_time
async def test_a_path_that_is_not_served_says_nothing_about_a_resource() -> None:
    s = await scene()
    s["a"].everything = NOT_SERVED
    with pytest.raises(
        NotServed, match=r"a:3370 does not know the question .*'/v1/nope' not found"
    ):
        await s.linstor.replicas("pvc-1")


@virtual_time
async def test_a_name_that_linstor_cannot_have_is_not_there() -> None:
    s = await scene("a", "b")
    s["a"].everything = IMPOSSIBLE
    with pytest.raises(NotThere, match="'1abc' is invalid"):
        await s.linstor.replicas("1abc")
    assert s["b"].seen == []


@virtual_time
async def test_what_is_wrong_with_one_resource_is_told_of_that_one() -> None:
    s = await scene()
    furnished(s)
    broken = {"name": "broken", "props": {"x": 1}}
    s["a"].answers["/v1/resource-definitions/broken"] = json(broken)
    found = await s.linstor.options_of(["own", "gone", "broken", "no/name"])
    assert found["own"] == Options("off", False)
    assert isinstance(found["gone"], NotThere)
    assert isinstance(found["broken"], Garbled)
    assert isinstance(found["no/name"], NotThere)


@virtual_time
async def test_a_list_that_is_refused_for_one_name_leaves_the_others_their_answers() -> None:
    s = await scene()
    furnished(s)
    s["a"].answers["/v1/resource-definitions"] = json([], status=400)
    found = await s.linstor.options_of(["own", "grouped", "im.possible"])
    assert found["own"] == Options("off", False)
    assert found["grouped"] == Options("all", False)
    assert isinstance(found["im.possible"], NotThere)


@virtual_time
async def test_controllers_that_are_not_heard_are_said_of_each_resource_in_time() -> None:
    s = await scene("a", "b")
    for host in s.hosts:
        down(s, host, "is silent")
    found = await s.linstor.options_of([f"pvc-{number}" for number in range(200)], timeout=4.0)
    assert now() == pytest.approx(4.0)
    assert len(found) == 200
    for each in found.values():
        assert isinstance(each, Unreachable)
        assert "was not answered" in str(each)


@virtual_time
async def test_no_resources_are_no_question() -> None:
    s = await scene()
    assert await s.linstor.options_of([]) == {}
    assert s["a"].seen == []


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/v1/resource-groups/SC-1", Answer(status=500)),
        ("/v1/resource-groups/SC-1", not_found()),
        ("/v1/resource-groups/SC-1", json({"name": "sc-2", "props": {QUORUM: "majority"}})),
        (PROPERTIES, Answer(status=500)),
        (PROPERTIES, json({QUORUM: 1})),
    ],
)
@virtual_time
async def test_what_could_still_count_and_cannot_be_read_is_not_guessed(
    path: str, answer: Answer
) -> None:
    s = await scene()
    furnished(s)
    s["a"].answers[path] = answer
    found = await s.linstor.options_of(["own", "grouped"])
    # The one sets everything itself; the other might be overruled by what cannot be read.
    assert found["own"] == Options("off", False)
    assert isinstance(found["grouped"], Refused | Garbled)
    with pytest.raises(LinstorError):
        await s.linstor.options("grouped")


# Several controllers


def down(s: Scene, host: str, how: str) -> None:
    link, controller = s.link(host), s[host]
    if how == "refuses":
        link.refuse = True
    elif how == "gives no connection":
        link.connect_delay = NEVER
    elif how == "is silent":
        link.silent = True
    elif how == "resets":
        link.lose_answer = "reset"
    elif how == "sends HTML":
        controller.everything = Answer(body=b"<html>Welcome!</html>")
    elif how == "is no LINSTOR":
        controller.everything = Answer(status=404, body=b"<html>404</html>")
    elif how == "redirects":
        where = {"Location": f"https://{host}:3371/v1/controller/version"}
        controller.everything = Answer(status=302, headers=where)
    else:
        controller.everything = Answer(status=int(how))


FAILURES = [
    "refuses", "gives no connection", "is silent", "resets", "sends HTML", "is no LINSTOR",
    "redirects", "401", "403", "500", "503",
]  # fmt: skip


@pytest.mark.parametrize("how", FAILURES)
@virtual_time
async def test_where_one_controller_fails_the_next_one_answers_and_is_remembered(how: str) -> None:
    s = await scene("a", "b")
    down(s, "a", how)
    assert await s.linstor.version() == "1.33.3"
    assert now() <= 3.0
    began, asked = now(), len(s.link("a").sent)
    assert await s.linstor.version() == "1.33.3"
    assert now() == pytest.approx(began)
    assert len(s.link("a").sent) == asked
    assert s["b"].asked(VERSION) == 2


@pytest.mark.parametrize("how", FAILURES)
@virtual_time
async def test_where_all_controllers_fail_each_is_named_and_the_call_ends_in_time(how: str) -> None:
    s = await scene("a", "b", "c")
    for host in s.hosts:
        down(s, host, how)
    with pytest.raises(LinstorError) as failed:
        await s.linstor.version(timeout=3.0)
    assert now() <= 3.0
    for url in s.linstor.controllers:
        assert url in str(failed.value)
    assert "\n" not in str(failed.value)


@virtual_time
async def test_the_most_telling_failure_gives_its_type() -> None:
    s = await scene("a", "b")
    down(s, "a", "refuses")
    down(s, "b", "403")
    with pytest.raises(Refused, match=r"http://a:3370 refused.*; .*b:3370 forbids"):
        await s.linstor.version()


@virtual_time
async def test_that_a_resource_is_not_there_is_final() -> None:
    s = await scene("a", "b")
    with pytest.raises(NotThere, match=r"at http://a:3370 knows no such thing.*'x' not found"):
        await s.linstor.replicas("pvc-1")
    assert s["b"].seen == []


@virtual_time
async def test_a_controller_that_is_slow_has_the_whole_time_if_it_is_alone() -> None:
    async def slow(_: Inbound) -> Answer:
        await asyncio.sleep(5.5)
        return json({"version": "slow"})

    s = await scene()
    s["a"].answers[VERSION] = slow
    assert await s.linstor.version() == "slow"


@virtual_time
async def test_a_question_whose_connection_is_lost_is_asked_once_more() -> None:
    s = await scene()
    s.network.fate = lambda attempt: Fate(lose_answer="reset" if attempt.number == 1 else None)
    assert await s.linstor.version() == "1.33.3"
    s.network.fate = lambda _: Fate(lose_answer="reset")
    with pytest.raises(Unreachable, match="http://a:3370 was lost"):
        await s.linstor.version()
    assert len(s.link().sent) == 4


@virtual_time
async def test_one_controller_alone_can_be_asked() -> None:
    s = await scene("a", "b")
    down(s, "a", "refuses")
    with pytest.raises(Unreachable):
        await s.linstor.version(of="http://a:3370")
    assert await s.linstor.version(of="http://b:3370") == "1.33.3"


@virtual_time
async def test_a_node_that_is_missing_from_a_broken_list_is_not_overlooked() -> None:
    s = await scene()
    s["a"].answers["/v1/nodes"] = json([{"name": "a"}, {"nome": "b"}])
    with pytest.raises(Garbled, match="the list of nodes cannot be read: http://a:3370"):
        await s.linstor.satellites()


# What is said


@pytest.mark.parametrize(
    ("location", "sentence"),
    [
        ("https://a:3371/v1", "at http://a:3370 accepts nothing but TLS: set LS_CONTROLLERS to"
         " https://a:3371"),
        ("https://a", "set LS_CONTROLLERS to https://a:443"),
        ("https://evil.example/v1", "redirects to https://evil.example:443, and is not followed"),
        ("http://evil.example/", "redirects elsewhere, and is not followed"),
        ("https://a:port/", "redirects to an address that is none"),
        ("", "redirects elsewhere, and is not followed"),
    ],
)  # fmt: skip
@virtual_time
async def test_a_redirect_is_one_clear_sentence_and_is_not_followed(
    location: str, sentence: str
) -> None:
    s = await scene(LS_USERNAME="backstay", LS_PASSWORD="s3cret")
    s["a"].everything = Answer(status=302, headers={"Location": location})
    with pytest.raises(Refused) as failed:
        await s.linstor.version()
    assert sentence in str(failed.value)
    assert len(s["a"].seen) == 1


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (401, "asks for another login (HTTP 401): Sign in: check LS_USERNAME and LS_PASSWORD"),
        (403, "forbids it to this login (HTTP 403): Sign in"),
        (500, "failed (HTTP 500): Sign in"),
    ],
)
@virtual_time
async def test_linstors_own_words_are_passed_on(status: int, sentence: str) -> None:
    s = await scene()
    s["a"].everything = json({"ret_code": -(2**63), "message": "Sign\r\nin."}, status=status)
    with pytest.raises(Refused) as failed:
        await s.linstor.version()
    assert sentence in str(failed.value)


@virtual_time
async def test_somebody_elses_words_are_kept_short_and_on_one_line() -> None:
    s = await scene()
    s["a"].everything = json([{"ret_code": -1, "message": "x\n\x1b[31m" * 9999}], status=500)
    with pytest.raises(Refused) as failed:
        await s.linstor.version()
    assert len(str(failed.value)) < 300
    assert str(failed.value).isprintable()


# Credentials


@virtual_time
async def test_a_password_is_sent_as_a_login(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        s = await scene(LS_USERNAME="backstay", LS_PASSWORD="s3cret")
    await s.linstor.version()
    assert s["a"].seen[0].headers["authorization"] == "Basic YmFja3N0YXk6czNjcmV0"
    (warning,) = caplog.messages
    assert "goes to http://a:3370 without TLS" in warning
    assert "s3cret" not in warning


@pytest.mark.parametrize("content", [b"t0ken\n", b'{"token": "t0ken", "more": 1}\n'])
@virtual_time
async def test_a_token_is_used_instead_of_a_password_in_either_form(content: bytes) -> None:
    s = await scene("https://a", LS_BEARER_TOKEN_FILE="/token", LS_USERNAME="backstay")
    await s.files.write("/token", content)
    await s.linstor.version()
    assert s["https://a"].seen[0].headers["authorization"] == "Bearer t0ken"


@virtual_time
async def test_a_replaced_token_is_used_within_the_call_that_meets_the_refusal() -> None:
    s = await scene(LS_BEARER_TOKEN_FILE="/token")
    await s.files.write("/token", b"old")

    async def version(inbound: Inbound) -> Answer:
        good = inbound.headers["authorization"] == "Bearer new"
        return json({"version": "1"}) if good else Answer(status=401)

    s["a"].answers[VERSION] = version
    with pytest.raises(Refused, match="HTTP 401"):
        await s.linstor.version()
    # The same token is not tried a second time.
    assert len(s["a"].seen) == 1
    await s.files.write("/token", b"new")
    assert await s.linstor.version() == "1"
    assert [each.headers["authorization"] for each in s["a"].seen[1:]] == [
        "Bearer old", "Bearer new",
    ]  # fmt: skip


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"token":7}', b"two\nlines"])
@virtual_time
async def test_a_token_that_cannot_be_used_is_said_and_nothing_is_sent(
    content: bytes | None,
) -> None:
    s = await scene(LS_BEARER_TOKEN_FILE="/token")
    if content is not None:
        await s.files.write("/token", content)
    with pytest.raises(Misconfigured, match="LS_BEARER_TOKEN_FILE cannot be used") as failed:
        await s.linstor.version()
    assert "two" not in str(failed.value)
    assert s["a"].seen == []


@virtual_time
async def test_a_disk_that_hangs_does_not_hold_a_question_beyond_its_time() -> None:
    s = await scene(LS_BEARER_TOKEN_FILE="/token")
    await s.files.write("/token", b"t0ken")
    s.files.hangs = True
    with pytest.raises(Misconfigured, match="could not be read in time"):
        await s.linstor.version(timeout=2.0)
    assert now() == pytest.approx(2.0)

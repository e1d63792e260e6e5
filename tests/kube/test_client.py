"""What the client puts on the wire, and what it makes of the answers of one API server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Literal
from urllib.parse import parse_qsl

import msgspec
import pytest

from backstay.kube import errors
from backstay.kube.calls import Call, Reply
from backstay.kube.client import KubeClient
from backstay.kube.limits import RateLimit, VerbLimits
from backstay.kube.resource import LEASES, NODES, PODS, Resource
from backstay.seam.serve import Answer
from tests.support.scripted import NEVER, json, now, refusal, url, world
from tests.support.virtual import virtual_time

STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
BODY = {"metadata": {"name": "web"}}

Verb = Callable[[KubeClient], Coroutine[Any, Any, Reply]]

# What is asked for -> method, path, query, content type, body.
ON_THE_WIRE: dict[str, tuple[Verb, tuple[str, str, dict[str, str], str | None, object]]] = {
    "get": (
        lambda c: c.get(PODS, "web", namespace="ns"),
        ("GET", "/api/v1/namespaces/ns/pods/web", {}, None, None),
    ),
    "get anything cached": (
        lambda c: c.get(NODES, "n1", resource_version="0"),
        ("GET", "/api/v1/nodes/n1", {"resourceVersion": "0"}, None, None),
    ),
    "get a subresource": (
        lambda c: c.get(STATEFUL_SETS, "db", namespace="ns", subresource="scale"),
        ("GET", "/apis/apps/v1/namespaces/ns/statefulsets/db/scale", {}, None, None),
    ),
    "list": (
        lambda c: c.list(
            PODS,
            labels="app in (a, b),!c",
            fields="spec.nodeName=n1",
            limit=5,
            resource_version="7",
        ),
        (
            "GET",
            "/api/v1/pods",
            {
                "labelSelector": "app in (a, b),!c",
                "fieldSelector": "spec.nodeName=n1",
                "limit": "5",
                "resourceVersion": "7",
            },
            None,
            None,
        ),
    ),
    "list the next page": (
        lambda c: c.list(PODS, namespace="ns", limit=5, token="t+/=", resource_version="7"),
        ("GET", "/api/v1/namespaces/ns/pods", {"limit": "5", "continue": "t+/="}, None, None),
    ),
    "create": (
        lambda c: c.create(PODS, BODY, namespace="ns", manager="m", dry_run=True),
        (
            "POST",
            "/api/v1/namespaces/ns/pods",
            {"fieldManager": "m", "dryRun": "All"},
            "application/json",
            BODY,
        ),
    ),
    "create a subresource": (
        lambda c: c.create(PODS, BODY, namespace="ns", name="web", subresource="binding"),
        ("POST", "/api/v1/namespaces/ns/pods/web/binding", {}, "application/json", BODY),
    ),
    "replace": (
        lambda c: c.replace(PODS, "web", BODY, namespace="ns", subresource="status"),
        ("PUT", "/api/v1/namespaces/ns/pods/web/status", {}, "application/json", BODY),
    ),
    "merge patch": (
        lambda c: c.merge_patch(NODES, "n1", {"spec": {"unschedulable": True}}),
        (
            "PATCH",
            "/api/v1/nodes/n1",
            {},
            "application/merge-patch+json",
            {"spec": {"unschedulable": True}},
        ),
    ),
    "json patch": (
        lambda c: c.json_patch(NODES, "n1", [{"op": "test", "path": "/a", "value": 1}]),
        (
            "PATCH",
            "/api/v1/nodes/n1",
            {},
            "application/json-patch+json",
            [{"op": "test", "path": "/a", "value": 1}],
        ),
    ),
    "strategic patch": (
        lambda c: c.strategic_patch(NODES, "n1", BODY),
        ("PATCH", "/api/v1/nodes/n1", {}, "application/strategic-merge-patch+json", BODY),
    ),
    "apply": (
        lambda c: c.apply(NODES, "n1", BODY, manager="m", force=True),
        (
            "PATCH",
            "/api/v1/nodes/n1",
            {"fieldManager": "m", "force": "true"},
            "application/apply-patch+yaml",
            BODY,
        ),
    ),
    "delete": (
        lambda c: c.delete(PODS, "web", namespace="ns", conditions={"uid": "u", "grace": 0}),
        (
            "DELETE",
            "/api/v1/namespaces/ns/pods/web",
            {},
            "application/json",
            {
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "preconditions": {"uid": "u"},
                "gracePeriodSeconds": 0,
            },
        ),
    ),
    "delete for show": (
        lambda c: c.delete(NODES, "n1", dry_run=True),
        (
            "DELETE",
            "/api/v1/nodes/n1",
            {"dryRun": "All"},
            "application/json",
            {"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]},
        ),
    ),
    "delete a collection": (
        lambda c: c.delete_collection(PODS, namespace="ns", labels="a=b", fields="x=y"),
        (
            "DELETE",
            "/api/v1/namespaces/ns/pods",
            {"labelSelector": "a=b", "fieldSelector": "x=y"},
            "application/json",
            {"apiVersion": "v1", "kind": "DeleteOptions"},
        ),
    ),
    "evict": (
        lambda c: c.evict("web", namespace="ns", conditions={"uid": "u"}, dry_run=True),
        (
            "POST",
            "/api/v1/namespaces/ns/pods/web/eviction",
            {"dryRun": "All"},
            "application/json",
            {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": "web", "namespace": "ns"},
                "deleteOptions": {
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    "preconditions": {"uid": "u"},
                },
            },
        ),
    ),
}


@pytest.mark.parametrize("verb", ON_THE_WIRE)
@virtual_time
async def test_a_verb_on_the_wire(verb: str) -> None:
    say, (method, path, query, content_type, body) = ON_THE_WIRE[verb]
    api = await world()
    await say(api.client)
    [seen] = api.server().seen
    assert (seen.method, seen.path, dict(parse_qsl(seen.query))) == (method, path, query)
    assert seen.headers.get("content-type") == content_type
    assert (msgspec.json.decode(seen.body) if seen.body else None) == body


@virtual_time
async def test_every_request_says_who_asks_and_what_it_understands() -> None:
    api = await world(tokens=("t1",))
    await api.client.get(NODES, "n1")
    headers = api.server().seen[0].headers
    assert headers["authorization"] == "Bearer t1"
    assert (headers["accept"], headers["user-agent"]) == ("application/json", "backstay")


@virtual_time
async def test_a_base_path_comes_before_every_path() -> None:
    api = await world()
    api.access.server = url("vip") + "/k8s/clusters/c1"
    client = KubeClient(api.network.transport, api.access)
    await client.get(NODES, "n1")
    assert api.server().seen[0].path == "/k8s/clusters/c1/api/v1/nodes/n1"


@virtual_time
async def test_a_name_is_quoted_on_the_wire() -> None:
    api = await world()
    await api.client.get(NODES, "system:a b?c#d")
    assert api.sent()[0].url == f"{url('vip')}/api/v1/nodes/system%3Aa%20b%3Fc%23d"


@pytest.mark.parametrize("name", ["", ".", "..", "web/status", "web%2Fstatus"])
@virtual_time
async def test_a_bad_name_is_refused_before_anything_is_sent(name: str) -> None:
    api = await world()
    verbs: list[Verb] = [
        lambda c: c.get(PODS, name, namespace="ns"),
        lambda c: c.delete(PODS, name, namespace="ns"),
        lambda c: c.delete(PODS, "web", namespace=name),
        lambda c: c.evict(name, namespace="ns"),
        lambda c: c.delete_collection(PODS, namespace=name),
        lambda c: c.list(PODS, namespace=name),
    ]
    for verb in verbs:
        with pytest.raises(ValueError, match="is not the name of"):
            await verb(api.client)
    assert api.sent() == []


@virtual_time
async def test_the_reply_is_the_body_and_names_its_call() -> None:
    api = await world()
    api.server().script = [json({"kind": "Node"}, code=201)]
    reply = await api.client.create(NODES, BODY)
    assert reply.json() == {"kind": "Node"}
    assert reply.call == "POST /api/v1/nodes"


# Watching


async def lines_of(*batches: bytes) -> AsyncIterator[bytes]:
    for batch in batches:
        yield batch


@virtual_time
async def test_a_watch_asks_for_bookmarks_and_an_end() -> None:
    api = await world()
    api.server().script = [Answer(body=lines_of(b"1\n2\n", b"3\n"))]
    async with api.client.watch(
        PODS, namespace="ns", labels="a=b", resource_version="5", seconds=60
    ) as lines:
        assert await lines.read(1.0) == [b"1\n", b"2\n"]
        assert await lines.read(1.0) == [b"3\n"]
        assert await lines.read(1.0) is None
    assert dict(parse_qsl(api.server().seen[0].query)) == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "labelSelector": "a=b",
        "resourceVersion": "5",
        "timeoutSeconds": "60",
    }


@virtual_time
async def test_a_streaming_list_is_a_watch_that_begins_with_everything() -> None:
    api = await world()
    api.server().script = [Answer(body=lines_of())]
    async with api.client.watch(PODS, fields="spec.nodeName=n1", initial_events=True):
        pass
    assert dict(parse_qsl(api.server().seen[0].query)) == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "fieldSelector": "spec.nodeName=n1",
        "timeoutSeconds": "300",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
    }


@virtual_time
async def test_a_watch_that_is_refused_says_why() -> None:
    api = await world()
    api.server().script = [refusal(410, reason="Expired", message="too old resource version")]
    with pytest.raises(errors.Gone, match=r"^GET /api/v1/pods: too old resource version$"):
        async with api.client.watch(PODS, resource_version="5"):
            pass


@virtual_time
async def test_a_refusal_that_trickles_does_not_keep_a_watch_beyond_its_deadline() -> None:
    async def trickle() -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(4.0)
            yield b"x"

    api = await world()
    api.server().script = [Answer(status=403, body=trickle())]
    with pytest.raises(errors.Forbidden):
        async with api.client.watch(PODS, timeout=10.0):
            pass
    assert now() == 10.0


@virtual_time
async def test_a_refusal_without_end_is_not_read_to_it() -> None:
    async def flood() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 10_000

    api = await world()
    api.server().script = [Answer(status=403, body=flood())]
    with pytest.raises(errors.Forbidden):
        async with api.client.watch(PODS):
            pass
    assert now() == 0.0


@virtual_time
async def test_a_watch_whose_token_has_expired_begins_with_the_next_one() -> None:
    api = await world(tokens=("old", "new"))
    api.server().script = [refusal(401), Answer(body=lines_of(b"1\n"))]
    async with api.client.watch(PODS) as lines:
        assert await lines.read(1.0) == [b"1\n"]
    assert [r.headers["authorization"] for r in api.sent()] == ["Bearer old", "Bearer new"]


@virtual_time
async def test_a_stream_that_goes_silent_is_lost_and_its_address_avoided() -> None:
    api = await world("vip", "a")
    api.server().script = [Answer(body=lines_of(b"1\n"))]
    async with api.client.watch(PODS) as lines:
        await lines.read(1.0)
        api.link().silent = True
        with pytest.raises(errors.OutcomeUnknown, match=r"vip:6443 went silent for 90 s"):
            await lines.read(90.0)
    await api.client.list(PODS)
    assert api.sent_to == ["vip", "a"]


@virtual_time
async def test_a_stream_ends_for_the_server_when_the_caller_leaves() -> None:
    left = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"1\n"
                await asyncio.sleep(1.0)
        finally:
            left.set()

    api = await world()
    api.server().script = [Answer(body=endless())]
    async with api.client.watch(PODS) as lines:
        await lines.read(1.0)
    await left.wait()


# Deadlines, waiting and the client's own limits


@virtual_time
async def test_a_read_is_repeated_after_the_wait_that_the_server_asks_for() -> None:
    api = await world()
    api.server().script = [
        refusal(429, retry_after="3"),
        refusal(503, retry_after="1"),
        refusal(500, reason="ServerTimeout", retry_after="2"),
        json({"ok": 1}),
    ]
    assert (await api.client.list(PODS)).json() == {"ok": 1}
    assert [sent.at for sent in api.link().sent] == [0.0, 3.0, 4.0, 6.0]


@virtual_time
async def test_a_wait_that_does_not_fit_the_deadline_is_left_to_the_caller() -> None:
    api = await world()
    api.server().script = [refusal(429, retry_after="10")]
    with pytest.raises(errors.TooManyRequests) as caught:
        await api.client.get(NODES, "n1", timeout=10.0)
    assert caught.value.retry_after == 10.0
    assert (now(), len(api.sent())) == (0.0, 1)


@virtual_time
async def test_a_read_that_waiting_cannot_help_is_not_repeated() -> None:
    api = await world()
    api.server().script = [refusal(404, retry_after="1")]
    with pytest.raises(errors.NotFound):
        await api.client.get(NODES, "n1")
    assert (now(), len(api.sent())) == (0.0, 1)


@pytest.mark.parametrize("wait", ["0", None])
@virtual_time
async def test_a_server_that_asks_for_no_wait_is_not_asked_in_a_circle(wait: str | None) -> None:
    api = await world()
    api.server().script = [refusal(429, **({"retry_after": wait} if wait else {}))]
    with pytest.raises(errors.TooManyRequests):
        await api.client.get(NODES, "n1")
    assert len(api.sent()) == 1


WRITES: dict[str, Verb] = {
    "create": lambda c: c.create(PODS, BODY, namespace="ns"),
    "replace": lambda c: c.replace(PODS, "web", BODY, namespace="ns"),
    "patch": lambda c: c.merge_patch(PODS, "web", BODY, namespace="ns"),
    "delete": lambda c: c.delete(PODS, "web", namespace="ns"),
    "delete a collection": lambda c: c.delete_collection(PODS, namespace="ns"),
    "evict": lambda c: c.evict("web", namespace="ns"),
}


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize("code", [429, 500, 503, 504])
@virtual_time
async def test_a_write_that_the_server_puts_off_is_not_repeated(verb: str, code: int) -> None:
    api = await world("vip", "a")
    api.server().script = [refusal(code, retry_after="1")]
    with pytest.raises(errors.Retryable) as caught:
        await WRITES[verb](api.client)
    assert caught.value.retry_after == 1.0
    assert (now(), api.sent_to) == (0.0, ["vip"])


@virtual_time
async def test_what_a_disruption_budget_says_reaches_the_caller_at_once() -> None:
    api = await world()
    cause = {"reason": "DisruptionBudget", "message": "The disruption budget db needs 2"}
    body = {"reason": "TooManyRequests", "message": "Cannot evict", "details": {"causes": [cause]}}
    api.server().script = [json(body, code=429, retry_after="1")]
    with pytest.raises(errors.TooManyRequests, match="The disruption budget db needs 2") as caught:
        await api.client.evict("web", namespace="ns")
    assert caught.value.causes[0].reason == "DisruptionBudget"
    assert (now(), len(api.sent())) == (0.0, 1)


@virtual_time
async def test_our_own_limit_holds_back_no_longer_than_the_deadline() -> None:
    api = await world(limits=VerbLimits(RateLimit(0.01, 1), RateLimit(0.01, 1)))
    await api.client.get(NODES, "n1")
    with pytest.raises(
        errors.Unreachable,
        match=r"^GET /api/v1/nodes/n1: not sent within 10 s, because of our own rate limit$",
    ):
        await api.client.get(NODES, "n1")
    with pytest.raises(errors.Unreachable, match="our own rate limit"):
        async with api.client.watch(NODES, timeout=5.0):
            pass
    assert (now(), len(api.sent())) == (15.0, 1)


@virtual_time
async def test_time_spent_in_our_own_limit_counts_towards_the_deadline() -> None:
    api = await world(limits=VerbLimits(RateLimit(0.25, 1), RateLimit(1, 1)))
    api.link().silent = True
    with pytest.raises(errors.OutcomeUnknown):
        await api.client.get(NODES, "n1", timeout=1.0)
    with pytest.raises(errors.OutcomeUnknown):
        await api.client.get(NODES, "n1", timeout=5.0)
    assert [sent.at for sent in api.link().sent] == [0.0, 4.0]
    assert now() == 6.0


@virtual_time
async def test_a_call_that_has_no_time_is_not_sent() -> None:
    api = await world()
    with pytest.raises(errors.Unreachable, match=r"^GET /api/v1/nodes/n1: not sent, its 0 s were"):
        await api.client.get(NODES, "n1", timeout=0.0)
    assert api.sent() == []


@virtual_time
async def test_a_lease_never_waits_for_our_own_limit() -> None:
    api = await world(limits=VerbLimits(RateLimit(0.01, 1), RateLimit(0.01, 1)))
    for _ in range(3):
        await api.client.replace(LEASES, "leader", {}, namespace="ns")
    assert (now(), len(api.sent())) == (0.0, 3)


@virtual_time
async def test_a_write_whose_moment_passes_while_it_connects_is_not_sent() -> None:
    api = await world("vip", "a")
    api.link().connect_delay = 0.5
    with pytest.raises(
        errors.TooLate,
        match=r"^DELETE /api/v1/nodes/n1: not sent, because the moment until which",
    ):
        await api.client.delete(NODES, "n1", not_after=now() + 0.4)
    assert api.sent_to == []


@virtual_time
async def test_a_write_that_is_too_late_does_not_speak_against_the_address() -> None:
    api = await world("vip", "a")
    await asyncio.sleep(1.0)
    with pytest.raises(errors.TooLate):
        await api.client.delete(NODES, "n1", not_after=0.5)
    await api.client.delete(NODES, "n1")
    assert api.sent_to == ["vip"]


@virtual_time
async def test_a_write_whose_moment_passes_in_our_own_limit_is_not_sent() -> None:
    api = await world(limits=VerbLimits(RateLimit(1, 1), RateLimit(1, 1)))
    await api.client.delete(NODES, "n1")
    with pytest.raises(
        errors.TooLate, match=r"^DELETE /api/v1/nodes/n1: not sent, because our own rate limit"
    ):
        await api.client.delete(NODES, "n1", not_after=now() + 0.5)
    await api.client.delete(NODES, "n1", not_after=now() + 1.5)
    assert [sent.at for sent in api.link().sent] == [0.0, 1.0]


@virtual_time
async def test_the_moment_travels_to_the_transport() -> None:
    api = await world()
    await api.client.delete(NODES, "n1", not_after=42.0)
    assert api.sent()[0].not_after == 42.0


# Credentials


@virtual_time
async def test_credentials_that_are_refused_are_fetched_anew_once() -> None:
    api = await world(tokens=("old", "new"))
    api.server().script = [refusal(401), json({"ok": 1})]
    assert (await api.client.create(NODES, BODY)).json() == {"ok": 1}
    assert [r.headers["authorization"] for r in api.sent()] == ["Bearer old", "Bearer new"]


@virtual_time
async def test_credentials_that_did_not_change_are_not_tried_again() -> None:
    api = await world(tokens=("only",))
    api.server().script = [refusal(401, message="Unauthorized")]
    with pytest.raises(errors.Unauthorized):
        await api.client.get(NODES, "n1")
    assert len(api.sent()) == 1
    assert len(api.access.refusals) == 1


@virtual_time
async def test_new_credentials_that_are_refused_too_are_the_end_of_it() -> None:
    api = await world(tokens=("a", "b", "c"))
    api.server().script = [refusal(401)]
    with pytest.raises(errors.Unauthorized):
        await api.client.get(NODES, "n1")
    assert [r.headers["authorization"] for r in api.sent()] == ["Bearer a", "Bearer b"]
    assert len(api.access.refusals) == 2


@virtual_time
async def test_unauthorized_says_whose_credentials_were_refused_but_not_which() -> None:
    api = await world(tokens=("hunter2",))
    api.server().script = [refusal(401, message="Unauthorized")]
    with pytest.raises(errors.Unauthorized) as caught:
        await api.client.get(NODES, "n1")
    assert str(caught.value) == (
        "GET /api/v1/nodes/n1: Unauthorized; the credentials are those of context 'test' of a "
        "kubeconfig: renew or correct them"
    )
    assert "hunter2" not in repr(caught.value)


@virtual_time
async def test_credentials_that_cannot_be_had_do_not_hold_a_call_beyond_its_deadline() -> None:
    api = await world()
    api.access.fetching_takes = NEVER
    with pytest.raises(
        errors.Unreachable,
        match=r"^GET /api/v1/nodes/n1: no credentials within 10 s from context 'test'",
    ):
        await api.client.get(NODES, "n1")
    assert (now(), api.sent()) == (10.0, [])


@pytest.mark.parametrize("fault", ["reset", "silence", None])
@virtual_time
async def test_no_error_carries_a_credential(fault: Literal["reset", "silence"] | None) -> None:
    api = await world(tokens=("hunter2",))
    api.link().lose_answer = fault
    api.server().script = [refusal(403, message="no")]
    with pytest.raises(errors.KubeError) as caught:
        await api.client.get(NODES, "n1")
    assert "hunter2" not in f"{caught.value!r} {caught.value.__cause__!r}"


@virtual_time
async def test_any_call_can_be_sent() -> None:
    api = await world()
    await api.client.send(Call(method="GET", path="/readyz", accept="text/plain"))
    [seen] = api.server().seen
    assert (seen.path, seen.headers["accept"]) == ("/readyz", "text/plain")

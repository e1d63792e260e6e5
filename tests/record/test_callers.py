"""Who may read what a controller answers: with the shipped roles, on the embedded API."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from backstay.cli.manifests import manifests
from backstay.kube.access import GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.record.callers import (
    ACCESS_REVIEWS,
    MOST_KEPT,
    NO_SECONDS,
    STRANGERS_AT_ONCE,
    STRANGERS_PER_SECOND,
    TOKEN_REVIEWS,
    YES_SECONDS,
    Callers,
    Memory,
    Refusal,
    bearer,
)
from backstay.seam.serve import Answer, Handler, Inbound, ServerTls
from backstay.seam.system import SystemClock, SystemRng
from backstay.seam.tasks import Tasks
from backstay.sim.api.access import AccessControl, User
from backstay.sim.api.server import ApiServer
from backstay.sim.network import Network
from tests.support.installed import USERS
from tests.support.scripted import refusal
from tests.support.virtual import virtual_time

OURS = "token-of-the-controller"
READER = "backstay-metrics-reader"
ROLES = "/apis/rbac.authorization.k8s.io/v1"
ROBOTS = "/api/v1/namespaces/default/serviceaccounts"


class Scene:
    """A controller's ``Callers``, on an API that knows two robots; one of them may read."""

    def __init__(self, tasks: Tasks, instead: Callable[[Handler], Handler]) -> None:
        self.api = ApiServer(wall=SystemClock(), rng=SystemRng(1))
        self.guarded = AccessControl(self.api, {OURS: User(USERS["controller"])})
        self.handler = instead(self.guarded.handle)
        self.network = Network()
        self.link = self.network.link("https://api:6443")
        grant = Grant(headers={"authorization": f"Bearer {OURS}"})
        client = KubeClient(self.network.transport, GivenAccess("https://api:6443", grant))
        self.callers = Callers(client, tasks)

    async def open(self) -> None:
        tls = ServerTls(cert=b"", key=b"")
        await self.network.serve.listen(self.handler, host="api", port=6443, tls=tls)
        for document in manifests():
            if document["kind"] in ("ClusterRole", "ClusterRoleBinding"):
                await self.make(f"{ROLES}/{document['kind'].lower()}s", document)
        await self.make("/api/v1/namespaces", {"metadata": {"name": "default"}})
        self.reader = await self.robot("reader")
        self.other = await self.robot("other")
        subject = {"kind": "ServiceAccount", "namespace": "default", "name": "reader"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": READER}
        binding = {"metadata": {"name": "reading"}, "roleRef": role, "subjects": [subject]}
        await self.make(f"{ROLES}/clusterrolebindings", binding)

    async def robot(self, name: str) -> str:
        """Its token."""
        await self.make(ROBOTS, {"metadata": {"name": name}})
        made = await self.make(f"{ROBOTS}/{name}/token", {})
        token: str = made["status"]["token"]
        return token

    async def make(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self.call("POST", path, body)

    async def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        headers = {"content-type": "application/json"}
        sent = msgspec.json.encode(body) if body is not None else b""
        inbound = Inbound(method=method, path=path, headers=headers, body=sent)
        answer = await self.api.handle(inbound)
        assert answer.status < 300, answer.body
        assert isinstance(answer.body, bytes)
        made: dict[str, Any] = msgspec.json.decode(answer.body)
        return made

    async def refuse(self, token: str, path: str = "/metrics") -> Refusal | None:
        return await self.callers.refuse(f"Bearer {token}", path)

    async def status(self, token: str, path: str = "/metrics") -> int:
        refused = await self.refuse(token, path)
        return 200 if refused is None else refused.status

    @property
    def asked(self) -> list[str]:
        """The reviews that the API server was asked for."""
        paths = [urlsplit(sent.request.url).path for sent in self.link.sent]
        return [path.rsplit("/", 1)[1] for path in paths]


@asynccontextmanager
async def scene(
    instead: Callable[[Handler], Handler] = lambda usual: usual,
) -> AsyncIterator[Scene]:
    async with Tasks("test") as tasks:
        made = Scene(tasks, instead)
        await made.open()
        yield made


BOTH = [TOKEN_REVIEWS.plural, ACCESS_REVIEWS.plural]


# Who is let in


@virtual_time
async def test_whoever_has_the_role_is_let_in() -> None:
    async with scene() as s:
        for path in ("/metrics", "/status"):
            assert await s.refuse(s.reader, path) is None


@virtual_time
async def test_whoever_is_known_but_not_allowed_is_told_who_may_not_do_what() -> None:
    async with scene() as s:
        refused = await s.refuse(s.other)
    assert refused is not None
    assert refused.status == 403
    assert refused.sentence.startswith("system:serviceaccount:default:other may not get /metrics:")
    assert READER in refused.sentence


@virtual_time
async def test_a_role_for_one_path_does_not_open_the_other() -> None:
    async with scene() as s:
        role = await s.call("GET", f"{ROLES}/clusterroles/{READER}")
        role["rules"] = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
        await s.call("PUT", f"{ROLES}/clusterroles/{READER}", role)
        assert await s.status(s.reader, "/metrics") == 200
        assert await s.status(s.reader, "/status") == 403


@virtual_time
async def test_a_token_that_nobody_has_is_unknown() -> None:
    async with scene() as s:
        refused = await s.refuse("made-up")
        assert s.asked == [TOKEN_REVIEWS.plural]
    assert refused is not None
    assert refused.status == 401
    assert refused.headers == {"www-authenticate": 'Bearer error="invalid_token"'}


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Basic YTpi", "bearer a b", "Bearer a, Bearer b", "Bearer a\nb",
     f"Bearer {'a' * 20_000}"],
)  # fmt: skip
def test_what_is_no_bearer_token_is_not_even_asked_about(header: str) -> None:
    @virtual_time
    async def it() -> None:
        async with scene() as s:
            refused = await s.callers.refuse(header, "/metrics")
            assert s.asked == []
        assert refused is not None
        assert (refused.status, refused.headers) == (401, {"www-authenticate": "Bearer"})

    it()


def test_the_scheme_is_read_in_any_case() -> None:
    assert bearer("bearer a.b-c_~+/==") == bearer("BEARER  a.b-c_~+/==") == "a.b-c_~+/=="


Status = dict[str, Any]
ANN: Status = {"username": "ann", "uid": "7", "groups": ["g"], "extra": {"scopes": ["a", "b"]}}


def saying(known: Status, may: Status, specs: list[Status]) -> Callable[[Handler], Handler]:
    """An API server that answers every review like this; ``specs`` is what it was asked."""

    async def handle(inbound: Inbound) -> Answer:
        sent = msgspec.json.decode(inbound.body)
        specs.append(sent["spec"])
        status = known if sent["kind"] == TOKEN_REVIEWS.kind else may
        return Answer(status=201, body=msgspec.json.encode({**sent, "status": status}))

    return lambda _: handle


@virtual_time
async def test_groups_and_all_else_that_is_known_of_a_caller_are_passed_on() -> None:
    specs: list[Status] = []
    known, may = {"authenticated": True, "user": ANN}, {"allowed": True}
    async with scene(saying(known, may, specs)) as s:
        assert await s.status("abc") == 200
    assert specs[1] == {
        "user": "ann", "uid": "7", "groups": ["g"], "extra": {"scopes": ["a", "b"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("known", "may", "expected"),
    [
        ({"authenticated": False, "user": ANN}, {"allowed": True}, 401),
        ({"user": ANN}, {"allowed": True}, 401),
        ({"authenticated": True, "user": {}}, {"allowed": True}, 401),
        ({}, {"allowed": True}, 401),
        ({"authenticated": True, "user": ANN}, {"allowed": False, "denied": True}, 403),
        ({"authenticated": True, "user": ANN}, {}, 403),
        ({"authenticated": "true", "user": ANN}, {"allowed": True}, 503),
        ({"authenticated": True, "user": ANN}, {"allowed": 1}, 503),
    ],
)
def test_nothing_but_two_plain_yeses_lets_anybody_in(
    known: Status, may: Status, expected: int
) -> None:
    @virtual_time
    async def it() -> None:
        async with scene(saying(known, may, [])) as s:
            assert await s.status("abc") == expected

    it()


# How long an answer counts


@virtual_time
async def test_a_yes_counts_for_a_minute_and_not_longer() -> None:
    async with scene() as s:
        assert await s.status(s.reader) == 200
        await s.call("DELETE", f"{ROLES}/clusterrolebindings/reading")
        await asyncio.sleep(YES_SECONDS - 1)
        assert await s.status(s.reader) == 200
        assert s.asked == BOTH
        await asyncio.sleep(2)
        assert await s.status(s.reader) == 403
        assert s.asked == [*BOTH, *BOTH]


@virtual_time
async def test_a_no_counts_for_some_seconds_only() -> None:
    async with scene() as s:
        assert await s.status(s.other) == 403
        binding = await s.call("GET", f"{ROLES}/clusterrolebindings/reading")
        binding["subjects"][0]["name"] = "other"
        await s.call("PUT", f"{ROLES}/clusterrolebindings/reading", binding)
        await asyncio.sleep(NO_SECONDS - 1)
        assert await s.status(s.other) == 403
        assert s.asked == BOTH
        await asyncio.sleep(2)
        assert await s.status(s.other) == 200
        assert s.asked == [*BOTH, ACCESS_REVIEWS.plural]


@virtual_time
async def test_an_unknown_token_is_asked_about_again_after_some_seconds() -> None:
    async with scene() as s:
        for _ in range(3):
            assert await s.status("made-up") == 401
        assert s.asked == [TOKEN_REVIEWS.plural]
        await asyncio.sleep(NO_SECONDS + 1)
        assert await s.status("made-up") == 401
        assert s.asked == [TOKEN_REVIEWS.plural] * 2


@virtual_time
async def test_a_slow_answer_counts_from_when_it_was_asked_for() -> None:
    async with scene() as s:
        s.link.delay = 1.0
        assert await s.status(s.reader) == 200
        s.link.delay = 0.0
        await s.call("DELETE", f"{ROLES}/clusterrolebindings/reading")
        await asyncio.sleep(YES_SECONDS - 1)
        assert await s.status(s.reader) == 403


@virtual_time
async def test_many_at_once_with_one_token_share_one_review() -> None:
    async with scene() as s:
        s.link.delay = 0.5
        answers = await asyncio.gather(*(s.status(s.reader) for _ in range(50)))
        assert set(answers) == {200}
        assert s.asked == BOTH


@virtual_time
async def test_two_paths_at_once_share_the_review_of_the_token() -> None:
    async with scene() as s:
        s.link.delay = 0.5
        await asyncio.gather(s.status(s.reader, "/metrics"), s.status(s.reader, "/status"))
        assert s.asked == [*BOTH, ACCESS_REVIEWS.plural]


@virtual_time
async def test_one_who_goes_away_does_not_take_the_answer_from_the_others() -> None:
    async with scene() as s, Tasks("callers") as tasks:
        s.link.delay = 0.5
        first = tasks.spawn(s.status(s.reader), name="first")
        second = tasks.spawn(s.status(s.reader), name="second")
        await asyncio.sleep(0.1)
        first.cancel()
        assert await second == 200
        assert s.asked == BOTH


# When the API server cannot be asked


@virtual_time
async def test_nobody_is_let_in_while_the_api_cannot_be_asked_and_that_is_not_remembered() -> None:
    async with scene() as s:
        s.link.refuse = True
        refused = await s.refuse(s.reader)
        assert refused is not None
        assert refused.status == 503
        assert "API server" in refused.sentence
        s.link.refuse = False
        assert await s.status(s.reader) == 200


@virtual_time
async def test_an_api_that_stays_silent_is_not_waited_for_long() -> None:
    async with scene() as s:
        s.link.silent = True
        began = asyncio.get_running_loop().time()
        assert await s.status(s.reader) == 503
        assert asyncio.get_running_loop().time() - began <= 5.0


@virtual_time
async def test_a_controller_that_may_not_ask_lets_nobody_in() -> None:
    async with scene() as s:
        await s.call("DELETE", f"{ROLES}/clusterrolebindings/backstay-controller")
        assert await s.status(s.reader) == 503


def test_trouble_is_said_once_and_without_the_token(caplog: pytest.LogCaptureFixture) -> None:
    def instead(_: Handler) -> Handler:
        async def handle(inbound: Inbound) -> Answer:
            return refusal(422, reason="Invalid", message=f"bad: {inbound.body.decode()}")

        return handle

    @virtual_time
    async def it() -> None:
        async with scene(instead) as s:
            for _ in range(3):
                assert await s.status("very-secret") == 503

    with caplog.at_level(logging.DEBUG):
        it()
    said = [record.getMessage() for record in caplog.records if record.name == "backstay.callers"]
    assert len(said) == 1
    assert "tokenreviews: 422 Invalid" in said[0]
    assert "very-secret" not in caplog.text


# Strangers


@virtual_time
async def test_strangers_cannot_make_us_ask_without_end() -> None:
    async with scene() as s:
        answers = [await s.refuse(f"guess-{n}") for n in range(200)]
        statuses = [answer.status for answer in answers if answer is not None]
        assert statuses == [401] * STRANGERS_AT_ONCE + [429] * (200 - STRANGERS_AT_ONCE)
        assert len(s.asked) == STRANGERS_AT_ONCE
        await asyncio.sleep(1.0)
        await asyncio.gather(*(s.status(f"later-{n}") for n in range(200)))
        assert len(s.asked) == STRANGERS_AT_ONCE + STRANGERS_PER_SECOND


@virtual_time
async def test_strangers_do_not_lock_out_who_was_let_in_before() -> None:
    async with scene() as s:
        assert await s.status(s.reader) == 200
        await asyncio.sleep(YES_SECONDS + 1)
        for n in range(200):
            await s.refuse(f"guess-{n}")
        assert await s.status(s.reader) == 200


@virtual_time
async def test_no_token_is_kept() -> None:
    async with scene() as s:
        await s.refuse(s.reader)
        await s.refuse("made-up")
        kept = repr([vars(each) if hasattr(each, "__dict__") else each
                     for each in vars(s.callers).values()])  # fmt: skip
        assert "reader" in kept
        assert s.reader not in kept
        assert "made-up" not in kept


# What is remembered


def test_a_memory_ends_at_its_moment() -> None:
    memory: Memory[str, int] = Memory(2)
    memory.keep("a", 1, until=10.0, now=0.0)
    assert memory.recall("a", now=9.9) == 1
    assert memory.recall("a", now=10.0) is None
    assert memory.recall("b", now=0.0) is None


def test_what_has_ended_takes_no_room() -> None:
    memory: Memory[int, int] = Memory(MOST_KEPT)
    for n in range(10_000):
        memory.keep(n, n, until=n + 10.0, now=float(n))
    assert len(memory) == 10


def test_when_there_is_no_room_what_ends_first_goes_first() -> None:
    memory: Memory[str, int] = Memory(2)
    memory.keep("long", 1, until=60.0, now=0.0)
    memory.keep("short", 2, until=10.0, now=0.0)
    memory.keep("new", 3, until=30.0, now=0.0)
    assert [memory.recall(key, now=0.0) for key in ("long", "short", "new")] == [1, None, 3]


def test_strangers_cannot_fill_the_memory() -> None:
    assert STRANGERS_AT_ONCE + STRANGERS_PER_SECOND * NO_SECONDS < MOST_KEPT / 2

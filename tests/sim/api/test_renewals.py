"""The short way of a renewal leads where the long one does.

Two API servers are told the same. One of them sees a header that is another one each time, so that
nothing it is asked is ever what it was asked before: it goes the long way always.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from backstay.seam.serve import Inbound
from backstay.seam.system import SystemRng
from backstay.sim.api.server import ADMIN, MERGE, ApiServer

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
LEASE = f"{LEASES}/mine"
JSON = "application/json"
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.moment = NOON

    def now(self) -> datetime:
        return self.moment


class Twins:
    """``commits`` are those of each: version, and the line that a watcher would be sent."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.short, self.long = (ApiServer(wall=self.clock, rng=SystemRng(7)) for _ in range(2))
        self.commits: tuple[list[Any], list[Any]] = ([], [])
        for server, commits in zip((self.short, self.long), self.commits, strict=True):
            server.store.follow(
                None,
                lambda commit, commits=commits: commits.append(  # type: ignore[misc]
                    (commit.version, commit.deleted, commit.after.line(b"{", b"MODIFIED"))
                ),
            )
        self._asked = 0

    async def ask(
        self, method: str, path: str, body: bytes | dict[str, Any], *, agent: str = "kubelet/1"
    ) -> int:
        """The code that both answer with."""
        sent = body if isinstance(body, bytes) else msgspec.json.encode(body)
        content = MERGE if method == "PATCH" else JSON
        headers = {"content-type": content, "user-agent": agent}
        self._asked += 1
        answers = [
            await server.handle(Inbound(method=method, path=path, headers=each, body=sent), ADMIN)
            for server, each in (
                (self.short, headers),
                (self.long, {**headers, "x-number": str(self._asked)}),
            )
        ]
        assert answers[0] == answers[1]
        assert self.commits[0] == self.commits[1]
        return answers[0].status

    async def begin(self) -> None:
        await self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}})
        spec = {"holderIdentity": "n1", "leaseDurationSeconds": 40}
        lease = {"metadata": {"name": "mine"}, "spec": {**spec, "renewTime": self.micro_time()}}
        assert await self.ask("POST", LEASES, lease) == 201

    def micro_time(self) -> str:
        return self.clock.moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def version(self) -> str:
        stored = self.short.store.get("leases.coordination.k8s.io", ("default", "mine"))
        return str(stored.version) if stored is not None else "1"

    async def renew(self, *, version: str | None = None, **options: Any) -> int:
        self.clock.moment += timedelta(seconds=10)
        spec = {"holderIdentity": "n1", "leaseDurationSeconds": 40, "renewTime": self.micro_time()}
        meta = {} if version is None else {"metadata": {"resourceVersion": version}}
        return await self.ask("PATCH", LEASE, {**meta, "spec": spec}, **options)

    async def note(self, text: str) -> int:
        self.clock.moment += timedelta(seconds=10)
        return await self.ask("PATCH", LEASE, {"metadata": {"annotations": {"view": text}}})


async def test_a_renewal_takes_the_short_way_once_it_is_known() -> None:
    twins = Twins()
    await twins.begin()
    for _ in range(5):
        assert await twins.renew() == 200
    assert (twins.short.renewals.taken, twins.long.renewals.taken) == (3, 0)


async def test_a_renewal_that_names_the_version_takes_it_too() -> None:
    twins = Twins()
    await twins.begin()
    for _ in range(5):
        assert await twins.renew(version=twins.version()) == 200
    assert twins.short.renewals.taken == 3


async def test_a_renewal_of_another_version_is_refused() -> None:
    twins = Twins()
    await twins.begin()
    for _ in range(3):
        await twins.renew(version=twins.version())
    taken = twins.short.renewals.taken
    assert await twins.renew(version="2") == 409
    assert twins.short.renewals.taken == taken > 0


async def test_news_in_an_annotation_take_it() -> None:
    twins = Twins()
    await twins.begin()
    for number in range(5):
        assert await twins.note(f'{{"round": {number}, "said": "grüße"}}') == 200
    assert twins.short.renewals.taken == 3


async def test_what_somebody_else_has_changed_goes_the_long_way_once() -> None:
    twins = Twins()
    await twins.begin()
    for _ in range(3):
        await twins.renew()
    await twins.ask("PATCH", LEASE, {"metadata": {"labels": {"a": "b"}}}, agent="kubectl/1")
    before = twins.short.renewals.taken
    await twins.renew()
    assert twins.short.renewals.taken == before
    await twins.renew()
    assert twins.short.renewals.taken == before + 1


async def test_another_writer_does_not_pass_for_the_one_before() -> None:
    twins = Twins()
    await twins.begin()
    for _ in range(3):
        await twins.renew()
    before = twins.short.renewals.taken
    await twins.renew(agent="somebody/2")
    assert twins.short.renewals.taken == before


async def test_a_time_that_is_none_is_refused() -> None:
    twins = Twins()
    await twins.begin()
    for _ in range(3):
        await twins.renew()
    body = b'{"spec":{"holderIdentity":"n1","leaseDurationSeconds":40,"renewTime":"soon"}}'
    assert await twins.ask("PATCH", LEASE, body) == 422


async def test_nothing_can_be_smuggled_in_behind_the_value() -> None:
    twins = Twins()
    await twins.begin()
    for number in range(3):
        await twins.note(str(number))
    taken = twins.short.renewals.taken
    body = b'{"metadata":{"annotations":{"view":"x","other":"y"}}}'
    assert await twins.ask("PATCH", LEASE, body) == 200
    assert twins.short.renewals.taken == taken > 0


async def test_the_same_text_in_another_place_is_not_the_value() -> None:
    twins = Twins()
    await twins.begin()
    # Written with an escape, so that the only plain "b" in the body is a key.
    escaped = b'{"metadata":{"annotations":{"a":"\\u0062"},"labels":{"b":"1"}}}'
    for body in (escaped, b'{"metadata":{"annotations":{"a":"c"}}}', escaped):
        assert await twins.ask("PATCH", LEASE, body) == 200
    assert await twins.ask("PATCH", LEASE, escaped.replace(b'"b"', b'"d"')) == 200


_STEPS = st.one_of(
    st.tuples(st.just("renew"), st.just("")),
    st.tuples(st.just("renew"), st.just("")),
    st.tuples(st.just("checked"), st.just("")),
    st.tuples(st.just("stale"), st.just("")),
    st.tuples(st.just("note"), st.text(max_size=6)),
    st.tuples(st.just("back"), st.just("")),
    st.tuples(st.just("still"), st.just("")),
    st.tuples(st.just("other"), st.sampled_from(["x", "y"])),
    st.tuples(st.just("delete"), st.just("")),
)


async def _step(twins: Twins, step: str, text: str) -> None:
    match step:
        case "renew":
            await twins.renew()
        case "checked":
            await twins.renew(version=twins.version())
        case "stale":
            await twins.renew(version="3")
        case "note":
            await twins.note(text)
        case "back":
            twins.clock.moment -= timedelta(seconds=35)
        case "still":
            twins.clock.moment -= timedelta(seconds=10)
            await twins.renew()
        case "other":
            meta = {"metadata": {"annotations": {text: text}}}
            await twins.ask("PATCH", LEASE, meta, agent="kubectl/1")
        case "delete":
            await twins.ask("DELETE", LEASE, b"")
            spec = {"holderIdentity": "n1", "renewTime": twins.micro_time()}
            await twins.ask("POST", LEASES, {"metadata": {"name": "mine"}, "spec": spec})


@settings(max_examples=60, deadline=None)
@given(st.lists(_STEPS, min_size=8, max_size=24))
async def test_whatever_comes_in_between_both_ways_lead_to_the_same(
    steps: list[tuple[str, str]],
) -> None:
    twins = Twins()
    await twins.begin()
    for step, text in steps:
        await _step(twins, step, text)

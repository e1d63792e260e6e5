"""The watch machine: each rule as a line of a table, and what holds for every path through it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.kube import errors
from backstay.kube.watch import (
    Advanced,
    Begin,
    Ended,
    Failed,
    Happening,
    Next,
    PageRead,
    Paging,
    PictureComplete,
    Resuming,
    Started,
    State,
    Streaming,
    Wait,
    Watching,
    step,
)


def refused(code: int, reason: str = "", retry_after: float | None = None) -> Failed:
    status = errors.Status(code=code, reason=reason, message="because")
    return Failed(errors.from_status(status, call="GET /x", retry_after=retry_after))


UNREACHABLE = Failed(errors.Unreachable("refused"))
CUT = Failed(errors.OutcomeUnknown("reset"))
NONSENSE = Failed(errors.Undecodable("not JSON"))
UNTRUSTED = Failed(errors.Untrusted("self-signed"))
NO_CREDENTIALS = Failed(errors.ConfigError("no token"))

WELL = Ended(productive=True)
AT_ONCE = Ended(productive=False)

PAGED = Watching("7", streaming=False)
STREAMED = Watching("7")

TABLE: dict[str, tuple[State, Happening, Next]] = {
    # A full picture
    "a picture is streamed": (Begin(), Started(), Next(Streaming())),
    "or paged, where streaming was refused": (Begin(False), Started(), Next(Paging())),
    "the first page is followed by the next": (
        Paging(), PageRead("7", "t1"), Next(Paging("t1")),
    ),
    "a page in the middle is followed by the next": (
        Paging("t1"), PageRead("7", "t2"), Next(Paging("t2")),
    ),
    "the last page is followed by a watch": (Paging("t2"), PageRead("7", None), Next(PAGED)),
    "the only page is followed by a watch": (Paging(), PageRead("7", None), Next(PAGED)),
    "a page that leads to itself leads nowhere": (
        Paging("t1"), PageRead("7", "t1"), Next(Begin(False), Wait.BACKOFF),
    ),
    "the end of the initial events is followed by a watch": (
        Streaming(), PictureComplete("7"), Next(STREAMED),
    ),
    "a page that could not be had is asked for again": (
        Paging("t1"), UNREACHABLE, Next(Paging("t1"), Wait.BACKOFF),
    ),
    "so is one whose answer was cut": (Paging("t1"), CUT, Next(Paging("t1"), Wait.BACKOFF)),
    "so is one that the server failed to give": (
        Paging("t1"), refused(500), Next(Paging("t1"), Wait.BACKOFF),
    ),
    "a token that expired is no use": (
        Paging("t1"), refused(410, "Expired"), Next(Begin(False), Wait.BACKOFF),
    ),
    "nor is one that the server does not know": (
        Paging("t1"), refused(400), Next(Begin(False), Wait.BACKOFF),
    ),
    "a page that is no page ends the picture": (
        Paging("t1"), NONSENSE, Next(Begin(False), Wait.BACKOFF),
    ),
    # A stream that was refused, or stopped
    "400: the server does not stream": (Streaming(), refused(400), Next(Begin(False))),
    "422: the server does not stream": (Streaming(), refused(422), Next(Begin(False))),
    "a stream that ended before its picture did": (
        Streaming(), WELL, Next(Begin(False), Wait.BACKOFF),
    ),
    "a stream that ended at once": (Streaming(), AT_ONCE, Next(Begin(False), Wait.BACKOFF)),
    "a stream that was cut half-way": (Streaming(), CUT, Next(Begin(False), Wait.BACKOFF)),
    "a stream with a line that is none": (
        Streaming(), NONSENSE, Next(Begin(False), Wait.BACKOFF),
    ),
    "a stream that the server gave up": (
        Streaming(), refused(500), Next(Begin(False), Wait.BACKOFF),
    ),
    "an API that is down says nothing against streams": (
        Streaming(), UNREACHABLE, Next(Begin(), Wait.BACKOFF),
    ),
    "nor does one that is starting": (Streaming(), refused(503), Next(Begin(), Wait.BACKOFF)),
    "nor does one that is busy": (
        Streaming(), refused(429, retry_after=3.0), Next(Begin(), Wait.BACKOFF, 3.0),
    ),
    "410 while streaming": (
        Streaming(), refused(410, "Expired"), Next(Begin(), Wait.BACKOFF),
    ),
    "403 while streaming": (Streaming(), refused(403), Next(Begin(), Wait.LONG)),
    "401 while streaming": (Streaming(), refused(401), Next(Begin(), Wait.BACKOFF)),
    "a kind that is not installed": (Streaming(), refused(404), Next(Begin(), Wait.LONG)),
    # Watching
    "an event moves the version on": (STREAMED, Advanced("8"), Next(Watching("8"))),
    "and keeps in mind that pages were needed": (
        PAGED, Advanced("8"), Next(Watching("8", streaming=False)),
    ),
    "a watch that ended well is resumed at once": (STREAMED, WELL, Next(STREAMED)),
    "a watch that ended at once is doubtful": (
        STREAMED, AT_ONCE, Next(Resuming("7"), Wait.BACKOFF),
    ),
    "a watch that was cut is doubtful": (STREAMED, CUT, Next(Resuming("7"), Wait.BACKOFF)),
    "so is one that could not be had": (
        PAGED, UNREACHABLE, Next(Resuming("7", streaming=False), Wait.BACKOFF),
    ),
    "so is one that the server gave up": (
        STREAMED, refused(504), Next(Resuming("7"), Wait.BACKOFF),
    ),
    "410: what we hold cannot be brought up to date": (
        STREAMED, refused(410, "Gone"), Next(Begin(), Wait.BACKOFF),
    ),
    "410 where streaming was refused": (
        PAGED, refused(410, "Expired"), Next(Begin(False), Wait.BACKOFF),
    ),
    "a line that is none": (STREAMED, NONSENSE, Next(Begin(), Wait.BACKOFF)),
    "a version that the server does not accept": (
        STREAMED, refused(400), Next(Begin(), Wait.BACKOFF),
    ),
    "401: there may be other credentials by now": (
        STREAMED, refused(401), Next(Resuming("7"), Wait.BACKOFF),
    ),
    "403: that may take a while": (STREAMED, refused(403), Next(Resuming("7"), Wait.LONG)),
    "404: that may take a while": (STREAMED, refused(404), Next(Resuming("7"), Wait.LONG)),
    "TLS: that may take a while": (STREAMED, UNTRUSTED, Next(Resuming("7"), Wait.LONG)),
    "credentials: that may take a while": (
        STREAMED, NO_CREDENTIALS, Next(Resuming("7"), Wait.LONG),
    ),
    "the server's own wish is heard": (
        STREAMED, refused(429, retry_after=5.0), Next(Resuming("7"), Wait.BACKOFF, 5.0),
    ),
    # Resuming
    "an API that is not behind us is watched from where we were": (
        Resuming("7"), PageRead("9", "more"), Next(STREAMED),
    ),
    "and keeps in mind, too, that pages were needed": (
        Resuming("7", streaming=False), PageRead("9", None), Next(PAGED),
    ),
    "an API that cannot be asked is asked again": (
        Resuming("7"), UNREACHABLE, Next(Resuming("7"), Wait.BACKOFF),
    ),
    "one that went back in time is looked at anew": (
        Resuming("7"), NONSENSE, Next(Begin(), Wait.BACKOFF),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("state", "happening", "expected"), TABLE.values(), ids=TABLE.keys())
def test_each_happening_leads_where_the_table_says(
    state: State, happening: Happening, expected: Next
) -> None:
    assert step(state, happening) == expected


# What holds for every path

VERSIONS = st.integers(1, 99).map(str)
TOKENS = st.sampled_from(["t1", "t2", "t3"])
CODES = (400, 401, 403, 404, 405, 406, 409, 410, 413, 415, 418, 422, 429, 500, 502, 503, 504)
FAILURES = st.sampled_from(
    [UNREACHABLE, CUT, NONSENSE, UNTRUSTED, NO_CREDENTIALS, Failed(errors.TooLate("late"))]
    + [refused(code) for code in CODES]
    + [refused(429, retry_after=2.0), refused(500, "ServerTimeout"), refused(500, "Expired")]
)
STATES: st.SearchStrategy[State] = st.one_of(
    st.builds(Begin, st.booleans()),
    st.builds(Paging, st.none() | TOKENS),
    st.just(Streaming()),
    st.builds(Watching, VERSIONS, st.booleans()),
    st.builds(Resuming, VERSIONS, st.booleans()),
)
HAPPENINGS: st.SearchStrategy[Happening] = st.one_of(
    st.just(Started()),
    st.builds(PageRead, VERSIONS, st.none() | TOKENS),
    st.builds(PictureComplete, VERSIONS),
    st.builds(Advanced, VERSIONS),
    st.builds(Ended, st.booleans()),
    FAILURES,
)


def version_in(state: State) -> str | None:
    return state.version if isinstance(state, Watching | Resuming) else None


@given(STATES, HAPPENINGS)
def test_anything_may_happen_anywhere(state: State, happening: Happening) -> None:
    turn = step(state, happening)
    assert isinstance(turn.state, State)
    assert turn.at_least >= 0


@given(STATES, st.sampled_from(["Expired", "Gone"]), st.sampled_from([410, 500]))
def test_after_gone_there_is_always_a_full_picture(state: State, reason: str, code: int) -> None:
    turn = step(state, refused(code, reason))
    assert isinstance(turn.state, Begin)
    assert turn.wait is Wait.BACKOFF


@given(st.lists(HAPPENINGS, max_size=30))
def test_what_is_resumed_from_was_sent_by_the_server(happenings: list[Happening]) -> None:
    sent: set[str] = set()
    state: State = Begin()
    for happening in happenings:
        if isinstance(happening, PageRead | PictureComplete | Advanced):
            sent.add(happening.version)
        state = step(state, happening).state
        assert version_in(state) in {None, *sent}


@given(VERSIONS, VERSIONS, st.none() | TOKENS)
def test_where_the_api_stands_is_not_where_we_go_on(ours: str, its: str, token: str | None) -> None:
    # What happened in between has not been seen.
    assert version_in(step(Resuming(ours), PageRead(its, token)).state) == ours


@given(st.sampled_from([400, 422]), st.lists(HAPPENINGS, max_size=30))
def test_a_server_that_refused_to_stream_is_never_asked_again(
    code: int, happenings: list[Happening]
) -> None:
    state = step(Streaming(), refused(code)).state
    for happening in happenings:
        state = step(state, happening).state
        assert not isinstance(state, Streaming)


@given(STATES, FAILURES)
def test_a_failure_is_never_answered_at_once(state: State, failure: Failed) -> None:
    turn = step(state, failure)
    refusal_to_stream = isinstance(state, Streaming) and turn == Next(Begin(streaming=False))
    assert turn.wait is not Wait.NOT or refusal_to_stream


@given(STATES, st.lists(HAPPENINGS, max_size=20))
def test_a_server_that_gets_well_is_watched_again(state: State, ills: list[Happening]) -> None:
    for happening in ills:
        state = step(state, happening).state
    for turn in range(4):
        state = step(state, _healthy(state, f"page {turn}")).state
    assert isinstance(state, Watching)


def _healthy(state: State, token: str) -> Happening:
    match state:
        case Begin():
            return Started()
        case Paging(None):
            return PageRead("99", token)
        case Paging() | Resuming():
            return PageRead("99", None)
        case Streaming():
            return PictureComplete("99")
        case Watching():
            return Advanced("99")


@given(STATES, st.lists(HAPPENINGS, max_size=20))
def test_a_picture_by_pages_or_stream_precedes_every_watch(
    state: State, happenings: list[Happening]
) -> None:
    for happening in happenings:
        before, state = state, step(state, happening).state
        if isinstance(state, Watching):
            assert not isinstance(before, Begin)

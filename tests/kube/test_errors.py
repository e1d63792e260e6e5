import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backstay.kube import errors
from backstay.kube.errors import ApiError, Cause, Details, Retryable, Status, Terminal

CALL = "GET /api/v1/pods"

BY_CODE: dict[int, type[ApiError]] = {
    301: errors.UnexpectedStatus,
    400: errors.BadRequest,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    405: errors.MethodNotAllowed,
    406: errors.NotAcceptable,
    409: errors.Conflict,
    410: errors.Gone,
    413: errors.TooLarge,
    415: errors.UnsupportedMedia,
    418: errors.UnexpectedStatus,
    422: errors.Invalid,
    429: errors.TooManyRequests,
    500: errors.InternalError,
    502: errors.InternalError,
    503: errors.ServiceUnavailable,
    504: errors.ServerTimeout,
}

BY_REASON: dict[tuple[int, str], type[ApiError]] = {
    (409, "AlreadyExists"): errors.AlreadyExists,
    (409, "Conflict"): errors.Conflict,
    (410, "Expired"): errors.Gone,
    (410, "Gone"): errors.Gone,
    (429, "TooManyRequests"): errors.TooManyRequests,
    (500, "ServerTimeout"): errors.ServerTimeout,
    (500, "InternalError"): errors.InternalError,
    (504, "Timeout"): errors.ServerTimeout,
}

BODIES = {
    "nothing": b"",
    "html": b"<html><body>502 Bad Gateway</body></html>",
    "text": b"404 page not found\n",
    "not an object": b"[]",
    "a string": b'"no"',
    "wrong types": b'{"message":7,"code":"x"}',
    "not utf-8": b'{"message":"\xff\xfe"}',
    "cut off": b'{"kind":"Status","mess',
    "huge": b"x" * 5_000_000,
    "nested without end": b'{"x":' + b"[" * 100_000,
    "null details": b'{"kind":"Status","details":null}',
    "null causes": b'{"kind":"Status","details":{"causes":null}}',
}


def answer(
    code: int, body: bytes = b"", *, headers: dict[str, str] | None = None, remedy: str = ""
) -> ApiError:
    return errors.from_answer(code, headers or {}, body, call=CALL, remedy=remedy)


def status(**fields: object) -> bytes:
    return msgspec.json.encode({"kind": "Status", "status": "Failure", **fields})


@pytest.mark.parametrize(("code", "kind"), BY_CODE.items())
def test_every_code_has_its_type(code: int, kind: type[ApiError]) -> None:
    assert type(answer(code)) is kind


@pytest.mark.parametrize(("given", "kind"), BY_REASON.items())
def test_the_reason_says_more_than_the_code(given: tuple[int, str], kind: type[ApiError]) -> None:
    code, reason = given
    error = answer(code, status(reason=reason, code=code))
    assert type(error) is kind
    assert error.reason == reason


@pytest.mark.parametrize("kind", dict.fromkeys((*BY_CODE.values(), *BY_REASON.values())))
def test_every_refusal_is_either_retryable_or_terminal(kind: type[ApiError]) -> None:
    assert issubclass(kind, Retryable) != issubclass(kind, Terminal)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_body_of_any_kind_leaves_the_code_to_decide(body: bytes) -> None:
    for code, kind in BY_CODE.items():
        error = answer(code, body)
        assert type(error) is kind
        assert error.status.code == code
        assert str(error).startswith(f"{CALL}: HTTP {code} without a Kubernetes status")
        assert len(str(error)) < 500


@settings(max_examples=50, deadline=None)
@given(
    code=st.integers(300, 599),
    headers=st.dictionaries(st.sampled_from(["retry-after", "server"]), st.text()),
    body=st.one_of(
        st.binary(),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
            lambda inner: (
                st.lists(inner)
                | st.dictionaries(
                    st.sampled_from(["message", "reason", "code", "details", "causes", "name"]),
                    inner,
                )
            ),
        ).map(msgspec.json.encode),
    ),
)
def test_any_answer_at_all_becomes_an_error(
    code: int, headers: dict[str, str], body: bytes
) -> None:
    error = answer(code, body, headers=headers)
    assert error.status.code == code
    assert str(error).startswith(CALL)
    assert error.retry_after is None or 0 < error.retry_after <= 300


def test_a_code_in_the_body_does_not_replace_the_code_of_the_answer() -> None:
    grpc_gateway = answer(403, b'{"code":7,"message":"permission denied"}')
    assert type(grpc_gateway) is errors.Forbidden
    assert str(grpc_gateway) == f"{CALL}: permission denied"


def test_the_sentence_is_the_servers() -> None:
    error = answer(404, status(message='pods "web" not found', reason="NotFound", code=404))
    assert str(error) == f'{CALL}: pods "web" not found'


def test_a_message_of_many_lines_becomes_one() -> None:
    assert str(answer(400, status(message="no:\n  - a\n  - b\n"))) == f"{CALL}: no: - a - b"


def test_a_message_without_end_is_cut() -> None:
    error = answer(422, status(message="x" * 100_000))
    assert len(str(error)) < 1100
    assert str(error).endswith("x …")
    assert len(error.status.message) == 100_000


def test_a_cause_that_the_message_does_not_tell_is_added() -> None:
    budget = "The disruption budget db needs 2 healthy pods and has 2 currently"
    body = status(
        message="Cannot evict pod as it would violate the pod's disruption budget.",
        reason="TooManyRequests",
        details={"causes": [{"reason": "DisruptionBudget", "message": budget}]},
    )
    error = answer(429, body)
    assert str(error) == (
        f"{CALL}: Cannot evict pod as it would violate the pod's disruption budget; {budget}"
    )
    assert error.causes == (Cause("DisruptionBudget", budget),)


def test_a_cause_that_the_message_tells_is_not_said_twice() -> None:
    body = status(
        message='Pod "web" is invalid: spec.containers: Required value',
        details={"causes": [{"field": "spec.containers", "message": "Required value"}]},
    )
    assert str(answer(422, body)).count("Required value") == 1


def test_a_remedy_ends_the_sentence() -> None:
    error = answer(401, status(message="Unauthorized"), remedy="renew the token")
    assert str(error) == f"{CALL}: Unauthorized; renew the token"


def test_the_server_may_ask_for_a_wait_in_a_header_or_in_the_body() -> None:
    details = {"retryAfterSeconds": 7}
    assert answer(429, headers={"retry-after": "5"}).retry_after == 5.0
    assert answer(500, status(reason="ServerTimeout", details=details)).retry_after == 7.0
    both = answer(429, status(details=details), headers={"retry-after": "5"})
    assert both.retry_after == 5.0


@pytest.mark.parametrize("value", ["", "0", "-1", "1.5", "soon", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_a_wait_that_is_none_is_not_one(value: str) -> None:
    assert answer(429, headers={"retry-after": value}).retry_after is None


def test_nobody_can_send_us_to_sleep_for_ever() -> None:
    assert answer(503, headers={"retry-after": "9" * 400}).retry_after == 300.0
    assert answer(503, status(details={"retryAfterSeconds": 10**9})).retry_after == 300.0


def test_the_error_of_a_watch_is_found_by_its_own_code() -> None:
    expired = Status(reason="Expired", message="too old resource version", code=410)
    assert type(errors.from_status(expired, call=CALL)) is errors.Gone
    assert type(errors.from_status(Status(code=500), call=CALL)) is errors.InternalError
    assert type(errors.from_status(Status(), call=CALL)) is errors.UnexpectedStatus


def test_an_error_without_causes_has_none() -> None:
    assert errors.from_status(Status(), call=CALL).causes == ()
    assert errors.from_status(Status(details=Details()), call=CALL).causes == ()

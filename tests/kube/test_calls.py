import msgspec
import pytest

from backstay.kube.calls import Call, Reply, WriteOptions, delete_options, query, write
from backstay.kube.errors import Undecodable
from backstay.kube.resource import PODS


class Named(msgspec.Struct):
    name: str


def test_only_a_get_may_be_repeated() -> None:
    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    assert [m for m in methods if Call(method=m, path="/").repeatable] == ["GET"]


def test_a_call_is_named_without_its_query() -> None:
    assert Call(method="GET", path="/api", query=(("limit", "5"),)).name == "GET /api"


def test_parameters_that_are_none_are_left_out() -> None:
    assert query(limit=5, labelSelector=None, _continue="t") == (("limit", "5"), ("continue", "t"))


def test_a_write_takes_its_options_and_else_the_defaults() -> None:
    options: WriteOptions = {"manager": "m", "dry_run": True, "timeout": 2.5, "not_after": 9.0}
    call = write("POST", PODS, "/p", {"a": 1}, extra=(("x", "y"),), **options)
    assert call.query == (("fieldManager", "m"), ("dryRun", "All"), ("x", "y"))
    assert (call.body, call.timeout, call.not_after) == (b'{"a":1}', 2.5, 9.0)

    plain = write("POST", PODS, "/p", {})
    assert (plain.query, plain.timeout, plain.not_after) == ((), 10.0, None)


def test_a_deletion_says_only_what_was_asked() -> None:
    kind = {"apiVersion": "v1", "kind": "DeleteOptions"}
    assert delete_options({}) == kind
    assert delete_options({"uid": None, "grace": None}) == kind
    assert delete_options(None, dry_run=True) == {**kind, "dryRun": ["All"]}
    assert delete_options({"grace": 0}) == {**kind, "gracePeriodSeconds": 0}
    assert delete_options({"uid": "u", "resource_version": "7", "propagation": "Orphan"}) == {
        **kind,
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "propagationPolicy": "Orphan",
    }


def test_an_empty_uid_is_a_condition_that_nothing_meets() -> None:
    assert delete_options({"uid": ""})["preconditions"] == {"uid": ""}


def test_a_reply_is_decoded_into_what_the_caller_wants() -> None:
    reply = Reply(b'{"name":"web"}', Call(method="GET", path="/p"))
    assert reply.into(Named) == Named("web")
    assert reply.json() == {"name": "web"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[1]",
        b'{"name":1}',
        b'{"name":"\xff"}',
        b'{"x":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
    ids=["empty", "html", "a list", "wrong type", "not utf-8", "nested without end"],
)
def test_a_reply_that_is_something_else_is_undecodable(body: bytes) -> None:
    with pytest.raises(Undecodable, match=r"^GET /p: the answer is not what was asked for"):
        Reply(body, Call(method="GET", path="/p")).into(Named)

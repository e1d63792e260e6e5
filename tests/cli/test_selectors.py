"""Label selectors as they are typed: what they select, and what is refused."""

import re

import pytest

from backstay.cli.selectors import parse
from backstay.model.policy import OptIn

DB = {"app": "db", "tier": "back"}
BARE: dict[str, str] = {}


@pytest.mark.parametrize(
    ("text", "labels", "selected"),
    [
        ("", BARE, True),
        ("  ", DB, True),
        ("app=db", DB, True),
        ("app==db", DB, True),
        ("app = db", DB, True),
        ("app=web", DB, False),
        ("app=", DB, False),
        ("app=", {"app": ""}, True),
        ("app!=web", DB, True),
        ("app!=db", DB, False),
        ("app!=db", BARE, True),
        ("app", DB, True),
        ("app", BARE, False),
        ("!app", BARE, True),
        ("! app", DB, False),
        ("app in (db, web)", DB, True),
        ("app in (web)", DB, False),
        ("app notin (web,cache)", DB, True),
        ("app notin (db)", DB, False),
        ("app notin (db)", BARE, True),
        ("app in ()", {"app": ""}, True),
        ("app=db,tier in (back,middle),!spare", DB, True),
        ("app=db,tier in (front)", DB, False),
        ("in=x", {"in": "x"}, True),
        ("linstor.csi.linbit.com/on-storage-lost=remove", DB, False),
        (
            "linstor.csi.linbit.com/on-storage-lost=remove",
            {"linstor.csi.linbit.com/on-storage-lost": "remove"},
            True,
        ),
    ],
)
def test_a_selector_selects_what_kubectl_would(
    text: str, labels: dict[str, str], selected: bool
) -> None:
    assert OptIn(parse(text), by="a test").selects(labels) is selected


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a=b=c", "'a=b=c'"),
        (",", "''"),
        ("a,,b", "''"),
        ("a,", "''"),
        ("a in b", "'a in b'"),
        ("a in (b", "'a in (b'"),
        ("a>1", "'a>1'"),
        ("a b", "'a b'"),
        ("!a=b", "'!a=b'"),
        ("-a=b", "'-a' cannot be the key"),
        ("A.B/c=d", "'A.B/c' cannot be the key"),
        ("a/b/c=d", "'a/b/c' cannot be the key"),
        ("a=b/c", "'b/c' cannot be the value"),
        ("a in (b, -c)", "'-c' cannot be the value"),
        (f"a={'x' * 64}", "cannot be the value"),
    ],
)
def test_what_is_no_selector_is_refused_with_the_part_that_is_wrong(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=re.escape(named)):
        parse(text)

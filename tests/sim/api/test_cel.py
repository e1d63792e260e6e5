"""Expressions: what they say of a value, and what is refused because nobody here understands it."""

from typing import Any

import pytest

from backstay.sim.api import cel

SELF: dict[str, Any] = {
    "n": 3,
    "f": 2.5,
    "text": "hello",
    "flag": True,
    "none": None,
    "list": [1, 2],
    "map": {"a": {"b": 1}},
}


def said(text: str, old: Any = None) -> Any:
    return cel.compiled(text).evaluate({"self": SELF, "oldSelf": old})


@pytest.mark.parametrize(
    "text",
    [
        "self.n == 3",
        "self.n != 4 && self.n >= 3 && self.n <= 3 && self.n > 2 && self.n < 4",
        "self.n > self.f",
        "self.n in [1, 2, 3]",
        "!(self.n in [])",
        "'a' in self.map",
        "self.map.a.b == 1",
        "self.map['a']['b'] == 1",
        "self.list[1] == 2",
        "self.list == [1, 2]",
        "self.map == self.map",
        "size(self.text) == 5 && self.list.size() == 2 && size(self.map) == 1",
        "has(self.map.a) && !has(self.map.c) && !has(self.nope.deeper)",
        "self.text.startsWith('he') && self.text.endsWith(\"lo\") && self.text.contains('ell')",
        "self.flag || self.nope",
        "self.nope || self.flag",
        "!(self.nope && !self.flag)",
        "self.none == null",
        "-1 < 0 && self.f == 2.5",
        "'it\\'s' == \"it's\"",
        "self.flag && !self.flag || true",
    ],
)
def test_what_is_so_is_true(text: str) -> None:
    assert said(text) is True


@pytest.mark.parametrize(
    "text", ["self.n == '3'", "1 == true", "self.list == [2, 1]", "!self.flag", "3 in self.list"]
)
def test_what_is_not_so_is_false(text: str) -> None:
    assert said(text) is False


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("self.nope == 1", "no such key: nope"),
        ("self.map['x'] == 1", "no such key: x"),
        ("self.list[2] == 1", "index out of bounds: 2"),
        ("self.n < 'x'", "no such overload"),
        ("self.n && self.flag", "no such overload"),
        ("size(self.n) == 1", "no such overload"),
        ("self.flag && self.nope", "no such key: nope"),
    ],
)
def test_what_makes_no_sense_fails(text: str, why: str) -> None:
    with pytest.raises(cel.Failed, match=why):
        said(text)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("self.list.all(x, x > 0)", "'all'"),
        ("self.text.matches('h.*')", "'matches'"),
        ("self.n + 1 == 4", r"'\+'"),
        ("self.n == 1 ? true : false", r"'\?'"),
        ("other.n == 1", "'other'"),
        ("int(self.n) == 1", "'int'"),
        ("self.n ==", "'the end'"),
        ("(self.n == 1", r"'\)' was expected"),
        ("self.n == 1 true", "'true'"),
        ("self.", "a name was expected"),
        ("(" * 100 + "true" + ")" * 100, "more than 30 levels"),
        ("{'a': 1} == self.map", r"'\{'"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(text: str, what: str) -> None:
    with pytest.raises(cel.NotUnderstood, match=what):
        cel.compiled(text)


def test_an_expression_says_whether_it_looks_back() -> None:
    assert cel.compiled("self == oldSelf").uses_old
    assert not cel.compiled("self == 'oldSelf'").uses_old
    assert said("self == oldSelf", SELF) is True

"""YAML from people is read as far as it is plain, and nothing in it can hurt."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from backstay.kube.plain_yaml import NotPlainYaml, read_plain_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("# only a comment", None),
        ("a: 1\nb: [x, 'y', 2.5]\n", {"a": 1, "b": ["x", "y", 2.5]}),
        ("{a: true, b: no, c: 'true'}", {"a": True, "b": False, "c": "true"}),
        ("{a: null, b: ~, c: , d: ''}", {"a": None, "b": None, "c": None, "d": ""}),
        ("{a: 0123, b: 1_000, c: 12:30:45}", {"a": "0123", "b": "1_000", "c": "12:30:45"}),
        ("a: 2030-01-01", {"a": "2030-01-01"}),
        ("a: !!str 7", {"a": "7"}),
        ("1: x", {"1": "x"}),
        ("a: |\n  two\n  lines\n", {"a": "two\nlines\n"}),
    ],
)
def test_it_reads_what_people_write(text: str, value: object) -> None:
    assert read_plain_yaml(text.encode()) == value


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a: &x 1\nb: *x\n", "line 2: aliases"),
        ("a: !!python/object/apply:os.system [id]", "line 1: tags"),
        ("a: !secret x", "line 1: tags"),
        ("a: [\n", "line 2: "),
        ("a: 1\n---\nb: 2\n", "line 2: a second document"),
        ("[a]: 1", "line 1: a key must be text"),
        ('a: "x\\0y"', "line 1: a NUL character"),
    ],
)
def test_what_it_refuses_is_named_with_its_line(text: str, where: str) -> None:
    with pytest.raises(NotPlainYaml, match=f"^{where}"):
        read_plain_yaml(text.encode())


@pytest.mark.parametrize("data", [b"a: \xff\xfe", b"\x00", b"a: \x01"])
def test_bytes_that_are_no_text_are_refused(data: bytes) -> None:
    with pytest.raises(NotPlainYaml):
        read_plain_yaml(data)


@pytest.mark.parametrize("opening", [b"[", b"{a: ", b"- "])
def test_endless_nesting_is_refused_before_it_exhausts_the_stack(opening: bytes) -> None:
    with pytest.raises(NotPlainYaml, match="levels deep"):
        read_plain_yaml(opening * 100_000)


def test_a_syntax_error_never_quotes_the_text_around_it() -> None:
    with pytest.raises(NotPlainYaml) as caught:
        read_plain_yaml(b"token: s3cr3t\n  oops: [}")
    assert "s3cr3t" not in str(caught.value)


_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | _text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_text, inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(_values)
def test_it_agrees_with_the_whole_of_yaml_on_plain_documents(value: object) -> None:
    written = yaml.safe_dump({"root": value}, allow_unicode=True)
    assert read_plain_yaml(written.encode()) == yaml.safe_load(written)

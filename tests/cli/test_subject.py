"""How a person names what a command is about."""

import click
import pytest

from backstay.cli.subject import Kind, Subject, parse, parse_node, unknown


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("node/n1", Subject(Kind.NODE, "", "n1")),
        ("nodes/n1", Subject(Kind.NODE, "", "n1")),
        ("vm/shop/web", Subject(Kind.VM, "shop", "web")),
        ("VM/shop/web", Subject(Kind.VM, "shop", "web")),
        ("vmi/shop/web", Subject(Kind.VM, "shop", "web")),
        ("pod/shop/db-0.x", Subject(Kind.POD, "shop", "db-0.x")),
    ],
)
def test_a_subject_is_a_kind_and_a_name(text: str, subject: Subject) -> None:
    assert parse(text) == subject


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("web", "is none of node/NAME"),
        ("", "is none of node/NAME"),
        ("disk/a/b", "is none of node/NAME"),
        ("vm/web", "is not complete"),
        ("vm//web", "is not complete"),
        ("node/a/b", "is not complete"),
        ("pod/shop/..", "can be nobody's name"),
        ("pod/shop/a%2Fb", "can be nobody's name"),
        ("node/n1,metadata.name=n2", "can be nobody's name"),
        ("node/N1", "can be nobody's name"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(text: str, words: str) -> None:
    with pytest.raises(click.BadParameter, match=words):
        parse(text)


def test_a_node_may_be_named_without_its_kind() -> None:
    assert parse_node("n1") == parse_node("node/n1") == "n1"


@pytest.mark.parametrize("text", ["vm/shop/web", "..", ""])
def test_what_is_no_node_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_node(text)


def test_what_there_is_not_is_met_with_near_names() -> None:
    asked = Subject(Kind.VM, "shop", "wep")
    assert unknown(asked, ["shop/web", "bank/vault"]).message == (
        "There is no VM shop/wep. Did you mean shop/web?"
    )
    assert unknown(asked, []).message == "There is no VM shop/wep."

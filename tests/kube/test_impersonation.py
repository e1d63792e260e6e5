"""Impersonation becomes headers, whole or not at all."""

from typing import Any

import pytest

from backstay.kube.errors import ConfigError
from backstay.kube.impersonation import impersonation
from backstay.kube.kubeconfig import User


def test_nobody_is_impersonated_unless_asked_for() -> None:
    assert impersonation(User(token="x"), "User 'ann'") == {}


def test_every_part_has_its_header() -> None:
    user = User(
        as_user="bob",
        as_uid="7",
        as_groups=("ops",),
        as_user_extra={"scopes": ("view",), "example.org/Team %": ("östlich",), "none": ()},
    )
    assert impersonation(user, "User 'ann'") == {
        "Impersonate-User": "bob",
        "Impersonate-Uid": "7",
        "Impersonate-Group": "ops",
        "Impersonate-Extra-scopes": "view",
        "Impersonate-Extra-example.org%2FTeam%20%25": "östlich",
    }


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"as_groups": ("ops",)}, "without as: name the user"),
        ({"as_uid": "7"}, "without as: name the user"),
        ({"as_user_extra": {"a": ("b",)}}, "without as: name the user"),
        ({"as_user": "bob", "as_groups": ("a", "b")}, "several values of Impersonate-Group"),
        ({"as_user": "bob\r\nX-Admin: 1"}, "line break"),
    ],
)
def test_what_cannot_be_sent_as_it_stands_is_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"^User 'ann' .*{sentence}"):
        impersonation(User(**fields), "User 'ann'")

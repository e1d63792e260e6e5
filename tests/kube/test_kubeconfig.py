"""Kubeconfig files are read and merged as kubectl reads and merges them."""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backstay.kube.errors import ConfigError
from backstay.kube.kubeconfig import MAX_SIZE, Kubeconfig, merge, parse_kubeconfig, read_kubeconfig
from tests.support.kubeconfigs import one_context, write
from tests.support.local import LocalFiles
from tests.support.virtual import virtual_time

KUBECTL = Path(sys.executable).parent / "kubectl"


def parse(text: str, file: str = "/etc/kube/config") -> Kubeconfig:
    return parse_kubeconfig(text.encode(), file)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "apiVersion: v1\nkind: Config\n",
        "{clusters: null, users: null, contexts: null, current-context: null}",
        "{preferences: {colors: true}, extensions: [{name: x, extension: 1}], new-field: [1, {}]}",
        "{clusters: [], users: [null]}",
    ],
)
def test_nothing_said_is_an_empty_config(text: str) -> None:
    assert parse(text).empty


def test_an_entry_without_content_is_still_an_entry() -> None:
    config = parse("{clusters: [{name: a, cluster: null}], users: [{name: b, user: null}]}")
    assert config.clusters["a"].value.server == ""
    assert config.users["b"].value.token == ""


def test_relative_paths_are_meant_from_the_directory_of_the_file() -> None:
    config = parse(
        """
        clusters: [{name: a, cluster: {certificate-authority: pki/ca.crt}}]
        users:
        - name: files
          user: {client-certificate: tls.crt, client-key: ../tls.key, tokenFile: /run/token}
        - name: relative
          user: {exec: {command: ./bin/login}}
        - name: absolute
          user: {exec: {command: /bin/login}}
        - name: on-path
          user: {exec: {command: login}}
        """
    )
    assert config.clusters["a"].value.certificate_authority == "/etc/kube/pki/ca.crt"
    user = config.users["files"].value
    assert user.client_certificate == "/etc/kube/tls.crt"
    assert os.path.normpath(user.client_key) == "/etc/tls.key"
    assert user.token_file == "/run/token"
    commands = {
        name: os.path.normpath(entry.value.exec.command)
        for name, entry in config.users.items()
        if entry.value.exec is not None
    }
    assert commands == {
        "relative": "/etc/kube/bin/login",
        "absolute": "/bin/login",
        "on-path": "login",
    }


def test_an_extension_keeps_its_nulls_and_types() -> None:
    extension = {"audience": "x", "retries": 3, "strict": True, "none": None}
    config = parse(
        json.dumps(one_context(cluster={"extensions": [{"name": "e", "extension": extension}]}))
    )
    assert config.clusters["east"].value.extensions[0].extension == extension


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[1]", "no mapping of clusters"),
        ("just text", "no mapping of clusters"),
        ("a: [", "not YAML that can be read"),
        ("kind: Deployment", "its kind is not Config"),
        ("clusters: {}", r"Expected `array`, got `object` - at `\$\.clusters`"),
        ("contexts: [{name: 1}]", r"`\$\.contexts\[0\]\.name`; put text .* in quotes"),
        ("users: [{name: a}, {name: a}]", "two users named 'a': remove one"),
    ],
)
def test_what_is_no_kubeconfig_is_refused_with_the_file_and_the_place(
    text: str, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        parse(text)
    assert "/etc/kube/config" in str(caught.value)


def test_secrets_are_in_no_repr() -> None:
    plugin = {"command": "x", "args": ["s3cr3t"], "env": [{"name": "A", "value": "s3cr3t"}]}
    user = {"token": "s3cr3t", "password": "s3cr3t", "client-key-data": "s3cr3t", "exec": plugin}
    proxy = {"proxy-url": "http://me:s3cr3t@proxy"}
    assert "s3cr3t" not in repr(parse(json.dumps(one_context(user=user, cluster=proxy))))


def test_a_refusal_does_not_quote_the_value() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("users: [{name: a, user: {token: [s3cr3t]}}]")
    assert "s3cr3t" not in str(caught.value)


@virtual_time
async def test_a_file_too_large_to_be_a_kubeconfig_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "config"
    with path.open("wb") as file:
        file.truncate(MAX_SIZE + 1)
    files = LocalFiles()
    with pytest.raises(ConfigError, match="bytes long"):
        await read_kubeconfig(files, str(path))
    assert files.reads.total() == 0


@virtual_time
async def test_a_directory_is_a_sentence_and_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        await read_kubeconfig(LocalFiles(), str(tmp_path))
    with pytest.raises(FileNotFoundError):
        await read_kubeconfig(LocalFiles(), str(tmp_path / "config"))


# Anything at all under names that mean something reaches deeper than anything at all.
_names = st.sampled_from(
    ["clusters", "users", "contexts", "current-context", "name", "cluster", "user", "context",
     "server", "token", "tokenFile", "exec", "env", "args", "as-groups", "as-user-extra",
     "extensions", "extension", "certificate-authority", "insecure-skip-tls-verify", "kind"]
)  # fmt: skip
_junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_names, inner, max_size=6),
    max_leaves=25,
)


@settings(max_examples=100, deadline=None)
@given(_junk.map(json.dumps) | st.text())
def test_junk_raises_nothing_but_config_errors(text: str) -> None:
    with suppress(ConfigError):
        parse_kubeconfig(text.encode("utf-8", "surrogatepass"), "config")


@settings(max_examples=100, deadline=None)
@given(st.binary())
def test_junk_bytes_raise_nothing_but_config_errors(data: bytes) -> None:
    with suppress(ConfigError):
        parse_kubeconfig(data, "config")


def test_the_first_file_that_sets_it_decides_about_the_current_context() -> None:
    said = ["current-context: ''", "current-context: a", "current-context: b"]
    assert merge([parse(text) for text in said]).current_context == "a"


# Few names and many files, so that they collide.
_name = st.sampled_from(["a", "b", "c"])


def _section(key: str, content: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    entry = st.fixed_dictionaries({"name": _name}, optional={key: content})
    return st.none() | st.lists(entry, max_size=3, unique_by=lambda item: str(item["name"]))


_files = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "current-context": st.sampled_from(["a", "b", "", None]),
            "clusters": _section(
                "cluster",
                st.none()
                | st.fixed_dictionaries(
                    {"server": st.integers(1, 9).map(lambda n: f"https://192.0.2.{n}:6443")},
                    optional={"tls-server-name": st.sampled_from(["x", "y", None])},
                ),
            ),
            "users": _section(
                "user",
                st.sampled_from(
                    [None, {}, {"token": "t"}, {"token": None}, {"username": "n", "password": "p"}]
                ),
            ),
            "contexts": _section(
                "context",
                st.none()
                | st.fixed_dictionaries(
                    {"cluster": _name, "user": _name},
                    optional={"namespace": st.sampled_from(["ns", "", None])},
                ),
            ),
        },
    ),
    min_size=1,
    max_size=3,
)


def kubectl_view(kubeconfig: str) -> dict[str, Any]:
    view = subprocess.run(
        [KUBECTL, "config", "view", "--raw", "-o", "json"],
        env={"KUBECONFIG": kubeconfig}, capture_output=True, check=True,
    )  # fmt: skip
    seen: dict[str, Any] = json.loads(view.stdout)
    return seen


@settings(max_examples=20, deadline=None)
@given(_files)
def test_a_list_of_files_merges_into_what_kubectl_shows(contents: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        paths = [write(Path(directory, str(i)), content) for i, content in enumerate(contents)]
        theirs = kubectl_view(os.pathsep.join([*paths, f"{directory}/missing"]))
        ours = merge([parse_kubeconfig(Path(path).read_bytes(), path) for path in paths])

    def by_name(section: str, key: str) -> dict[str, dict[str, Any]]:
        return {entry["name"]: entry[key] for entry in theirs[section] or []}

    assert ours.current_context == theirs["current-context"]
    assert {
        name: {"server": entry.value.server, "tls-server-name": entry.value.tls_server_name}
        for name, entry in ours.clusters.items()
    } == {
        name: {"tls-server-name": "", **cluster}
        for name, cluster in by_name("clusters", "cluster").items()
    }
    assert {
        name: (entry.value.token, entry.value.username, entry.value.password)
        for name, entry in ours.users.items()
    } == {
        name: tuple(user.get(key, "") for key in ("token", "username", "password"))
        for name, user in by_name("users", "user").items()
    }
    assert {
        name: (entry.value.cluster, entry.value.user, entry.value.namespace)
        for name, entry in ours.contexts.items()
    } == {
        name: tuple(context.get(key, "") for key in ("cluster", "user", "namespace"))
        for name, context in by_name("contexts", "context").items()
    }

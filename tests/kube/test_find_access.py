"""The cluster that is meant is the one that kubectl would talk to."""

import base64
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from backstay.kube.access import Access
from backstay.kube.client import KubeClient
from backstay.kube.errors import ConfigError
from backstay.kube.find_access import find_access
from backstay.kube.in_cluster import SERVICE_ACCOUNT
from backstay.kube.resource import NODES
from backstay.seam import Seams
from backstay.seam.real import open_seams
from backstay.seam.serve import Answer, Inbound, ServerTls
from backstay.sim import loop
from tests.support.kubeconfigs import one_context, write
from tests.support.local import LocalSeams
from tests.support.virtual import virtual_time

KUBECTL = Path(sys.executable).parent / "kubectl"
NOBODY_THERE = "https://127.0.0.1:1"
V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"
IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def find(environ: Mapping[str, str], *, root: Path | None = None, **wanted: Any) -> Access:
    """What is found, with a file system of its own below ``root``."""
    return loop.run(find_access(LocalSeams(root), environ=environ, **wanted))


def mount_service_account(root: Path) -> None:
    directory = root / SERVICE_ACCOUNT.lstrip("/")
    directory.mkdir(parents=True)
    (directory / "namespace").write_text("in-cluster")


def server(number: int) -> dict[str, Any]:
    return one_context(cluster={"server": f"https://192.0.2.{number}:6443"})


def test_an_explicit_file_wins_over_everything(tmp_path: Path) -> None:
    mount_service_account(tmp_path)
    write(tmp_path / "explicit", server(1))
    write(tmp_path / "listed", server(2))
    write(tmp_path / "home/.kube/config", server(3))
    environ = {"KUBECONFIG": "/listed", "HOME": "/home", **IN_A_POD}
    assert find(environ, root=tmp_path, kubeconfig="/explicit").server == "https://192.0.2.1:6443"
    assert find(environ, root=tmp_path).server == "https://192.0.2.2:6443"
    del environ["KUBECONFIG"]
    assert find(environ, root=tmp_path).server == "https://192.0.2.3:6443"
    del environ["HOME"]
    assert find(environ, root=tmp_path).server == "https://10.96.0.1:443"


def test_an_explicit_file_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="There is no kubeconfig /missing: check --kubeconfig"):
        find({}, root=tmp_path, kubeconfig="/missing")


def test_missing_files_in_the_list_do_not_count(tmp_path: Path) -> None:
    write(tmp_path / "there", server(1))
    environ = {"KUBECONFIG": ":/missing::/there:"}
    assert find(environ, root=tmp_path).server == "https://192.0.2.1:6443"


def test_a_list_of_missing_files_does_not_fall_back_to_home(tmp_path: Path) -> None:
    write(tmp_path / "home/.kube/config", server(1))
    with pytest.raises(ConfigError, match="KUBECONFIG names /missing, where nothing"):
        find({"KUBECONFIG": "/missing", "HOME": "/home"}, root=tmp_path)


@pytest.mark.parametrize("content", ["", "kind: Config", "{clusters: [], contexts: null}"])
def test_a_pod_uses_its_service_account_when_the_files_say_nothing(
    tmp_path: Path, content: str
) -> None:
    mount_service_account(tmp_path)
    (tmp_path / "config").write_text(content)
    access = find({"KUBECONFIG": "/config", **IN_A_POD}, root=tmp_path)
    assert access.namespace == "in-cluster"


def test_a_context_that_is_asked_for_is_never_replaced_by_the_service_account(
    tmp_path: Path,
) -> None:
    mount_service_account(tmp_path)
    with pytest.raises(ConfigError, match="service account of this pod has no context 'prod'"):
        find(IN_A_POD, root=tmp_path, context="prod")


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        (
            {"HOME": "/home/ann"},
            "No cluster to talk to: the default is /home/ann/.kube/config, where nothing is "
            "configured, and this is not a pod (KUBERNETES_SERVICE_HOST is not set); give "
            "--kubeconfig or set KUBECONFIG.",
        ),
        (
            {"KUBECONFIG": "/a:/b"},
            "No cluster to talk to: KUBECONFIG names /a and /b, where nothing is configured, and "
            "this is not a pod (KUBERNETES_SERVICE_HOST is not set); give --kubeconfig or set "
            "KUBECONFIG.",
        ),
        (
            {},
            "No cluster to talk to: neither KUBECONFIG nor HOME is set, and this is not a pod "
            "(KUBERNETES_SERVICE_HOST is not set); give --kubeconfig or set KUBECONFIG.",
        ),
    ],
)
def test_finding_nothing_says_where_it_looked(
    tmp_path: Path, environ: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        find(environ, root=tmp_path)
    assert str(caught.value) == sentence


def test_one_broken_file_in_the_list_is_not_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "good", server(1))
    (tmp_path / "broken").write_text("{")
    with pytest.raises(ConfigError, match="kubeconfig /broken is not YAML"):
        find({"KUBECONFIG": "/good:/broken"}, root=tmp_path)


def kubectl(*args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.defpath, "HOME": "/nonexistent", **environ}
    return subprocess.run([KUBECTL, *args], env=env, capture_output=True, text=True, check=False)


def kubectl_resolves(kubeconfig: str, context: str) -> tuple[str, str, str]:
    """Server, namespace and kind of user, as kubectl shows them."""
    view = kubectl(
        "config", "view", "--raw", "--minify", "-o", "json", "--context", context,
        KUBECONFIG=kubeconfig,
    )  # fmt: skip
    config = json.loads(view.stdout)
    user = config["users"][0]["user"] if config["users"] else {}
    kinds = {"token": "Bearer", "username": "Basic", "exec": "plugin"}
    kind = next((kinds[field] for field in kinds if field in user), "anonymous")
    namespace = config["contexts"][0]["context"].get("namespace", "default")
    return config["clusters"][0]["cluster"]["server"], namespace, kind


async def we_resolve(kubeconfig: str, context: str) -> tuple[str, str, str]:
    seams = LocalSeams()
    access = await find_access(seams, environ={"KUBECONFIG": kubeconfig}, context=context)
    grant = await access.grant()
    kind = grant.headers.get("Authorization", "anonymous").split()[0]
    return access.server, access.namespace, "plugin" if seams.exec.commands else kind


PLUGIN = {
    "apiVersion": V1,
    "command": "printf",
    "args": [json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": {"token": "x"}})],
    "interactiveMode": "Never",
}
# Every name is in at least two files with a different meaning, so that each order of the files
# is another configuration.
COLLIDING: list[dict[str, Any]] = [
    {
        "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": "https://192.0.2.1"}}],
        "users": [{"name": "a", "user": {"token": "t"}}, {"name": "b", "user": None}],
        "contexts": [
            {"name": "a", "context": {"cluster": "a", "user": "a", "namespace": "one"}},
            {"name": "b", "context": {"cluster": "b", "user": "b", "namespace": None}},
        ],
    },
    {
        "current-context": "b",
        "clusters": [
            {"name": "a", "cluster": {"server": "https://192.0.2.2"}},
            {"name": "b", "cluster": {"server": "https://192.0.2.3"}},
        ],
        "users": [{"name": "a", "user": {"username": "n", "password": "p"}}],
        "contexts": [{"name": "a", "context": {"cluster": "b", "user": "b"}}],
    },
    {
        "clusters": [{"name": "b", "cluster": {"server": "https://192.0.2.4"}}],
        "users": [{"name": "b", "user": {"exec": PLUGIN}}],
        "contexts": [{"name": "b", "context": {"cluster": "a", "user": "a", "namespace": "two"}}],
    },
]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_contexts_resolve_as_in_kubectl_whatever_the_order_of_the_files(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    paths = [write(tmp_path / str(number), COLLIDING[number]) for number in order]
    listed = os.pathsep.join(paths)
    for context in ("a", "b", ""):
        assert loop.run(we_resolve(listed, context)) == kubectl_resolves(listed, context)


CA_DATA = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()
CERT = {"client-certificate-data": CA_DATA}
AUTH_PROVIDER = {"auth-provider": {"name": "gcp"}}


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"user": {"token": "x"}},
        {"user": {"username": "x", "password": "y"}},
        {"user": {"token": "x", "exec": PLUGIN}},
        {"user": {"token": "x", "as": "bob", "as-groups": ["ops"]}},
        {"cluster": {"tls-server-name": "x", "disable-compression": True}},
        {"cluster": {"server": ""}},
        {"cluster": {"insecure-skip-tls-verify": True, "certificate-authority-data": CA_DATA}},
        {"cluster": {"certificate-authority-data": "!"}},
        {"cluster": {"certificate-authority": "missing.crt"}},
        {"cluster": {"proxy-url": "ftp://proxy"}},
        {"context": {"cluster": "west"}},
        {"context": {"user": "bob"}},
        {"user": {"token": "x", "username": "y"}},
        {"user": {"tokenFile": "missing"}},
        {"user": CERT},
        {"user": CERT | {"client-key-data": CA_DATA}},
        {"user": {"as-groups": ["ops"]}},
        {"user": AUTH_PROVIDER},
        {"user": {"exec": PLUGIN | {"command": ""}}},
        {"user": {"exec": PLUGIN | {"interactiveMode": None}}},
        {"user": {"exec": PLUGIN | {"interactiveMode": "Always"}}},
        {"user": {"exec": PLUGIN | {"apiVersion": V1BETA1}}},
        {"user": {"exec": PLUGIN | {"apiVersion": "client.authentication.k8s.io/v1alpha1"}}},
        {"user": {"exec": PLUGIN | {"command": "no-such-plugin"}}},
        {"user": {"exec": PLUGIN | {"env": [{"name": "", "value": "x"}]}}},
    ],
    ids=lambda parts: json.dumps(parts)[:60],
)
def test_what_kubectl_refuses_is_refused_and_nothing_else(
    tmp_path: Path, parts: dict[str, Any]
) -> None:
    cluster = {"server": NOBODY_THERE} | parts.get("cluster", {})
    user = parts.get("user", {"token": "x"})  # kubectl would ask a user without any for a name
    content = one_context(cluster=cluster, user=user, context=parts.get("context"))
    path = write(tmp_path / "config", content)
    theirs = kubectl("get", "--raw", "/version", "--kubeconfig", path)
    they_accept = "127.0.0.1:1" in theirs.stderr and "refused" in theirs.stderr

    async def we_accept() -> bool:
        environ = {"PATH": os.defpath}
        try:
            access = await find_access(LocalSeams(), environ=environ, kubeconfig=path)
            await access.grant()
        except ConfigError:
            return False
        return True

    assert loop.run(we_accept()) == they_accept, theirs.stderr


@pytest.mark.parametrize("version", [V1, V1BETA1])
@pytest.mark.parametrize("provide", [True, False])
def test_a_plugin_is_told_what_kubectl_would_tell_it(
    tmp_path: Path, version: str, provide: bool
) -> None:
    told = tmp_path / "told"
    (tmp_path / "bin").mkdir()
    plugin = tmp_path / "bin" / "plugin"
    plugin.write_text(f'#!/bin/sh\nprintf "$REGION:%s" "$KUBERNETES_EXEC_INFO" > {told}\nexit 1\n')
    plugin.chmod(0o755)
    (tmp_path / "ca.crt").write_bytes(base64.b64decode(CA_DATA))
    content = one_context(
        cluster={
            "server": NOBODY_THERE,
            "certificate-authority": "ca.crt",
            "tls-server-name": "kube.example.org",
            "proxy-url": "http://127.0.0.1:1",
            "extensions": [
                {"name": "other", "extension": {"x": 1}},
                {
                    "name": "client.authentication.k8s.io/exec",
                    "extension": {"audience": "backstay", "retries": 3, "none": None},
                },
            ],
        },
        user={
            "exec": {
                "apiVersion": version,
                "command": "./bin/plugin",
                "env": [{"name": "REGION", "value": "east"}],
                "interactiveMode": "IfAvailable",
                "provideClusterInfo": provide,
            }
        },
    )
    path = write(tmp_path / "config", content)

    kubectl("get", "--raw", "/version", "--kubeconfig", path)
    region, _, question = told.read_text().partition(":")
    told.unlink()

    async def ask() -> None:
        access = await find_access(LocalSeams(), environ={"REGION": "west"}, kubeconfig=path)
        with pytest.raises(ConfigError, match="ended with code 1"):
            await access.grant()

    loop.run(ask())
    our_region, _, our_question = told.read_text().partition(":")
    assert our_region == region == "east"
    assert json.loads(our_question) == json.loads(question)


_values = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
_lists = st.lists(_values, max_size=2)
_odd: st.SearchStrategy[Any] = _values | _lists | st.lists(_lists, max_size=2) | st.just({})


def _entry(*fields: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(fields), _odd, max_size=3)


@settings(max_examples=100, deadline=None)
@given(
    cluster=_entry(
        "server", "certificate-authority", "certificate-authority-data", "proxy-url",
        "tls-server-name", "insecure-skip-tls-verify", "extensions",
    ),
    user=_entry(
        "token", "tokenFile", "username", "password", "client-certificate", "client-key",
        "client-certificate-data", "client-key-data", "as", "as-uid", "as-groups",
        "as-user-extra", "auth-provider", "exec",
    ),
    plugin=_entry("command", "args", "env", "apiVersion", "interactiveMode", "installHint"),
    context=_entry("cluster", "user", "namespace"),
)  # fmt: skip
def test_odd_entries_raise_nothing_but_config_errors(
    cluster: dict[str, Any], user: dict[str, Any], plugin: dict[str, Any], context: dict[str, Any]
) -> None:
    if "exec" in user:
        # Without a slash and a PATH there is nothing that it could run.
        user["exec"] = {**PLUGIN, **plugin, "command": "no-such-plugin"}

    async def grant(path: str) -> None:
        access = await find_access(LocalSeams(), environ={}, kubeconfig=path)
        await access.grant()

    with tempfile.TemporaryDirectory() as directory, suppress(ConfigError):
        content = one_context(cluster=cluster, user=user, context=context)
        loop.run(grant(write(Path(directory, "config"), content)))


async def get_node(seams: Seams, kubeconfig: str) -> bytes:
    access = await find_access(seams, environ={}, kubeconfig=kubeconfig)
    return (await KubeClient(seams.transport, access).get(NODES, "n1")).body


async def test_a_client_certificate_and_a_rotated_token_reach_a_real_server(
    tmp_path: Path,
) -> None:
    authority = trustme.CA()
    serving, client = authority.issue_cert("127.0.0.1"), authority.issue_cert("ann@example.org")
    token = tmp_path / "token"
    token.write_text("one")
    seen = []

    async def api(request: Inbound) -> Answer:
        seen.append(request.headers["authorization"])
        if len(seen) == 1:
            os.remove(token)
            (tmp_path / "token").write_text("two")
        return Answer(status=200 if seen[-1] == "Bearer two" else 401, body=b"{}")

    tls = ServerTls(
        cert=serving.cert_chain_pems[0].bytes(),
        key=serving.private_key_pem.bytes(),
        client_ca=authority.cert_pem.bytes(),
    )
    async with open_seams() as seams:
        listener = await seams.serve.listen(api, tls=tls)
        try:
            content = one_context(
                cluster={
                    "server": listener.url,
                    "certificate-authority-data": _b64(authority.cert_pem),
                },
                user={
                    "tokenFile": "token",
                    "client-certificate-data": _b64(client.cert_chain_pems[0]),
                    "client-key-data": _b64(client.private_key_pem),
                },
            )
            assert await get_node(seams, write(tmp_path / "config", content)) == b"{}"
        finally:
            await listener.close()
    assert seen == ["Bearer one", "Bearer two"]


def _b64(blob: trustme.Blob) -> str:
    return base64.b64encode(blob.bytes()).decode()


@virtual_time
async def test_finding_an_access_runs_no_plugin_and_reads_no_credential(tmp_path: Path) -> None:
    seams = LocalSeams()
    path = write(tmp_path / "config", one_context(user={"exec": PLUGIN}))
    await find_access(seams, environ={}, kubeconfig=path)
    assert seams.exec.commands == []
    assert list(seams.files.reads) == [path]

"""A context becomes an access, or a sentence that says which entry to change."""

import base64
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme

from backstay.kube.configured_access import ConfiguredAccess
from backstay.kube.context_access import context_access
from backstay.kube.errors import ConfigError
from backstay.kube.kubeconfig import parse_kubeconfig
from backstay.seam.transport import Tls
from tests.support.kubeconfigs import SERVER, one_context
from tests.support.local import LocalSeams
from tests.support.virtual import virtual_time

EXEC = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "command": "/bin/false",
    "interactiveMode": "Never",
}


def access_to(
    content: dict[str, Any],
    *,
    name: str | None = None,
    file: str = "/home/ann/.kube/config",
    environ: Mapping[str, str] | None = None,
) -> ConfiguredAccess:
    config = parse_kubeconfig(json.dumps(content).encode(), file)
    return context_access(config, name, seams=LocalSeams(), environ=environ or {}, terminal=False)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def leaf(authority: trustme.CA) -> trustme.LeafCert:
    return authority.issue_cert("ann@example.org")


def test_the_context_says_where_and_who_and_where_from() -> None:
    access = access_to(one_context(context={"namespace": "ops"}), environ={"HOME": "/home/ann"})
    assert access.server == SERVER
    assert access.namespace == "ops"
    assert access.origin == "context 'prod' of ~/.kube/config"


@pytest.mark.parametrize("namespace", [None, ""])
def test_a_context_without_namespace_means_default(namespace: str | None) -> None:
    assert access_to(one_context(context={"namespace": namespace})).namespace == "default"


@pytest.mark.parametrize("home", [None, "", "/", "/home/an", "/root"])
def test_a_file_outside_home_is_named_in_full(home: str | None) -> None:
    access = access_to(one_context(), environ={} if home is None else {"HOME": home})
    assert access.origin.endswith(" of /home/ann/.kube/config")


@pytest.mark.parametrize(
    ("server", "seen"),
    [
        ("https://example.org/", "https://example.org"),
        ("HTTPS://example.org:443/k8s/clusters/c-1/", "https://example.org:443/k8s/clusters/c-1"),
        ("https://[fd00::1]:6443", "https://[fd00::1]:6443"),
        ("http://127.0.0.1:8001", "http://127.0.0.1:8001"),
    ],
)
def test_a_server_may_have_a_path_and_needs_no_port(server: str, seen: str) -> None:
    assert access_to(one_context(cluster={"server": server})).server == seen


@virtual_time
async def test_inline_data_wins_over_files(authority: trustme.CA, leaf: trustme.LeafCert) -> None:
    ca, cert, key = (
        authority.cert_pem.bytes(),
        leaf.cert_chain_pems[0].bytes(),
        leaf.private_key_pem.bytes(),
    )
    access = access_to(
        one_context(
            cluster={"certificate-authority-data": b64(ca), "certificate-authority": "/missing"},
            user={
                "client-certificate-data": b64(cert),
                "client-certificate": "/missing",
                "client-key-data": b64(key),
                "client-key": "/missing",
            },
        )
    )
    grant = await access.grant()
    assert grant.headers == {}
    assert grant.tls == Tls(ca=ca, cert=cert, key=key)


@virtual_time
async def test_files_are_found_beside_the_kubeconfig(
    tmp_path: Path, authority: trustme.CA, leaf: trustme.LeafCert
) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    leaf.cert_chain_pems[0].write_to_path(str(tmp_path / "tls.crt"))
    leaf.private_key_pem.write_to_path(str(tmp_path / "tls.key"))
    access = access_to(
        one_context(
            cluster={"certificate-authority": "ca.crt"},
            user={"client-certificate": "tls.crt", "client-key": "./tls.key"},
        ),
        file=str(tmp_path / "config"),
    )
    grant = await access.grant()
    assert grant.tls == Tls(
        ca=authority.cert_pem.bytes(),
        cert=leaf.cert_chain_pems[0].bytes(),
        key=leaf.private_key_pem.bytes(),
    )


@virtual_time
async def test_a_token_file_wins_over_a_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file")
    user = {"token": "inline", "tokenFile": "token"}
    grant = await access_to(one_context(user=user), file=str(tmp_path / "config")).grant()
    assert grant.headers == {"Authorization": "Bearer from-file"}


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ({"token": "inline"}, "Bearer inline"),
        ({"username": "ann", "password": "pw"}, "Basic YW5uOnB3"),
        ({"token": "inline", "exec": EXEC}, "Bearer inline"),
    ],
    ids=["token", "password", "token before plugin"],
)
@virtual_time
async def test_what_stands_in_the_file_is_sent(user: dict[str, Any], header: str) -> None:
    grant = await access_to(one_context(user=user)).grant()
    assert grant.headers == {"Authorization": header}


@virtual_time
async def test_a_user_without_credentials_is_anonymous_over_verified_tls() -> None:
    for content in (one_context(), one_context(context={"user": None})):
        grant = await access_to(content).grant()
        assert grant.headers == {}
        assert grant.tls == Tls()


@virtual_time
async def test_the_grant_carries_server_name_proxy_and_impersonation() -> None:
    access = access_to(
        one_context(
            cluster={"tls-server-name": "kube.example.org", "proxy-url": "http://proxy:3128"},
            user={"token": "x", "as": "bob", "as-groups": ["ops"]},
        )
    )
    grant = await access.grant()
    assert grant.tls == Tls(server_name="kube.example.org")
    assert grant.proxy == "http://proxy:3128"
    assert grant.headers == {
        "Authorization": "Bearer x",
        "Impersonate-User": "bob",
        "Impersonate-Group": "ops",
    }


@virtual_time
async def test_only_a_person_who_says_so_goes_without_verification() -> None:
    grant = await access_to(one_context(cluster={"insecure-skip-tls-verify": True})).grant()
    assert grant.tls == Tls(verify=False)


@virtual_time
async def test_no_credential_leaves_over_plain_http(caplog: pytest.LogCaptureFixture) -> None:
    access = access_to(
        one_context(
            cluster={"server": "http://127.0.0.1:8001"}, user={"token": "s3cr3t", "as": "bob"}
        )
    )
    grant = await access.grant()
    assert grant.tls is None
    assert grant.headers == {"Impersonate-User": "bob"}
    assert "plain HTTP: no credentials are sent" in caplog.text


@virtual_time
async def test_a_refusal_counts_only_against_the_newest_grant(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    access = access_to(one_context(user={"tokenFile": str(token)}))
    first = await access.grant()
    os.remove(token)
    (tmp_path / "token").write_text("two")
    access.refused(first)
    second = await access.grant()
    assert second != first
    os.remove(token)
    access.refused(first)
    assert await access.grant() == second
    access.refused(second)
    with pytest.raises(ConfigError, match="there is no file"):
        await access.grant()


@virtual_time
async def test_a_refusal_makes_it_look_at_the_authority_too(
    tmp_path: Path, authority: trustme.CA
) -> None:
    path = tmp_path / "ca.crt"
    authority.cert_pem.write_to_path(str(path))
    access = access_to(one_context(cluster={"certificate-authority": str(path)}))
    grant = await access.grant()
    renewed = trustme.CA().cert_pem
    renewed.write_to_path(str(path))
    access.refused(grant)
    assert (await access.grant()).tls == Tls(ca=renewed.bytes())


ONE_CERT = {"client-certificate-data": b64(b"cert")}


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"cluster": {"server": ""}}, "Cluster 'east' in FILE has no server"),
        ({"cluster": {"server": None}}, "has no server"),
        ({"cluster": {"server": "192.0.2.1:6443"}}, "not a URL of the form https://host:port"),
        ({"cluster": {"server": "localhost:6443"}}, "not a URL of the form"),
        ({"cluster": {"server": "ftp://host"}}, "not a URL of the form"),
        ({"cluster": {"server": "https://"}}, "not a URL of the form"),
        ({"cluster": {"server": "https://host:port"}}, "not a URL of the form"),
        ({"cluster": {"server": "https://ho st"}}, "not a URL of the form"),
        ({"cluster": {"server": "https://[::1"}}, "not a URL of the form"),
        ({"cluster": {"server": "https://me:s3cr3t@host"}}, "credentials belong to a user"),
        ({"cluster": {"server": "https://host?x=s3cr3t"}}, "remove it"),
        ({"cluster": {"proxy-url": "socks5://me:s3cr3t@host"}}, "SOCKS is not supported"),
        ({"cluster": {"proxy-url": "host:3128"}}, "proxy-url that is not http://"),
        ({"cluster": {"certificate-authority-data": "s3cr3t!"}}, "not base64"),
        (
            {"cluster": {"insecure-skip-tls-verify": True, "certificate-authority": "ca.crt"}},
            "certificate authority and insecure-skip-tls-verify: remove one",
        ),
        ({"user": {"client-key-data": "s3cr3t!"}}, "client-key-data that is not base64"),
        ({"user": ONE_CERT}, "has a client certificate but no client key: set client-key or"),
        ({"user": {"client-key": "tls.key"}}, "has a client key but no client certificate"),
        ({"user": {"token": "s3cr3t", "password": "s3cr3t"}}, "both a token and a password"),
        ({"user": {"auth-provider": {"name": "gcp"}}}, "no longer has: use an exec plugin"),
        ({"user": {"as-uid": "1"}}, "User 'ann' in FILE sets as-uid"),
        ({"user": {"exec": {}}}, "The credential plugin '' of user 'ann' in FILE has no command"),
        ({"context": {"cluster": "west"}}, "names the cluster 'west', which is not in"),
        ({"context": {"cluster": None}}, "Context 'prod' in FILE names no cluster"),
        ({"context": {"user": "bob"}}, "names the user 'bob', which is not in"),
    ],
)
def test_an_entry_that_cannot_work_is_named_with_its_file(
    parts: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        access_to(one_context(**parts))
    said = str(caught.value).replace("/home/ann/.kube/config", "FILE")
    assert sentence in said
    assert "FILE" in said
    assert "s3cr3t" not in said


@pytest.mark.parametrize(
    ("user", "sentence"),
    [
        ({"token": "a b"}, "The token of user 'ann' in .* cannot be used: it contains characters"),
        ({"tokenFile": "/missing/token"}, "there is no file /missing/token"),
        (
            {"client-certificate-data": b64(b"s3cr3t"), "client-key-data": b64(b"s3cr3t")},
            "The client certificate of user 'ann' in .* no complete certificate and key",
        ),
    ],
)
@virtual_time
async def test_a_credential_that_cannot_work_is_named_when_it_is_needed(
    user: dict[str, Any], sentence: str
) -> None:
    access = access_to(one_context(user=user))
    with pytest.raises(ConfigError, match=sentence) as caught:
        await access.grant()
    assert "s3cr3t" not in str(caught.value)


def test_an_unknown_context_is_told_the_known_ones_and_the_likely_one() -> None:
    content = one_context()
    content["contexts"] += [{"name": "staging", "context": {}}]
    with pytest.raises(ConfigError) as caught:
        access_to(content, name="prd")
    assert str(caught.value) == (
        "The kubeconfig has no context 'prd', did you mean 'prod'? It has prod, staging."
    )
    with pytest.raises(ConfigError, match=r"no context 'zzz': it has prod, staging\."):
        access_to(content, name="zzz")


def test_without_a_current_context_the_known_ones_are_named() -> None:
    with pytest.raises(ConfigError, match=r"no current-context: .* \(it has prod\)"):
        access_to(one_context() | {"current-context": ""})


def test_many_contexts_are_not_all_listed() -> None:
    contexts = [{"name": f"c{number:03}", "context": {}} for number in range(500)]
    with pytest.raises(ConfigError, match="c019 and 480 more"):
        access_to({"contexts": contexts})


def test_a_kubeconfig_without_contexts_says_so() -> None:
    with pytest.raises(ConfigError, match="has no contexts: add one"):
        access_to({"clusters": [{"name": "east"}], "current-context": "prod"})

"""The ``LS_`` variables: where the controllers are, and how they know us."""

import pytest
import trustme

from backstay.drivers.linstor.access import access_from
from backstay.drivers.linstor.errors import Misconfigured
from backstay.kube.credentials import InFile, Inline

AUTHORITY = trustme.CA()
CA = AUTHORITY.cert_pem.bytes().decode()
IDENTITY = AUTHORITY.issue_cert("backstay")
CERT = IDENTITY.cert_chain_pems[0].bytes().decode()
KEY = IDENTITY.private_key_pem.bytes().decode()


@pytest.mark.parametrize(
    ("listed", "url"),
    [
        (None, "http://localhost:3370"),
        ("", "http://localhost:3370"),
        (" , ", "http://localhost:3370"),
        ("just.domain", "http://just.domain:3370"),
        ("Just.Domain/", "http://just.domain:3370"),
        ("linstor://just.domain", "http://just.domain:3370"),
        ("linstor://just.domain:4000", "http://just.domain:4000"),
        ("linstor+ssl://just.domain", "https://just.domain:3371"),
        ("just.domain:4000", "http://just.domain:4000"),
        ("http://just.domain", "http://just.domain:3370"),
        ("HTTP://just.domain", "http://just.domain:3370"),
        ("https://just.domain", "https://just.domain:3371"),
        ("https://just.domain:4000", "https://just.domain:4000"),
        ("10.0.0.1", "http://10.0.0.1:3370"),
        ("linstor_controller", "http://linstor_controller:3370"),
        ("[fe80::1]", "http://[fe80::1]:3370"),
        ("http://[fe80::0:1]:3370", "http://[fe80::1]:3370"),
        ("https://[::1]", "https://[::1]:3371"),
    ],
)
def test_a_controller_is_named_in_any_of_these_ways(listed: str | None, url: str) -> None:
    environment = {} if listed is None else {"LS_CONTROLLERS": listed}
    assert access_from(environment).controllers == (url,)


@pytest.mark.parametrize(
    "variable",
    [
        {"LS_ROOT_CA": CA},
        {"LS_ROOT_CA": ""},
        {"LS_ROOT_CA_FILE": "/ca.crt"},
        {"LS_USER_CERTIFICATE": CERT, "LS_USER_KEY": KEY},
        {"LS_USER_CERTIFICATE_FILE": "/tls.crt", "LS_USER_KEY_FILE": "/tls.key"},
        {"LS_USER_CERTIFICATE": CERT, "LS_USER_KEY_FILE": "/tls.key"},
    ],
)
@pytest.mark.parametrize(
    ("listed", "url"),
    [
        ("just.domain", "https://just.domain:3371"),
        ("just.domain:4000", "https://just.domain:4000"),
        ("linstor://just.domain", "https://just.domain:3371"),
        ("http://just.domain", "http://just.domain:3370"),
        ("", "https://localhost:3371"),
    ],
)
def test_with_anything_of_tls_set_tls_is_the_rule(
    variable: dict[str, str], listed: str, url: str
) -> None:
    assert access_from({"LS_CONTROLLERS": listed, **variable}).controllers == (url,)


def test_all_controllers_are_used_in_their_order_and_once() -> None:
    listed = "b.example, https://a.example:1,linstor://b.example:3370 ,[::1]:9"
    assert access_from({"LS_CONTROLLERS": listed}).controllers == (
        "http://b.example:3370", "https://a.example:1", "http://[::1]:9",
    )  # fmt: skip


@pytest.mark.parametrize(
    "listed",
    [
        "https://http://just.domain",
        "https://http://just.domain:4000",
        "https://just.domain:4000:5000",
        "ftp://just.domain",
        "://just.domain",
        "fe80::1",
        "[fe80::1",
        "[not.an.address]",
        "[]",
        ":3370",
        "http://",
        "just.domain:0",
        "just.domain:65536",
        "just.domain:port",
        "just.domain/path",
        "just.domain?query",
        "just domain",
        "just.domain\r\nX-Header: 1",
        "good.example,bad host",
    ],
)
def test_what_is_no_controller_is_said_with_the_name_of_the_variable(listed: str) -> None:
    with pytest.raises(Misconfigured, match="LS_CONTROLLERS contains") as failed:
        access_from({"LS_CONTROLLERS": listed})
    assert "\n" not in str(failed.value)


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"LS_USER_CERTIFICATE": CERT}, "LS_USER_CERTIFICATE is set without LS_USER_KEY"),
        ({"LS_USER_KEY": KEY}, "LS_USER_KEY is set without LS_USER_CERTIFICATE"),
        ({"LS_USER_CERTIFICATE_FILE": "/c"}, "LS_USER_CERTIFICATE is set without LS_USER_KEY"),
        ({"LS_USER_KEY_FILE": "/k"}, "LS_USER_KEY is set without LS_USER_CERTIFICATE"),
        ({"LS_ROOT_CA": "stuff"}, "LS_ROOT_CA contains no complete certificate authority"),
        (
            {"LS_USER_CERTIFICATE": "stuff", "LS_USER_KEY": KEY},
            "LS_USER_CERTIFICATE with LS_USER_KEY contains no complete certificate",
        ),
        (
            {"LS_USER_CERTIFICATE": CERT, "LS_USER_KEY": "s3cret"},
            "LS_USER_CERTIFICATE with LS_USER_KEY contains no complete certificate",
        ),
        ({"LS_ROOT_CA": CA, "LS_ROOT_CA_FILE": "/ca"}, "LS_ROOT_CA and LS_ROOT_CA_FILE are both"),
        ({"LS_PASSWORD": "s3cret\udcff"}, "LS_PASSWORD contains bytes that are no text in UTF-8"),
        ({"LS_USERNAME": "a:b", "LS_PASSWORD": "s3cret"}, "LS_USERNAME contains a colon"),
        (
            {"LS_CONTROLLERS": "http://admin:s3cret@just.domain"},
            "LS_CONTROLLERS contains a login: name it in LS_USERNAME and LS_PASSWORD",
        ),
    ],
)
def test_what_cannot_work_is_said_in_one_sentence_without_its_secret(
    environment: dict[str, str], sentence: str
) -> None:
    with pytest.raises(Misconfigured) as failed:
        access_from(environment)
    assert str(failed.value).startswith(sentence)
    assert "s3cret" not in str(failed.value)


def test_credentials_are_where_the_variables_say() -> None:
    access = access_from(
        {
            "LS_ROOT_CA": CA,
            "LS_USER_CERTIFICATE_FILE": "/tls.crt",
            "LS_USER_KEY_FILE": "/tls.key",
            "LS_USERNAME": "backstay",
            "LS_PASSWORD": "s3cret",
            "LS_BEARER_TOKEN_FILE": "/token",
        }
    )
    assert access.authority == Inline(CA.encode())
    assert (access.certificate, access.key) == (InFile("/tls.crt"), InFile("/tls.key"))
    assert (access.username, access.password) == ("backstay", Inline(b"s3cret"))
    assert access.token == InFile("/token")


def test_nothing_set_is_no_login_and_no_trust_of_our_own() -> None:
    access = access_from({"LS_USERNAME": "", "LS_BEARER_TOKEN_FILE": "", "LS_ROOT_CA": " "})
    assert not access.username
    assert access.token is None
    assert access.authority is None


def test_no_secret_is_ever_shown() -> None:
    access = access_from(
        {
            "LS_USER_CERTIFICATE": CERT,
            "LS_USER_KEY": KEY,
            "LS_USERNAME": "backstay",
            "LS_PASSWORD": "s3cret",
        }
    )
    shown = f"{access!r} {access} {access.password!r} {access.key!r}"
    assert "s3cret" not in shown
    assert "PRIVATE" not in shown
    assert "localhost" in shown


@pytest.mark.parametrize(
    ("login", "exposed"),
    [
        ({}, ()),
        ({"LS_USERNAME": "backstay"}, ("http://a:3370",)),
        ({"LS_BEARER_TOKEN_FILE": "/token"}, ("http://a:3370",)),
    ],
)
def test_a_login_over_plain_http_is_known_as_such(
    login: dict[str, str], exposed: tuple[str, ...]
) -> None:
    access = access_from({"LS_CONTROLLERS": "http://a,https://b", **login})
    assert access.exposed == exposed

"""Credentials in files rotate under a running process, and never break it."""

import asyncio
import logging
import os
from pathlib import Path

import pytest
import trustme

from backstay.kube.credentials import MAX_SIZE, InFile, Inline, Kept, KeptLogin, basic, bearer
from backstay.kube.errors import ConfigError
from backstay.kube.pem import KeyPair, Unusable, key_pair, trusted_authorities
from tests.support.local import LocalFiles
from tests.support.virtual import virtual_time


def kept_token(files: LocalFiles, path: Path) -> Kept[str]:
    return Kept(files, [InFile(str(path))], bearer, what="The token")


def replace(path: Path, content: bytes) -> None:
    """As the kubelet does it: a new file under the old name."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    os.replace(new, path)


def overwrite_unnoticed(path: Path, content: bytes) -> None:
    """Same file, same length, and within what the file system's clock can tell apart."""
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("one\n")
    return path


@virtual_time
async def test_a_replaced_token_is_seen_within_a_minute(token: Path) -> None:
    files = LocalFiles()
    kept = kept_token(files, token)
    assert await kept.value() == "Bearer one"
    replace(token, b"two")
    await asyncio.sleep(59.9)
    assert await kept.value() == "Bearer one"
    assert files.looks.total() == 1
    await asyncio.sleep(0.1)
    assert await kept.value() == "Bearer two"


@virtual_time
async def test_a_file_that_did_not_change_is_looked_at_but_not_read_again(token: Path) -> None:
    files = LocalFiles()
    kept = kept_token(files, token)
    for _ in range(10):
        await kept.value()
        await asyncio.sleep(60)
    assert (files.looks.total(), files.reads.total()) == (10, 1)


@virtual_time
async def test_a_refused_token_is_read_again_at_once(token: Path) -> None:
    kept = kept_token(LocalFiles(), token)
    await kept.value()
    replace(token, b"two")
    kept.refused()
    assert await kept.value() == "Bearer two"


@virtual_time
async def test_a_refused_token_is_read_even_if_the_file_looks_the_same(token: Path) -> None:
    kept = kept_token(LocalFiles(), token)
    await kept.value()
    overwrite_unnoticed(token, b"two\n")
    kept.refused()
    assert await kept.value() == "Bearer two"


@virtual_time
async def test_all_who_were_refused_together_wait_for_the_new_token(token: Path) -> None:
    files = LocalFiles()
    kept = kept_token(files, token)
    await kept.value()
    replace(token, b"two")
    kept.refused()
    assert await asyncio.gather(*(kept.value() for _ in range(5))) == ["Bearer two"] * 5
    assert files.reads.total() == 2


@virtual_time
async def test_a_refusal_during_a_look_leads_to_another_one(token: Path) -> None:
    files = LocalFiles()
    kept = kept_token(files, token)
    await kept.value()
    await asyncio.sleep(60)
    async with asyncio.TaskGroup() as group:
        group.create_task(kept.value())
        await asyncio.sleep(0)
        kept.refused()
    await kept.value()
    assert files.reads.total() == 2


@pytest.mark.parametrize("content", [b"", b" \n", b"half\x00", "schön".encode(), b"a\nHost: b"])
@virtual_time
async def test_what_is_no_token_leaves_the_last_good_one_in_use(
    token: Path, content: bytes
) -> None:
    kept = kept_token(LocalFiles(), token)
    await kept.value()
    replace(token, content)
    await asyncio.sleep(60)
    assert await kept.value() == "Bearer one"


@virtual_time
async def test_a_vanished_file_is_reported_once_and_once_more_when_it_is_back(
    token: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "backstay")
    kept = kept_token(LocalFiles(), token)
    await kept.value()
    os.remove(token)
    for _ in range(5):
        await asyncio.sleep(60)
        assert await kept.value() == "Bearer one"
    replace(token, b"two")
    await asyncio.sleep(60)
    assert await kept.value() == "Bearer two"
    assert caplog.messages == [
        f"The token cannot be used: there is no file {token}; the last good one stays in use",
        "The token is good again",
    ]


@virtual_time
async def test_a_value_that_the_server_refuses_is_not_kept_for_a_vanished_file(
    token: Path,
) -> None:
    kept = kept_token(LocalFiles(), token)
    await kept.value()
    os.remove(token)
    kept.refused()
    with pytest.raises(ConfigError, match=f"there is no file {token}"):
        await kept.value()
    replace(token, b"two")
    assert await kept.value() == "Bearer two"


@virtual_time
async def test_a_disk_that_hangs_delays_one_caller_and_no_other(token: Path) -> None:
    files = LocalFiles()
    kept = kept_token(files, token)
    await kept.value()
    await asyncio.sleep(60)
    files.stuck.add(str(token))
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def how_long() -> float:
        assert await kept.value() == "Bearer one"
        return loop.time() - began

    waits = await asyncio.gather(*(how_long() for _ in range(3)))
    assert waits == [5.0, 0.0, 0.0]


@virtual_time
async def test_a_caller_who_gives_up_does_not_make_the_next_one_wait(token: Path) -> None:
    files = LocalFiles()
    kept = kept_token(files, token)
    await kept.value()
    await asyncio.sleep(60)
    files.stuck.add(str(token))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await kept.value()
    async with asyncio.timeout(0.1):
        assert await kept.value() == "Bearer one"


@pytest.mark.parametrize(
    ("prepare", "sentence"),
    [
        (lambda path: None, "there is no file"),
        (lambda path: path.mkdir(), r"failed \(Is a directory\)"),
        (lambda path: path.write_text(""), "contains an empty token"),
        (lambda path: path.write_bytes(b"x" * (MAX_SIZE + 1)), "contains more bytes than any"),
    ],
    ids=["missing", "directory", "empty", "endless"],
)
@virtual_time
async def test_without_any_good_value_the_sentence_names_the_file(
    tmp_path: Path, prepare: object, sentence: str
) -> None:
    assert callable(prepare)
    path = tmp_path / "token"
    prepare(path)
    with pytest.raises(ConfigError, match=sentence) as caught:
        await kept_token(LocalFiles(), path).value()
    assert str(path) in str(caught.value)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def issue(authority: trustme.CA) -> tuple[bytes, bytes]:
    leaf = authority.issue_cert("ann@example.org")
    return leaf.cert_chain_pems[0].bytes(), leaf.private_key_pem.bytes()


@virtual_time
async def test_a_new_key_beside_the_old_certificate_waits_for_its_certificate(
    tmp_path: Path, authority: trustme.CA
) -> None:
    (old_cert, old_key), (new_cert, new_key) = issue(authority), issue(authority)
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    cert.write_bytes(old_cert)
    key.write_bytes(old_key)
    files = LocalFiles()
    kept = Kept(files, [InFile(str(cert)), InFile(str(key))], key_pair, what="The pair")
    old = KeyPair(old_cert, old_key)
    assert await kept.value() == old
    replace(key, new_key)
    await asyncio.sleep(60)
    assert await kept.value() == old
    replace(cert, new_cert)
    await asyncio.sleep(60)
    assert await kept.value() == KeyPair(new_cert, new_key)


@virtual_time
async def test_half_an_authority_leaves_the_last_good_one_in_use(
    tmp_path: Path, authority: trustme.CA
) -> None:
    whole = authority.cert_pem.bytes()
    bundle = whole + trustme.CA().cert_pem.bytes()
    path = tmp_path / "ca.crt"
    path.write_bytes(whole)
    kept = Kept(LocalFiles(), [InFile(str(path))], trusted_authorities, what="The authority")
    assert await kept.value() == whole
    replace(path, bundle[: len(whole) + 200])
    await asyncio.sleep(60)
    assert await kept.value() == whole
    replace(path, bundle)
    kept.look_again()
    assert await kept.value() == bundle


@virtual_time
async def test_a_vanished_authority_is_kept_when_a_look_is_asked_for(
    tmp_path: Path, authority: trustme.CA
) -> None:
    path = tmp_path / "ca.crt"
    path.write_bytes(authority.cert_pem.bytes())
    kept = Kept(LocalFiles(), [InFile(str(path))], trusted_authorities, what="The authority")
    await kept.value()
    os.remove(path)
    kept.look_again()
    assert await kept.value() == authority.cert_pem.bytes()


def test_a_key_that_belongs_to_another_certificate_is_unusable(authority: trustme.CA) -> None:
    (cert, _), (_, key) = issue(authority), issue(authority)
    with pytest.raises(Unusable, match="does not belong"):
        key_pair(cert, key)


def test_half_a_key_is_unusable(authority: trustme.CA) -> None:
    cert, key = issue(authority)
    with pytest.raises(Unusable, match="no complete certificate and key"):
        key_pair(cert, key[: len(key) // 2])


@virtual_time
async def test_inline_content_needs_no_file() -> None:
    files = LocalFiles()
    kept = Kept(files, [Inline(b"one")], bearer, what="The token")
    assert await kept.value() == "Bearer one"
    kept.refused()
    await asyncio.sleep(120)
    assert await kept.value() == "Bearer one"
    assert files.looks.total() + files.reads.total() == 0


@virtual_time
async def test_a_login_has_the_parts_that_it_was_given(authority: trustme.CA) -> None:
    files = LocalFiles()
    cert, key = issue(authority)
    token = Kept(files, [Inline(b"one")], bearer, what="The token")
    pair = Kept(files, [Inline(cert), Inline(key)], key_pair, what="The pair")
    identity = await KeptLogin(authorization=token, pair=pair).identity()
    assert identity.authorization == "Bearer one"
    assert identity.pair == KeyPair(cert, key)
    nobody = await KeptLogin().identity()
    assert (nobody.authorization, nobody.pair) == (None, None)


@virtual_time
async def test_no_repr_shows_a_secret(authority: trustme.CA) -> None:
    cert, key = issue(authority)
    pair = key_pair(cert, key)
    source = Inline(b"s3cr3t")
    identity = await KeptLogin(
        authorization=Kept(LocalFiles(), [source], bearer, what="The token")
    ).identity()
    shown = repr((pair, source, identity))
    assert "s3cr3t" not in shown
    assert "PRIVATE KEY" not in shown


def test_basic_credentials_may_be_any_text() -> None:
    assert basic("änn", "p:w") == "Basic w6RubjpwOnc="

"""A pod finds its cluster through its service account."""

import asyncio
import shutil
from pathlib import Path

import pytest
import trustme

from backstay.kube.errors import ConfigError
from backstay.kube.in_cluster import SERVICE_ACCOUNT, in_cluster_access
from tests.support.local import LocalFiles
from tests.support.virtual import virtual_time

ENVIRON = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """A service account, mounted below a root that stands for the pod's."""
    directory = tmp_path / SERVICE_ACCOUNT.lstrip("/")
    directory.mkdir(parents=True)
    (directory / "token").write_text("one")
    (directory / "ca.crt").write_bytes(trustme.CA().cert_pem.bytes())
    (directory / "namespace").write_text("backstay-system\n")
    return directory


@virtual_time
async def test_a_pod_talks_to_the_service_as_its_service_account(
    tmp_path: Path, mounted: Path
) -> None:
    access = await in_cluster_access(LocalFiles(tmp_path), ENVIRON)
    assert access.server == "https://10.96.0.1:443"
    assert access.namespace == "backstay-system"
    assert access.origin == "the service account of this pod"
    grant = await access.grant()
    assert grant.headers == {"Authorization": "Bearer one"}
    assert grant.tls is not None
    assert grant.tls.ca == (mounted / "ca.crt").read_bytes()
    assert grant.tls.server_name is None
    assert grant.tls.verify


@virtual_time
async def test_an_ipv6_service_address_gets_brackets(tmp_path: Path, mounted: Path) -> None:
    environ = {**ENVIRON, "KUBERNETES_SERVICE_HOST": "fd00::1"}
    access = await in_cluster_access(LocalFiles(tmp_path), environ)
    assert access.server == "https://[fd00::1]:443"


@virtual_time
async def test_token_and_authority_follow_their_files(tmp_path: Path, mounted: Path) -> None:
    access = await in_cluster_access(LocalFiles(tmp_path), ENVIRON)
    await access.grant()
    new_authority = trustme.CA().cert_pem.bytes()
    rewrite(mounted / "token", b"two")
    rewrite(mounted / "ca.crt", new_authority)
    await asyncio.sleep(60)
    grant = await access.grant()
    assert grant.headers == {"Authorization": "Bearer two"}
    assert grant.tls is not None
    assert grant.tls.ca == new_authority


def rewrite(path: Path, content: bytes) -> None:
    path.unlink()
    path.write_bytes(content)


@pytest.mark.parametrize("port", ["", "https", "4\n43"])
@virtual_time
async def test_a_pod_whose_variables_were_tampered_with_is_told(
    tmp_path: Path, mounted: Path, port: str
) -> None:
    with pytest.raises(ConfigError, match="do not name the API server"):
        await in_cluster_access(LocalFiles(tmp_path), {**ENVIRON, "KUBERNETES_SERVICE_PORT": port})


@virtual_time
async def test_a_pod_without_a_service_account_is_told_how_to_get_one(
    tmp_path: Path, mounted: Path
) -> None:
    shutil.rmtree(mounted)
    with pytest.raises(ConfigError, match="automountServiceAccountToken: true"):
        await in_cluster_access(LocalFiles(tmp_path), ENVIRON)


@pytest.mark.parametrize("part", ["token", "ca.crt"])
@virtual_time
async def test_a_missing_part_is_named_when_it_is_needed(
    tmp_path: Path, mounted: Path, part: str
) -> None:
    rewrite(mounted / part, b"")
    access = await in_cluster_access(LocalFiles(tmp_path), ENVIRON)
    with pytest.raises(ConfigError, match=f"{SERVICE_ACCOUNT}/{part} contains"):
        await access.grant()

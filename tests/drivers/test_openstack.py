"""Asking Nova whether an instance is off, against a server that answers as Keystone and Nova do."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme

from backstay.drivers.openstack import OpenStack
from backstay.drivers.provider import ProviderFailed
from backstay.seam.real import open_seams
from backstay.seam.serve import Answer, Inbound, ServerTls

INSTANCE = "6f1c0d3e"
NODE = f"openstack:///{INSTANCE}"
SECRET = "t0p-s3cret"

Json = dict[str, Any]


class Cloud:
    """Keystone and Nova in one. ``servers`` are what Nova knows."""

    def __init__(self) -> None:
        self.url = ""
        self.servers: dict[str, Json] = {}
        self.logins = 0
        self.valid = ""
        self.region = "one"
        self.broken = False

    async def handle(self, inbound: Inbound) -> Answer:
        if inbound.path == "/v3/auth/tokens":
            return self._log_in(msgspec.json.decode(inbound.body))
        if inbound.headers.get("x-auth-token") != self.valid:
            return Answer(status=401)
        if self.broken:
            return Answer(status=200, body=b"<html>")
        server = self.servers.get(inbound.path.removeprefix("/compute/v2.1/servers/"))
        if server is None:
            return Answer(status=404)
        return Answer(status=200, body=msgspec.json.encode({"server": server}))

    def _log_in(self, body: Json) -> Answer:
        credential = body["auth"]["identity"]["application_credential"]
        if credential != {"id": "backstay", "secret": SECRET}:
            return Answer(status=401)
        self.logins += 1
        self.valid = f"token-{self.logins}"
        endpoints = [
            {"interface": "internal", "region": self.region, "url": "http://127.0.0.1:1/"},
            {"interface": "public", "region": self.region, "url": f"{self.url}/compute/v2.1"},
        ]
        catalog = [
            {"type": "identity", "endpoints": []},
            {"type": "compute", "endpoints": endpoints},
        ]
        token = {"token": {"catalog": catalog, "expires_at": "2030-01-01T00:00:00Z"}}
        headers = {"X-Subject-Token": self.valid}
        return Answer(status=201, headers=headers, body=msgspec.json.encode(token))

    def has(self, status: str, power: int | None = None, task: str | None = None) -> None:
        self.servers[INSTANCE] = {
            "id": INSTANCE,
            "status": status,
            "OS-EXT-STS:power_state": power,
            "OS-EXT-STS:task_state": task,
        }


class Scene:
    def __init__(self, cloud: Cloud, driver: OpenStack, directory: Path) -> None:
        self.cloud = cloud
        self.driver = driver
        self.directory = directory


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    cloud, authority = Cloud(), trustme.CA()
    pem = authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes()
    tls = ServerTls(cert=pem, key=pem)
    async with open_seams() as seams:
        listener = await seams.serve.listen(cloud.handle, host="127.0.0.1", port=0, tls=tls)
        cloud.url = listener.url.rstrip("/")
        trusted = {"ca.crt": authority.cert_pem.bytes().decode()}
        write(tmp_path, auth_url=f"{cloud.url}/v3", **trusted)
        try:
            yield Scene(cloud, OpenStack(seams.transport, seams.files, str(tmp_path)), tmp_path)
        finally:
            await listener.close()


def write(directory: Path, **more: str) -> None:
    files = {"application_credential_id": "backstay", "application_credential_secret": SECRET}
    for name, text in (files | more).items():
        (directory / name).write_text(f"{text}\n")


@pytest.mark.parametrize(
    ("status", "power", "task", "off"),
    [
        ("SHUTOFF", 4, None, True),
        ("DELETED", 0, None, True),
        ("SHUTOFF", 4, "powering-on", False),
        ("SHUTOFF", 1, None, False),
        ("SHUTOFF", None, None, False),
        ("ACTIVE", 1, None, False),
        ("ACTIVE", 4, "powering-off", False),
        ("SUSPENDED", 4, None, False),
        ("PAUSED", 3, None, False),
        ("SHELVED", 4, None, False),
        ("SOFT_DELETED", 4, None, False),
        ("ERROR", 6, None, False),
        ("UNKNOWN", 0, None, False),
    ],
)
async def test_only_what_is_stopped_or_gone_is_off(
    scene: Scene, status: str, power: int | None, task: str | None, *, off: bool
) -> None:
    scene.cloud.has(status, power, task)
    state = await scene.driver.state(NODE)
    assert state.off is off
    assert status in state.detail


async def test_an_instance_that_nova_does_not_know_is_not_off(scene: Scene) -> None:
    assert not (await scene.driver.state(NODE)).off


async def test_a_token_serves_many_questions_and_is_replaced_when_it_is_refused(
    scene: Scene,
) -> None:
    scene.cloud.has("ACTIVE", 1)
    await scene.driver.state(NODE)
    await scene.driver.state(NODE)
    assert scene.cloud.logins == 1
    scene.cloud.valid = "revoked"
    await scene.driver.state(NODE)
    assert scene.cloud.logins == 2


async def test_a_rotated_credential_is_read_anew(scene: Scene) -> None:
    scene.cloud.has("ACTIVE", 1)
    write(scene.directory, application_credential_secret="old")
    with pytest.raises(ProviderFailed, match="did not accept the credential"):
        await scene.driver.state(NODE)
    write(scene.directory)
    assert not (await scene.driver.state(NODE)).off


async def test_what_cannot_be_asked_says_so_without_its_secrets(scene: Scene) -> None:
    scene.cloud.has("ACTIVE", 1)
    (scene.directory / "application_credential_id").unlink()
    with pytest.raises(ProviderFailed) as failed:
        await scene.driver.state(NODE)
    assert "application_credential_id" in str(failed.value)
    assert SECRET not in repr(failed.value)


async def test_an_answer_that_is_none_is_no_answer(scene: Scene) -> None:
    scene.cloud.has("SHUTOFF", 4)
    scene.cloud.broken = True
    with pytest.raises(ProviderFailed, match="cannot be read"):
        await scene.driver.state(NODE)


async def test_nobody_at_home_is_a_failure_and_not_a_death(scene: Scene) -> None:
    write(scene.directory, auth_url="https://127.0.0.1:1")
    with pytest.raises(ProviderFailed, match="Keystone cannot be reached"):
        await scene.driver.state(NODE)


async def test_a_secret_is_sent_over_nothing_but_tls(scene: Scene) -> None:
    write(scene.directory, auth_url=scene.cloud.url.replace("https:", "http:"))
    with pytest.raises(ProviderFailed, match="no https:// address"):
        await scene.driver.state(NODE)
    assert scene.cloud.logins == 0


async def test_whoever_cannot_prove_to_be_keystone_learns_no_secret(scene: Scene) -> None:
    (scene.directory / "ca.crt").unlink()
    with pytest.raises(ProviderFailed, match="Keystone cannot be reached"):
        await scene.driver.state(NODE)
    assert scene.cloud.logins == 0


async def test_the_endpoint_of_the_region_is_asked(scene: Scene) -> None:
    scene.cloud.has("SHUTOFF", 4)
    write(scene.directory, region="two")
    with pytest.raises(ProviderFailed, match="no public endpoint of Nova in the region two"):
        await scene.driver.state(NODE)
    write(scene.directory, region="one")
    assert (await scene.driver.state(NODE)).off


def test_instances_of_other_providers_are_not_its_business(tmp_path: Path) -> None:
    driver = OpenStack.__new__(OpenStack)
    assert driver.knows(NODE)
    assert driver.knows(f"openstack://one/{INSTANCE}")
    assert not driver.knows("aws:///eu/i-1")
    assert not driver.knows("openstack:///")
    assert not driver.knows("")

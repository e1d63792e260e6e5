"""Asking BMCs, and switching machines through them, against one that has the faults of many."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from backstay.drivers.power import PowerFailed
from backstay.drivers.redfish import Redfish
from backstay.seam.real import open_seams
from backstay.seam.serve import ServerTls
from tests.drivers.bmc import PASSWORD, SYSTEM, USER, UUID, Bmc

NAME = "bmc-1.example.org"


class Scene:
    def __init__(self, bmc: Bmc, driver: Redfish, directory: Path, url: str, ca: str) -> None:
        self.bmc = bmc
        self.driver = driver
        self.directory = directory
        self.url = url
        self.ca = ca

    def write(self, node: str = "n1", **fields: Any) -> None:
        login = {"address": self.url, "username": USER, "password": PASSWORD, "ca": self.ca}
        said = {key: value for key, value in (login | fields).items() if value is not None}
        (self.directory / node).write_text(yaml.safe_dump(said))

    async def off(self) -> None:
        await self.driver.switch_off("n1", not_after=soon())

    async def on(self) -> None:
        await self.driver.switch_on("n1", not_after=soon())


def soon() -> float:
    return asyncio.get_running_loop().time() + 10


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    bmc, authority = Bmc(), trustme.CA()
    pem = authority.issue_cert("127.0.0.1", NAME).private_key_and_cert_chain_pem.bytes()
    async with open_seams() as seams:
        listener = await seams.serve.listen(
            bmc.handle, host="127.0.0.1", port=0, tls=ServerTls(cert=pem, key=pem)
        )
        driver = Redfish(seams.transport, seams.files, str(tmp_path))
        ca = authority.cert_pem.bytes().decode()
        made = Scene(bmc, driver, tmp_path, listener.url.rstrip("/"), ca)
        made.write()
        try:
            yield made
        finally:
            await listener.close()


async def failure(scene: Scene, node: str = "n1") -> str:
    with pytest.raises(PowerFailed) as failed:
        await scene.driver.sight(node)
    assert PASSWORD not in str(failed.value)
    return str(failed.value)


# What it says


@pytest.mark.parametrize(
    ("state", "on"),
    [
        ("On", True),
        ("Off", False),
        ("PoweringOff", None),
        ("PoweringOn", None),
        ("Paused", None),
        (None, None),
        ("", None),
        ("off", None),
    ],
)
async def test_only_on_is_on_and_only_off_is_off(
    scene: Scene, state: str | None, on: bool | None
) -> None:
    scene.bmc.state = state
    assert (await scene.driver.sight("n1")).on is on


async def test_a_sight_names_the_machine_and_what_the_bmc_says(scene: Scene) -> None:
    reading = await scene.driver.sight("n1")
    assert (reading.uuid, reading.detail) == (UUID, "its power is On")


async def test_a_bmc_that_names_no_machine_is_heard_all_the_same(scene: Scene) -> None:
    scene.bmc.uuid = None
    assert (await scene.driver.sight("n1")).uuid == ""


async def test_which_systems_there_are_is_asked_once(scene: Scene) -> None:
    for _ in range(3):
        await scene.driver.sight("n1")
    assert scene.bmc.requests == 4


async def test_a_system_that_is_named_is_not_searched_for(scene: Scene) -> None:
    scene.write(system=SYSTEM)
    await scene.driver.sight("n1")
    assert scene.bmc.requests == 1


async def test_where_there_are_several_systems_somebody_has_to_say_which(scene: Scene) -> None:
    scene.bmc.members = [SYSTEM, "/redfish/v1/Systems/2"]
    assert "it has 2 systems" in await failure(scene)
    scene.write(system=SYSTEM)
    assert (await scene.driver.sight("n1")).on


async def test_a_system_that_is_renamed_is_found_again(scene: Scene) -> None:
    await scene.driver.sight("n1")
    scene.bmc.members = ["/redfish/v1/Systems/new"]
    assert "404" in await failure(scene)
    assert (await scene.driver.sight("n1")).on


# Switching


async def test_it_is_forced_off_and_switched_on_and_nothing_else_is_ever_asked_for(
    scene: Scene,
) -> None:
    await scene.off()
    await scene.on()
    assert scene.bmc.asked == ["ForceOff", "On"]


async def test_what_is_off_already_is_not_switched_off_again(scene: Scene) -> None:
    scene.bmc.state = "Off"
    await scene.off()
    assert scene.bmc.asked == []


async def test_a_refusal_of_what_has_come_true_meanwhile_is_no_failure(scene: Scene) -> None:
    handle = scene.bmc._reset

    def goes_off_first(kind: str) -> Any:
        scene.bmc.state, scene.bmc.refuses_what_is_so = "Off", True
        return handle(kind)

    scene.bmc._reset = goes_off_first  # type: ignore[method-assign]
    await scene.off()


@pytest.mark.parametrize("status", [400, 409, 500, 503])
async def test_a_refusal_is_a_failure_without_the_words_of_the_bmc(
    scene: Scene, status: int
) -> None:
    scene.bmc.fails_with = status
    with pytest.raises(PowerFailed, match=rf"^it has refused ForceOff \({status}\)$"):
        await scene.off()


async def test_that_it_said_yes_says_nothing_about_the_power(scene: Scene) -> None:
    scene.bmc.obeys = False
    await scene.off()
    assert (await scene.driver.sight("n1")).on


async def test_a_bmc_that_cannot_force_anything_off_is_not_asked_for_less(scene: Scene) -> None:
    scene.bmc.offers = ["On", "GracefulShutdown", "ForceRestart"]
    with pytest.raises(PowerFailed, match="it does not offer ForceOff"):
        await scene.off()
    assert scene.bmc.asked == []


async def test_a_bmc_that_does_not_say_what_it_offers_is_asked(scene: Scene) -> None:
    scene.bmc.offers = None
    await scene.off()
    assert scene.bmc.asked == ["ForceOff"]


async def test_one_that_does_not_say_where_to_ask_is_asked_at_the_usual_place(
    scene: Scene,
) -> None:
    scene.bmc.target = None
    await scene.off()
    assert scene.bmc.asked == ["ForceOff"]


@pytest.mark.parametrize("target", ["https://elsewhere.example/reset", "//elsewhere/x", "x"])
async def test_a_password_is_sent_nowhere_but_to_the_address_of_the_file(
    scene: Scene, target: str
) -> None:
    scene.bmc.target = target
    with pytest.raises(PowerFailed, match="none of its own"):
        await scene.off()


async def test_nothing_is_sent_after_the_last_moment(scene: Scene) -> None:
    with pytest.raises(PowerFailed, match="TooLate"):
        await scene.driver.switch_off("n1", not_after=asyncio.get_running_loop().time() - 1)
    assert scene.bmc.asked == []


# What can go wrong on the way


async def test_a_wrong_password_is_named_as_such(scene: Scene) -> None:
    scene.bmc.password = "another"
    assert await failure(scene) == "it does not accept the login (401)"


async def test_a_login_that_was_refused_is_not_tried_again_at_once(scene: Scene) -> None:
    scene.bmc.password = "another"
    for _ in range(5):
        assert "login" in await failure(scene)
    assert scene.bmc.requests == 1


async def test_a_password_that_was_rotated_is_read_again(scene: Scene) -> None:
    await scene.driver.sight("n1")
    scene.bmc.password = "rotated-since"
    assert "login" in await failure(scene)
    scene.write(password="rotated-since")
    assert (await scene.driver.sight("n1")).on


@pytest.mark.parametrize(
    "body", [b"<html>", b"{", b"[]", b'{"PowerState": 7}', b"", b"\xff\xfe", b"[" * 10_000]
)
async def test_an_answer_that_makes_no_sense_is_none(scene: Scene, body: bytes) -> None:
    scene.write(system=SYSTEM)
    scene.bmc.body = body
    assert await failure(scene) == "its answer cannot be read"


async def test_an_answer_without_end_is_cut(scene: Scene) -> None:
    scene.bmc.body = b" " * (2 * 1024 * 1024)
    assert "BadAnswer" in await failure(scene)


async def test_a_certificate_that_nobody_vouches_for_is_not_accepted(scene: Scene) -> None:
    scene.write(ca=trustme.CA().cert_pem.bytes().decode())
    assert "its certificate is not accepted" in await failure(scene)
    assert scene.bmc.requests == 0


async def test_a_certificate_has_to_have_the_name_that_somebody_says(scene: Scene) -> None:
    scene.write(serverName=NAME)
    assert (await scene.driver.sight("n1")).on
    scene.bmc.requests = 0
    scene.write(serverName="bmc-2.example.org")
    assert "its certificate is not accepted" in await failure(scene)
    assert scene.bmc.requests == 0


async def test_who_says_so_does_without_a_trusted_certificate(scene: Scene) -> None:
    scene.write(ca=None, insecure=True)
    assert (await scene.driver.sight("n1")).on


async def test_a_bmc_that_is_gone_is_named_as_such(scene: Scene) -> None:
    scene.write(address="https://127.0.0.1:1")
    assert await failure(scene) == "it cannot be reached (Refused)"


# The files


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"address": None}, "missing required field `address`"),
        ({"username": None}, "missing required field `username`"),
        ({"password": None}, "missing required field `password`"),
        ({"username": ""}, "username is empty"),
        ({"passwrd": "x"}, "unknown field `passwrd`"),
        ({"address": "10.0.0.12"}, "address is not https://HOST"),
        ({"address": "ftp://10.0.0.12"}, "address is not https://HOST"),
        ({"address": "https://u:p@10.0.0.12"}, "address is more than https://HOST:PORT"),
        ({"address": "https://10.0.0.12/x"}, "address is more than https://HOST:PORT"),
        ({"address": "https://10.0.0.12:99999"}, "address is no URL"),
        ({"address": "http://10.0.0.12"}, "address has no TLS"),
        ({"address": "http://bmc-12"}, "address has no TLS"),
        ({"system": "/elsewhere"}, "system does not begin with /redfish/v1/Systems/"),
        ({"insecure": "maybe"}, "`$.insecure`"),
        ({"ca": "no certificate"}, "ca has no complete certificate"),
    ],
)
async def test_a_bad_file_is_named_with_its_field(
    scene: Scene, fields: dict[str, Any], says: str
) -> None:
    scene.write("n2", **fields)
    [wrong] = await scene.driver.refresh()
    assert wrong.startswith(f"{scene.directory}/n2: ")
    assert says in wrong
    assert PASSWORD not in wrong
    assert (await scene.driver.sight("n1")).on


@pytest.mark.parametrize("text", [b"", b"- a\n", b"just words", b"a: [", b"\xff\xfe\x00", b"a: *b"])
async def test_a_file_that_is_no_yaml_is_named(scene: Scene, text: bytes) -> None:
    (scene.directory / "n2").write_bytes(text)
    [wrong] = await scene.driver.refresh()
    assert f"{scene.directory}/n2" in wrong


async def test_a_file_that_is_too_large_is_not_read(scene: Scene) -> None:
    (scene.directory / "n2").write_bytes(b"#" * 300_000)
    [wrong] = await scene.driver.refresh()
    assert wrong == f"{scene.directory}/n2 is too large"


async def test_a_password_of_digits_is_a_password(scene: Scene) -> None:
    scene.bmc.password = "12345678"
    (scene.directory / "n1").write_text(
        f"address: {scene.url}\nusername: {USER}\npassword: 12345678\ninsecure: true\n"
    )
    assert (await scene.driver.sight("n1")).on


async def test_there_is_a_device_for_each_file_and_for_nothing_behind_a_dot(scene: Scene) -> None:
    scene.write("n2")
    (scene.directory / "..2026_11_18").mkdir()
    (scene.directory / "..2026_11_18" / "n3").write_text("x")
    assert await scene.driver.refresh() == ()
    assert scene.driver.nodes() == {"n1", "n2"}
    (scene.directory / "n2").unlink()
    await scene.driver.refresh()
    assert scene.driver.nodes() == {"n1"}
    assert await failure(scene, "n2") == f"there is no {scene.directory}/n2"


async def test_a_directory_that_is_not_there_is_said(scene: Scene) -> None:
    gone = Redfish(scene.driver._transport, scene.driver._files, "/nowhere/at/all")
    assert await gone.refresh() == ("there is no /nowhere/at/all, or it cannot be read",)
    assert gone.nodes() == frozenset()


def test_a_login_is_never_shown(scene: Scene) -> None:
    assert PASSWORD not in repr(scene.driver.__dict__)

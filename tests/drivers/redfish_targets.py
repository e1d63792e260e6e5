"""What the driver is held to: our own double, the BMC of the simulated world, and a Redfish service
that is not ours.

The last is OpenStack's sushy-emulator with its fake machines, which take their time: 1 to 11
seconds until one has switched.
"""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import bcrypt
import trustme
import yaml

from backstay.drivers.power import PowerFailed
from backstay.drivers.redfish import Redfish
from backstay.seam import Seams
from backstay.seam.serve import ServerTls
from backstay.sim.bmc import Bmc as SimulatedBmc
from backstay.sim.bmc import Box, Build, serving
from tests.drivers.bmc import PASSWORD, USER, UUID, Bmc


@dataclass(frozen=True)
class Target:
    """A service with one machine, that is on."""

    driver: Redfish
    file: Path

    def log_in_with(self, password: str) -> None:
        said = yaml.safe_load(self.file.read_text())
        self.file.write_text(yaml.safe_dump(said | {"password": password}))

    async def until(self, on: bool, *, within: float = 20.0) -> None:
        async with asyncio.timeout(within):
            while (await self.driver.sight("n1")).on is not on:  # noqa: ASYNC110 - it is real
                await asyncio.sleep(0.2)


Opened = Callable[[Seams, Path], AbstractAsyncContextManager[Target]]


@asynccontextmanager
async def double(seams: Seams, where: Path) -> AsyncIterator[Target]:
    pem, ca = _certificate()
    listener = await seams.serve.listen(
        Bmc().handle, host="127.0.0.1", port=0, tls=ServerTls(cert=pem, key=pem)
    )
    try:
        yield _target(seams, where, listener.url, ca)
    finally:
        await listener.close()


@asynccontextmanager
async def simulated(seams: Seams, where: Path) -> AsyncIterator[Target]:
    pem, ca = _certificate()
    bmc = SimulatedBmc(Box(), UUID.upper(), Build(takes=0.3), password=PASSWORD)
    async with serving(seams.serve, bmc, tls=ServerTls(cert=pem, key=pem)) as url:
        yield _target(seams, where, url, ca)


@asynccontextmanager
async def emulator(seams: Seams, where: Path) -> AsyncIterator[Target]:
    pem, ca = _certificate()
    port = _free_port()
    command = _configured(where / "emulator", pem, port)
    log = (where / "emulator" / "log").open("wb")
    process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
    try:
        target = _target(seams, where, f"https://127.0.0.1:{port}", ca)
        await _answers(target)
        yield target
    finally:
        process.kill()
        await process.wait()
        log.close()


def _configured(room: Path, pem: bytes, port: int) -> list[str]:
    (room / "state").mkdir(parents=True)
    (room / "pem").write_bytes(pem)
    digest = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    (room / "htpasswd").write_text(f"{USER}:{digest}\n")
    machine = {"uuid": UUID, "name": "n1", "power_state": "On", "nics": []}
    (room / "config.py").write_text(
        f"SUSHY_EMULATOR_FAKE_SYSTEMS = [{machine!r}]\n"
        f"SUSHY_EMULATOR_AUTH_FILE = {str(room / 'htpasswd')!r}\n"
        f"SUSHY_EMULATOR_STATE_DIR = {str(room / 'state')!r}\n"
    )
    served = ["--interface", "127.0.0.1", "--port", str(port)]
    trusted = ["--ssl-certificate", str(room / "pem"), "--ssl-key", str(room / "pem")]
    program = "from sushy_tools.emulator.main import main; main()"
    config = ["--fake", "--config", str(room / "config.py")]
    return [sys.executable, "-c", program, *config, *served, *trusted]


async def _answers(target: Target) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await target.driver.sight("n1")
            except PowerFailed:
                await asyncio.sleep(0.1)
            else:
                return


def _certificate() -> tuple[bytes, str]:
    authority = trustme.CA()
    pem = authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes()
    return pem, authority.cert_pem.bytes().decode()


def _target(seams: Seams, where: Path, url: str, ca: str) -> Target:
    directory = where / "credentials"
    directory.mkdir()
    login = {"address": url.rstrip("/"), "username": USER, "password": PASSWORD, "ca": ca}
    (directory / "n1").write_text(yaml.safe_dump(login))
    driver = Redfish(seams.transport, seams.files, str(directory))
    return Target(driver, directory / "n1")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


TARGETS: dict[str, Opened] = {"double": double, "simulated": simulated, "emulator": emulator}

"""What the driver relies on, held against the stand-in and against a real LINSTOR controller.

``BACKSTAY_LINSTOR`` names the URL of a real one; without it there is only the stand-in. Nothing is
changed there, and nothing is expected of what it has: it may be empty.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec
import pytest

from backstay.drivers.linstor.access import access_from
from backstay.drivers.linstor.client import Linstor
from backstay.drivers.linstor.errors import NotThere
from backstay.drivers.linstor.stream import Promotions
from backstay.seam import Seams
from backstay.seam.real import open_seams
from backstay.seam.tasks import Tasks
from backstay.seam.transport import Request, Response
from backstay.sim.linstor.front import STREAM
from backstay.sim.linstor.served import Lab, serving
from tests.support.dice import LOWEST

VARIABLE = "BACKSTAY_LINSTOR"


@dataclass
class Subject:
    seams: Seams
    url: str

    @property
    def linstor(self) -> Linstor:
        access = access_from({"LS_CONTROLLERS": self.url})
        return Linstor(self.seams.transport, self.seams.files, access)

    def request(self, path: str, method: str = "GET") -> Request:
        return Request(method=method, url=f"{self.url}{path}", timeout=5.0)

    async def ask(self, path: str, method: str = "GET") -> Response:
        return await self.seams.transport.request(self.request(path, method))


@pytest.fixture(params=["stand-in", "actual"])
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    async with open_seams() as seams:
        if request.param == "actual":
            if not (url := os.environ.get(VARIABLE)):
                pytest.skip(f"{VARIABLE} names no LINSTOR controller")
            yield Subject(seams, url.rstrip("/"))
            return
        lab = Lab("n1", "n2", "n3")
        async with serving(seams.serve, lab.controller()) as served:
            yield Subject(seams, served.url)
        lab.close()


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/resource-definitions/no-such", 404, 301),
        ("/v1/resource-definitions/no-such/resources", 404, 301),
        ("/v1/resource-definitions/im.possible", 500, 202),
        ("/v1/resource-definitions/1st/resources", 500, 202),
        ("/v1/resource-definitions?resource_definitions=im.possible", 500, 202),
        ("/v1/resource-definitions/no-such/resource-connections", 404, 301),
        ("/v1/resource-groups/no-such", 404, 317),
        ("/v1/no-such", 404, 998),
    ],
)
async def test_a_refusal_is_a_list_with_a_code(
    subject: Subject, path: str, status: int, code: int
) -> None:
    answer = await subject.ask(path)
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    (refusal,) = msgspec.json.decode(answer.body)
    assert refusal["ret_code"] == code - 2**62
    assert refusal["message"]


async def test_a_list_leaves_out_what_is_not_there(subject: Subject) -> None:
    answer = await subject.ask("/v1/resource-definitions?resource_definitions=no-such")
    assert (answer.status, answer.body) == (200, b"[]")


async def test_names_are_found_in_any_case_and_shown_as_they_were_written(
    subject: Subject,
) -> None:
    for name in ("DfltRscGrp", "dfltrscgrp"):
        found = msgspec.json.decode((await subject.ask(f"/v1/resource-groups/{name}")).body)
        assert found["name"] == "DfltRscGrp"


async def test_the_driver_can_read_what_there_is(subject: Subject) -> None:
    linstor = subject.linstor
    assert (await linstor.version())[0].isdigit()
    nodes = [satellite.node for satellite in await linstor.satellites()]
    assert nodes == [name.lower() for name in nodes]
    definitions = msgspec.json.decode((await subject.ask("/v1/resource-definitions")).body)
    for name in [each["name"] for each in definitions]:
        assert {each.resource for each in await linstor.replicas(name)} <= {name.lower()}
        await linstor.options(name)


async def test_a_resource_that_cannot_be_is_not_there(subject: Subject) -> None:
    for name in ("no-such", "im.possible", "1st"):
        with pytest.raises(NotThere):
            await subject.linstor.replicas(name)
    found = await subject.linstor.options_of(["no-such", "im.possible"])
    assert all(isinstance(each, NotThere) for each in found.values())


async def test_the_head_of_the_stream_comes_at_once(subject: Subject) -> None:
    async with subject.seams.transport.stream(subject.request(STREAM)) as stream:
        assert stream.status == 200
        assert stream.headers["content-type"] == "text/event-stream"


async def test_the_driver_hears_the_state_of_everything(subject: Subject) -> None:
    promotions, renewed = Promotions(subject.linstor, rng=LOWEST), asyncio.Event()
    async with Tasks("contract") as tasks, asyncio.timeout(20):
        tasks.spawn(promotions.run(lambda _: None, renewed.set), name="promotions")
        await renewed.wait()
    assert promotions.connected
    assert promotions.unreadable == 0

"""Notifications: what a receiver gets, and what becomes of us when it misbehaves."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from backstay.kube.lease import Term
from backstay.model.reasons import Reason, Why
from backstay.record.metrics import Delivery, Metrics
from backstay.record.notify import (
    MOST_WAITING,
    SIGNATURE,
    Notifier,
    Turn,
    Webhook,
    signature,
)
from backstay.seam.aiohttp_serve import AiohttpServe
from backstay.seam.aiohttp_transport import AiohttpTransport
from backstay.seam.disk import DiskFiles
from backstay.seam.serve import Answer, Inbound
from backstay.seam.system import SystemClock, SystemRng
from backstay.seam.tasks import Tasks
from backstay.sim.clock import LoopClock
from backstay.sim.files import MemoryFiles
from backstay.sim.network import Link, Network
from tests.seam.worlds import authority, server_tls
from tests.support.virtual import virtual_time

SECRET = "s3cr3t-path"
ADDRESS = "https://hooks.example:443"
URL = f"{ADDRESS}/{SECRET}"
KEY = b"0123456789"
WEBHOOK = Webhook(url_file="/etc/hook/url", key_file="/etc/hook/key", cluster="edge-1")
LOST = Reason.NodeLost.because(node="n1", seconds=40)


def held(name: str) -> Why:
    return Why("ProofMissing", f"{name} is held.", "backstay confirm-dead n1")


class Receiver:
    """Answers with each status in turn, and with the last of them for ever."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = [*statuses] or [204]
        self.got: list[Inbound] = []
        self.came = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def handle(self, inbound: Inbound) -> Answer:
        self.got.append(inbound)
        self.came.set()
        await self.goes_on.wait()
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return Answer(status=status, headers={"location": "https://elsewhere.example/"})

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(inbound.body) for inbound in self.got]

    def sentences(self) -> list[str]:
        return [message["sentence"] for message in self.messages]


class Desk:
    """A notifier at work, its receiver and all that lies between them."""

    def __init__(self, network: Network, receiver: Receiver, *, leads_for: float) -> None:
        self.network = network
        self.receiver = receiver
        self.files = MemoryFiles()
        self.metrics = Metrics(version="0")
        self.term = Term(3, asyncio.get_running_loop().time() + leads_for)
        self.notifier = Notifier(
            network.transport, self.files, WEBHOOK,
            wall=LoopClock(), rng=SystemRng(1), metrics=self.metrics,
        )  # fmt: skip

    @property
    def link(self) -> Link:
        return self.network.link(ADDRESS)

    def count(self, delivery: Delivery) -> float:
        return self.metrics.notifications.value(delivery.value)

    def tell(self, why: Why, *, turn: Turn = Turn.HELD, workload: str = "") -> None:
        self.notifier.tell(turn, why, incident="n1-a", node="n1", workload=workload)


@asynccontextmanager
async def desk(*statuses: int, leads_for: float = 10_000.0) -> AsyncIterator[Desk]:
    network, receiver = Network(), Receiver(*statuses)
    listener = await network.serve.listen(
        receiver.handle, host="hooks.example", port=443, tls=server_tls()
    )
    made = Desk(network, receiver, leads_for=leads_for)
    await made.files.write("/etc/hook/url", f"{URL}\n".encode())
    await made.files.write("/etc/hook/key", KEY)
    async with Tasks("test") as tasks:
        tasks.spawn(made.notifier.run(made.term), name="notifier")
        await asyncio.sleep(0)
        yield made
    receiver.goes_on.set()
    await listener.close()


# What is sent


@virtual_time
async def test_a_message_says_all_that_a_person_needs() -> None:
    async with desk() as at:
        at.tell(held("VM shop/db"), workload="VirtualMachine/shop/db")
        await asyncio.sleep(1.0)
    (message,) = at.receiver.messages
    assert message.pop("at").startswith("20")
    assert message == {
        "version": 1,
        "cluster": "edge-1",
        "event": "held",
        "incident": "n1-a",
        "node": "n1",
        "workload": "VirtualMachine/shop/db",
        "code": "ProofMissing",
        "sentence": held("VM shop/db").sentence,
        "next": "backstay confirm-dead n1",
    }
    (inbound,) = at.receiver.got
    assert (inbound.method, inbound.path) == ("POST", f"/{SECRET}")
    assert at.count(Delivery.SENT) == 1


@virtual_time
async def test_a_message_is_signed_over_the_very_bytes_that_are_sent() -> None:
    async with desk() as at:
        at.tell(LOST)
        await asyncio.sleep(1.0)
    (inbound,) = at.receiver.got
    assert inbound.headers[SIGNATURE] == signature(KEY, inbound.body)
    assert inbound.headers[SIGNATURE] != signature(b"another", inbound.body)


@virtual_time
async def test_what_happens_to_many_workloads_at_once_is_one_message() -> None:
    async with desk() as at:
        for name in ("a", "b", "b", "c"):
            at.tell(held(f"VM shop/{name}"), workload=f"VirtualMachine/shop/{name}")
        at.tell(LOST, turn=Turn.OPENED)
        await asyncio.sleep(1.0)
    together, opened = at.receiver.messages
    assert together["sentence"] == f"{held('VM shop/a').sentence} (2 more like it.)"
    assert "workload" not in together
    assert opened["event"] == "opened"


@virtual_time
async def test_an_address_and_a_key_that_were_rotated_are_used_at_once() -> None:
    async with desk() as at:
        await at.files.write("/etc/hook/url", f"{ADDRESS}/other".encode())
        await at.files.write("/etc/hook/key", b"new")
        at.tell(LOST)
        await asyncio.sleep(1.0)
    (inbound,) = at.receiver.got
    assert inbound.path == "/other"
    assert inbound.headers[SIGNATURE] == signature(b"new", inbound.body)


# Receivers that misbehave


@virtual_time
async def test_a_server_error_is_tried_again_with_the_same_bytes_until_it_is_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with desk(500, 503, 429, 204) as at:
        at.tell(LOST)
        await asyncio.sleep(300.0)
    assert len(at.receiver.got) == 4
    assert len({inbound.body for inbound in at.receiver.got}) == 1
    assert (at.count(Delivery.SENT), at.count(Delivery.GIVEN_UP)) == (1, 0)
    assert [record.getMessage() for record in caplog.records] == [
        f"notifications are not delivered: the receiver answered {status}"
        for status in (500, 503, 429)
    ]


@virtual_time
async def test_a_receiver_that_stays_down_is_said_once_and_given_up_after_an_hour(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with desk(500) as at:
        at.tell(LOST)
        await asyncio.sleep(3700.0)
        assert at.count(Delivery.GIVEN_UP) == 1
        tried = len(at.receiver.got)
        assert 60 <= tried <= 300
        await asyncio.sleep(3700.0)
    assert len(at.receiver.got) == tried
    assert len(caplog.records) == 1


@virtual_time
async def test_a_refusal_is_not_tried_again_and_the_next_message_goes_out() -> None:
    async with desk(404, 204) as at:
        at.tell(LOST, turn=Turn.OPENED)
        at.tell(LOST, turn=Turn.CLOSED)
        await asyncio.sleep(60.0)
    assert [message["event"] for message in at.receiver.messages] == ["opened", "closed"]
    assert (at.count(Delivery.REFUSED), at.count(Delivery.SENT)) == (1, 1)


@virtual_time
async def test_a_redirect_is_not_followed(caplog: pytest.LogCaptureFixture) -> None:
    async with desk(307) as at:
        at.tell(LOST)
        await asyncio.sleep(60.0)
        assert at.network.link("https://elsewhere.example/").sent == []
    assert at.count(Delivery.REFUSED) == 1
    assert "redirects are not followed" in caplog.text


@virtual_time
async def test_a_receiver_that_hangs_holds_nobody_up_and_is_tried_again() -> None:
    async with desk() as at:
        at.receiver.goes_on.clear()
        began = asyncio.get_running_loop().time()
        at.tell(LOST)
        assert asyncio.get_running_loop().time() == began
        await asyncio.sleep(10.5)
        assert len(at.receiver.got) == 1
        at.receiver.goes_on.set()
        await asyncio.sleep(60.0)
    assert len(at.receiver.got) == 2
    assert at.count(Delivery.SENT) == 1


@virtual_time
async def test_a_connection_that_is_reset_or_refused_is_tried_again() -> None:
    async with desk() as at:
        at.link.lose_answer = "reset"
        at.tell(LOST)
        await asyncio.sleep(0.2)
        at.link.lose_answer, at.link.refuse = None, True
        await asyncio.sleep(20.0)
        at.link.refuse = False
        await asyncio.sleep(60.0)
    assert len(at.receiver.got) == 2
    assert at.count(Delivery.SENT) == 1


@virtual_time
async def test_a_slow_receiver_gets_everything_in_order() -> None:
    async with desk() as at:
        at.link.delay = 4.0
        for turn in (Turn.OPENED, Turn.HELD, Turn.RELEASED, Turn.CLOSED):
            at.tell(LOST, turn=turn)
        await asyncio.sleep(60.0)
    events = [message["event"] for message in at.receiver.messages]
    assert events == ["opened", "held", "released", "closed"]


@virtual_time
async def test_too_many_messages_cost_the_oldest_of_the_same_incident(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with desk() as at:
        at.receiver.goes_on.clear()
        at.tell(LOST, turn=Turn.OPENED)
        await asyncio.sleep(0.1)
        other = Reason.NodeLost.because(node="n2", seconds=40)
        at.notifier.tell(Turn.OPENED, other, incident="n2-a", node="n2")
        for number in range(MOST_WAITING + 10):
            at.tell(Why(f"Code{number}", f"number {number}"))
        assert at.notifier.waiting == MOST_WAITING
        assert at.count(Delivery.DROPPED) == 11
        at.receiver.goes_on.set()
        await asyncio.sleep(60.0)
    sentences = at.receiver.sentences()
    assert other.sentence in sentences
    assert "number 10" not in sentences
    assert sentences[-1] == f"number {MOST_WAITING + 9}"
    assert len(caplog.records) == 1


# Whose turn it is


@virtual_time
async def test_nothing_leaves_after_the_term() -> None:
    async with desk(leads_for=5.0) as at:
        at.link.connect_delay = 6.0
        at.tell(LOST)
        await asyncio.sleep(120.0)
    assert at.receiver.got == []
    assert at.count(Delivery.SENT) == 0


@virtual_time
async def test_a_new_term_does_not_tell_what_an_earlier_one_left_behind() -> None:
    async with desk(leads_for=5.0) as at:
        at.link.refuse = True
        for turn in (Turn.OPENED, Turn.CLOSED):
            at.tell(LOST, turn=turn)
        await asyncio.sleep(30.0)
        at.link.refuse = False
        async with Tasks("next term") as tasks:
            term = Term(4, asyncio.get_running_loop().time() + 100.0)
            tasks.spawn(at.notifier.run(term), name="notifier")
            await asyncio.sleep(0.0)
            at.tell(LOST, turn=Turn.HELD)
            await asyncio.sleep(10.0)
    assert [message["event"] for message in at.receiver.messages] == ["held"]


# What is set up wrongly, and what must not be seen


@pytest.mark.parametrize(
    "content",
    [
        b"", b"http://hooks.example/s3cr3t-path", b"https://", b"https://u:s3cr3t-path@hooks.example/",
        b"https://hooks.example/s3cr3t-path\nhttps://x/", b"https://hooks.example:x/s3cr3t-path",
        b"https://\xff/s3cr3t-path", b"ftp://s3cr3t-path",
    ],
)  # fmt: skip
def test_an_address_that_is_none_is_said_by_the_name_of_its_file_and_never_itself(
    content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    @virtual_time
    async def play() -> None:
        async with desk() as at:
            await at.files.write("/etc/hook/url", content)
            at.tell(LOST)
            await asyncio.sleep(120.0)
            assert at.receiver.got == []

    play()
    (record,) = caplog.records
    assert "/etc/hook/url does not hold an address" in record.getMessage()
    assert SECRET not in caplog.text


@virtual_time
async def test_without_its_key_nothing_is_sent_unsigned(caplog: pytest.LogCaptureFixture) -> None:
    async with desk() as at:
        await at.files.remove("/etc/hook/key")
        at.tell(LOST)
        await asyncio.sleep(60.0)
        assert at.receiver.got == []
        assert "/etc/hook/key cannot be read" in caplog.text
        await at.files.write("/etc/hook/key", b"\n")
        await asyncio.sleep(60.0)
        assert at.receiver.got == []
        await at.files.write("/etc/hook/key", KEY)
        await asyncio.sleep(120.0)
    assert len(at.receiver.got) == 1


@virtual_time
async def test_no_trouble_shows_the_address(caplog: pytest.LogCaptureFixture) -> None:
    async with desk(500, 404, 307, 204) as at:
        at.tell(LOST, turn=Turn.OPENED)
        await asyncio.sleep(30.0)
        for trouble in ("silent", "refuse"):
            setattr(at.link, trouble, True)
            at.tell(LOST, turn=Turn.HELD)
            await asyncio.sleep(120.0)
            setattr(at.link, trouble, False)
            await asyncio.sleep(120.0)
        at.link.lose_answer = "reset"
        at.tell(LOST, turn=Turn.CLOSED)
        await asyncio.sleep(5.0)
        said = f"{caplog.text} {vars(at.notifier)!r} {WEBHOOK!r}"
    assert "the receiver cannot be reached" in said
    assert "has not answered within" in said
    assert "ended the connection" in said
    assert SECRET not in said
    assert "hooks.example" not in said


# Over real sockets


@asynccontextmanager
async def real_notifier(home: Path, url: str, **more: str) -> AsyncIterator[Notifier]:
    (home / "url").write_text(url)
    webhook = Webhook(url_file=str(home / "url"), **more)
    files, transport = DiskFiles(), AiohttpTransport()
    notifier = Notifier(
        transport, files, webhook,
        wall=SystemClock(), rng=SystemRng(1), metrics=Metrics(version="0"),
    )  # fmt: skip
    try:
        async with Tasks("test") as tasks, asyncio.timeout(20.0):
            term = Term(1, asyncio.get_running_loop().time() + 60.0)
            tasks.spawn(notifier.run(term), name="notifier")
            await asyncio.sleep(0)
            yield notifier
    finally:
        await transport.close()
        files.close()


async def test_a_real_receiver_gets_it_once_it_has_proven_who_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = Receiver()
    listener = await AiohttpServe(grace=0.1).listen(receiver.handle, tls=server_tls())
    url = f"{listener.url}/{SECRET}"
    (tmp_path / "ca").write_bytes(authority().cert_pem.bytes())
    try:
        async with real_notifier(tmp_path, url) as distrustful:
            distrustful.tell(Turn.OPENED, LOST, incident="n1-a", node="n1")
            while not caplog.records:  # noqa: ASYNC110 - a log tells nobody
                await asyncio.sleep(0.01)
        assert "could not prove who it is" in caplog.text
        assert receiver.got == []
        async with real_notifier(tmp_path, url, ca_file=str(tmp_path / "ca")) as trusting:
            trusting.tell(Turn.CLOSED, LOST, incident="n1-a", node="n1")
            await receiver.came.wait()
    finally:
        await listener.close()
    assert [message["event"] for message in receiver.messages] == ["closed"]
    assert SECRET not in caplog.text

"""``backstay run``, as a person or a pod starts it."""

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click
import pytest

from backstay.apis.backstay import CONFIG_NAME, CONFIGS, CONFIRMATIONS, INCIDENTS
from backstay.cli.embedded import POWER
from backstay.cli.preflight import needs
from backstay.cli.run import command
from backstay.kube.access import GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.kube.resource import LEASES, NODES
from backstay.model.labels import HEARTBEAT
from backstay.seam.aiohttp_serve import AiohttpServe
from backstay.seam.serve import Handler
from backstay.seam.system import SystemClock, SystemRng
from backstay.seam.transport import Request
from backstay.sim.api.server import ApiServer
from tests.cli.controllers import free_port, running, transport
from tests.support.exposition import parse
from tests.support.kubeconfigs import one_context, write

FAST = ("--embedded", "--time-scale", "0.05")


def read(path: str) -> str:
    return Path(path).read_text()


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


@asynccontextmanager
async def cluster_of(kubeconfig: str) -> AsyncIterator[KubeClient]:
    server = json.loads(read(kubeconfig))["clusters"][0]["cluster"]["server"]
    async with transport() as opened:
        yield KubeClient(opened, GivenAccess(server, Grant(), origin="a test"))


@asynccontextmanager
async def api(handler: Handler, directory: Path) -> AsyncIterator[str]:
    """A kubeconfig for an API on this machine."""
    listener = await AiohttpServe().listen(handler)
    try:
        yield write(directory / "config", one_context(cluster={"server": listener.url}))
    finally:
        await listener.close()


# Starting and stopping


async def test_it_says_what_it_found_leads_and_gives_the_lease_up_when_it_is_told_to_end() -> None:
    async with running(*FAST) as controller:
        found = await controller.says("on Kubernetes v")
        assert "the embedded cluster" in found
        assert "changes nothing" in await controller.says("the mode is Observe")
        await controller.says("leading under epoch 1")
        controller.send(signal.SIGTERM)
        assert await controller.ends() == 0
        assert controller.said("released the lease")
        assert "Traceback" not in controller.text


async def test_ctrl_c_ends_it_in_order_too() -> None:
    async with running(*FAST) as controller:
        await controller.says("leading under epoch 1")
        controller.send(signal.SIGINT)
        assert await controller.ends() == 130
        assert controller.said("released the lease")
        assert controller.lines[-1] == "Interrupted."


async def test_it_answers_over_http_while_it_runs() -> None:
    address = f"127.0.0.1:{free_port()}"
    async with running(*FAST, "--metrics-address", address) as controller, transport() as opened:

        async def ask(path: str) -> tuple[int, bytes]:
            request = Request(method="GET", url=f"http://{address}{path}", timeout=5.0)
            answer = await opened.request(request)
            return answer.status, answer.body

        await controller.says("leading under epoch 1")
        status, said = await ask("/healthz")
        assert (status, said.splitlines()[0]) == (200, b"ok")
        assert b"This controller leads." in said
        async with asyncio.timeout(10):
            while (await ask("/readyz"))[0] != 200:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.05)
        read = parse((await ask("/metrics"))[1])
        assert read.value("backstay_leading") == 1
        assert read.value("backstay_nodes", state="Healthy") == 3
        status = json.loads((await ask("/status"))[1])
        assert (status["mode"], status["leading"]) == ("Observe", True)


async def test_lines_are_json_unless_text_is_asked_for() -> None:
    async with running(*FAST, "--log-format", "text") as controller:
        line = await controller.says("leading under epoch 1")
    assert not line.startswith("{")


async def test_an_identity_is_this_processs_own_whatever_it_is_called() -> None:
    async with running(*FAST, "--identity", "east") as controller:
        line = await controller.says("leading under epoch 1")
    assert " as east_" in line


# A whole failover, as somebody who tries it would see it


async def test_a_failover_can_be_tried_on_the_embedded_cluster(tmp_path: Path) -> None:
    async with running(*FAST, "--recorder", str(tmp_path)) as controller:
        kubeconfig = (await controller.says("KUBECONFIG=")).split("KUBECONFIG=")[1].rstrip('"}')
        await controller.says("leading under epoch 1")
        async with cluster_of(kubeconfig) as client:
            armed = {"metadata": {"name": CONFIG_NAME}, "spec": {"mode": "Armed"}}
            await client.create(CONFIGS, armed)
            off = {"metadata": {"annotations": {POWER: "off"}}}
            node = (await client.merge_patch(NODES, "n1", off)).json()
            held = await controller.says("ProofMissing")
            assert json.loads(held)["node"] == "n1"
            lease = (await client.get(LEASES, "n1", namespace="kube-node-lease")).json()
            spec = {
                "node": "n1", "lastRenewal": lease["spec"]["renewTime"],
                "lastHeartbeat": node["metadata"]["annotations"][HEARTBEAT],
                "nodeUID": node["metadata"]["uid"],
                "bootID": node["status"]["nodeInfo"]["bootID"], "by": "ann", "reason": "plug",
            }  # fmt: skip
            await client.create(CONFIRMATIONS, {"metadata": {"name": "n1"}, "spec": spec})
            await controller.says('"code":"Released"')
            await controller.says('"code":"Recovered"')
            (incident,) = (await client.list(INCIDENTS)).json()["items"]
            assert incident["status"]["evidence"][0]["source"] == "ann"
        controller.send(signal.SIGTERM)
        assert await controller.ends() == 0
    with pytest.raises(FileNotFoundError):
        read(kubeconfig)
    frames, past = sorted(names(tmp_path))
    assert frames.endswith(".jsonl")
    assert past == "past.json"


# What is missing


async def test_a_webhook_that_cannot_be_used_is_said_and_is_no_reason_not_to_start(
    tmp_path: Path,
) -> None:
    server = ApiServer(wall=SystemClock(), rng=SystemRng(1))
    missing = str(tmp_path / "url")
    async with (
        api(server.handle, tmp_path) as kubeconfig,
        running("--kubeconfig", kubeconfig, "--notify-url-file", missing) as controller,
    ):
        await controller.says(f"notifications cannot be sent yet: {missing} cannot be read")
        await controller.says("on Kubernetes")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--notify-key-file", "k"], "go with --notify-url-file"),
        (["--embedded", "--notify-url-file", "u"], "nobody outside of it can be notified"),
    ],
)
def test_options_of_a_webhook_that_lead_nowhere_are_refused(given: list[str], words: str) -> None:
    with pytest.raises(click.UsageError, match=words):
        command.main(given, standalone_mode=False)


async def test_a_cluster_without_our_kinds_is_one_sentence_with_the_command(
    tmp_path: Path,
) -> None:
    server = ApiServer(wall=SystemClock(), rng=SystemRng(1))
    async with (
        api(server.handle, tmp_path) as kubeconfig,
        running("--kubeconfig", kubeconfig) as controller,
    ):
        assert await controller.ends() == 1
    assert controller.lines[-1].startswith("Error: Backstay's kinds are not installed")
    assert controller.lines[-1].endswith("NEXT: backstay crds | kubectl apply -f -")
    assert "Traceback" not in controller.text


async def test_an_api_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    port = free_port()
    config = one_context(cluster={"server": f"http://127.0.0.1:{port}"})
    kubeconfig = write(tmp_path / "config", config)
    async with running("--kubeconfig", kubeconfig) as controller:
        await controller.says("waiting for the API")
        server = ApiServer(wall=SystemClock(), rng=SystemRng(1))
        listener = await AiohttpServe().listen(server.handle, port=port)
        await controller.says("on Kubernetes v")
        assert await controller.ends() == 1
        await listener.close()
    assert len(controller.said("waiting for the API")) == 1


async def test_it_can_be_ended_while_it_waits_for_the_api(tmp_path: Path) -> None:
    config = one_context(cluster={"server": f"http://127.0.0.1:{free_port()}"})
    kubeconfig = write(tmp_path / "config", config)
    async with running("--kubeconfig", kubeconfig) as controller:
        await controller.says("waiting for the API")
        controller.send(signal.SIGTERM)
        assert await controller.ends() == 0


async def test_an_address_that_is_taken_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with running(*FAST, "--metrics-address", address) as controller:
            assert await controller.ends() == 1
    assert controller.lines[-1].startswith(f"Error: It cannot answer at {address}: ")
    assert "--metrics-address" in controller.lines[-1]
    assert "Traceback" not in controller.text


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--time-scale", "0.5"), "--time-scale goes with --embedded"),
        (("--embedded", "--kubeconfig", "x"), "leave --kubeconfig out"),
        (("--metrics-address", "8080"), "is not HOST:PORT"),
        (("--metrics-address", "127.0.0.1:99999"), "is not HOST:PORT"),
        (("--lease-duration", "0"), "is not in the range"),
    ],
)
def test_bad_usage_is_told_before_anything_starts(args: tuple[str, ...], words: str) -> None:
    with pytest.raises(click.UsageError, match=words):
        command.main([*args], standalone_mode=False)


async def test_without_any_cluster_it_says_where_it_looked() -> None:
    async with running() as controller:
        assert await controller.ends() == 1
    assert controller.lines[-1].startswith("Error: No cluster to talk to")


def test_leases_are_among_what_is_asked_for() -> None:
    wanted = needs("here", "ours", reachable=False)
    asked = [need for need in wanted if need.resource == LEASES]
    assert {need.namespace for need in asked} == {"here", "kube-node-lease"}

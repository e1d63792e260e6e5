"""The picture: what a person is shown, with or without our kinds, a controller and KubeVirt."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from backstay.apis.backstay import INCIDENTS
from backstay.apis.definitions import definitions
from backstay.kube.errors import Forbidden
from backstay.kube.resource import NODES
from backstay.model.node import Life
from backstay.model.policy import PIRAEUS, Mode, OptIn, Requirement, Times
from backstay.sources.picture import (
    Picture,
    moment,
    take,
    workloads_everywhere,
    workloads_on,
)
from tests.sources.conftest import CountingApi
from tests.support import objects as some

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


class Noon:
    """A clock that stands still."""

    def now(self) -> datetime:
        return NOW


def before(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def look(api: CountingApi) -> Picture:
    return await take(
        api.client, Noon(), namespace="kube-node-lease", lease="leader", times=Times()
    )


async def add_node(api: CountingApi, name: str, silent: float | None, **meta: Any) -> some.Json:
    made = await api.put({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **meta},
        "status": {"conditions": [{"type": "Ready", "status": "True"}],
                   "nodeInfo": node_info(f"boot-of-{name}")},
    })  # fmt: skip
    if silent is not None:
        await add_lease(api, name, name, silent)
    return made


def node_info(boot: str) -> some.Json:
    words = (
        "architecture", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion",
        "kubeletVersion", "machineID", "operatingSystem", "osImage", "systemUUID",
    )  # fmt: skip
    return {**dict.fromkeys(words, ""), "bootID": boot}


async def add_lease(
    api: CountingApi,
    name: str,
    holder: str,
    silent: float,
    namespace: str = "kube-node-lease",
    **meta: Any,
) -> None:
    await api.put({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace, **meta},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15,
                 "renewTime": before(silent)},
    })  # fmt: skip


@pytest.fixture
async def installed(api: CountingApi) -> CountingApi:
    for definition in definitions():
        await api.put(definition)
    return api


def which(node: some.Json, **more: Any) -> some.Json:
    meta = node["metadata"]
    boot = f"boot-of-{meta['name']}"
    return {"node": meta["name"], "nodeUID": meta["uid"], "bootID": boot} | more


async def test_a_bare_cluster_has_a_picture(api: CountingApi) -> None:
    await add_node(api, "n1", 1)
    picture = await look(api)
    assert (picture.installed, picture.configured, picture.kubevirt) == (False, False, False)
    assert (picture.leader, picture.problems) == (None, ())
    assert picture.policy.mode is Mode.OBSERVE
    [node] = picture.nodes
    assert (node.well, node.lease_age) == (True, 1.0)


@pytest.mark.parametrize(
    ("silent", "state"),
    [
        (0, Life.HEALTHY),
        (-30, Life.HEALTHY),
        (21, Life.HEALTHY),
        (23, Life.SUSPECT),
        (39, Life.SUSPECT),
        (41, Life.LOST),
        (9000, Life.LOST),
        (None, Life.HEALTHY),
    ],
)
async def test_a_node_stands_where_its_lease_says(
    api: CountingApi, silent: float | None, state: Life
) -> None:
    await add_node(api, "n1", silent)
    [node] = (await look(api)).nodes
    assert node.life.state is state


async def test_a_node_is_lost_since_its_silence_was_too_long(api: CountingApi) -> None:
    await add_node(api, "n1", 100)
    [node] = (await look(api)).nodes
    assert NOW.timestamp() - node.life.since == pytest.approx(60)


async def test_a_controller_that_renews_is_alive_and_one_that_does_not_is_not(
    api: CountingApi,
) -> None:
    await add_lease(api, "leader", "pod-1", 3)
    leader = (await look(api)).leader
    assert leader is not None
    assert (leader.holder, leader.age, leader.alive) == ("pod-1", 3.0, True)


async def test_a_controller_that_has_not_renewed_is_dead(api: CountingApi) -> None:
    await add_lease(api, "leader", "pod-1", 16)
    leader = (await look(api)).leader
    assert leader is not None
    assert not leader.alive


@pytest.mark.parametrize(
    ("holder", "known"),
    [("ha-1_k3jx9q.55f1b9e7", True), ("piraeus-ha-controller-b7c848b89-bwb78", False)],
)
async def test_a_controller_in_the_place_of_piraeus_is_found_and_piraeus_itself_is_not_ours(
    api: CountingApi, holder: str, known: bool
) -> None:
    named = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ha-controller"}}
    await api.put(named)
    await add_lease(api, "piraeus-ha-controller", holder, 3, "ha-controller")
    leader = (await look(api)).leader
    assert (leader is not None and leader.holder == holder) is known


async def test_what_the_leader_protects_by_labels_is_on_its_lease(api: CountingApi) -> None:
    chosen = OptIn((Requirement("ha", "In", ("yes",)),), by="the controller")
    said = {"backstay.dev/opt-in": msgspec.json.encode(chosen).decode()}
    await add_lease(api, "leader", "pod-1", 3, annotations=said)
    assert (await look(api)).opt_in == chosen


@pytest.mark.parametrize("said", ["", "{", "[]", '{"requirements": 7}'])
async def test_what_cannot_be_read_of_that_is_as_if_nothing_was_said(
    api: CountingApi, said: str
) -> None:
    written = {"backstay.dev/opt-in": said, "backstay.dev/notes": said}
    await add_lease(api, "leader", "pod-1", 3, annotations=written)
    seen = await look(api)
    assert seen.opt_in == PIRAEUS
    assert seen.leader is not None
    assert seen.leader.notes == ()


async def test_a_lease_that_was_given_up_is_nobodys(api: CountingApi) -> None:
    await add_lease(api, "leader", "", 3)
    assert (await look(api)).leader is None


@pytest.mark.parametrize(
    ("until", "mode"),
    [
        ("2020-01-01T00:00:00Z", Mode.ARMED),
        # Over by our clock, and not by that of the API, which shows the real time here.
        (before(5), Mode.DISARMED),
    ],
)
async def test_the_configuration_is_what_it_means_now(
    installed: CountingApi, until: str, mode: Mode
) -> None:
    spec = {"mode": "Armed", "disarmed": {"until": until, "reason": "work"}}
    await installed.put({
        "apiVersion": "backstay.dev/v1alpha1", "kind": "BackstayConfig",
        "metadata": {"name": "cluster"}, "spec": spec,
    })  # fmt: skip
    picture = await look(installed)
    assert (picture.installed, picture.configured) == (True, True)
    assert picture.policy.mode is mode


async def test_a_confirmation_and_an_incident_are_with_their_node(installed: CountingApi) -> None:
    node = await add_node(installed, "n1", 100)
    await add_node(installed, "n2", 1)
    for kind, spec in (
        ("DeathConfirmation", which(node, by="carla", reason="off", lastRenewal="")),
        ("Incident", which(node)),
    ):
        await installed.put({
            "apiVersion": "backstay.dev/v1alpha1", "kind": kind, "metadata": {"name": "x"},
            "spec": spec,
        })  # fmt: skip
    first, second = (await look(installed)).nodes
    assert [word.by for word in first.confirmations] == ["carla"]
    assert first.incident is not None
    assert (second.confirmations, second.incident) == ((), None)


async def test_what_may_not_be_read_is_a_problem_and_not_the_end(installed: CountingApi) -> None:
    await add_node(installed, "n1", 1)
    installed.refused = ("/incidents", "/leases/leader")
    picture = await look(installed)
    assert len(picture.problems) == 2
    assert picture.installed
    assert len(picture.nodes) == 1


async def test_without_nodes_there_is_no_picture(api: CountingApi) -> None:
    api.refused = ("/nodes",)
    with pytest.raises(Forbidden):
        await look(api)


@pytest.mark.parametrize(
    ("ages", "trustworthy"),
    [
        ((1, 1, 1), True),
        ((100, 1, 1), True),
        ((100, 1), True),
        ((100, 100, 1), False),
        ((100, 100), False),
        ((100,), True),
    ],
)
async def test_where_most_nodes_seem_silent_the_picture_is_not_trusted(
    api: CountingApi, ages: tuple[float, ...], trustworthy: bool
) -> None:
    for number, age in enumerate(ages):
        await add_node(api, f"n{number}", age)
    picture = await look(api)
    assert picture.trustworthy is trustworthy
    snapshot = picture.snapshot(picture.nodes[0], ())
    assert (snapshot.view_age == 0.0) is trustworthy


async def test_both_ways_to_read_the_workloads_agree(api: CountingApi) -> None:
    for node in ("n1", "n2"):
        owner = await api.put(some.stateful_set(f"db-{node}"))
        uid = owner["metadata"]["uid"]
        owners = some.owned_by("StatefulSet", f"db-{node}", uid=uid)
        claims = [f"data-{node}"]
        await api.put(some.claim(claims[0]))
        await api.put(some.volume(f"pv-data-{node}"))
        await api.put(some.pod(f"db-{node}-0", node=node, owners=owners, claims=claims))
    few = await workloads_on(api.client, ["n1", "n2"])
    every = await workloads_everywhere(api.client)
    assert few.workloads == every.workloads
    assert (few.problems, every.problems) == ((), ())
    assert [workload.name for workload in few.on("n2")] == ["db-n2-0"]
    assert few.on("n3") == ()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2030-01-01T12:00:00Z", NOW.timestamp()),
        ("2030-01-01T12:00:00.500000Z", NOW.timestamp() + 0.5),
        ("2030-01-01T14:00:00+02:00", NOW.timestamp()),
        ("", None),
        (None, None),
        ("yesterday", None),
    ],
)
def test_a_timestamp_says_a_moment_or_nothing(text: str | None, seconds: float | None) -> None:
    assert moment(text) == seconds


async def test_where_one_look_shows_less_the_incident_is_believed(installed: CountingApi) -> None:
    """A controller that was told to be less patient has seen more than we can at one look."""
    node = await add_node(installed, "n1", 15)
    unknown = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    await installed.client.merge_patch(NODES, "n1", unknown, subresource="status")
    await installed.put({
        "apiVersion": "backstay.dev/v1alpha1", "kind": "Incident", "metadata": {"name": "n1-1"},
        "spec": which(node),
    })  # fmt: skip
    told = {"state": "Lost", "code": "NodeLost", "sentence": "n1 is lost.", "openedAt": before(5)}
    await installed.client.merge_patch(INCIDENTS, "n1-1", {"status": told}, subresource="status")
    [sight] = (await look(installed)).nodes
    assert (sight.life.state, sight.life.why.sentence) == (Life.LOST, "n1 is lost.")

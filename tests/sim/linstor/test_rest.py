"""LINSTOR's REST interface, over a socket and in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from backstay.seam.errors import ConnectionLost, TimedOut
from backstay.seam.transport import Response
from backstay.sim.linstor.database import DEFAULT_GROUP, QUORUM, TWO_PRIMARIES
from backstay.sim.linstor.front import STREAM, Trouble
from backstay.sim.linstor.replicas import Kind
from backstay.sim.linstor.served import Lab, Served, serving
from tests.seam.worlds import World, in_memory, over_http
from tests.support.virtual import virtual_time

KINDS = {"memory": in_memory, "socket": over_http}


class Rig:
    """A LINSTOR controller with three nodes, and somebody who asks it."""

    def __init__(self, world: World, lab: Lab, served: Served) -> None:
        self.lab = lab
        self.served = served
        self.faults = served.faults
        self._world = world

    async def ask(self, path: str, **options: Any) -> Response:
        request = self._world.request(self.served.url + path, **options)
        return await self._world.transport.request(request)

    async def get(self, path: str) -> Any:
        answer = await self.ask(path)
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        return msgspec.json.decode(answer.body)

    async def replicas(self, name: str = "pvc-1") -> dict[str, Any]:
        found = await self.get(f"/v1/resource-definitions/{name}/resources")
        return {each["node_name"]: each for each in found}

    async def until(self, path: str, holds: Callable[[Any], bool]) -> Any:
        async with asyncio.timeout(5):
            while not holds(found := await self.get(path)):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.005)
        return found

    async def settled(self) -> None:
        """Until every satellite is there, and has told how things stand."""
        await self.until("/v1/nodes", lambda nodes: _states(nodes) == {"ONLINE"})
        path = "/v1/resource-definitions/pvc-1/resources"
        await self.until(path, lambda found: all(map(_is_told, found)))


def _code(answer: Response) -> int:
    (refusal,) = msgspec.json.decode(answer.body)
    return int(refusal["ret_code"])


def _is_told(replica: Any) -> bool:
    return "connections" in replica["layer_object"]["drbd"]


def _states(nodes: Any) -> set[str]:
    return {each["connection_status"] for each in nodes}


def _online(nodes: Any) -> list[str]:
    return [each["name"] for each in nodes if each["connection_status"] == "ONLINE"]


@asynccontextmanager
async def rig_over(kind: str, *nodes: str) -> AsyncIterator[Rig]:
    lab = Lab(*(nodes or ("n1", "n2", "n3")))
    lab.define("pvc-1")
    async with KINDS[kind]() as world:
        async with serving(world.serve, lab.controller()) as served:
            rig = Rig(world, lab, served)
            await rig.settled()
            yield rig
        lab.close()


@pytest.fixture(params=KINDS)
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    async with rig_over(request.param) as rig:
        yield rig


def in_virtual_time(test: Callable[[Rig], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """In memory alone: for what takes time, and for what cannot depend on what is below."""

    async def run_it() -> None:
        async with rig_over("memory") as rig:
            await test(rig)

    run_it.__name__, run_it.__doc__ = test.__name__, test.__doc__
    return virtual_time(run_it)


async def test_a_replica_has_the_fields_of_the_real_one(rig: Rig) -> None:
    rig.lab.drbd.promote("pvc-1", "n1")
    found = await rig.until(
        "/v1/resource-definitions/pvc-1/resources", lambda each: each[0]["state"]["in_use"]
    )
    first, second, _ = found
    assert first["name"] == "pvc-1"
    assert first["node_name"] == "n1"
    assert "flags" not in first, "an empty list is left out"
    drbd = first["layer_object"]["drbd"]
    assert first["layer_object"]["type"] == "DRBD"
    assert drbd["connections"]["n2"] == {"connected": True, "message": "Connected"}
    assert drbd["may_promote"] is False
    assert drbd["promotion_score"] == 10103
    assert drbd["drbd_volumes"][0]["disk_state"] == "UpToDate"
    assert second["state"] == {"in_use": False}
    assert second["layer_object"]["drbd"]["may_promote"] is False, "somebody else is Primary"


async def test_a_definition_its_group_and_the_controllers_properties_are_told(rig: Rig) -> None:
    database = rig.lab.database
    database.add_group("sc-1", {QUORUM: "all"})
    database.define("pvc-2", {"n1": Kind.DISKFUL}, group="sc-1")
    database.set_property(QUORUM, "off")
    one = await rig.get("/v1/resource-definitions/pvc-1")
    two = await rig.get("/v1/resource-definitions/pvc-2")
    assert (one["props"], one["resource_group_name"]) == ({QUORUM: "majority"}, DEFAULT_GROUP)
    assert "props" not in two, "what is empty is left out"
    assert two["resource_group_name"] == "sc-1"
    assert (await rig.get("/v1/resource-groups/sc-1"))["props"] == {QUORUM: "all"}
    assert await rig.get("/v1/controller/properties") == {QUORUM: "off"}
    assert [each["name"] for each in await rig.get("/v1/resource-definitions")] == [
        "pvc-1",
        "pvc-2",
    ]
    named = await rig.get("/v1/resource-definitions?resource_definitions=PVC-2")
    assert [each["name"] for each in named] == ["pvc-2"]


async def test_what_is_not_there_is_refused_with_a_list_of_codes(rig: Rig) -> None:
    for path in ("/v1/resource-definitions/pvc-9", "/v1/resource-definitions/pvc-9/resources"):
        answer = await rig.ask(path)
        assert answer.status == 404
        (refusal,) = msgspec.json.decode(answer.body)
        assert refusal["ret_code"] == -4611686018427387603
        assert refusal["message"] == "Resource definition 'pvc-9' not found."
    answer = await rig.ask("/v1/resource-groups/none")
    assert (answer.status, _code(answer)) == (404, -4611686018427387587)


async def test_a_path_that_is_not_served_is_refused_as_an_unknown_error(rig: Rig) -> None:
    answer = await rig.ask("/v1/nope")
    assert (answer.status, _code(answer)) == (404, -4611686018427386906)
    answer = await rig.ask("/v1/nodes", method="DELETE")
    assert (answer.status, _code(answer)) == (405, -4611686018427386906)


@pytest.mark.parametrize("name", ["-bad", "1abc", "a", "a.b", "x" * 49])
async def test_to_ask_for_a_name_that_no_resource_can_have_fails(rig: Rig, name: str) -> None:
    for path in (
        f"/v1/resource-definitions/{name}",
        f"/v1/resource-definitions/{name}/resources",
        f"/v1/resource-definitions?resource_definitions=pvc-1&resource_definitions={name}",
    ):
        answer = await rig.ask(path)
        assert (answer.status, _code(answer)) == (500, -4611686018427387702)


@in_virtual_time
async def test_a_group_is_shown_as_it_was_written_and_without_what_is_empty(rig: Rig) -> None:
    found = await rig.get("/v1/resource-groups/dfltrscgrp")
    assert found["name"] == DEFAULT_GROUP
    assert "props" not in found


@in_virtual_time
async def test_a_setting_of_one_replica_or_one_node_is_told_and_holds_there_alone(
    rig: Rig,
) -> None:
    rig.lab.database.set_property(QUORUM, "off", resource="pvc-1", node="n2")
    rig.lab.database.set_property(QUORUM, "off", node="n3")
    found = await rig.replicas()
    assert found["n2"]["props"] == {QUORUM: "off"}
    assert "props" not in found["n1"]
    nodes = {each["name"]: each["props"] for each in await rig.get("/v1/nodes")}
    assert nodes["n3"][QUORUM] == "off"
    assert QUORUM not in nodes["n2"]
    resource = rig.lab.drbd.resources["pvc-1"]
    assert [resource.options_of(node).quorum for node in ("n1", "n2", "n3")] == [
        "majority",
        "off",
        "majority",
    ], "the resource's own goes before the node's"


@in_virtual_time
async def test_connections_have_settings_of_their_own(rig: Rig) -> None:
    path = "/v1/resource-definitions/pvc-1/resource-connections"
    pairs = [("n1", "n2"), ("n1", "n3"), ("n2", "n3")]
    assert await rig.get(path) == [{"node_a": one, "node_b": other} for one, other in pairs]
    assert await rig.get("/v1/node-connections") == []
    allowed = {"props": {TWO_PRIMARIES: "yes"}}
    rig.lab.database.allow_two_primaries_between("n1", "n3", resource="pvc-1")
    rig.lab.database.allow_two_primaries_between("n3", "n2")
    assert (await rig.get(path))[1] == {"node_a": "n1", "node_b": "n3", **allowed}
    assert await rig.get("/v1/node-connections") == [{"node_a": "n2", "node_b": "n3", **allowed}]
    rig.lab.database.define("apart", {"n1": Kind.DISKFUL, "n2": Kind.DISKFUL})
    allows = {
        name: each.options.allow_two_primaries for name, each in rig.lab.drbd.resources.items()
    }
    assert allows == {"pvc-1": True, "apart": False}


@in_virtual_time
async def test_a_definition_without_replicas_has_an_empty_list(rig: Rig) -> None:
    rig.lab.database.define("bare", {})
    assert await rig.get("/v1/resource-definitions/bare/resources") == []


async def test_the_version_and_health_are_told(rig: Rig) -> None:
    assert (await rig.get("/v1/controller/version"))["rest_api_version"].startswith("1.")
    assert await rig.ask("/health") == Response(200, (await rig.ask("/health")).headers, b"")


@in_virtual_time
async def test_the_kinds_of_replicas_show_in_their_flags(rig: Rig) -> None:
    kinds = {"n1": Kind.DISKFUL, "n2": Kind.DISKLESS, "n3": Kind.TIE_BREAKER}
    rig.lab.database.define("mixed", kinds)
    found = await rig.replicas("mixed")
    assert {node: each.get("flags") for node, each in found.items()} == {
        "n1": None,
        "n2": ["DISKLESS", "DRBD_DISKLESS"],
        "n3": ["DISKLESS", "DRBD_DISKLESS", "TIE_BREAKER"],
    }


@in_virtual_time
async def test_a_resource_without_drbd_says_so(rig: Rig) -> None:
    rig.lab.define("local", has_drbd=False)
    found = await rig.replicas("local")
    assert {each["layer_object"]["type"] for each in found.values()} == {"STORAGE"}


async def test_names_are_shown_as_they_were_written_and_found_in_any_case() -> None:
    async with rig_over("memory", "Node-A", "NODE-B") as rig:
        found = await rig.replicas("PVC-1")
        assert list(found) == ["Node-A", "NODE-B"]
        connections = found["Node-A"]["layer_object"]["drbd"]["connections"]
        assert list(connections) == ["NODE-B"]


@in_virtual_time
async def test_a_view_has_volumes_and_can_be_narrowed(rig: Rig) -> None:
    rig.lab.define("pvc-2")
    everything = await rig.get("/v1/view/resources")
    assert len(everything) == 6
    (one,) = await rig.get("/v1/view/resources?resources=pvc-2&nodes=n3&nodes=n9")
    assert (one["name"], one["node_name"]) == ("pvc-2", "n3")
    assert one["volumes"][0]["provider_kind"] == "LVM_THIN"


# Satellites


async def test_nothing_is_known_of_the_replicas_of_an_offline_satellite(rig: Rig) -> None:
    rig.lab.cut_off("n1")
    nodes = await rig.until("/v1/nodes", lambda nodes: "OFFLINE" in _states(nodes))
    assert [each["name"] for each in nodes if each["connection_status"] == "OFFLINE"] == ["n1"]
    replica = (await rig.replicas())["n1"]
    drbd = replica["layer_object"]["drbd"]
    assert "state" not in replica
    assert not {"connections", "may_promote", "promotion_score"} & drbd.keys()
    assert "disk_state" not in drbd["drbd_volumes"][0]
    rig.lab.heal("n1")
    await rig.settled()
    assert "state" in (await rig.replicas())["n1"]


@in_virtual_time
async def test_what_a_satellite_told_last_is_told_until_its_silence_is_noticed(rig: Rig) -> None:
    rig.lab.cut_off("n1")
    rig.lab.drbd.shut_down("n1")
    found = await rig.replicas()
    assert found["n1"]["state"] == {"in_use": False}
    assert found["n1"]["layer_object"]["drbd"]["connections"]["n2"]["connected"] is True
    assert _states(await rig.get("/v1/nodes")) == {"ONLINE"}


@in_virtual_time
async def test_a_satellite_can_stay_online_although_it_is_dead(rig: Rig) -> None:
    rig.lab.drbd.promote("pvc-1", "n1")
    await rig.until(
        "/v1/resource-definitions/pvc-1/resources", lambda each: each[0]["state"]["in_use"]
    )
    rig.lab.hearing.sticky.add("n1")
    rig.lab.cut_off("n1")
    resource = rig.lab.drbd.resources["pvc-1"]
    await rig.lab.until(lambda: resource.sight("n2").may_promote)
    assert _states(await rig.get("/v1/nodes")) == {"ONLINE"}
    found = await rig.replicas()
    assert found["n1"]["state"] == {"in_use": True}
    assert found["n2"]["layer_object"]["drbd"]["may_promote"] is True


@in_virtual_time
async def test_a_satellite_can_begin_to_stay_online_when_it_is_already_missed(rig: Rig) -> None:
    rig.lab.cut_off("n1")
    await asyncio.sleep(0.01)
    rig.lab.hearing.sticky.add("n1")
    await asyncio.sleep(60)
    assert _states(await rig.get("/v1/nodes")) == {"ONLINE"}


@in_virtual_time
async def test_a_satellite_that_ends_is_missed_at_once_while_drbd_goes_on(rig: Rig) -> None:
    rig.lab.drbd.promote("pvc-1", "n1")
    rig.lab.stop_satellite("n1")
    await asyncio.sleep(0)
    assert _online(await rig.get("/v1/nodes")) == ["n2", "n3"]
    found = await rig.replicas()
    assert "state" not in found["n1"]
    assert found["n2"]["layer_object"]["drbd"]["connections"]["n1"]["connected"] is True
    assert rig.lab.drbd.can_write("pvc-1", "n1")


@in_virtual_time
async def test_a_satellite_that_is_back_is_online_before_it_tells_how_things_stand(
    rig: Rig,
) -> None:
    rig.lab.stop_satellite("n1")
    await asyncio.sleep(0)
    rig.lab.start_satellite("n1")
    seen: list[str] = []
    while "in_use" not in seen[-1:]:
        replica = (await rig.replicas())["n1"]
        online = "n1" in _online(await rig.get("/v1/nodes"))
        seen += list(replica.get("state", {})) or ["online" if online else "offline"]
        await asyncio.sleep(0.0005)
    assert list(dict.fromkeys(seen)) == ["offline", "online", "in_use"]


@in_virtual_time
async def test_an_evicted_satellite_is_flagged_and_forgotten_by_the_other_replicas(
    rig: Rig,
) -> None:
    rig.lab.stop_satellite("n1")
    await asyncio.sleep(0)
    rig.lab.database.evict("n1")
    rig.lab.start_satellite("n1")
    await asyncio.sleep(60)
    first, *others = await rig.get("/v1/nodes")
    assert first["flags"] == ["DELETE", "EVICTED"]
    assert first["connection_status"] == "OFFLINE", "nobody tries to reach it any more"
    assert not any("flags" in each for each in others)
    found = await rig.replicas()
    assert found["n1"]["flags"] == ["INACTIVE", "EVICTED"]
    assert found["n2"]["layer_object"]["drbd"]["connections"].keys() == {"n3"}


@in_virtual_time
async def test_a_stale_controller_tells_what_was(rig: Rig) -> None:
    rig.lab.hearing.stale = True
    rig.lab.drbd.promote("pvc-1", "n1")
    await asyncio.sleep(0)
    assert (await rig.replicas())["n1"]["state"] == {"in_use": False}


# Trouble


@pytest.mark.parametrize(
    ("trouble", "status"),
    [
        (Trouble.HTML, 200),
        (Trouble.REDIRECT, 302),
        (Trouble.UNAUTHORIZED, 401),
        (Trouble.FORBIDDEN, 403),
        (Trouble.BROKEN, 500),
        (Trouble.UNAVAILABLE, 503),
    ],
)
async def test_each_kind_of_refusal_is_had_on_rest_and_on_the_stream(
    rig: Rig, trouble: Trouble, status: int
) -> None:
    rig.faults.trouble = trouble
    for path in ("/v1/nodes", STREAM):
        answer = await rig.ask(path)
        assert answer.status == status
        is_page = trouble in (Trouble.HTML, Trouble.UNAVAILABLE)
        assert answer.body.startswith(b"<!doctype html") is is_page
    assert (await rig.ask("/health")).status == 200


async def test_a_redirect_goes_to_https_and_loses_the_query(rig: Rig) -> None:
    rig.faults.trouble = Trouble.REDIRECT
    answer = await rig.ask("/v1/view/resources?nodes=n1")
    assert answer.headers["location"] == "https://127.0.0.1:3371/v1/view/resources"


@in_virtual_time
async def test_trouble_can_be_kept_to_some_paths(rig: Rig) -> None:
    rig.faults.trouble, rig.faults.on = Trouble.BROKEN, STREAM
    assert (await rig.ask("/v1/nodes")).status == 200
    assert (await rig.ask(STREAM)).status == 500


async def test_a_silent_controller_takes_connections_and_says_nothing(rig: Rig) -> None:
    rig.faults.trouble = Trouble.SILENT
    with pytest.raises(TimedOut):
        await rig.ask("/v1/nodes", timeout=0.1)


async def test_an_answer_can_break_off(rig: Rig) -> None:
    rig.faults.trouble = Trouble.BREAKS_OFF
    with pytest.raises(ConnectionLost):
        await rig.ask("/v1/nodes")


@in_virtual_time
async def test_an_answer_can_be_garbled_empty_or_full_of_huge_numbers(rig: Rig) -> None:
    path = "/v1/resource-definitions/pvc-1/resources"
    rig.faults.trouble = Trouble.GARBLED
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode((await rig.ask(path)).body)
    rig.faults.trouble = Trouble.EMPTY
    assert await rig.get(path) == []
    rig.faults.trouble = Trouble.HUGE_NUMBERS
    assert b"18446744073709551608" in (await rig.ask(path)).body


@in_virtual_time
async def test_answers_can_be_slow(rig: Rig) -> None:
    rig.faults.seconds = 0.2
    with pytest.raises(TimedOut):
        await rig.ask("/v1/nodes", timeout=0.05)
    assert (await rig.ask("/v1/nodes", timeout=2)).status == 200


@pytest.mark.parametrize("wants", ["Basic dTpw", "Bearer letmein"])
async def test_who_cannot_say_who_he_is_is_told_how(rig: Rig, wants: str) -> None:
    rig.faults.wants = wants
    answer = await rig.ask("/v1/nodes")
    assert answer.status == 401
    assert answer.headers["www-authenticate"].startswith(wants.partition(" ")[0])
    assert (await rig.ask("/v1/nodes", headers={"Authorization": wants})).status == 200


async def test_a_long_answer_is_compressed_for_who_asks_for_it(rig: Rig) -> None:
    path = "/v1/resource-definitions/pvc-1/resources"
    packed = await rig.ask(path, headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    plain = await rig.ask(path, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert packed.body == plain.body, "it was unpacked on the way"
    short = await rig.ask("/v1/controller/version", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in short.headers

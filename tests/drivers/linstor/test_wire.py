"""LINSTOR's JSON as values: what is left out stays unknown, and what cannot be read is not
overlooked."""

from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.drivers.linstor import wire
from backstay.drivers.linstor.wire import (
    QUORUM,
    TWO_PRIMARIES,
    Options,
    Promotion,
    Refusal,
    Satellite,
    Unreadable,
)

Json = dict[str, Any]


def on_the_wire(node: str = "node-a", **changes: Any) -> Json:
    """One replica as a controller sends it, with much that is none of our business."""
    drbd = {
        "drbd_resource_definition": {"peer_slots": 7, "port": 7000, "secret": "s3cret"},
        "node_id": 0,
        "drbd_volumes": [{"device_path": "/dev/drbd1000", "disk_state": "UpToDate"}],
        "connections": {
            "Node-B": {"connected": True, "message": "Connected"},
            "node-c": {"connected": False, "message": "Connecting"},
        },
        "promotion_score": 10103,
        "may_promote": False,
    }
    return {
        "name": "PVC-1",
        "node_name": node,
        "layer_object": {"children": [{"type": "STORAGE"}], "type": "DRBD", "drbd": drbd},
        "state": {"in_use": True},
        "uuid": "e8ef8d6b",
        "create_timestamp": 1700000000000,
        **changes,
    }


def drbd(**fields: Any) -> Json:
    return {"type": "DRBD", "drbd": fields}


def replica(**changes: Any) -> wire.Replica:
    (read,) = wire.replicas_from(msgspec.json.encode([on_the_wire(**changes)]), "pvc-1")
    return read


# Replicas


def test_a_replica_is_read_with_its_names_in_lower_case() -> None:
    assert replica(node="Node-A") == wire.Replica(
        resource="pvc-1",
        node="node-a",
        drbd=True,
        diskful=True,
        in_use=True,
        may_promote=False,
        up_to_date=True,
        connections={"node-b": True, "node-c": False},
    )


@pytest.mark.parametrize("state", [None, {}, {"in_use": None}])
def test_a_state_that_is_left_out_is_unknown(state: Json | None) -> None:
    assert replica(state=state).in_use is None


@pytest.mark.parametrize("said", [True, False, None])
def test_whether_it_may_be_promoted_has_three_answers(said: bool | None) -> None:
    assert replica(layer_object=drbd(may_promote=said)).may_promote is said
    if said is None:
        assert replica(layer_object=drbd()).may_promote is None


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (["UpToDate"], True),
        (["UpToDate", "Inconsistent"], False),
        (["Outdated"], False),
        (["UpToDate", None], None),
        ([], None),
    ],
)
def test_a_disk_is_up_to_date_if_all_its_volumes_are_told_to_be(
    states: list[str | None], said: bool | None
) -> None:
    volumes = [{} if state is None else {"disk_state": state} for state in states]
    assert replica(layer_object=drbd(drbd_volumes=volumes)).up_to_date is said
    assert replica(layer_object=drbd()).up_to_date is None


def test_connections_that_are_not_reported_are_not_none_at_all() -> None:
    assert replica(layer_object=drbd()).connections is None
    assert replica(layer_object=drbd(connections={})).connections == {}


@pytest.mark.parametrize(
    ("connection", "connected"),
    [
        ({"connected": True}, True),
        ({"connected": False}, False),
        ({"message": "Connected"}, True),
        ({"message": "StandAlone"}, False),
        ({"connected": False, "message": "Connected"}, True),
        ({"connected": True, "message": "Connecting"}, True),
        ({}, None),
    ],
)
def test_a_doubtful_connection_is_one(connection: Json, connected: bool | None) -> None:
    found = replica(layer_object=drbd(connections={"node-b": connection})).connections
    assert found is not None
    assert found.get("node-b") is connected


def test_peers_that_differ_in_case_only_are_one_and_connected_if_either_is() -> None:
    connections = {"NODE-B": {"connected": True}, "node-b": {"connected": False}}
    assert replica(layer_object=drbd(connections=connections)).connections == {"node-b": True}


@pytest.mark.parametrize(
    ("flags", "diskful"),
    [
        (None, True),
        ([], True),
        (["CLEAN", "SOMETHING_NEW"], True),
        (["DISKLESS", "DRBD_DISKLESS"], False),
        (["DISKLESS", "DRBD_DISKLESS", "TIE_BREAKER"], False),
        (["drbd_diskless"], False),
    ],
)
def test_its_flags_say_whether_it_has_a_disk(flags: list[str] | None, diskful: bool) -> None:
    read = replica(flags=flags)
    assert read.diskful is diskful
    assert read.flags == {flag.upper() for flag in flags or ()}


@pytest.mark.parametrize("layer", [{"type": "STORAGE"}, {"type": "LUKS"}, {}, None])
def test_a_replica_without_drbd_on_top_says_nothing_of_drbd(layer: Json | None) -> None:
    read = replica(layer_object=layer)
    assert not read.drbd
    assert read.may_promote is None
    assert read.connections is None


def test_a_resource_without_replicas_has_none() -> None:
    assert wire.replicas_from(b"[]", "pvc-1") == ()


@pytest.mark.parametrize("number", [2**63, 2**64, 10**30, -(10**30), 1e300])
def test_numbers_of_any_size_are_no_trouble(number: float) -> None:
    assert replica(create_timestamp=number, something={"deep": [number]}).in_use is True


@pytest.mark.parametrize(
    "broken",
    [
        {"node_name": None},
        {"name": 7},
        {"flags": "DISKLESS"},
        {"state": {"in_use": "yes"}},
        {"layer_object": drbd(may_promote="no")},
        {"layer_object": drbd(connections={"node-b": {"connected": 1}})},
        {"layer_object": drbd(connections=[])},
        {"layer_object": []},
    ],
)
def test_a_list_with_one_unreadable_replica_is_no_list(broken: Json) -> None:
    body = msgspec.json.encode([on_the_wire("node-a"), {**on_the_wire("node-b"), **broken}])
    with pytest.raises(Unreadable, match="the list of the replicas of pvc-1 cannot be read"):
        wire.replicas_from(body, "pvc-1")


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b"<html>", b"[", b'[{"name":"\xff"}]'])
def test_what_is_no_list_is_no_empty_list(body: bytes) -> None:
    with pytest.raises(Unreadable):
        wire.replicas_from(body, "pvc-1")


def test_depth_without_end_is_unreadable_and_not_our_end() -> None:
    depth = 200_000
    nested = b'[{"name":"a","node_name":"b","layer_object":' + b"[" * depth + b"]" * depth + b"}]"
    with pytest.raises(Unreadable):
        wire.replicas_from(nested, "a")


def test_replicas_of_something_else_are_not_taken_for_its_own() -> None:
    body = msgspec.json.encode([on_the_wire(), on_the_wire("node-b", name="pvc-2")])
    with pytest.raises(Unreadable, match="has others in it"):
        wire.replicas_from(body, "pvc-1")


def test_two_replicas_on_one_node_contradict_each_other() -> None:
    body = msgspec.json.encode([on_the_wire("NODE-A"), on_the_wire("node-a")])
    with pytest.raises(Unreadable, match="has a node twice"):
        wire.replicas_from(body, "pvc-1")


# Definitions and what is in effect


def test_a_definition_is_read_with_its_group_and_props() -> None:
    sent = {"name": "PVC-1", "props": {QUORUM: "majority"}, "resource_group_name": "sc-1"}
    read = wire.definition_from(msgspec.json.encode(sent), "pvc-1")
    assert read == wire.Definition("pvc-1", "sc-1", {QUORUM: "majority"})


def test_the_definition_of_another_resource_is_not_its_own() -> None:
    with pytest.raises(Unreadable, match="is that of another"):
        wire.definition_from(b'{"name":"pvc-2"}', "pvc-1")


def test_of_many_definitions_one_that_cannot_be_read_is_missing_and_the_rest_is_there() -> None:
    body = b'[{"name":"A"},{"name":"b","props":{"x":1}},7,{"name":"c"}]'
    assert sorted(wire.definitions_from(body)) == ["a", "c"]


@pytest.mark.parametrize(
    ("resource", "group", "controller", "options"),
    [
        ({}, {}, {}, Options("", False)),
        ({"q": "majority"}, {"q": "off"}, {"q": "off"}, Options("majority", False)),
        ({}, {"q": "all"}, {"q": "off"}, Options("all", False)),
        ({}, {}, {"q": "Majority "}, Options("majority", False)),
        ({"q": "off"}, {"q": "majority"}, {}, Options("off", False)),
        ({"q": ""}, {"q": "majority"}, {}, Options("", False)),
        ({"two": "yes"}, {}, {}, Options("", True)),
        ({"two": "no"}, {"two": "yes"}, {}, Options("", False)),
        ({}, {"two": "yes"}, {"two": "no"}, Options("", True)),
        ({}, {}, {"two": "True"}, Options("", True)),
        ({"two": "perhaps"}, {}, {}, Options("", None)),
        ({"two": ""}, {}, {}, Options("", None)),
    ],
)
def test_what_is_set_nearest_to_the_resource_is_in_effect(
    resource: Json, group: Json, controller: Json, options: Options
) -> None:
    keys = {"q": QUORUM, "two": TWO_PRIMARIES}
    layers = [
        {keys[key]: value for key, value in each.items()} for each in (resource, group, controller)
    ]
    assert wire.options_from(layers) == options


def test_what_is_set_for_one_replica_or_one_node_is_read_with_it() -> None:
    props = {QUORUM: " Off", TWO_PRIMARIES: "Yes", "DrbdOptions/Disk/on-io-error": "detach"}
    own = {QUORUM: "off", TWO_PRIMARIES: "yes"}
    assert replica(props=props).own == own
    node = {"name": "node-a", "connection_status": "ONLINE", "props": props}
    assert wire.satellites_from(msgspec.json.encode([node]))[0].own == own
    assert replica().own == replica(props={}).own == {}


@pytest.mark.parametrize(
    ("options", "own", "weakest"),
    [
        (Options("majority", False), [{}, {}], Options("majority", False)),
        (Options("majority", False), [{}, {QUORUM: "off"}], Options("off", False)),
        (Options("majority", False), [{QUORUM: ""}], Options("", False)),
        (Options("majority", False), [{QUORUM: "1"}, {QUORUM: "all"}], Options("1", False)),
        (Options("all", False), [{QUORUM: "all"}], Options("all", False)),
        (Options("all", False), [{QUORUM: "majority"}], Options("majority", False)),
        (Options("off", False), [{QUORUM: "majority"}], Options("off", False)),
        (Options("all", False), [{}, {TWO_PRIMARIES: "yes"}], Options("all", True)),
        (Options("all", False), [{TWO_PRIMARIES: "perhaps"}], Options("all", None)),
        (Options("all", True), [{TWO_PRIMARIES: "no"}], Options("all", True)),
        (Options("all", None), [{TWO_PRIMARIES: "no"}], Options("all", None)),
        (Options("all", None), [{TWO_PRIMARIES: "yes"}], Options("all", True)),
    ],
)
def test_no_replica_is_taken_for_bound_by_what_it_overrules(
    options: Options, own: list[Json], weakest: Options
) -> None:
    replicas = [
        wire.Replica(resource="pvc-1", node=f"n{number}", drbd=True, diskful=True, own=each)
        for number, each in enumerate(own)
    ]
    plain = [msgspec.structs.replace(each, own={}) for each in replicas]
    satellites = [
        Satellite(node=each.node, online=True, status="ONLINE", evicted=False, own=each.own)
        for each in replicas
    ]
    assert wire.weakest(options, replicas, ()) == weakest
    assert wire.weakest(options, plain, satellites) == weakest
    assert wire.weakest(options, (), satellites) == options, "they have no replica of it"


def test_a_group_that_was_not_asked_for_is_not_it() -> None:
    assert wire.group_props_from(b'{"name":"SC-1","props":{"a":"b"}}', "sc-1") == {"a": "b"}
    with pytest.raises(Unreadable):
        wire.group_props_from(b'{"name":"sc-2"}', "sc-1")


# Satellites


@pytest.mark.parametrize(
    ("status", "online"),
    [("ONLINE", True), ("online", True), ("OFFLINE", False), ("CONNECTED", False), ("", False)],
)
def test_a_satellite_is_online_if_the_controller_says_just_that(status: str, online: bool) -> None:
    node = {"name": "Node-A", "type": "SATELLITE", "connection_status": status, "props": {}}
    (read,) = wire.satellites_from(msgspec.json.encode([node]))
    expected = Satellite(node="node-a", online=online, status=status.upper(), evicted=False)
    assert read == expected


def test_an_evicted_satellite_is_known_as_such() -> None:
    node = {"name": "node-a", "flags": ["DELETE", "EVICTED"], "connection_status": "OFFLINE"}
    assert wire.satellites_from(msgspec.json.encode([node]))[0].evicted


@pytest.mark.parametrize("body", [b'[{"name":"a"},{"name":"A"}]', b'[{"name":"a"},{}]', b"{}"])
def test_a_list_of_nodes_that_cannot_be_trusted_is_none(body: bytes) -> None:
    with pytest.raises(Unreadable):
        wire.satellites_from(body)


# Events, versions and refusals


@pytest.mark.parametrize(
    ("said", "heard"), [("true", True), ("false", False), ("null", None), ("", None)]
)
def test_an_event_has_three_answers_too(said: str, heard: bool | None) -> None:
    more = f',"may_promote":{said}' if said else ""
    data = f'{{"resource_name":"PVC-1","node_name":"Node-A"{more}}}'.encode()
    assert wire.promotion_from(data) == Promotion("pvc-1", "node-a", heard)


def test_the_version_is_the_controllers() -> None:
    assert wire.version_from(b'{"version":"1.33.3","rest_api_version":"1.27.0"}') == "1.33.3"


def test_linstor_explains_itself_in_a_list_or_alone_and_nobody_else_does() -> None:
    refusal = Refusal(-4611686018427387603, "not found")
    alone = msgspec.json.encode(refusal)
    assert wire.refusals_from(alone) == wire.refusals_from(b"[" + alone + b"]") == (refusal,)
    for body in (b"", b"<html>", b'{"message":"not LINSTOR"}', b'"text"'):
        assert wire.refusals_from(body) == ()


# Anything at all

KEYS = st.sampled_from(
    ["name", "node_name", "flags", "layer_object", "type", "drbd", "connections", "connected",
     "message", "may_promote", "state", "in_use", "props", "connection_status", "resource_name",
     "resource_group_name", "version", "ret_code", "drbd_volumes", "disk_state", QUORUM]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["pvc-1", "DRBD", "Connected", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)


@given(VALUES.map(msgspec.json.encode) | st.binary(max_size=50))
def test_whatever_comes_is_read_or_unreadable_and_nothing_else_happens(body: bytes) -> None:
    for read in (
        partial(wire.replicas_from, resource="pvc-1"),
        partial(wire.definition_from, resource="pvc-1"),
        partial(wire.group_props_from, group="pvc-1"),
        wire.definitions_from,
        wire.properties_from,
        wire.satellites_from,
        wire.promotion_from,
        wire.version_from,
        wire.refusals_from,
    ):
        with suppress(Unreadable):
            read(body)


# As LINSTOR 1.33.3 was seen to send it: one satellite is OFFLINE, one was started again and has
# told of nothing but what changed since, and one is ONLINE and has told nothing yet.
ACTUAL = (
    b'[{"name":"Pvc-1","node_name":"node-1","layer_object":{"children":[{"type":"STORAGE",'
    b'"storage":{}}],"type":"DRBD","drbd":{"drbd_resource_definition":{"peer_slots":7,'
    b'"al_stripes":1,"al_stripe_size_kib":32,"port":-1,"transport_type":"IP","secret":"-",'
    b'"down":false},"node_id":0,"tcp_ports":[7000],"peer_slots":7,"al_stripes":1,"al_size":32,'
    b'"flags":["INITIALIZED"]}},"uuid":"bf7647e9-6cfe-450d-880d-5afd313934d7",'
    b'"create_timestamp":1794842389833},{"name":"Pvc-1","node_name":"Node-B","layer_object":'
    b'{"children":[{"type":"STORAGE","storage":{}}],"type":"DRBD","drbd":{"node_id":1,'
    b'"tcp_ports":[7000],"flags":["INITIALIZED"],"connections":{"node-1":{"connected":false,'
    b'"message":"Connecting"}},"promotion_score":10102,"may_promote":true}},"state":'
    b'{"in_use":false},"uuid":"5f741942-bad9-4ea6-b401-ac1393b09b31","create_timestamp":'
    b'1794842390428},{"name":"Pvc-1","node_name":"node-3","props":{"StorPoolName":'
    b'"DfltDisklessStorPool"},"flags":["DISKLESS","DRBD_DISKLESS","TIE_BREAKER"],"layer_object":'
    b'{"children":[{"type":"STORAGE","storage":{}}],"type":"DRBD","drbd":{"node_id":2,'
    b'"flags":["DISKLESS","INITIALIZED"]}},"state":{},"uuid":'
    b'"0d0756ce-f050-4873-9ea8-e59653fb842e","create_timestamp":1794842662155}]'
)


def test_what_satellites_have_not_told_stays_unknown() -> None:
    offline, restarted, new = wire.replicas_from(ACTUAL, "pvc-1")
    assert [each.node for each in (offline, restarted, new)] == ["node-1", "node-b", "node-3"]
    assert (offline.in_use, offline.may_promote, offline.connections) == (None, None, None)
    assert (restarted.in_use, restarted.may_promote) == (False, True)
    assert restarted.connections == {"node-1": False}, "and nothing of node-3"
    assert (new.in_use, new.may_promote, new.connections) == (None, None, None)
    assert [each.diskful for each in (offline, restarted, new)] == [True, True, False]

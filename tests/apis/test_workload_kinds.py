"""Guests, claims, volumes, StatefulSets and the pods of a node: each field from where it is."""

from typing import Any

import msgspec
import pytest

from backstay.apis.apps import STATEFUL_SET_PROJECTION
from backstay.apis.kubevirt import INSTANCE_PROJECTION, VIRTUAL_MACHINE_PROJECTION
from backstay.apis.placement import Binding, NodeSelector, bound_to
from backstay.apis.pods import HELD_POD_PROJECTION, HeldPod, Owner
from backstay.apis.storage import CLAIM_PROJECTION, VOLUME_PROJECTION, ClaimRow, VolumeRow
from backstay.kube.projection import Projection
from tests.support import objects as some

Json = dict[str, Any]


def row(projection: Projection[Any, Any], body: Json) -> Any:
    listed = {"metadata": {"resourceVersion": "9"}, "items": [body]}
    page = projection.page(msgspec.json.encode(listed), call="GET /things")
    assert page.unreadable == []
    return page.rows[0]


def bare(body: Json) -> Json:
    """Nothing but its identity."""
    kept = ("name", "namespace", "uid", "resourceVersion")
    return {"metadata": {key: body["metadata"][key] for key in kept if key in body["metadata"]}}


def test_a_pod_of_a_node_has_every_field_in_its_place() -> None:
    body = some.pod(
        "db-0",
        owners=some.owned_by("StatefulSet", "db"),
        labels={"app": "db"},
        claims=["data"],
        metadata={"deletionTimestamp": "2030-01-01T00:00:00Z"},
        priority=9,
        nodeSelector={"kubernetes.io/hostname": "n1"},
    )
    body["spec"]["volumes"].append({"name": "own", "ephemeral": {"volumeClaimTemplate": {}}})
    assert row(HELD_POD_PROJECTION, body) == HeldPod(
        key="shop/db-0",
        uid="uid-db-0",
        version="7",
        namespace="shop",
        name="db-0",
        node="n1",
        phase="Running",
        deleting=True,
        priority=9,
        labels={"app": "db"},
        owner=Owner("apps/v1", "StatefulSet", "db", "uid-db", controller=True),
        mirror=False,
        claims=("data", "db-0-own"),
        others=(),
        bindings=(Binding("kubernetes.io/hostname", "n1"),),
    )


def test_a_pod_may_say_nothing() -> None:
    found = row(HELD_POD_PROJECTION, bare(some.pod("p")))
    assert (found.owner, found.claims, found.others, found.bindings) == (None, (), (), ())


@pytest.mark.parametrize(
    "kind", ["configMap", "secret", "projected", "emptyDir", "downwardAPI", "image"]
)
def test_volumes_that_die_with_the_pod_are_not_kept(kind: str) -> None:
    mounts = [{"name": "v", "mountPath": "/v"}]
    body = some.pod(
        "p",
        volumes=[{"name": "v", kind: {}}],
        containers=[{"name": "c", "image": "i", "volumeMounts": mounts}],
    )
    assert row(HELD_POD_PROJECTION, body).others == ()


def test_a_volume_that_only_an_init_container_writes_to_counts() -> None:
    mounts = [{"name": "v", "mountPath": "/v"}]
    body = some.pod(
        "p",
        volumes=[{"name": "v", "nfs": {"server": "s", "path": "/"}}],
        initContainers=[{"name": "c", "image": "i", "volumeMounts": mounts}],
    )
    assert row(HELD_POD_PROJECTION, body).others == ("nfs",)


def test_a_guest_has_its_place_its_owner_and_its_disks() -> None:
    body = some.instance(
        "web",
        volumes=[
            {"name": "a", "persistentVolumeClaim": {"claimName": "root", "hotpluggable": True}},
            {"name": "b", "dataVolume": {"name": "imported"}},
            {"name": "c", "memoryDump": {"claimName": "dump"}},
            {"name": "d", "cloudInitNoCloud": {"userData": "x"}},
            {"name": "e", "hostDisk": {"path": "/disk.img", "type": "Disk"}},
        ],
        devices={"gpus": [{"name": "g", "deviceName": "A100"}], "hostDevices": [{"name": "nic"}]},
    )
    found = row(INSTANCE_PROJECTION, body)
    assert (found.node, found.phase) == ("n1", "Running")
    assert (found.owner.kind, found.owner.group) == ("VirtualMachine", "kubevirt.io")
    assert found.claims == ("root", "imported", "dump")
    assert (found.devices, found.host_disks) == (("A100", "nic"), ("/disk.img",))


@pytest.mark.parametrize("spec", [{"domain": None, "volumes": None}, {"domain": {"devices": None}}])
def test_a_guest_may_have_nulls(spec: Json) -> None:
    assert row(INSTANCE_PROJECTION, some.instance("web") | {"spec": spec}).devices == ()


def test_a_guest_may_say_nothing() -> None:
    found = row(INSTANCE_PROJECTION, bare(some.instance("web")))
    assert (found.owner, found.node, found.claims, found.devices) == (None, "", (), ())


@pytest.mark.parametrize(
    ("spec", "strategy"),
    [
        ({"runStrategy": "Manual"}, "Manual"),
        ({"running": True}, "Always"),
        ({"running": False}, "Halted"),
        ({}, "Halted"),
    ],
)
def test_a_machine_says_how_it_runs_in_the_old_way_or_the_new(spec: Json, strategy: str) -> None:
    body = some.machine("web") | {"spec": spec}
    assert row(VIRTUAL_MACHINE_PROJECTION, body).run_strategy == strategy


def test_a_claim_has_every_field_in_its_place() -> None:
    body = some.claim("data", modes=["ReadWriteMany"], mode="Block")
    assert row(CLAIM_PROJECTION, body) == ClaimRow(
        key="shop/data",
        uid="uid-data",
        version="7",
        volume="pv-data",
        storage_class="fast",
        access_modes=("ReadWriteMany",),
        block=True,
    )


def test_a_volume_has_every_field_in_its_place() -> None:
    body = some.volume("pv", affinity=[some.term("zone", "east")])
    body["spec"] |= {"volumeMode": "Block", "claimRef": {"name": "data"}, "mountOptions": None}
    assert row(VOLUME_PROJECTION, body) == VolumeRow(
        key="pv",
        uid="uid-pv",
        version="7",
        driver="rbd.csi.ceph.com",
        local=False,
        access_modes=("ReadWriteOnce",),
        block=True,
        bindings=(Binding("zone", "east"),),
        handle="pv",
    )


@pytest.mark.parametrize(
    ("attributes", "exported"),
    [
        ({"linstor.csi.linbit.com/nfs-export": "true"}, True),
        ({"linstor.csi.linbit.com/nfs-export": "yes, please"}, True),
        ({"linstor.csi.linbit.com/nfs-export": "False"}, False),
        (None, False),
    ],
)
def test_a_volume_that_linstor_serves_over_nfs_is_marked(attributes: Json, exported: bool) -> None:
    csi = {"driver": "linstor.csi.linbit.com", "volumeHandle": "r", "volumeAttributes": attributes}
    assert row(VOLUME_PROJECTION, some.volume("pv", source={"csi": csi})).exported is exported


@pytest.mark.parametrize(
    ("source", "driver", "local"),
    [
        ({"nfs": {"server": "s", "path": "/"}}, "nfs", False),
        ({"local": {"path": "/mnt"}}, "local", True),
        ({"hostPath": {"path": "/mnt"}}, "hostPath", True),
        ({"holographic": {}}, "holographic", False),
    ],
)
def test_a_volume_without_a_driver_is_called_by_its_source(
    source: Json, driver: str, local: bool
) -> None:
    found = row(VOLUME_PROJECTION, some.volume("pv", source=source))
    assert (found.driver, found.local) == (driver, local)


def test_a_stateful_set_says_how_many_it_wants() -> None:
    found = row(STATEFUL_SET_PROJECTION, some.stateful_set("db", replicas=None))
    assert (found.replicas, found.first, found.wants("db-0"), found.wants("db-1")) == (
        1, 0, True, False,
    )  # fmt: skip
    assert not found.wants("db-none")


def selector(*terms: Json) -> NodeSelector:
    return msgspec.convert({"nodeSelectorTerms": list(terms)}, NodeSelector)


@pytest.mark.parametrize(
    ("terms", "bindings"),
    [
        ((), ()),
        ((some.term("zone", "east"),), (Binding("zone", "east"),)),
        ((some.term("zone", "east"), some.term("zone", "east")), (Binding("zone", "east"),)),
        ((some.term("zone", "east"), some.term("zone", "west")), ()),
        ((some.term("zone", "east", "west"),), ()),
        ((some.term("zone", "east", operator="NotIn"),), ()),
        ((some.term("zone", operator="Exists"),), ()),
        (
            ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},),
            (Binding("metadata.name", "n1"),),
        ),
        (({},), ()),
    ],
)
def test_a_selector_binds_to_what_every_term_asks_for(
    terms: tuple[Json, ...], bindings: tuple[Binding, ...]
) -> None:
    assert bound_to(selector(*terms)) == bindings


def test_nothing_asked_for_binds_to_nothing() -> None:
    assert bound_to(None) == ()

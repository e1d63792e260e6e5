"""From pods to workloads: what belongs together, what is left out, what is known of them."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from backstay.apis.apps import StatefulSet, stateful_set_row
from backstay.apis.kubevirt import Instance, VirtualMachine, instance_row, virtual_machine_row
from backstay.apis.pods import HELD_POD_PROJECTION
from backstay.apis.storage import ClaimWire, VolumeWire, claim_row, volume_row
from backstay.model.policy import OptIn, Requirement
from backstay.model.workload import PodRef, Volume, Workload, WorkloadKind
from backstay.sources.lookups import Details
from backstay.sources.workloads import NodePods, assemble, protection
from tests.support import objects as some

Json = dict[str, Any]


def pods(*bodies: Json) -> NodePods:
    listed = {"metadata": {"resourceVersion": "9"}, "items": bodies}
    page = HELD_POD_PROJECTION.page(msgspec.json.encode(listed), call="GET /pods")
    return NodePods(node="n1", pods=tuple(page.rows), unreadable=tuple(page.unreadable))


def details(*bodies: Json, unread: dict[str, str] | None = None) -> Details:
    def rows(kind: str, wire: Any, row: Any) -> dict[str, Any]:
        made = [row(msgspec.convert(b, wire)) for b in _raw(bodies, kind)]
        return {each.key: each for each in made}

    volumes = [
        volume_row(msgspec.json.decode(msgspec.json.encode(body), type=VolumeWire))
        for body in bodies
        if body["kind"] == "PersistentVolume"
    ]
    return Details(
        instances=rows("VirtualMachineInstance", Instance, instance_row),
        machines=rows("VirtualMachine", VirtualMachine, virtual_machine_row),
        stateful_sets=rows("StatefulSet", StatefulSet, stateful_set_row),
        claims=rows("PersistentVolumeClaim", ClaimWire, claim_row),
        volumes={each.key: each for each in volumes},
        unread=unread or {},
    )


def _raw(bodies: Sequence[Json], kind: str) -> list[Json]:
    return [body for body in bodies if body["kind"] == kind]


def only(*bodies: Json, known: Details | None = None) -> Workload:
    [workload] = assemble("n1", pods(*bodies), known or details())
    return workload


WEB = (some.instance("web"), some.machine("web"))


def test_a_launcher_and_its_plugged_volumes_are_one_virtual_machine() -> None:
    workload = only(
        some.plug("web", claim="logs"), some.launcher("web", claims=["root"]), known=details(*WEB)
    )
    assert (workload.kind, workload.key) == (
        WorkloadKind.VIRTUAL_MACHINE, "VirtualMachine/shop/web",
    )  # fmt: skip
    assert workload.pods == (
        PodRef("shop", "virt-launcher-web-x7k2p", "uid-virt-launcher-web-x7k2p", "7"),
        PodRef("shop", "hp-volume-abcde", "uid-hp-volume-abcde", "7", graceless=True),
    )
    assert [(each.claim, each.plugged) for each in workload.volumes] == [
        ("root", False),
        ("logs", True),
    ]


def test_a_plugged_volume_does_not_pin_the_guest_to_the_node_that_it_was_plugged_in_on() -> None:
    launcher, plug = some.launcher("web"), some.plug("web", claim="logs")
    assert only(launcher, plug, known=details(*WEB)).pinned_by == ""


@pytest.mark.parametrize(("seconds", "graceless"), [(0, True), (30, False)])
def test_a_pod_without_a_grace_period_is_known_as_such(seconds: int, graceless: bool) -> None:
    body = some.pod("db-0", owners=DB, terminationGracePeriodSeconds=seconds)
    [reference] = only(body).pods
    assert reference.graceless is graceless


def test_a_virtual_machine_has_the_volumes_that_only_its_instance_names() -> None:
    named = some.instance(
        "web",
        volumes=[
            {"name": "a", "persistentVolumeClaim": {"claimName": "root"}},
            {"name": "b", "dataVolume": {"name": "imported"}},
            {"name": "c", "containerDisk": {"image": "x"}},
        ],
    )
    workload = only(
        some.launcher("web", claims=["root"]), known=details(named, some.machine("web"))
    )
    assert [each.claim for each in workload.volumes] == ["root", "imported"]


def test_a_virtual_machine_has_its_run_strategy() -> None:
    known = details(some.instance("web"), some.machine("web", strategy="Manual"))
    assert only(some.launcher("web"), known=known).run_strategy == "Manual"


def test_an_instance_without_a_machine_is_not_started_again() -> None:
    workload = only(some.launcher("web"), known=details(some.instance("web", owners=())))
    assert (workload.kind, workload.restarts) == (WorkloadKind.INSTANCE, False)


def test_an_instance_of_a_replica_set_is_started_again() -> None:
    owner = some.owned_by("VirtualMachineInstanceReplicaSet", "webs", api="kubevirt.io/v1")
    workload = only(some.launcher("web"), known=details(some.instance("web", owners=owner)))
    assert (workload.kind, workload.restarts) == (WorkloadKind.INSTANCE, True)


def replaced_by(*known: Json) -> str:
    guest = only(some.launcher("web"), known=details(*known)).guest
    assert guest is not None
    return guest.replaced_by


def test_a_guest_is_replaced_by_a_set_or_pool_and_by_nobody_else() -> None:
    of_set = some.owned_by("VirtualMachineInstanceReplicaSet", "webs", api="kubevirt.io/v1")
    of_pool = some.owned_by("VirtualMachinePool", "webs", api="pool.kubevirt.io/v1beta1")
    pooled = some.machine("web", metadata={"ownerReferences": of_pool})
    assert replaced_by(some.instance("web", owners=of_set)) == f"{of_set[0]['kind']}/shop/webs"
    assert replaced_by(some.instance("web"), pooled) == "VirtualMachinePool/shop/webs"
    foreign = some.owned_by("VirtualMachinePool", "webs", api="example.com/v1")
    assert replaced_by(some.instance("web", owners=foreign)) == ""
    assert replaced_by(*WEB) == ""


def test_a_launcher_whose_instance_is_gone_is_nobodys() -> None:
    workload = only(some.launcher("web"))
    assert (workload.kind, workload.name, workload.restarts, workload.unread) == (
        WorkloadKind.INSTANCE, "web", False, "",
    )  # fmt: skip


def test_a_launcher_of_a_former_instance_of_the_same_name_is_nobodys() -> None:
    workload = only(some.launcher("web", uid="former"), known=details(*WEB))
    assert (workload.kind, workload.restarts) == (WorkloadKind.INSTANCE, False)


def test_an_instance_of_a_former_machine_of_the_same_name_is_not_started_again() -> None:
    orphan = some.instance(
        "web", owners=some.owned_by("VirtualMachine", "web", api="kubevirt.io/v1", uid="former")
    )
    workload = only(some.launcher("web"), known=details(orphan, some.machine("web")))
    assert (workload.kind, workload.restarts) == (WorkloadKind.VIRTUAL_MACHINE, False)


def test_a_machine_that_is_being_deleted_is_not_started_again() -> None:
    going = some.machine("web", metadata={"deletionTimestamp": "2030-01-01T00:00:00Z"})
    workload = only(some.launcher("web"), known=details(some.instance("web"), going))
    assert (workload.restarts, workload.leaving) == (False, False)


def test_a_machine_is_on_its_way_out_once_its_instance_is_as_well() -> None:
    """Who deletes the machine alone lets the guest run on."""
    soon = {"deletionTimestamp": "2030-01-01T00:00:00Z"}
    going, staying = some.machine("web", metadata=soon), some.machine("web")
    for machine, leaving in ((going, True), (staying, False)):
        instance = some.instance("web")
        instance["metadata"] |= soon
        assert only(some.launcher("web"), known=details(instance, machine)).leaving is leaving


def test_an_instance_that_cannot_be_read_is_not_taken_for_nobodys() -> None:
    why = {"virtualmachineinstances/shop/web": "forbidden"}
    workload = only(some.launcher("web"), known=details(unread=why))
    assert (workload.restarts, workload.unread) == (True, "forbidden")


def test_a_machine_that_cannot_be_read_is_not_taken_for_gone() -> None:
    known = details(some.instance("web"), unread={"virtualmachines": "forbidden"})
    workload = only(some.launcher("web"), known=known)
    assert (workload.kind, workload.restarts, workload.unread, workload.run_strategy) == (
        WorkloadKind.VIRTUAL_MACHINE, True, "forbidden", "",
    )  # fmt: skip


def test_a_launcher_is_one_by_its_controller_and_not_by_its_label() -> None:
    labelled = some.pod("mine", labels={"kubevirt.io": "virt-launcher"})
    assert only(labelled).kind is WorkloadKind.OTHER


def test_another_groups_kind_of_the_same_name_is_no_instance() -> None:
    owner = some.owned_by("VirtualMachineInstance", "web", api="example.com/v1")
    assert only(some.pod("mine", owners=owner)).kind is WorkloadKind.OTHER


def test_the_launcher_that_a_migration_left_behind_is_left_out() -> None:
    assert assemble("n1", pods(some.launcher("web", phase="Succeeded")), details(*WEB)) == ()


def test_a_guest_that_runs_on_another_node_is_said_to() -> None:
    known = details(some.instance("web", node="n2"), some.machine("web"))
    assert only(some.launcher("web"), known=known).runs_on == "n2"


def test_a_guest_that_has_not_been_placed_yet_runs_nowhere_else() -> None:
    known = details(some.instance("web", node=""), some.machine("web"))
    assert only(some.launcher("web"), known=known).runs_on == ""


def test_of_a_guest_whose_launcher_has_ended_only_what_lasts_is_there_to_be_taken() -> None:
    plug = some.plug("web", claim="logs")
    workload = only(some.launcher("web", phase="Failed"), plug, known=details(*WEB))
    assert [pod.uid for pod in workload.pods] == [plug["metadata"]["uid"]]
    assert [pod.name for pod in workload.remains] == ["virt-launcher-web-x7k2p"]
    assert workload.kind is WorkloadKind.VIRTUAL_MACHINE
    assert not workload.ended


def renamed(body: Json, name: str) -> Json:
    return {**body, "metadata": {**body["metadata"], "name": name, "uid": f"uid-{name}"}}


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
@pytest.mark.parametrize("name", ["virt-launcher-web-aaaaa", "virt-launcher-web-zzzzz"])
def test_launchers_of_a_guest_that_have_ended_are_what_remains_of_it(phase: str, name: str) -> None:
    """A migration that failed leaves one behind, and so does one that led away."""
    former = renamed(some.launcher("web", phase=phase, claims=["former"]), name)
    workload = only(some.launcher("web", claims=["root"]), former, known=details(*WEB))
    assert [pod.name for pod in workload.pods] == ["virt-launcher-web-x7k2p"]
    assert [pod.name for pod in workload.remains] == [name]
    assert [volume.claim for volume in workload.volumes] == ["root"]
    assert not workload.ended


def test_of_a_guest_that_has_ended_nothing_remains_beside_it() -> None:
    former = renamed(some.launcher("web", phase="Succeeded"), "virt-launcher-web-aaaaa")
    workload = only(some.launcher("web", phase="Failed"), former, known=details(*WEB))
    assert (workload.ended, workload.remains) == (True, ())


def test_a_plugged_volume_that_outlived_its_launcher_is_still_in_the_way_and_released() -> None:
    workload = only(some.plug("web", claim="logs"))
    assert (workload.kind, workload.label) == (WorkloadKind.OTHER, True)
    assert workload.pinned_by == ""


@pytest.mark.parametrize(
    "body",
    [
        some.pod("agent", owners=some.owned_by("DaemonSet", "agent")),
        some.pod("etcd-n1", owners=some.owned_by("Node", "n1", api="v1")),
        some.pod("etcd-n1", metadata={"annotations": {"kubernetes.io/config.mirror": "abc"}}),
    ],
    ids=["DaemonSet", "static pod", "mirror"],
)
def test_what_belongs_to_the_node_is_left_out(body: Json) -> None:
    assert assemble("n1", pods(body), details()) == ()


DB = some.owned_by("StatefulSet", "db")


def test_each_pod_of_a_stateful_set_is_a_workload_of_its_own() -> None:
    both = pods(some.pod("db-1", owners=DB), some.pod("db-0", owners=DB))
    found = assemble("n1", both, details(some.stateful_set("db")))
    assert [each.key for each in found] == ["StatefulSet/shop/db-0", "StatefulSet/shop/db-1"]
    assert all(each.restarts for each in found)


@pytest.mark.parametrize(
    ("stateful_set", "wanted"),
    [
        (some.stateful_set("db", replicas=3), True),
        (some.stateful_set("db", replicas=2), False),
        (some.stateful_set("db", replicas=None, ordinals={"start": 2}), True),
        (some.stateful_set("db", replicas=2, ordinals={"start": 3}), False),
    ],
    ids=["inside", "scaled down", "counts from two", "counts from three"],
)
def test_a_stateful_set_creates_only_the_pods_of_its_present_size_anew(
    stateful_set: Json, wanted: bool
) -> None:
    assert only(some.pod("db-2", owners=DB), known=details(stateful_set)).restarts is wanted


def test_a_pod_of_a_stateful_set_that_is_gone_is_not_created_anew() -> None:
    assert not only(some.pod("db-0", owners=DB)).restarts


def test_a_stateful_set_that_cannot_be_read_is_taken_at_its_pods_word() -> None:
    known = details(unread={"statefulsets": "forbidden"})
    workload = only(some.pod("db-0", owners=DB), known=known)
    assert (workload.restarts, workload.unread) == (True, "")


def test_a_bare_pod_is_not_created_anew_and_one_with_a_controller_is() -> None:
    assert not only(some.pod("alone")).restarts
    assert only(some.pod("web-1", owners=some.owned_by("ReplicaSet", "web"))).restarts


def test_a_pod_of_a_replica_set_is_replaced_by_another_and_not_created_anew() -> None:
    of_set = only(some.pod("web-1", owners=some.owned_by("ReplicaSet", "web")))
    of_job = only(some.pod("web-1", owners=some.owned_by("Job", "web", api="batch/v1")))
    assert (of_set.replaced_by, of_job.replaced_by) == ("ReplicaSet/shop/web", "")


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ([{}], None),
        ([{"backstay.dev/protect": "true"}], True),
        ([{"backstay.dev/protect": "false"}], False),
        ([{"backstay.dev/protect": "False"}], False),
        ([{"backstay.dev/protect": "perhaps"}], None),
        ([{"tmax/virt-auto-failover": "true"}], True),
        ([{"tmax/virt-auto-failover": "false"}], None),
        ([{"backstay.dev/protect": "true"}, {"backstay.dev/protect": "false"}], False),
        ([{"tmax/virt-auto-failover": "true"}, {"backstay.dev/protect": "false"}], False),
        ([{}, {"backstay.dev/protect": "true"}], True),
    ],
)
def test_a_label_speaks_for_the_workload_and_no_wins(
    labels: list[dict[str, str]], says: bool | None
) -> None:
    assert protection(*labels).protect is says


@pytest.mark.parametrize("where", ["pod", "instance", "machine"])
def test_the_label_counts_on_the_pod_the_instance_and_the_machine(where: str) -> None:
    no = {"backstay.dev/protect": "false"}
    known = details(
        some.instance("web", labels=no if where == "instance" else {}),
        some.machine("web", metadata={"labels": no} if where == "machine" else {}),
    )
    workload = only(some.launcher("web", labels=no if where == "pod" else {}), known=known)
    assert workload.label is False


NODE_AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"


def affinity(*terms: Json) -> Json:
    return {"nodeAffinity": {NODE_AFFINITY: {"nodeSelectorTerms": list(terms)}}}


@pytest.mark.parametrize(
    ("spec", "pinned"),
    [
        ({}, False),
        ({"nodeSelector": {"kubernetes.io/hostname": "n1"}}, True),
        ({"nodeSelector": {"kubernetes.io/os": "linux"}}, False),
        ({"affinity": affinity(some.term("kubernetes.io/hostname", "n1"))}, True),
        ({"affinity": affinity(some.term("kubernetes.io/hostname", "n1", "n2"))}, False),
        (
            {
                "affinity": affinity(
                    some.term("kubernetes.io/hostname", "n1"), some.term("zone", "east")
                )
            },
            False,
        ),
        ({"affinity": affinity(some.term("zone", "east"))}, False),
        ({"affinity": affinity(some.term("zone", "east", operator="NotIn"))}, False),
    ],
)  # fmt: skip
def test_a_workload_is_pinned_when_no_other_node_will_do(spec: Json, pinned: bool) -> None:
    assert bool(only(some.pod("db-0", owners=DB, **spec)).pinned_by) is pinned


@pytest.mark.parametrize(
    ("devices", "volumes", "because"),
    [
        ({"gpus": [{"name": "g", "deviceName": "nvidia.com/A100"}]}, (), "device nvidia.com/A100"),
        ({"hostDevices": [{"name": "nic", "deviceName": "intel.com/x"}]}, (), "device intel.com/x"),
        ({}, [{"name": "d", "hostDisk": {"path": "/d.img", "type": "Disk"}}], "/d.img is a file"),
    ],
    ids=["GPU", "host device", "host disk"],
)
def test_a_guest_with_something_of_its_host_is_pinned(
    devices: Json, volumes: list[Json], because: str
) -> None:
    known = details(some.instance("web", devices=devices, volumes=volumes), some.machine("web"))
    assert because in only(some.launcher("web"), known=known).pinned_by


def with_host_path(*, read_only: bool) -> Json:
    mounts = [{"name": "data", "mountPath": "/data", "readOnly": read_only}]
    return {
        "volumes": [{"name": "data", "hostPath": {"path": "/srv/db"}}],
        "containers": [{"name": "main", "image": "none", "volumeMounts": mounts}],
    }


def test_a_stateful_pod_that_writes_to_its_host_is_pinned() -> None:
    workload = only(some.pod("db-0", owners=DB, **with_host_path(read_only=False)))
    assert workload.pinned_by == "it keeps data in /srv/db on n1"
    assert workload.also_writes == ("hostPath /srv/db",)


def test_a_stateful_pod_that_only_reads_from_its_host_is_not_pinned() -> None:
    workload = only(some.pod("db-0", owners=DB, **with_host_path(read_only=True)))
    assert (workload.pinned_by, workload.also_writes) == ("", ())


def test_a_kind_of_volume_that_we_do_not_know_can_be_written_to() -> None:
    spec = with_host_path(read_only=False) | {"volumes": [{"name": "data", "holographic": {}}]}
    assert only(some.pod("db-0", owners=DB, **spec)).also_writes == ("holographic",)


LOCAL = {"local": {"path": "/mnt/ssd"}}


@pytest.mark.parametrize(
    ("pv", "only_on"),
    [
        (some.volume("pv-data"), ""),
        (some.volume("pv-data", source=LOCAL), "n1"),
        (some.volume("pv-data", affinity=[some.term("topology.topolvm.io/node", "n1")]), "n1"),
        (some.volume("pv-data", affinity=[some.term("kubernetes.io/hostname", "host-1")]), "n1"),
        (some.volume("pv-data", affinity=[some.term("topology.kubernetes.io/zone", "east")]), ""),
        (
            some.volume(
                "pv-data",
                affinity=[some.term("linbit.com/host", "n1"), some.term("linbit.com/host", "n2")],
            ),
            "",
        ),
    ],
    ids=["anywhere", "local", "driver's label", "host name", "zone", "either of two"],
)
def test_a_volume_is_bound_when_only_this_node_can_reach_it(pv: Json, only_on: str) -> None:
    known = details(some.claim("data"), pv)
    workload = only(some.pod("db-0", owners=DB, claims=["data"]), known=known)
    assert workload.volumes[0].only_on == only_on


def test_a_volume_is_described_as_far_as_it_is_known() -> None:
    known = details(
        some.claim("data", modes=["ReadWriteMany"], mode="Block"),
        some.volume("pv-data"),
        some.claim("unbound", volume="nowhere"),
    )
    body = some.pod("db-0", owners=DB, claims=["data", "unbound", "unheard-of"])
    assert only(body, known=known).volumes == (
        Volume(
            claim="data",
            pv="pv-data",
            driver="rbd.csi.ceph.com",
            access_modes=("ReadWriteMany",),
            block=True,
            handle="pv-data",
        ),
        Volume(claim="unbound", pv="nowhere", access_modes=("ReadWriteOnce",)),
        Volume(claim="unheard-of"),
    )


def test_a_workload_is_marked_when_all_of_its_pods_are() -> None:
    doomed = {"deletionTimestamp": "2030-01-01T00:00:00Z"}
    launcher, plug = some.launcher("web", metadata=doomed), some.plug("web", claim="logs")
    assert not only(launcher, plug, known=details(*WEB)).marked
    assert only(launcher, known=details(*WEB)).marked


@pytest.mark.parametrize(
    ("phase", "ended"), [("Running", False), ("Failed", True), ("Unknown", False)]
)
def test_a_workload_has_ended_when_its_pods_have(phase: str, ended: bool) -> None:
    assert only(some.pod("db-0", owners=DB, phase=phase)).ended is ended


def test_the_order_of_the_pods_does_not_matter() -> None:
    bodies = [some.launcher("web"), some.plug("web", claim="logs"), some.pod("db-0", owners=DB)]
    forwards = assemble("n1", pods(*bodies), details(*WEB))
    assert assemble("n1", pods(*reversed(bodies)), details(*WEB)) == forwards


def test_a_pod_that_cannot_be_read_is_kept_apart() -> None:
    broken = some.pod("broken") | {"spec": {"volumes": "none"}}
    listed = pods(broken, some.pod("db-0", owners=DB))
    assert [each.key for each in listed.unreadable] == ["shop/broken"]
    assert len(assemble("n1", listed, details())) == 1


# Labels and annotations that are not ours

PIRAEUS_LABEL = {"linstor.csi.linbit.com/on-storage-lost": "remove"}
SPARED = {"annotations": {"drbd.linbit.com/ignore-fail-over": ""}}
OWNED = some.owned_by("ReplicaSet", "web", api="apps/v1")


def test_the_label_of_the_piraeus_ha_controller_protects_any_pod_like_our_own() -> None:
    for owners in (DB, OWNED, ()):
        workload = only(some.pod("db-0", owners=owners, labels=PIRAEUS_LABEL))
        assert workload.label is True
        assert workload.labelled_by == "its label linstor.csi.linbit.com/on-storage-lost"


def test_that_label_with_another_value_says_nothing() -> None:
    labels = {"linstor.csi.linbit.com/on-storage-lost": "ignore"}
    assert only(some.pod("db-0", owners=DB, labels=labels)).label is None


def test_our_no_goes_before_that_label() -> None:
    labels = PIRAEUS_LABEL | {"backstay.dev/protect": "false"}
    workload = only(some.pod("db-0", owners=DB, labels=labels))
    assert (workload.label, workload.labelled_by) == (False, "its label backstay.dev/protect")


def test_a_virtual_machine_is_protected_by_that_label_too() -> None:
    machine = some.machine("web", metadata={"labels": PIRAEUS_LABEL})
    workload = only(some.launcher("web"), known=details(some.instance("web"), machine))
    assert workload.label is True


def test_another_selector_takes_the_place_of_that_label() -> None:
    opt_in = OptIn((Requirement("ha", "In", ("yes",)),), by="somebody")
    found = assemble(
        "n1",
        pods(
            some.pod("a", owners=OWNED, labels=PIRAEUS_LABEL),
            some.pod("b", owners=OWNED, labels={"ha": "yes"}),
        ),
        details(),
        opt_in=opt_in,
    )
    assert [(each.name, each.label, each.labelled_by) for each in found] == [
        ("a", None, ""),
        ("b", True, "somebody"),
    ]


def test_a_selector_that_asks_for_what_is_not_there_sees_all_labels_together() -> None:
    opt_in = OptIn((Requirement("env", "NotIn", ("dev",)),), by="somebody")
    known = details(some.instance("web"), some.machine("web"))
    launcher = pods(some.launcher("web", labels={"env": "dev"}))
    [workload] = assemble("n1", launcher, known, opt_in=opt_in)
    assert workload.label is None


@pytest.mark.parametrize("value", ["", "true", "false", "anything"])
def test_a_pod_with_the_annotation_to_ignore_it_is_left_alone_whatever_its_value(
    value: str,
) -> None:
    annotations = {"annotations": {"drbd.linbit.com/ignore-fail-over": value}}
    workload = only(some.pod("db-0", owners=DB, labels=PIRAEUS_LABEL, metadata=annotations))
    assert workload.label is False
    assert workload.labelled_by == "its annotation drbd.linbit.com/ignore-fail-over"


def test_our_own_label_goes_before_that_annotation() -> None:
    labels = {"backstay.dev/protect": "true"}
    assert only(some.pod("db-0", owners=DB, labels=labels, metadata=SPARED)).label is True


@pytest.mark.parametrize(("read_only", "writes"), [(True, ()), (False, ("hostPath /srv/db",))])
def test_a_directory_of_the_host_is_unsafe_only_if_it_can_be_written_to(
    read_only: bool, writes: tuple[str, ...]
) -> None:
    """/etc/localtime, for one, is in many pods, and in nobody's way."""
    pod = some.pod("web", owners=OWNED, labels=PIRAEUS_LABEL, **with_host_path(read_only=read_only))
    assert only(pod).also_writes == writes

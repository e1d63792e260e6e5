"""Look-ups in front of an API: what is asked for, and what becomes of what cannot be read."""

from backstay.kube.access import GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.model.policy import OptIn, Requirement
from backstay.model.workload import WorkloadKind
from backstay.sim.fate import ALL_WELL, Attempt, Fate
from backstay.sim.network import Network
from backstay.sources.lookups import Wanted, describe_all, look_up
from backstay.sources.workloads import assemble, describe, read_pods
from tests.sources.conftest import CountingApi
from tests.support import objects as some


async def make_guest(api: CountingApi, name: str, *, node: str = "n1") -> None:
    """A VM with one claim, and its launcher."""
    await api.put(some.claim(f"{name}-root"))
    await api.put(some.volume(f"pv-{name}-root"))
    machine = await api.put(some.machine(name))
    uid = machine["metadata"]["uid"]
    owner = some.owned_by("VirtualMachine", name, api="kubevirt.io/v1", uid=uid)
    guest = some.instance(
        name,
        node=node,
        owners=owner,
        volumes=[{"name": "root", "persistentVolumeClaim": {"claimName": f"{name}-root"}}],
    )
    instance = await api.put(guest)
    await api.put(some.launcher(name, uid=instance["metadata"]["uid"], node=node))


async def test_the_pods_of_a_node_are_one_live_list(kubevirt: CountingApi) -> None:
    await make_guest(kubevirt, "web")
    await make_guest(kubevirt, "other", node="n2")
    with kubevirt.counting() as asked:
        pods = await read_pods(kubevirt.client, "n1")
    assert [pod.name for pod in pods.pods] == ["virt-launcher-web-x7k2p"]
    assert asked == ["/api/v1/pods?fieldSelector=spec.nodeName%3Dn1"]


async def test_a_guest_is_known_with_its_machine_and_its_volume(kubevirt: CountingApi) -> None:
    await make_guest(kubevirt, "web")
    pods = await read_pods(kubevirt.client, "n1")
    details = await describe(kubevirt.client, pods)
    [workload] = assemble("n1", pods, details)
    assert (workload.kind, workload.run_strategy) == (WorkloadKind.VIRTUAL_MACHINE, "Always")
    assert [volume.driver for volume in workload.volumes] == ["rbd.csi.ceph.com"]
    assert details.unread == {}


async def test_each_thing_is_asked_for_once(kubevirt: CountingApi) -> None:
    await make_guest(kubevirt, "web")
    pods = await read_pods(kubevirt.client, "n1")
    with kubevirt.counting() as asked:
        await describe(kubevirt.client, pods)
    assert sorted(path.rpartition("/")[2] for path in asked) == [
        "kubevirts", "pv-web-root", "web", "web", "web-root",
    ]  # fmt: skip


async def test_what_belongs_to_others_is_not_looked_up(api: CountingApi) -> None:
    await api.put(some.pod("web-1", owners=some.owned_by("ReplicaSet", "web"), claims=["c"]))
    await api.put(some.pod("agent", owners=some.owned_by("DaemonSet", "agent"), claims=["d"]))
    pods = await read_pods(api.client, "n1")
    with api.counting() as asked:
        await describe(api.client, pods)
    assert asked == []


async def test_what_opts_in_by_its_labels_is_looked_up(api: CountingApi) -> None:
    """Without its claims nobody could say what it writes to."""
    owners = some.owned_by("ReplicaSet", "web")
    await api.put(some.pod("web-1", owners=owners, claims=["c"], labels={"ha": "yes"}))
    pods = await read_pods(api.client, "n1")
    opt_in = OptIn((Requirement("ha", "In", ("yes",)),), by="a selector")
    with api.counting() as asked:
        await describe(api.client, pods, opt_in=opt_in)
    assert [path.rpartition("/")[2] for path in asked] == ["c"]


async def test_only_so_many_are_asked_for_at_once(api: CountingApi) -> None:
    claims = frozenset(f"shop/c{number}" for number in range(100))
    await look_up(api.client, Wanted(claims=claims))
    assert len(api.asked) == 100
    assert 1 < api.at_once <= 16


async def test_without_kubevirt_there_are_no_guests_and_nothing_is_wrong(api: CountingApi) -> None:
    details = await look_up(api.client, Wanted(instances=frozenset({"shop/web"})))
    assert (details.instances, details.unread) == ({}, {})


async def test_what_is_not_there_is_not_called_unread(kubevirt: CountingApi) -> None:
    wanted = Wanted(claims=frozenset({"shop/gone"}), stateful_sets=frozenset({"shop/db"}))
    details = await look_up(kubevirt.client, wanted)
    assert (details.claims, details.stateful_sets, details.unread) == ({}, {}, {})


async def test_what_may_not_be_read_is_said_and_is_not_fatal(kubevirt: CountingApi) -> None:
    await make_guest(kubevirt, "web")
    kubevirt.refused = ("virtualmachines/", "persistentvolumes/")
    pods = await read_pods(kubevirt.client, "n1")
    details = await describe(kubevirt.client, pods)
    assert set(details.unread) == {"virtualmachines/shop/web", "persistentvolumes/pv-web-root"}
    [workload] = assemble("n1", pods, details)
    assert workload.unread
    assert workload.volumes[0].driver == ""


async def test_a_name_that_can_be_nobodys_is_said_and_is_not_fatal(api: CountingApi) -> None:
    details = await look_up(api.client, Wanted(claims=frozenset({"shop/..", "shop/a%2Fb"})))
    assert set(details.unread) == {"persistentvolumeclaims/shop/..",
                                   "persistentvolumeclaims/shop/a%2Fb"}  # fmt: skip
    assert api.asked == []


async def test_an_api_out_of_reach_is_not_asked_a_hundred_times() -> None:
    attempts: list[Attempt] = []

    def count(attempt: Attempt) -> Fate:
        attempts.append(attempt)
        return ALL_WELL

    network = Network(fate=count)
    client = KubeClient(network.transport, GivenAccess("http://nowhere:1", Grant()))
    claims = frozenset(f"shop/c{number}" for number in range(100))
    details = await look_up(client, Wanted(claims=claims), timeout=1.0)
    assert len(details.unread) == 100
    assert 0 < len(attempts) <= 16


async def test_a_whole_cluster_is_described_with_one_list_of_each_kind(
    kubevirt: CountingApi,
) -> None:
    await make_guest(kubevirt, "web")
    await make_guest(kubevirt, "mail")
    with kubevirt.counting() as asked:
        details = await describe_all(kubevirt.client)
    assert len(asked) == 6
    assert set(details.instances) == set(details.machines) == {"shop/web", "shop/mail"}
    assert set(details.volumes) == {"pv-web-root", "pv-mail-root"}


async def test_a_kind_that_may_not_be_listed_is_unread_as_a_whole(kubevirt: CountingApi) -> None:
    await make_guest(kubevirt, "web")
    kubevirt.refused = ("/virtualmachineinstances",)
    details = await describe_all(kubevirt.client)
    pods = await read_pods(kubevirt.client, "n1")
    [workload] = assemble("n1", pods, details)
    assert (workload.kind, workload.restarts) == (WorkloadKind.INSTANCE, True)
    assert workload.unread

"""What has become of what was released: where it runs, or what it waits for."""

from typing import Any

from backstay.apis.machines import INSTANCE_SETS, POOLS
from backstay.kube.resource import Resource
from backstay.model.incident import Progress, WorkloadRecord
from backstay.model.policy import PIRAEUS, OptIn, Requirement
from backstay.sources.recovered import Whereabouts, whereabouts
from tests.sources.conftest import CountingApi
from tests.support import objects as some

VM = "VirtualMachine/shop/web"
VMI = "VirtualMachineInstance/shop/web"
SET = "VirtualMachineInstanceReplicaSet/shop/web"
POOL = "VirtualMachinePool/shop/web"


async def look(
    api: CountingApi,
    workload: str = VM,
    *,
    closely: bool = False,
    replaced_by: str = "",
    opt_in: OptIn = PIRAEUS,
) -> Whereabouts | None:
    record = WorkloadRecord(workload, Progress.RELEASED, "", "", replaced_by=replaced_by)
    found = await whereabouts(
        api.client,
        [record],
        away_from="n1",
        closely={workload} if closely else (),
        opt_in=opt_in,
    )
    return found.get(workload)


async def put_set(api: CountingApi, resource: Resource, *, ready: int) -> None:
    body = {
        "apiVersion": resource.api_version, "kind": resource.kind,
        "metadata": {"name": "web", "namespace": "shop"}, "spec": {"replicas": 2},
    }  # fmt: skip
    await api.put(body)
    await api.client.merge_patch(
        resource, "web", {"status": {"readyReplicas": ready}},
        namespace="shop", subresource="status",
    )  # fmt: skip


def guest(*, node: str = "n2", phase: str = "Running", **status: Any) -> some.Json:
    body = some.instance("web", node=node)
    body["status"] |= {"phase": phase, **status}
    return body


async def test_a_guest_that_runs_elsewhere_is_found_with_one_question(
    kubevirt: CountingApi,
) -> None:
    await kubevirt.put(guest(conditions=[{"type": "Paused", "status": "True"}]))
    with kubevirt.counting() as asked:
        seen = await look(kubevirt)
    assert seen is not None
    assert (seen.node, seen.paused, len(asked)) == ("n2", True, 1)


async def test_its_machine_is_looked_at_if_it_takes_its_time_or_has_ended(
    kubevirt: CountingApi,
) -> None:
    await kubevirt.put(some.machine("web", strategy="Manual"))
    await kubevirt.put(guest(phase="Scheduling"))
    assert await look(kubevirt) is None
    closely = await look(kubevirt, closely=True)
    assert closely is not None
    assert closely.machine is not None
    assert closely.machine.run_strategy == "Manual"


async def test_a_machine_that_does_not_run_is_protected_by_the_labels_that_were_chosen(
    kubevirt: CountingApi,
) -> None:
    await kubevirt.put(some.machine("web", metadata={"labels": {"tier": "gold"}}))
    chosen = OptIn((Requirement("tier", "In", ("gold",)),), by="the controller's own flag")
    usual, asked = await look(kubevirt), await look(kubevirt, opt_in=chosen)
    assert usual is not None
    assert usual.machine is not None
    assert usual.machine.label is None
    assert asked is not None
    assert asked.machine is not None
    assert (asked.machine.label, asked.machine.labelled_by) == (True, chosen.by)


async def test_a_guest_that_is_nowhere_is_asked_for_again_after_its_machine(
    kubevirt: CountingApi,
) -> None:
    """It may have been made between the two."""
    await kubevirt.put(some.machine("web"))
    with kubevirt.counting() as asked:
        seen = await look(kubevirt)
    assert seen is not None
    assert seen.machine is not None
    assert seen.machine.guest is not None
    assert seen.machine.guest.gone
    kinds = [path.split("/")[-2] for path in asked]
    assert kinds == ["virtualmachineinstances", "virtualmachines", "virtualmachineinstances"]


async def test_what_was_deleted_or_stopped_meanwhile_is_not_wanted(kubevirt: CountingApi) -> None:
    gone = await look(kubevirt)
    await kubevirt.put(some.machine("web", strategy="Halted"))
    stopped = await look(kubevirt)
    assert gone is not None
    assert stopped is not None
    assert (gone.unwanted, stopped.unwanted) == ("it was deleted", "it was stopped")


async def test_a_guest_of_a_replica_set_is_replaced_when_the_set_is_complete(
    kubevirt: CountingApi,
) -> None:
    assert await look(kubevirt, VMI, replaced_by=SET) is None, "the set is gone too"
    await put_set(kubevirt, INSTANCE_SETS, ready=2)
    seen = await look(kubevirt, VMI, replaced_by=SET)
    assert seen is not None
    assert seen.replicas == 2


async def test_a_machine_that_its_pool_has_given_up_is_not_called_deleted(
    kubevirt: CountingApi,
) -> None:
    await put_set(kubevirt, POOLS, ready=1)
    assert await look(kubevirt, replaced_by=POOL) is None, "another is on its way"

"""A guest that was migrated away from a node and back again before the node died. It runs against
any ``Rig``.

What the removal of launchers that have ended rests on: KubeVirt takes the newest launcher on the
node of a guest for the guest's own, be it one that it has left, and goes on waiting: until
Kubernetes evicts that one too, five minutes after it has taken the node for dead, or virt-handler
was not heard of for as long.
"""

from backstay.kube.resource import PODS
from backstay.sim.kubevirt.names import VMIS
from tests.sim.kubevirt.rig import Json, Rig


async def _moved(rig: Rig, *, to: str) -> Json:
    for name in rig.nodes:
        await (rig.let_scheduler_in if name == to else rig.keep_scheduler_away)(name)
    await rig.migrate()
    return await rig.until(VMIS, lambda each: each["status"]["nodeName"] == to)


def _has_a_launcher_that_ended(vmi: Json) -> bool:
    return any(
        (each["type"], each.get("reason")) == ("Ready", "PodTerminating")
        for each in vmi["status"]["conditions"]
    )


async def guest_is_missed_only_without_the_launcher_that_it_once_left(rig: Rig) -> None:
    vmi = await rig.start_vm(run_strategy="Always")
    home, former = vmi["status"]["nodeName"], await rig.launcher()
    away = next(name for name in rig.nodes if name != home)
    await _moved(rig, to=away)
    ended = former["metadata"]["name"]
    await rig.until(PODS, lambda pod: pod["status"]["phase"] == "Succeeded", ended)
    back = await _moved(rig, to=home)
    assert back["metadata"]["uid"] == vmi["metadata"]["uid"], "it was never stopped"
    target = back["status"]["migrationState"]["targetPod"]
    await rig.keep_scheduler_away(home)
    await rig.let_scheduler_in(away)
    rig.node_of(back).kill()
    await rig.remove_pod(target)
    # It has seen that the pod is gone, and looks at the other.
    seen = await rig.until(VMIS, _has_a_launcher_that_ended)
    assert seen["status"]["phase"] == "Running", "nobody runs it"
    await rig.remove_pod(ended)
    after = await rig.until_running(after=vmi["metadata"]["uid"])
    assert after["status"]["nodeName"] == away


CAME_BACK_CASES = (guest_is_missed_only_without_the_launcher_that_it_once_left,)

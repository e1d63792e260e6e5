"""A guest that has gone over while half of its memory has not, and loses one of its two nodes. It
runs against any ``Rig`` whose handlers copy as ``SLOWLY`` says.

Only the launcher on the dead node is taken away. KubeVirt ends the other one itself.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from backstay.kube.resource import PODS
from backstay.sim.kubevirt import Copying
from backstay.sim.kubevirt.names import APP, LAUNCHER, VMIS
from backstay.sim.kubevirt.objects import migration_of
from tests.sim.kubevirt.rig import Rig

SLOWLY = Copying(seconds=0.5, behind=120.0)


def torn_apart(end: str) -> Callable[[Rig], Coroutine[Any, Any, None]]:
    async def scenario(rig: Rig) -> None:
        vmi = await rig.start_vm()
        await rig.migrate()
        moving = await rig.until(VMIS, lambda each: migration_of(each).get("mode") == "PostCopy")
        dead = migration_of(moving)[f"{end}Node"]
        await rig.keep_scheduler_away(dead)
        rig.nodes[dead].kill()
        [pod] = [
            each
            for each in await rig.listed(PODS, f"{APP}={LAUNCHER}")
            if each["spec"]["nodeName"] == dead
        ]
        await rig.remove_pod(pod["metadata"]["name"])
        again = await rig.until_running(after=vmi["metadata"]["uid"])
        assert rig.copies() == [again["status"]["nodeName"]]

    scenario.__name__ = f"the_{end}_dies_in_post_copy"
    return scenario


POST_COPY_CASES = (torn_apart("source"), torn_apart("target"))

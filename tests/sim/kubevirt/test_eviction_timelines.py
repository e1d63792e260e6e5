"""The stand-in goes through the recorded evictions of the real KubeVirt."""

import asyncio

import pytest

from backstay.sim.api.store import Commit
from backstay.sim.kubevirt import Copying
from tests.sim.kubevirt.eviction_timeline import Row, histories, recorded, seen
from tests.sim.kubevirt.rig import VM, Rig, in_memory
from tests.sim.kubevirt.test_evictions import evict, start

VMS = {
    "lm": ("LiveMigrate", True),
    "lmno": ("LiveMigrate", False),
    "lmif": ("LiveMigrateIfPossible", True),
    "lmifno": ("LiveMigrateIfPossible", False),
    "ext": ("External", True),
    "none": ("None", True),
}
"""As they are called in the record: their strategy, and whether they can be moved."""


@pytest.mark.parametrize("vm", VMS)
def test_the_stand_in_does_what_the_real_one_did(vm: str) -> None:
    truth, (strategy, migratable) = recorded(vm), VMS[vm]

    async def scenario(rig: Rig) -> None:
        assert rig.cluster is not None
        await start(rig, strategy, migratable=migratable)
        await asyncio.sleep(5)
        rows: list[Row] = []

        def hear(commit: Commit) -> None:
            row = seen(commit)
            if row is not None:
                rows.append(row)

        release = rig.cluster.api.store.follow(None, hear)
        pod = await rig.launcher()
        answers = [
            f"dry-run -> {_told(await evict(rig, pod, dry_run=True))}",
            f"-> {_told(await evict(rig, pod))}",
        ]
        await asyncio.sleep(60)
        release()
        wanted = [each.replace(f"default/{vm}", f"default/{VM}") for each in truth.answers]
        assert answers == [each.replace(f"VMI {vm} ", f"VMI {VM} ") for each in wanted[:2]]
        assert histories(rows) == histories(truth.rows)

    in_memory(scenario, copying=Copying(seconds=1.5))


def _told(refusal: str) -> str:
    return f"429 {refusal}" if refusal else "201"

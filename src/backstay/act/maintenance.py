"""Our finalizer on a NodeMaintenance: put on before anything is done, taken off when all is undone.

It is written at the version that was looked at, with all others that are there.
"""

from backstay.apis.maintenance import NODE_MAINTENANCES, MaintenanceRow
from backstay.kube.client import KubeClient
from backstay.model.labels import MAINTENANCE_FINALIZER, MANAGER


async def take_on(client: KubeClient, row: MaintenanceRow, *, not_after: float) -> None:
    """Raises ``Conflict`` if it was changed since it was looked at."""
    await _write(client, row, [*row.finalizers, MAINTENANCE_FINALIZER], not_after)


async def let_go(client: KubeClient, row: MaintenanceRow, *, not_after: float) -> None:
    """After this it is gone, unless somebody else keeps it."""
    left = [each for each in row.finalizers if each != MAINTENANCE_FINALIZER]
    await _write(client, row, left, not_after)


async def _write(
    client: KubeClient, row: MaintenanceRow, finalizers: list[str], not_after: float
) -> None:
    patch = {
        "metadata": {
            "uid": row.uid,
            "resourceVersion": row.version,
            "finalizers": finalizers or None,
        }
    }
    await client.merge_patch(
        NODE_MAINTENANCES, row.key, patch, manager=MANAGER, not_after=not_after
    )

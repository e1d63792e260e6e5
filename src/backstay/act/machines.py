"""What KubeVirt is asked to do with a guest: to start it, to restart it, to migrate it.

None of them names a version: KubeVirt itself refuses what does not fit the state that it finds (a
start of what runs, a second migration), and each can be repeated without harm.
"""

from backstay.apis.machines import MIGRATIONS, SUBRESOURCES
from backstay.kube.client import KubeClient
from backstay.kube.errors import AlreadyExists
from backstay.model.labels import COMPONENT, LAUNCHER_UID, MANAGER


async def start(client: KubeClient, namespace: str, name: str, *, not_after: float) -> None:
    await _ask(client, namespace, name, "start", not_after=not_after)


async def restart(client: KubeClient, namespace: str, name: str, *, not_after: float) -> None:
    """A request to stop and one to start, in one: whatever the run strategy, it comes back."""
    await _ask(client, namespace, name, "restart", not_after=not_after)


async def migrate(
    client: KubeClient, namespace: str, guest: str, *, launcher: str, not_after: float
) -> None:
    """Away from the pod of that uid: one migration for each, whoever asks and how often."""
    migration = {
        "apiVersion": MIGRATIONS.api_version,
        "kind": MIGRATIONS.kind,
        "metadata": {
            "name": f"{MANAGER}-{launcher}",
            "labels": {LAUNCHER_UID: launcher, COMPONENT: MANAGER},
        },
        "spec": {"vmiName": guest},
    }
    try:
        await client.create(MIGRATIONS, migration, namespace=namespace, not_after=not_after)
    except AlreadyExists:
        return


async def _ask(
    client: KubeClient, namespace: str, name: str, verb: str, *, not_after: float
) -> None:
    await client.replace(
        SUBRESOURCES, name, {}, namespace=namespace, subresource=verb, not_after=not_after
    )

"""What a scenario about drains begins with: budgets, DaemonSets, and the kind by which to ask."""

from typing import Any

from backstay.apis.maintenance_definition import maintenance_definition
from backstay.kube.client import KubeClient
from backstay.kube.resource import Resource
from backstay.lab.scenario import Budget, Deployment, StatefulSet, Vm
from backstay.model.labels import VM_NAME

Json = dict[str, Any]

BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")


_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
    namespaced=False,
)  # fmt: skip


async def install(client: KubeClient) -> None:
    """The kind of NodeMaintenances."""
    await client.create(_DEFINITIONS, maintenance_definition())


async def create_budget(
    client: KubeClient, namespace: str, workload: Vm | StatefulSet | Deployment
) -> None:
    """If there is to be one, under the workload's name."""
    if workload.budget is not None:
        body = _budget(workload.name, _selected(workload), workload.budget)
        await client.create(BUDGETS, body, namespace=namespace)


async def create_daemon_set(client: KubeClient, namespace: str, name: str) -> None:
    labels = {"app": name}
    spec = {"containers": [{"name": "main", "image": f"example/{name}"}]}
    body = {
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    await client.create(DAEMON_SETS, body, namespace=namespace)


def _selected(workload: Vm | StatefulSet | Deployment) -> dict[str, str]:
    """The labels of its pods, by which KubeVirt and we ourselves name them."""
    return {VM_NAME: workload.name} if isinstance(workload, Vm) else {"app": workload.name}


def _budget(name: str, labels: dict[str, str], wanted: Budget) -> Json:
    said = {"minAvailable": wanted.min_available, "maxUnavailable": wanted.max_unavailable}
    spec = {field: value for field, value in said.items() if value is not None}
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, **spec}}

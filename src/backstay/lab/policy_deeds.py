"""Steps about what owners say; see ``deeds.py``."""

from backstay.apis.backstay import AVAILABILITY_POLICIES
from backstay.kube.client import KubeClient
from backstay.kube.resource import Resource

_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
    namespaced=False,
)  # fmt: skip

_UNHEARD_OF = "Attested"


async def say_more(client: KubeClient, namespace: str) -> str:
    """With definitions that know of one more kind of proof."""
    known = (await client.get(_DEFINITIONS, AVAILABILITY_POLICIES.label)).json()
    schema = known["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    proof = schema["properties"]["spec"]["properties"]["minimumProof"]
    proof["enum"] = [*proof["enum"], _UNHEARD_OF]
    await client.replace(_DEFINITIONS, AVAILABILITY_POLICIES.label, known)
    spec = {"minimumProof": _UNHEARD_OF, "protect": False}
    body = {"metadata": {"name": "newer"}, "spec": spec}
    await client.create(AVAILABILITY_POLICIES, body, namespace=namespace)
    return f"asks by a policy for {_UNHEARD_OF}, which is newer than we are, and to be left alone"

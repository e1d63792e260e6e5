"""Places: on how many nodes controllers of ours run, for a presumption takes two of them.

They are found by the label of their Deployment, in a namespace of their own or in that of the
Piraeus HA controller. One that was not told on which node it runs (``--node-name``) is no place:
nobody else could count it as one. By that, the Piraeus HA controller itself is none either.
"""

import msgspec

from backstay.kube.client import KubeClient
from backstay.kube.errors import KubeError
from backstay.kube.resource import PODS
from backstay.sources.picture import DROP_IN

_NAME = "app.kubernetes.io/name"
_DEPLOYMENTS = (("backstay-system", "backstay-controller"), DROP_IN)
_TOLD = "--node-name="
_TIMEOUT = 10.0


class _Container(msgspec.Struct, frozen=True):
    args: tuple[str, ...] = ()


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    containers: tuple[_Container, ...] = ()


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""


class _Pod(msgspec.Struct, frozen=True):
    spec: _Spec
    status: _Status = _Status()

    @property
    def is_told(self) -> bool:
        arguments = (argument for each in self.spec.containers for argument in each.args)
        return any(argument.startswith(_TOLD) for argument in arguments)


class _Pods(msgspec.Struct, frozen=True):
    items: tuple[_Pod, ...] = ()


async def places(client: KubeClient) -> int | None:
    """None if nobody may tell, or none are installed."""
    found: list[_Pod] = []
    for namespace, name in _DEPLOYMENTS:
        try:
            reply = await client.list(
                PODS, namespace=namespace, labels=f"{_NAME}={name}", timeout=_TIMEOUT
            )
        except KubeError:
            return None
        found += [pod for pod in reply.into(_Pods).items if pod.status.phase == "Running"]
    return len({pod.spec.node_name for pod in found if pod.is_told}) if found else None

"""The devices of nodes, as whoever leads has found them: told where commands can read it.

Credentials of BMCs are mounted into controllers and nowhere else, so nobody but a controller can
say whether a node could be switched off. It writes that to a lease of its own beside that by which
it leads, when it has changed. It is for people: nothing is ever decided by it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import NoReturn

import msgspec

from backstay.kube.client import KubeClient
from backstay.kube.errors import KubeError, NotFound
from backstay.kube.lease import Term
from backstay.kube.projection import Meta
from backstay.kube.resource import LEASES
from backstay.model.labels import COMPONENT, DEVICES, MANAGER
from backstay.model.power import DeviceReport

_log = logging.getLogger("backstay.devices")

LEASE = "backstay-devices"
_PAUSE = 15.0
_TIMEOUT = 10.0

# An annotation takes 256 KiB, together with all others.
_MOST_BYTES = 200_000
_LONGEST = 200

Reports = Mapping[str, DeviceReport]


class _LeaseMeta(Meta, frozen=True):
    annotations: dict[str, str] | None = None


class _Lease(msgspec.Struct, frozen=True):
    metadata: _LeaseMeta


class DeviceBoard:
    """See the module. ``reports`` says how the devices are now, by node."""

    def __init__(
        self, client: KubeClient, *, namespace: str, reports: Callable[[], Reports]
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._reports = reports

    async def run(self, term: Term) -> NoReturn:
        """While we lead."""
        written: str | None = None
        while True:
            text = written_as(self._reports())
            if text != written:
                try:
                    await self._write(text, not_after=term.require())
                except KubeError as error:
                    _log.info("how the devices of nodes are cannot be told: %s", error)
                else:
                    written = text
            await asyncio.sleep(_PAUSE)

    async def _write(self, text: str, *, not_after: float) -> None:
        patch = {"metadata": {"labels": {COMPONENT: MANAGER}, "annotations": {DEVICES: text}}}
        try:
            await self._client.merge_patch(
                LEASES, LEASE, patch,
                namespace=self._namespace, manager=MANAGER, timeout=_TIMEOUT, not_after=not_after,
            )  # fmt: skip
        except NotFound:
            lease = {"metadata": {**patch["metadata"], "name": LEASE}}
            await self._client.create(
                LEASES, lease,
                namespace=self._namespace, manager=MANAGER, timeout=_TIMEOUT, not_after=not_after,
            )  # fmt: skip


def written_as(reports: Reports) -> str:
    """What is wrong is told first, and what works as far as there is room."""
    order = sorted(reports.items(), key=lambda item: (item[1].works, item[0]))
    kept: dict[str, DeviceReport] = {}
    room = _MOST_BYTES
    for node, report in order:
        short = msgspec.structs.replace(report, sentence=report.sentence[:_LONGEST])
        room -= len(msgspec.json.encode({node: short}))
        if room < 0:
            break
        kept[node] = short
    return msgspec.json.encode(dict(sorted(kept.items()))).decode()


async def read_devices(client: KubeClient, *, namespace: str) -> Reports | None:
    """None where no controller has said anything of devices, or nobody may read it."""
    try:
        reply = await client.get(LEASES, LEASE, namespace=namespace, timeout=_TIMEOUT)
        said = (reply.into(_Lease).metadata.annotations or {}).get(DEVICES, "")
        return msgspec.json.decode(said, type=dict[str, DeviceReport]) if said else None
    except (KubeError, msgspec.MsgspecError):
        return None

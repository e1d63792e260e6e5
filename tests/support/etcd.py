"""The etcd of the harness's control plane: what only it can be told.

An API server forgets old versions when its etcd is compacted, which happens every few minutes.
Here it happens when a test needs it.
"""

from pathlib import Path

import msgspec

from backstay.seam.aiohttp_transport import AiohttpTransport
from backstay.seam.transport import Request
from harness.cluster import ControlPlane

_TIMEOUT = 10.0


async def compact(plane: ControlPlane, revision: str) -> None:
    """Makes etcd forget what was before ``revision``."""
    transport = AiohttpTransport()
    request = Request(
        method="POST",
        url=f"{_url(plane)}/v3/kv/compaction",
        body=msgspec.json.encode({"revision": revision}),
        timeout=_TIMEOUT,
    )
    try:
        answer = await transport.request(request)
    finally:
        await transport.close()
    assert answer.status == 200, answer.body


def _url(plane: ControlPlane) -> str:
    argv = Path(f"/proc/{plane.pids['etcd']}/cmdline").read_text().split("\0")
    flag = "--advertise-client-urls="
    [url] = [argument.removeprefix(flag) for argument in argv if argument.startswith(flag)]
    return url

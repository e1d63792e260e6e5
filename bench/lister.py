"""``python -m bench.lister SERVER AUTHORITY INTERVAL``: lists the nodes' leases, for ever, with
bare aiohttp, and does nothing with them. It says so in one line when it has done so once."""

import asyncio
import ssl
import sys

import aiohttp

_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases?resourceVersion=0"


async def _list_for_ever(server: str, authority: str, interval: float) -> None:
    context = ssl.create_default_context(cafile=authority)
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(server, connector=connector) as session:
        listed = 0
        while True:
            async with session.get(_LEASES) as answer:
                await answer.read()
            listed += 1
            if listed == 1:
                print("listed", flush=True)
            await asyncio.sleep(interval)


if __name__ == "__main__":
    asyncio.run(_list_for_ever(sys.argv[1], sys.argv[2], float(sys.argv[3])))

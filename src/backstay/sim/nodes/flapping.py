"""Flapping: a node whose network comes and goes, as with a loose plug."""

import asyncio

from backstay.sim.nodes.node import Node


async def flap(node: Node, *, every: float, times: int) -> None:
    """Its network is gone for so many seconds and there for as long, so many times; it is there at
    the end. A node that loses its power meanwhile stays without."""
    for _ in range(times):
        node.cut_off()
        await asyncio.sleep(every)
        node.heal()
        await asyncio.sleep(every)

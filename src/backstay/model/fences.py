"""Fences: what the storage could be told to refuse, and what we have told it."""

from collections.abc import Mapping

import msgspec


class FenceSight(msgspec.Struct, frozen=True, kw_only=True):
    """A fence of ours, as it was seen. ``fenced`` is what we want of it, ``holds`` and ``lifted``
    what the storage has said; ``answer`` is its last word, if there was one."""

    name: str
    uid: str
    version: str
    driver: str
    cluster: str
    incident: str
    fenced: bool
    holds: bool = False
    lifted: bool = False
    answer: str = ""


class Fencing(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to fence one node with.

    ``drivers`` are those that can. ``addresses`` are those by which the storage knows the node, for
    each driver that says so, and under the empty name for the others.
    """

    drivers: frozenset[str] = frozenset()
    addresses: Mapping[str, tuple[str, ...]] = {}
    ours: tuple[FenceSight, ...] = ()


class FenceOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be refused: one cluster of one driver, for these addresses."""

    driver: str
    cluster: str
    secret: str
    addresses: tuple[str, ...]

"""Terms: who led when, and who announced what, as the API and the wires have it.

A lease is given to whoever renews it, for ``hold`` seconds from when the last renewal that was
accepted had *left*. What a process sends until then it sends by right, and nobody can call it back:
a request that was held up on its way lands minutes later, when somebody else leads and all is done.
That must be harmless, and other rules see to it (it names uid and version, and rests on what was
looked at before it left). What must never be is that something *leaves* afterwards, or that
somebody else begins before.

So everything here is judged by when a request was put on the wire, never by when it arrived.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

Json = Mapping[str, Any]
Term: TypeAlias = tuple[str | None, int | None]
"""Whose it is, and the how manieth."""
NOBODYS: Term = (None, None)


class _Right(msgspec.Struct, frozen=True):
    """From ``since`` on, somebody could act until ``until``, under ``epoch``."""

    since: float
    until: float
    epoch: int


@dataclass
class _Announced:
    """An intent, from when it was written until its outcome was, or another one."""

    by: str
    intent: Json
    since: float
    until: float = math.inf


@dataclass
class Terms:
    """See the module. ``user`` is one of ours; ``sent`` is when a request of that one left."""

    hold: float
    _rights: dict[str, list[_Right]] = field(default_factory=dict)
    _announced: list[_Announced] = field(default_factory=list)
    _open: dict[str, _Announced] = field(default_factory=dict)
    _forgotten_at: float = -math.inf

    def forget(self, now: float) -> None:
        """The API was restored from a backup, in which nothing is of who led since."""
        self._forgotten_at = now

    def is_forgotten(self, user: str, when: float) -> bool:
        """Whether ``user`` had a right at that moment of which the API cannot know."""
        right = self._right(user, when)
        return right is not None and right.since <= self._forgotten_at and when <= right.until

    def led(self, user: str, lease: Json, *, sent: float, now: float) -> None:
        """That one has taken, renewed or given up the lease, as it is now."""
        lasts = self.hold if holder(lease) == user else 0.0
        right = _Right(now, sent + lasts, transitions(lease))
        self._rights.setdefault(user, []).append(right)

    def told(self, user: str, name: str, incident: Json, *, now: float) -> None:
        """That one has written the incident of that name, as it is now."""
        intent, known = _open_intent(incident), self._open.get(name)
        if known is not None and known.intent != intent:
            known.until = now
            del self._open[name]
        if intent is not None and name not in self._open:
            self._open[name] = _Announced(user, intent, now)
            self._announced.append(self._open[name])

    def epoch(self, user: str, sent: float) -> int:
        """Of the term in which it left; 0 for one that never led."""
        right = self._right(user, sent)
        return 0 if right is None else right.epoch

    def began(self, user: str, sent: float) -> float:
        """When the term began in which it left; -inf for one that never led."""
        epoch = self.epoch(user, sent)
        rights = (each.since for each in self._rights.get(user, ()) if each.epoch == epoch)
        return min(rights, default=-math.inf)

    def ended(self, user: str, when: float) -> float:
        """When the right to act ended, or will end, that ``user`` had at that moment."""
        right = self._right(user, when)
        return -math.inf if right is None else right.until

    def went_on(self, user: str, when: float) -> float:
        """For how long ``user`` still renewed the lease that it held at that moment; -inf if it
        held none."""
        right = self._right(user, when)
        if right is None or right.until < when:
            return -math.inf
        ends = (each.until for each in self._rights[user] if each.epoch == right.epoch)
        return max(ends) - self.hold - when

    def announced(self, user: str, pod: str, sent: float) -> set[int]:
        """The epochs under which that one had announced that it would delete ``namespace/name``."""
        return {
            each.intent["epoch"]
            for each in self._announced
            if each.by == user
            and each.since <= sent < each.until
            and any(named.startswith(f"{pod}/") for named in each.intent["pods"])
        }

    def boot_announced(self, user: str, node: str, sent: float, *, step: str = "") -> str:
        """The boot for whose incident that one had last announced by then that it would switch
        the node, be it by this ``step`` alone; empty if it had not."""
        found = ""
        for each in self._announced:
            if each.by != user or not each.since <= sent < each.until:
                continue
            if step and each.intent["step"] != step:
                continue
            for named in each.intent["pods"]:
                if named.startswith(f"power/{node}/"):
                    found = named.removeprefix(f"power/{node}/")
        return found

    def has_announced(self, node: str, boot: str, step: str, *, by: float) -> bool:
        """Whether anybody of ours had announced that step for the incident of this boot."""
        name = f"power/{node}/{boot}"
        return any(
            each.since <= by and each.intent["step"] == step and name in each.intent["pods"]
            for each in self._announced
        )

    def _right(self, user: str, when: float) -> _Right | None:
        rights = reversed(self._rights.get(user, []))
        return next((each for each in rights if each.since <= when), None)


def term_of(lease: Json) -> Term:
    """Where it is the same as before, the lease was renewed and no more."""
    spec = lease["spec"]
    return spec.get("holderIdentity"), spec.get("leaseTransitions")


def holder(lease: Json) -> str:
    return str(lease["spec"].get("holderIdentity") or "")


def transitions(lease: Json) -> int:
    return int(lease["spec"].get("leaseTransitions") or 0)


def _open_intent(incident: Json) -> Json | None:
    intent: Json | None = (incident.get("status") or {}).get("intent")
    return None if not intent or intent.get("outcome") else intent

"""People: what they have configured, and which deaths they have confirmed.

Both are watched. While the configuration cannot be read, or is not there, we only observe: that
is the one mode in which a mistake costs nothing.
"""

import asyncio
from datetime import UTC, datetime
from typing import NoReturn

import msgspec

from backstay.apis.backstay import (
    CONFIG_NAME,
    CONFIG_PROJECTION,
    CONFIGS,
    CONFIRMATION_PROJECTION,
    CONFIRMATIONS,
    Config,
    ConfigRow,
    ConfirmationRow,
    ConfirmationWire,
    config_row,
    confirmation_row,
)
from backstay.kube.cache import Cache
from backstay.kube.client import KubeClient
from backstay.kube.errors import NotFound
from backstay.kube.reflector import Reflector
from backstay.model.evidence import Confirmation
from backstay.model.policy import Mode, Policy
from backstay.seam.clock import Rng, WallClock
from backstay.sources.past import Past


class OperatorSource:
    """See the module."""

    def __init__(self, client: KubeClient, *, rng: Rng, wall: WallClock, past: Past) -> None:
        self.configs: Cache[ConfigRow] = Cache()
        self.confirmed: Cache[ConfirmationRow] = Cache({"node": lambda row: (row.node,)})
        self.reflectors = (
            Reflector(client, CONFIGS, CONFIG_PROJECTION, self.configs, rng=rng),
            Reflector(client, CONFIRMATIONS, CONFIRMATION_PROJECTION, self.confirmed, rng=rng),
        )
        self._client = client
        self._wall = wall
        self._past = past
        self._seen_at: dict[str, float] = {}
        self.confirmed.subscribe(self._confirmation_changed)

    async def run(self) -> NoReturn:
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors:
                group.create_task(reflector.run())
            await asyncio.Event().wait()
        raise AssertionError("an event that nobody sets was set")

    @property
    def policy(self) -> Policy:
        return self._in_time(policy_of(self.configs.get(CONFIG_NAME), self._wall.now()))

    def confirmations(self, node: str) -> tuple[Confirmation, ...]:
        rows = self.confirmed.by_index("node", node)
        return tuple(self._confirmation(row) for row in rows)

    async def look_closely(self, node: str) -> tuple[Policy, tuple[Confirmation, ...]]:
        """Quorum reads of the API's version, of the configuration, and of the confirmations that we
        know for ``node``."""
        await self._past.look()
        policy = self._in_time(policy_of(await self._read_config(), self._wall.now()))
        rows = [await self._read_confirmation(row) for row in self.confirmed.by_index("node", node)]
        return policy, tuple(self._confirmation(row) for row in rows if row is not None)

    def _in_time(self, policy: Policy) -> Policy:
        """What holds of it in an API that may have gone back in time."""
        return msgspec.structs.replace(policy, rolled_back=self._past.words)

    async def _read_config(self) -> ConfigRow | None:
        try:
            reply = await self._client.get(CONFIGS, CONFIG_NAME)
        except NotFound:
            return None
        return config_row(reply.into(Config))

    async def _read_confirmation(self, known: ConfirmationRow) -> ConfirmationRow | None:
        """The same one, if it is still there; another of its name is for the watch to tell."""
        try:
            reply = await self._client.get(CONFIRMATIONS, known.key)
        except NotFound:
            return None
        row = confirmation_row(reply.into(ConfirmationWire))
        return row if row.uid == known.uid else None

    def _confirmation(self, row: ConfirmationRow) -> Confirmation:
        return Confirmation(
            name=row.key,
            uid=row.uid,
            node=row.node,
            node_uid=row.node_uid,
            boot_id=row.boot_id,
            by=row.by or "somebody",
            reason=row.reason or "no reason given",
            seen_at=self._seen_at[row.uid],
            last_renewal=row.last_renewal,
            last_heartbeat=row.last_heartbeat,
        )

    def _confirmation_changed(
        self, old: ConfirmationRow | None, new: ConfirmationRow | None
    ) -> None:
        if new is not None:
            self._seen_at.setdefault(new.uid, asyncio.get_running_loop().time())
        if old is not None and (new is None or new.uid != old.uid):
            self._seen_at.pop(old.uid, None)


def policy_of(row: ConfigRow | None, now: datetime) -> Policy:
    """What a configuration means at this moment; none at all means to observe."""
    if row is None:
        return Policy()
    mode = Mode.ARMED if row.mode == Mode.ARMED else Mode.OBSERVE
    disarmed = bool(row.disarmed_until) and not _is_over(row.disarmed_until, now)
    return Policy(
        mode=Mode.DISARMED if disarmed else mode,
        disarmed_until=row.disarmed_until if disarmed else "",
        disarmed_because=row.disarmed_because if disarmed else "",
        virtual_machines=row.virtual_machines,
        stateful_sets=row.stateful_sets,
    )


def _is_over(until: str, now: datetime) -> bool:
    """A moment that cannot be read never comes: who wanted us to keep still is heeded."""
    try:
        moment = datetime.fromisoformat(until)
    except ValueError:
        return False
    return now >= (moment if moment.tzinfo else moment.replace(tzinfo=UTC))

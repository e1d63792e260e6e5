"""People: what they have configured and asked for, and which deaths they have confirmed.

All of it is watched. Without a configuration we only observe: that is the one mode in which a
mistake costs nothing. One that cannot be read does not take the place of the last that could; a
policy that could never be read holds the workloads of its namespace, because nobody knows what
their owners ask for.

What they have set an end to goes by two clocks, ours and the API's: somebody who sets one of them
must not arm us again, nor keep the brake on storms lifted.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import NoReturn

import msgspec

from backstay.apis.backstay import (
    AVAILABILITY_POLICIES,
    AVAILABILITY_PROJECTION,
    CONFIG_NAME,
    CONFIG_PROJECTION,
    CONFIGS,
    CONFIRMATION_PROJECTION,
    CONFIRMATIONS,
    AvailabilityRow,
    Config,
    ConfigRow,
    ConfigSpec,
    ConfirmationRow,
    ConfirmationWire,
    Disarmed,
    Protect,
    StormRelease,
    config_row,
    confirmation_row,
)
from backstay.kube.cache import Cache
from backstay.kube.client import KubeClient
from backstay.kube.errors import NotFound, Undecodable
from backstay.kube.projection import Unreadable
from backstay.kube.reflector import Reflector
from backstay.kube.versions import is_older
from backstay.model.evidence import Confirmation
from backstay.model.moments import Now, moment_of
from backstay.model.policy import AvailabilityRule, Mode, Policy
from backstay.seam.clock import Rng, WallClock
from backstay.sources.past import Past


class OperatorSource:
    """See the module."""

    def __init__(self, client: KubeClient, *, rng: Rng, wall: WallClock, past: Past) -> None:
        self.configs: Cache[ConfigRow] = Cache()
        self.confirmed: Cache[ConfirmationRow] = Cache({"node": lambda row: (row.node,)})
        self.asked: Cache[AvailabilityRow] = Cache({"namespace": lambda row: (row.namespace,)})
        self.reflectors = (
            Reflector(
                client, CONFIGS, CONFIG_PROJECTION, self.configs, rng=rng, compare=past.compare
            ),
            Reflector(client, AVAILABILITY_POLICIES, AVAILABILITY_PROJECTION, self.asked, rng=rng),
            Reflector(client, CONFIRMATIONS, CONFIRMATION_PROJECTION, self.confirmed, rng=rng),
        )
        self._client = client
        self._wall = wall
        self._past = past
        self._words: dict[str, tuple[ConfirmationRow, Confirmation]] = {}
        """What each confirmation says, by its uid, and the row that it was read from."""
        self._rules: tuple[AvailabilityRule, ...] | None = None
        self._policy: tuple[ConfigRow | None, str, Policy] | None = None
        self._newest = ""
        """The version of the configuration that was seen last, by a watch or by any look."""
        self.configs.subscribe(self._config_changed)
        self.confirmed.subscribe(self._confirmation_changed)
        self.asked.subscribe(self._wish_changed)

    async def run(self) -> NoReturn:
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors:
                group.create_task(reflector.run())
            await asyncio.Event().wait()
        raise AssertionError("an event that nobody sets was set")

    @property
    def policy(self) -> Policy:
        # Asked for several times at every look at every node that is down.
        row, words = self.configs.get(CONFIG_NAME), self._past.words
        if self.asked.quarantine or (row is not None and not _is_timeless(row.spec)):
            return self._policy_now(row)
        known = self._policy
        if known is None or known[0] is not row or known[1] != words:
            known = self._policy = (row, words, self._policy_now(row))
        return known[2]

    def _policy_now(self, row: ConfigRow | None) -> Policy:
        if self._rules is None:
            self._rules = rules_of(self.asked)
        wishes = Wishes(
            self._rules, never_read(self._without_a_good_one(self.asked.quarantine.values()))
        )
        return self._in_time(policy_of(row, self._now(), wishes))

    def _now(self) -> Now:
        return Now.by(self._wall.now(), self._client.api_now())

    def confirmations(self, node: str) -> tuple[Confirmation, ...]:
        rows = self.confirmed.by_index("node", node)
        return tuple(map(self._confirmation, rows))

    async def look_closely(self, node: str) -> tuple[Policy, tuple[Confirmation, ...]]:
        """Quorum reads of the API's version, of the configuration, and of the confirmations that we
        know for ``node``."""
        await self._past.look()
        config, wishes = await self._read_config(), await self._read_wishes()
        policy = self._in_time(policy_of(config, self._now(), wishes))
        rows = [await self._read_confirmation(row) for row in self.confirmed.by_index("node", node)]
        return policy, tuple(self._confirmation(row) for row in rows if row is not None)

    def is_outdated(self, policy: Policy) -> bool:
        """Whether we have seen another configuration since, or that the API has gone back in time:
        what is decided about one node is void once a look at another shows that."""
        return (policy.version, policy.rolled_back) != (self._newest, self._past.words)

    def _in_time(self, policy: Policy) -> Policy:
        """What holds of it in an API that may have gone back in time."""
        return msgspec.structs.replace(policy, rolled_back=self._past.words)

    async def _read_config(self) -> ConfigRow | None:
        try:
            reply = await self._client.get(CONFIGS, CONFIG_NAME)
        except NotFound:
            self._newest = ""
            return None
        try:
            row: ConfigRow | None = config_row(reply.into(Config))
        except Undecodable:
            row = self.configs.get(CONFIG_NAME)
        # Also an older one: then the API was rolled back.
        self._newest = "" if row is None else row.version
        return row

    async def _read_wishes(self) -> "Wishes":
        """What owners ask for, anew: there are few, and one list serves all namespaces."""
        reply = await self._client.list(AVAILABILITY_POLICIES)
        page = AVAILABILITY_PROJECTION.page(reply.body, call=reply.call)
        last_good = [self.asked.get(bad.key) for bad in page.unreadable]
        rows = [*page.rows, *(row for row in last_good if row is not None)]
        return Wishes(rules_of(rows), never_read(self._without_a_good_one(page.unreadable)))

    async def _read_confirmation(self, known: ConfirmationRow) -> ConfirmationRow | None:
        """The same one, if it is still there; another of its name is for the watch to tell."""
        try:
            reply = await self._client.get(CONFIRMATIONS, known.key)
        except NotFound:
            return None
        row = confirmation_row(reply.into(ConfirmationWire))
        return row if row.uid == known.uid else None

    def to_lapse(self) -> list[ConfirmationRow] | None:
        """Those that came back with a backup, and at which that does not stand; None while it is
        not known which there are."""
        if not self.confirmed.synced:
            return None
        return [row for row in self.confirmed if not row.lapsed and self._has_lapsed(row)]

    def _has_lapsed(self, row: ConfirmationRow) -> bool:
        """Whether it was there when the API was found to have gone back."""
        restored = self._past.restored
        return row.lapsed or bool(restored and not is_older(restored, row.version))

    def _confirmation(self, row: ConfirmationRow) -> Confirmation:
        known, lapsed = self._words.get(row.uid), self._has_lapsed(row)
        if known is not None and known[0] is row and known[1].lapsed == lapsed:
            return known[1]
        # A new picture is there at once, and told of one by one: some have not been told yet.
        seen_at = asyncio.get_running_loop().time() if known is None else known[1].seen_at
        word = Confirmation(
            name=row.key,
            uid=row.uid,
            node=row.node,
            node_uid=row.node_uid,
            boot_id=row.boot_id,
            by=row.by or "somebody",
            reason=row.reason or "no reason given",
            seen_at=seen_at,
            last_renewal=row.last_renewal,
            last_heartbeat=row.last_heartbeat,
            last_status=row.last_status,
            refuted=row.refuted,
            lapsed=lapsed,
        )
        self._words[row.uid] = row, word
        return word

    def _without_a_good_one(self, bad: Iterable[Unreadable]) -> list[Unreadable]:
        return [each for each in bad if self.asked.get(each.key) is None]

    def _config_changed(self, _old: ConfigRow | None, new: ConfigRow | None) -> None:
        if new is None:
            self._newest = ""
        elif not is_older(new.version, self._newest):
            self._newest = new.version

    def _wish_changed(self, _old: AvailabilityRow | None, _new: AvailabilityRow | None) -> None:
        self._rules = self._policy = None

    def _confirmation_changed(
        self, old: ConfirmationRow | None, new: ConfirmationRow | None
    ) -> None:
        if new is not None:
            self._confirmation(new)
        if old is not None and (new is None or new.uid != old.uid):
            self._words.pop(old.uid, None)


class Wishes(msgspec.Struct, frozen=True):
    """What owners ask for: their rules, and by namespace why one of them is not known."""

    rules: tuple[AvailabilityRule, ...] = ()
    unread: Mapping[str, str] = {}


def rules_of(rows: Iterable[AvailabilityRow]) -> tuple[AvailabilityRule, ...]:
    return tuple(row.rule for row in sorted(rows, key=lambda row: row.key))


NO_WISHES = Wishes()


def policy_of(row: ConfigRow | None, now: Now, wishes: Wishes = NO_WISHES) -> Policy:
    """What a configuration means at this moment; none at all means to observe."""
    if row is None:
        return Policy(rules=wishes.rules, unread=wishes.unread)
    spec, protect = row.spec, row.spec.protect or Protect()
    fences = spec.fencing.network_fence
    policy = Policy(
        mode=Mode.ARMED if row.mode == Mode.ARMED else Mode.OBSERVE,
        virtual_machines=protect.virtual_machines,
        stateful_sets=protect.stateful_sets,
        weakest=spec.proof.weakest,
        presume_block=spec.proof.presume_block,
        presume_after=float(spec.proof.presume_after_seconds),
        on_kubelet_loss=spec.defaults.on_kubelet_loss,
        detach=spec.defaults.detach,
        start=spec.defaults.start,
        storm_most=spec.limits.nodes_down,
        storm_released=_lifted(spec.storm_release, now),
        storm_pace=spec.limits.releases_per_minute,
        attempts=spec.limits.attempts,
        cool_down=spec.limits.cool_down_minutes * 60.0,
        highest_priority=spec.limits.highest_priority,
        network_fences=fences.enabled,
        fence_secrets={
            driver: f"{secret.namespace}/{secret.name}" for driver, secret in fences.secrets.items()
        },
        power=spec.fencing.power.enabled,
        power_on=spec.fencing.power.power_on,
        owners=spec.owners,
        version=row.version,
        rules=wishes.rules,
        unread=wishes.unread,
    )
    return policy if spec.disarmed is None else _disarmed(policy, spec.disarmed, now)


def _is_timeless(spec: ConfigSpec) -> bool:
    """Whether it means the same tomorrow."""
    return spec.disarmed is None and spec.storm_release is None


def _disarmed(policy: Policy, disarmed: Disarmed, now: Now) -> Policy:
    """Until it is over by every clock. A moment that cannot be read never comes: who wanted us to
    keep still is heeded."""
    until = moment_of(disarmed.until)
    if not disarmed.until or (until is not None and now.earliest >= until):
        return policy
    return msgspec.structs.replace(
        policy,
        mode=Mode.DISARMED,
        disarmed_until=disarmed.until,
        disarmed_because=disarmed.reason,
    )


def _lifted(release: StormRelease | None, now: Now) -> str:
    """Why a person has lifted the brake on storms, until that is over by any clock."""
    until = None if release is None else moment_of(release.until)
    if release is None or until is None or now.latest >= until:
        return ""
    return release.reason or "no reason given"


def never_read(bad: Iterable[Unreadable]) -> dict[str, str]:
    """By namespace: a policy that cannot be read, and of which no readable version is known."""
    return {
        each.key.partition("/")[0]: f"AvailabilityPolicy {each.key} cannot be read ({each.why})"
        for each in bad
    }

"""The composition root: ``build`` is the only place where the parts are joined.

An ``App`` is one controller. It observes from its first moment and acts when it leads; what it
answers about itself (``record/endpoints.py``) holds for a standby as well.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, NoReturn, TypedDict, Unpack

import msgspec

from backstay import __version__
from backstay.apis.backstay import AvailabilityRow, ConfigRow, ConfirmationRow
from backstay.apis.core import NodeRow
from backstay.control.drain import Drain
from backstay.control.failover import FailoverLoop
from backstay.control.guard import Guard
from backstay.control.history import History
from backstay.control.machines import Machines
from backstay.control.maintenance import MaintenanceLoop
from backstay.control.observe import Observer
from backstay.control.power import Power
from backstay.control.sweep import Sweeper
from backstay.control.tell import Teller
from backstay.decide.failover import CHAIN, Check
from backstay.decide.power import POWER_CHAIN, PowerCheck
from backstay.drivers.power import PowerDevices
from backstay.drivers.provider import Provider
from backstay.extras import (
    PROGRAM,
    devices_of,
    linstor_of,
    notifier_of,
    piraeus_events_of,
    provider_of,
    recorder_of,
    sources_of,
)
from backstay.kube.cache import Cache
from backstay.kube.client import KubeClient
from backstay.kube.endpoints import EndpointWatch
from backstay.kube.events import EventRecorder
from backstay.kube.lease import Leadership, Term
from backstay.kube.resource import LEASES
from backstay.model import labels
from backstay.model.node import Life
from backstay.model.policy import PIRAEUS, Mode
from backstay.model.power import WORKS
from backstay.model.reasons import Reason
from backstay.record.blackbox import BlackBox
from backstay.record.callers import Callers
from backstay.record.devices import DeviceBoard
from backstay.record.endpoints import ControllerStatus, HeldWorkload, NodeStatus, endpoints
from backstay.record.events import Herald
from backstay.record.frames import Frames
from backstay.record.incidents import IncidentBook, KeptIncident
from backstay.record.metrics import Metrics
from backstay.record.notify import Notifier, Turn
from backstay.record.piraeus import PiraeusHerald
from backstay.record.pulse import Pulse
from backstay.record.refutations import Refutations
from backstay.seam import Seams
from backstay.seam.tasks import Tasks
from backstay.settings import Settings, disagreement
from backstay.sources.copies import LinstorCopies
from backstay.sources.fences import FenceSource
from backstay.sources.guests import GuestSource
from backstay.sources.hearsay import Hearsay
from backstay.sources.linstor import LinstorSource, hearing, since
from backstay.sources.nodes import NodeSource
from backstay.sources.operator import OperatorSource
from backstay.sources.past import ApiWentBack, Past
from backstay.sources.power import PowerSource
from backstay.sources.reach import ReachSource
from backstay.sources.taints import TaintSource
from backstay.sources.testimony import Source
from backstay.sources.views import Views

_log = logging.getLogger("backstay.app")

_STALLED = 30.0
_LAST_WORDS = 5.0

# What of our worries is noted on the lease, which is read and written every few seconds.
_MOST_NOTES = 8
_LONGEST_NOTE = 300


class Parts(TypedDict, total=False):
    """What a controller can be built of instead of the shipped parts. It is there for those who
    prove that each check, and each step of watching and acting, is needed."""

    chain: Sequence[Check]
    guard: type[Guard]
    machines: type[Machines]
    guests: type[GuestSource]
    loop: type[FailoverLoop]
    observer: type[Observer]
    operator: type[OperatorSource]
    leadership: type[Leadership]
    reach: type[ReachSource]
    provider: Provider | None
    linstor: type[LinstorSource]
    hearsay: type[Hearsay]
    past: type[Past]
    sweeper: type[Sweeper]
    maintenance: type[MaintenanceLoop]
    drain: type[Drain]
    power: type[Power]
    power_source: type[PowerSource]
    power_chain: Sequence[PowerCheck]
    devices: PowerDevices | None


class App:
    """One controller; made by ``build``. Implements ``record.endpoints.Report``."""

    def __init__(
        self,
        settings: Settings,
        seams: Seams,
        client: KubeClient,
        *,
        chain: Sequence[Check] = CHAIN,
        guard: type[Guard] = Guard,
        machines: type[Machines] = Machines,
        guests: type[GuestSource] = GuestSource,
        loop: type[FailoverLoop] = FailoverLoop,
        observer: type[Observer] = Observer,
        operator: type[OperatorSource] = OperatorSource,
        leadership: type[Leadership] = Leadership,
        reach: type[ReachSource] = ReachSource,
        linstor: type[LinstorSource] = LinstorSource,
        hearsay: type[Hearsay] = Hearsay,
        sweeper: type[Sweeper] = Sweeper,
        maintenance: type[MaintenanceLoop] = MaintenanceLoop,
        drain: type[Drain] = Drain,
        past: type[Past] = Past,
        known: Past | None = None,
        provider: Provider | None = None,
        power: type[Power] = Power,
        power_source: type[PowerSource] = PowerSource,
        power_chain: Sequence[PowerCheck] = POWER_CHAIN,
        devices: PowerDevices | None = None,
    ) -> None:
        times = settings.times
        self.settings = settings
        self.measured = Metrics(version=__version__)
        self.pulse = Pulse()
        self.events = EventRecorder(
            client, component="backstay", instance=settings.identity, wall=seams.wall, rng=seams.rng
        )
        self.piraeus = piraeus_events_of(settings, seams, client)
        self.recorder = recorder_of(settings, seams)
        self.box = BlackBox(client, namespace=settings.namespace, program=PROGRAM, wall=seams.wall)
        self.notifier = notifier_of(settings, seams, self.measured)
        self.book = IncidentBook(client, wall=seams.wall, rng=seams.rng)
        self.past = known or past(client, seams.files, settings.recorder, rng=seams.rng)
        self.operator = operator(client, rng=seams.rng, wall=seams.wall, past=self.past)
        self.nodes = NodeSource(
            client,
            rng=seams.rng,
            interval=settings.poll_leases,
            window=times.suspect,
            on_look=self._looked,
            saw=partial(self.past.saw, LEASES),
        )
        views = Views(client, rng=seams.rng, namespace=settings.namespace, node=settings.node_name)
        self.hearsay = hearsay(self.past, views, rng=seams.rng)
        self.reach = reach(
            seams.transport,
            self.nodes,
            views,
            interval=settings.knock,
            deadline=0.6 * settings.knock,
            patience=times.presume,
        )
        self.guests = guests(client, self.nodes, interval=settings.poll_leases)
        fences = FenceSource(client, interval=settings.poll_leases)
        provider = provider or provider_of(settings, seams)
        self.linstor = linstor_of(settings, seams, self.nodes, linstor)
        devices = devices or devices_of(settings, seams)
        self.power = (
            None if devices is None else power_source(devices, self.nodes, interval=settings.knock)
        )
        self.sources: tuple[Source, ...] = (
            self.reach, self.guests, TaintSource(client, self.nodes), fences,
            *sources_of(provider, client, self.nodes, interval=settings.knock),
            *(each for each in (self.linstor, self.power) if each is not None),
        )  # fmt: skip
        history = History(seams.wall)
        self.observer = observer(
            client,
            self.nodes,
            self.operator,
            sources=self.sources,
            history=history,
            times=times,
            opt_in=settings.opt_in,
        )
        guarding = guard(
            client,
            self.observer,
            times=times,
            chain=chain,
            wall=seams.wall,
            devices=devices,
            power_chain=power_chain,
        )
        self.loop = loop(
            client,
            nodes=self.nodes,
            observer=self.observer,
            history=history,
            fences=fences,
            linstor=self.linstor,
            guard=guarding,
            power=power(guarding, self.power, times=times, chain=power_chain),
            machines=machines(client, self.observer, times=times, chain=chain),
            book=self.book,
            refutations=Refutations(client, wall=seams.wall),
            teller=Teller(
                herald=Herald(self.events),
                metrics=self.measured,
                recorder=self.recorder,
                box=self.box,
                notifier=self.notifier,
                piraeus=None if self.piraeus is None else PiraeusHerald(self.piraeus),
                frames=Frames(seams.wall, times=times, chain=chain),
            ),
            rng=seams.rng,
            times=times,
            chain=chain,
        )
        self.leadership = leadership(
            client,
            namespace=settings.namespace,
            name=settings.lease,
            identity=settings.identity,
            wall=seams.wall,
            rng=seams.rng,
            floor=self.book.highest_epoch,
            compare=partial(self.past.compare, LEASES),
            trace=self.past.lease,
            times=settings.lease_times,
        )
        self.maintenance = maintenance(
            client,
            nodes=self.nodes,
            operator=self.operator,
            down=lambda: self.observer.down,
            events=self.events,
            wall=seams.wall,
            rng=seams.rng,
            drain=drain,
            copies=None if self.linstor is None else LinstorCopies(self.linstor.client),
        )
        self.sweeper = sweeper(self.book, self.box, wall=seams.wall)
        self._seams = seams
        self._client = client
        self._was_armed = False
        self.nodes.cache.subscribe(self._node_changed)
        self.operator.configs.subscribe(self._config_changed)
        self.operator.asked.subscribe(self._policy_changed)
        self.operator.confirmed.subscribe(self._confirmation_changed)
        self.book.kept.subscribe(self._incident_changed)
        for source in (self.linstor, self.power):
            if source is not None:
                source.subscribe(self.loop.consider)

    async def run(self) -> None:
        """Until cancelled. On the way out the lease is given up and the last words are said.

        Raises ``ApiWentBack``: nothing that this one knows is of any use then.
        """
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(Tasks("controller"))
            tasks.spawn(self.pulse.run(), name="pulse")
            for events in self._recorded:
                tasks.spawn(events.run(), name="events")
            if self.recorder is not None:
                tasks.spawn(self.recorder.run(), name="recorder")
            tasks.spawn(EndpointWatch(self._client, rng=self._seams.rng).run(), name="endpoints")
            tasks.spawn(self.nodes.run(), name="nodes")
            tasks.spawn(self.operator.run(), name="operator")
            tasks.spawn(self.book.follow(), name="incidents")
            for source in self.sources:
                tasks.spawn(source.run(), name=source.name)
            tasks.spawn(self.past.run(), name="past")
            tasks.spawn(self.hearsay.run(), name="hearsay")
            tasks.spawn(self._compare_settings(), name="settings")
            if self.settings.host:
                callers = Callers(self._client, tasks) if self.settings.is_reachable else None
                listener = await self._seams.serve.listen(
                    endpoints(self, callers), host=self.settings.host, port=self.settings.port
                )
                stack.push_async_callback(listener.close)
            try:
                await self.past.unless_it_goes_back(self.leadership.run(self._lead))
            finally:
                await self._last_words()

    async def _compare_settings(self) -> NoReturn:
        """Says once of each leader that it was started with other settings than we."""
        said = ""
        while True:
            await asyncio.sleep(self.settings.lease_times.duration)
            difference = disagreement(self.settings.identity, self.leadership.holder)
            if difference and difference != said:
                _log.warning("%s", difference)
            said = difference

    async def _lead(self, term: Term) -> None:
        self.past.inherit(self.leadership.annotations.get(labels.ROLLED_BACK, ""))
        self._remark()
        await self.hearsay.ask()
        # To act on half a picture would be to open incidents for nodes that are merely unknown.
        while not self._has_seen_everything():  # noqa: ASYNC110 - caches tell nobody
            await asyncio.sleep(self.settings.poll_leases / 5)
        async with Tasks("leader") as tasks:
            tasks.spawn(self.box.run(term), name="box")
            tasks.spawn(self.sweeper.run(term), name="sweep")
            if self.notifier is not None:
                tasks.spawn(self.notifier.run(term), name="notifier")
            tasks.spawn(self.maintenance.lead(term), name="maintenance")
            if self.past.restored:
                refutations = Refutations(self._client, wall=self._seams.wall)
                tasks.spawn(refutations.lapse(self.operator.to_lapse, term), name="lapse")
            if self.power is not None:
                tasks.spawn(self._board(self.power).run(term), name="devices")
            await self.loop.lead(term)

    def _board(self, power: PowerSource) -> DeviceBoard:
        namespace = self.settings.namespace
        return DeviceBoard(self._client, namespace=namespace, reports=power.reports)

    def _has_seen_everything(self) -> bool:
        return self.nodes.cache.synced and self.nodes.looks > 0

    @property
    def _recorded(self) -> tuple[EventRecorder, ...]:
        return (self.events,) if self.piraeus is None else (self.events, self.piraeus)

    async def _last_words(self) -> None:
        for events in self._recorded:
            await events.flush(_LAST_WORDS)
        if self.recorder is not None:
            await self.recorder.flush(_LAST_WORDS)

    # What may make a node worth a look

    def _looked(self) -> None:
        if self.leadership.term is not None:
            self._remark()
        self.loop.looked()
        if self.notifier is not None:
            self._tell_of_disarming(self.notifier)

    def _tell_of_disarming(self, notifier: Notifier) -> None:
        """However it came about: by a person, or because the API was set back."""
        policy = self.operator.policy
        armed = policy.mode is Mode.ARMED and not policy.rolled_back
        if self._was_armed and not armed and self.leadership.term is not None:
            because = policy.rolled_back or policy.disarmed_because or "its configuration says so"
            notifier.tell(Turn.DISARMED, Reason.NoLongerArmed.because(because=because))
        self._was_armed = armed

    def _remark(self) -> None:
        self.leadership.remarks[labels.ROLLED_BACK] = self.past.remark
        chosen = self.settings.opt_in
        said = None if chosen == PIRAEUS else msgspec.json.encode(chosen).decode()
        self.leadership.remarks[labels.OPT_IN] = said
        worries = [worry[:_LONGEST_NOTE] for worry in self._worries()][:_MOST_NOTES]
        written = msgspec.json.encode(worries).decode() if worries else None
        self.leadership.remarks[labels.NOTES] = written

    def _node_changed(self, old: NodeRow | None, new: NodeRow | None) -> None:
        row = new or old
        if row is not None:
            self.loop.consider(row.key)

    def _confirmation_changed(
        self, old: ConfirmationRow | None, new: ConfirmationRow | None
    ) -> None:
        for row in (old, new):
            if row is not None:
                self.loop.consider(row.node)

    def _config_changed(self, _old: ConfigRow | None, _new: ConfigRow | None) -> None:
        self.loop.reconsider()
        self.maintenance.reconsider()

    def _policy_changed(self, _old: AvailabilityRow | None, _new: AvailabilityRow | None) -> None:
        self.loop.reconsider()

    def _incident_changed(self, old: KeptIncident | None, new: KeptIncident | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self.loop.deleted(old.uid)

    # What it says of itself

    def unhealthy(self) -> str:
        silent = self.pulse.silence(asyncio.get_running_loop().time())
        return f"The process was held up for {silent:.0f} s." if silent > _STALLED else ""

    def unready(self) -> str:
        now = asyncio.get_running_loop().time()
        if not self._has_seen_everything():
            return "It has not seen all nodes yet."
        age, most = self.nodes.age(now), self.settings.times.fresh
        return f"Its view is {age:.0f} s old; {most:g} s are allowed." if age > most else ""

    def standing(self) -> tuple[str, ...]:
        now = asyncio.get_running_loop().time()
        age = self.nodes.age(now)
        looked = "never" if age == float("inf") else f"{age:.0f} s ago"
        leader = "Another controller" if self.leadership.holder else "No controller"
        if self.leadership.term is not None:
            leader = "This controller"
        lines = (f"The nodes were last looked at {looked}.", f"{leader} leads.")
        return lines if self.linstor is None else (*lines, hearing(self.linstor.promotions, now))

    def metrics(self) -> bytes:
        measured, now = self.measured, asyncio.get_running_loop().time()
        term, queue = self.leadership.term, self.loop.queue
        measured.leading.set(float(term is not None))
        measured.epoch.set(float(term.epoch if term is not None else 0))
        measured.mode.set_all({mode.value: float(mode is self._mode) for mode in Mode})
        measured.nodes.set_all({state.value: float(n) for state, n in self._states().items()})
        measured.held.set_all(self._held_by_code())
        measured.api_age.set(self.nodes.age(now), "leases")
        measured.evidence_age.set_all(self._evidence_ages(now))
        if self.linstor is not None:
            promotions = self.linstor.promotions
            measured.linstor_connected.set(float(promotions.connected))
            measured.linstor_resync_age.set(since(promotions.last_renewed, now))
        if self.power is not None:
            codes = Counter(report.code or WORKS for report in self.power.reports().values())
            measured.devices.set_all({code: float(count) for code, count in codes.items()})
        measured.queue_depth.set(float(queue.depth if queue is not None else 0))
        measured.queue_age.set(queue.oldest_age(now) if queue is not None else 0.0)
        measured.stall.set(self.pulse.worst)
        self.maintenance.measure(measured)
        measured.incident_writes.reached(self.book.writes)
        measured.incidents_pruned.reached(self.sweeper.removed)
        measured.kept_frames_lost.reached(self.box.lost)
        if self.notifier is not None:
            measured.notifications_waiting.set(float(self.notifier.waiting))
        measured.contradicted.set(float(self._contradicted()))
        measured.storm.set(float(self.observer.in_a_storm()))
        measured.events_dropped.reached(sum(events.dropped for events in self._recorded))
        for kind, cache in self._caches():
            measured.quarantined.set(float(len(cache.quarantine)), kind)
        if self.recorder is not None:
            measured.frames_recorded.reached(self.recorder.kept)
            measured.frames_lost.reached(self.recorder.lost)
        return measured.render()

    def status(self) -> ControllerStatus:
        age = self.nodes.age(asyncio.get_running_loop().time())
        term = self.leadership.term
        return ControllerStatus(
            version=__version__,
            identity=self.settings.identity,
            mode=self._mode.value,
            leading=term is not None,
            leader=self.leadership.holder,
            epoch=term.epoch if term is not None else 0,
            view_age=None if age == float("inf") else round(age, 1),
            nodes={state.value: count for state, count in self._states().items()},
            trouble=tuple(self._trouble()),
            notes=(*self._rolled_back(), *self._worries()),
        )

    def _rolled_back(self) -> Iterator[str]:
        if self.past.words:
            yield Reason.ApiRolledBack.because(because=self.past.words).sentence

    def _worries(self) -> Iterator[str]:
        """What else a person should know."""
        if difference := disagreement(self.settings.identity, self.leadership.holder):
            yield difference
        yield from self._unread()
        if self.past.trouble:
            yield f"The API's version is kept in memory alone: {self.past.trouble}."
        if self.linstor is not None:
            now = asyncio.get_running_loop().time()
            yield from (why.sentence for why in self.linstor.notes(now))
        if self.power is not None:
            yield from self.power.worries()
        for source in self.sources:
            if source.trouble:
                yield f"{source.trouble[0].upper()}{source.trouble[1:]}."
        yield from self.maintenance.notes()
        if self.recorder is not None and self.recorder.trouble:
            yield f"The flight recorder loses decisions: {self.recorder.trouble}."
        if self.notifier is not None and self.notifier.trouble:
            yield f"Notifications are not delivered: {self.notifier.trouble}."

    def _unread(self) -> Iterator[str]:
        """What has to be known before anything is done about any node."""
        unread = {
            "what others have seen of the API": self.hearsay.trouble,
            "incidents": self.book.trouble,
        }
        for what, because in unread.items():
            if because:
                yield f"Nothing is done about any node: {what} cannot be read ({because})."

    @property
    def _mode(self) -> Mode:
        policy = self.operator.policy
        return Mode.DISARMED if policy.rolled_back else policy.mode

    def _states(self) -> Counter[Life]:
        return Counter(
            dict.fromkeys(Life, 0) | Counter(w.life.state for w in self.observer.watched.values())
        )

    def _evidence_ages(self, now: float) -> dict[str, float]:
        """Of the sources that have something to look at."""
        ages = {source.name: source.age(now) for source in self.sources}
        return {name: age for name, age in ages.items() if age is not None}

    def _held_by_code(self) -> dict[str, float]:
        held = (v.why.code for d in self.loop.decisions.values() for v in d.held)
        return {code: float(count) for code, count in Counter(held).items()}

    def _contradicted(self) -> int:
        code = Reason.EvidenceContradicted.name
        return sum(decision.why.code == code for decision in self.loop.decisions.values())

    def _caches(self) -> list[tuple[str, Cache[Any]]]:
        return [
            ("nodes", self.nodes.cache),
            ("configs", self.operator.configs),
            ("policies", self.operator.asked),
            ("confirmations", self.operator.confirmed),
            ("incidents", self.book.kept),
        ]

    def _trouble(self) -> list[NodeStatus]:
        found = []
        for name, watched in sorted(self.observer.watched.items()):
            if watched.life.state is Life.HEALTHY:
                continue
            decision, incident = self.loop.decisions.get(name), self.loop.incidents.get(name)
            why = watched.life.why if decision is None else decision.why
            held = () if decision is None else decision.held
            found.append(
                NodeStatus(
                    node=name,
                    state=watched.life.state.value,
                    code=why.code,
                    sentence=why.sentence,
                    incident="" if incident is None else incident.row.key,
                    held=tuple(
                        HeldWorkload(v.workload.key, v.why.code, v.why.sentence, v.why.next)
                        for v in held
                    ),
                )
            )
        return found


def build(settings: Settings, seams: Seams, client: KubeClient, **instead: Unpack[Parts]) -> App:
    """A controller, of the shipped parts but for what is named ``instead``."""
    return App(settings, seams, client, **instead)


async def run(
    settings: Settings,
    seams: Seams,
    client: KubeClient,
    *,
    made: Callable[[App], None] = lambda _: None,
    **instead: Unpack[Parts],
) -> None:
    """A controller, until cancelled. If the API goes back in time it is made anew, and keeps
    nothing but that. ``made`` is told of each."""
    past = instead.get("past", Past)
    known = past(client, seams.files, settings.recorder, rng=seams.rng)
    while True:
        app = App(settings, seams, client, known=known, **instead)
        made(app)
        try:
            return await app.run()
        except ApiWentBack:
            _log.warning("everything is looked at anew")

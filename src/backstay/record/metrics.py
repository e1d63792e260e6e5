"""Metrics: numbers about ourselves, in the text format that Prometheus reads.

Our own and not the usual client library: that one registers its collectors with the module when
it is imported, and several controllers live in one simulated world. What we need is a page of
code.

``Metrics`` has a field for everything that is measured, so whoever counts something cannot
misspell it. Labels take their values from our own enums and catalogue, never from names that
others choose: the number of series has a bound.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

STAGE_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 40.0, 60.0, 150.0, 300.0, 600.0)
"""In seconds: from a write that was quick to an incident that waited for a person."""

Labels = tuple[str, ...]


class Stage(StrEnum):
    """The parts into which the time from a death to the end of it is divided."""

    DETECT = "detect"
    PROVE = "prove"
    BARRIER = "barrier"
    REMOVAL = "removal"
    RECOVERED = "recovered"
    """From the release of a workload until it runs elsewhere."""
    GUEST_READY = "guest_ready"
    """From the release of a workload until it is ready to serve."""


class Source(StrEnum):
    """Whom we ask for evidence. Each tells how long ago it was last answered."""

    REACH = "reach"
    FENCES = "fences"
    PROVIDER = "provider"
    LINSTOR = "linstor"
    OPERATOR = "operator"


class Delivery(StrEnum):
    """What became of a notification."""

    SENT = "sent"
    REFUSED = "refused"
    """The receiver answered that it will not have it."""
    GIVEN_UP = "given_up"
    """It was tried until it was too old to be news."""
    DROPPED = "dropped"
    """There were too many of them."""


class _Family(ABC):
    """One name, what it means, and a value for each combination of labels."""

    kind = ""

    def __init__(self, name: str, meaning: str, labels: Sequence[str]) -> None:
        self.name = name
        self._meaning = meaning
        self.labels = tuple(labels)

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {_escaped(self._meaning, quotes=False)}"
        yield f"# TYPE {self.name} {self.kind}"
        yield from self._samples()

    @abstractmethod
    def _samples(self) -> Iterator[str]: ...

    def _check(self, labels: Labels) -> Labels:
        if len(labels) != len(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, not {labels}")
        return labels

    def _line(self, suffix: str, labels: Labels, value: float, **more: str) -> str:
        pairs = dict(zip(self.labels, labels, strict=True)) | more
        within = ",".join(f'{key}="{_escaped(pairs[key])}"' for key in pairs)
        return f"{self.name}{suffix}{f'{{{within}}}' if within else ''} {_number(value)}"


class Counter(_Family):
    """What only ever grows."""

    kind = "counter"

    def __init__(self, name: str, meaning: str, labels: Sequence[str]) -> None:
        super().__init__(name, meaning, labels)
        self._values: dict[Labels, float] = {} if self.labels else {(): 0.0}

    def add(self, *labels: str, amount: float = 1.0) -> None:
        if amount < 0:
            raise ValueError(f"{self.name} only grows")
        self._values[self._check(labels)] = self._values.get(labels, 0.0) + amount

    def reached(self, total: float, *labels: str) -> None:
        """For what somebody else counts: the total so far. It never goes back."""
        self._values[self._check(labels)] = max(total, self._values.get(labels, 0.0))

    def value(self, *labels: str) -> float:
        return self._values.get(self._check(labels), 0.0)

    def _samples(self) -> Iterator[str]:
        for labels, value in sorted(self._values.items()):
            yield self._line("", labels, value)


class Gauge(_Family):
    """What is so now. One that ``starts`` not has no value until it is given one: nought would be
    said of something that is not there."""

    kind = "gauge"

    def __init__(
        self, name: str, meaning: str, labels: Sequence[str], *, starts: bool = True
    ) -> None:
        super().__init__(name, meaning, labels)
        self._values: dict[Labels, float] = {(): 0.0} if starts and not self.labels else {}

    def set(self, value: float, *labels: str) -> None:
        self._values[self._check(labels)] = value

    def set_all(self, values: Mapping[str, float]) -> None:
        """By the only label. What is not mentioned is no longer there."""
        self._values = {self._check((label,)): value for label, value in values.items()}

    def value(self, *labels: str) -> float:
        return self._values.get(self._check(labels), 0.0)

    def _samples(self) -> Iterator[str]:
        for labels, value in sorted(self._values.items()):
            yield self._line("", labels, value)


class _Tally(msgspec.Struct):
    counts: list[int]
    total: float = 0.0


class Histogram(_Family):
    """How often something took how long."""

    kind = "histogram"

    def __init__(
        self, name: str, meaning: str, labels: Sequence[str], bounds: Sequence[float]
    ) -> None:
        super().__init__(name, meaning, labels)
        self._bounds = (*sorted(bounds), math.inf)
        self._tallies: dict[Labels, _Tally] = {}

    def observe(self, value: float, *labels: str) -> None:
        tally = self._tallies.get(self._check(labels))
        if tally is None:
            tally = self._tallies[labels] = _Tally([0] * len(self._bounds))
        tally.counts[next(i for i, bound in enumerate(self._bounds) if value <= bound)] += 1
        tally.total += value

    def count(self, *labels: str) -> int:
        tally = self._tallies.get(self._check(labels))
        return sum(tally.counts) if tally else 0

    def _samples(self) -> Iterator[str]:
        for labels, tally in sorted(self._tallies.items()):
            so_far = 0
            for bound, count in zip(self._bounds, tally.counts, strict=True):
                so_far += count
                yield self._line("_bucket", labels, so_far, le=_number(bound))
            yield self._line("_sum", labels, tally.total)
            yield self._line("_count", labels, so_far)


class Metrics:
    """Everything that is measured. The composition root makes one for each controller."""

    def __init__(self, *, version: str) -> None:
        self._families: list[_Family] = []
        gauge, counter = self._gauge, self._counter
        self.build = gauge("backstay_build_info", "Which version runs; always 1.", "version")
        self.build.set(1, version)
        self.leading = gauge("backstay_leading", "Whether this process leads (1) or stands by (0).")
        self.epoch = gauge("backstay_epoch", "The epoch of the term in which it leads; else 0.")
        self.mode = gauge("backstay_mode", "The mode that holds (1).", "mode")
        self.nodes = gauge("backstay_nodes", "Nodes, by where they stand in their life.", "state")
        self.held = gauge(
            "backstay_workloads_held", "Workloads that are down and held, by reason.", "code"
        )
        self.maintenances = gauge(
            "backstay_maintenances", "Node maintenances, by how they stand.", "code"
        )
        self.drain_blockers = gauge(
            "backstay_drain_blockers", "What is in the way of drains, by reason.", "code"
        )
        self.drain_requests = counter(
            "backstay_drain_requests_total", "How often pods were asked to leave a node."
        )
        self.decisions = counter(
            "backstay_decisions_total", "Decisions about workloads that changed.", "code", "action"
        )
        self.stages = self._histogram(
            "backstay_stage_seconds", "How long each stage of a failover took.", "stage"
        )
        self.contradicted = gauge(
            "backstay_nodes_contradicted", "Nodes that were declared dead and show life."
        )
        self.storm = gauge(
            "backstay_storm", "Whether so many nodes are silent that new evidence is doubted (1)."
        )
        self.evidence_age = gauge(
            "backstay_evidence_source_age_seconds",
            "How long ago a source of evidence that is in use last answered.",
            "source",
        )
        self.devices = gauge(
            "backstay_power_devices",
            "BMCs by what was wrong with them when they were last tried; Works if nothing was.",
            "code",
        )
        self.linstor_connected = gauge(
            "backstay_linstor_stream_connected",
            "Whether LINSTOR's events are heard (1), where it is asked.",
            starts=False,
        )
        self.linstor_resync_age = gauge(
            "backstay_linstor_last_resync_age_seconds",
            "How long ago LINSTOR's events last told the state of everything.",
            starts=False,
        )
        self.api_age = gauge(
            "backstay_api_age_seconds", "How old our view is, by kind of object.", "kind"
        )
        self.quarantined = gauge(
            "backstay_quarantined_objects", "Objects that could not be read, by kind.", "kind"
        )
        self.troubles = counter(
            "backstay_watch_troubles_total", "Times that watching a kind had to begin anew.", "kind"
        )
        self.queue_depth = gauge("backstay_queue_depth", "Nodes that wait to be looked at.")
        self.queue_age = gauge(
            "backstay_queue_oldest_seconds", "How long the first of them has been waiting."
        )
        self.incident_writes = counter("backstay_incident_writes_total", "Writes to incidents.")
        self.events_dropped = counter(
            "backstay_events_dropped_total", "Events that were not sent, because of their number."
        )
        self.frames_recorded = counter(
            "backstay_recorder_frames_total", "Decisions that the flight recorder has kept."
        )
        self.frames_lost = counter(
            "backstay_recorder_lost_total", "Decisions that the flight recorder could not keep."
        )
        self.incidents_pruned = counter(
            "backstay_incidents_pruned_total", "Closed incidents that were removed for their age."
        )
        self.kept_frames_lost = counter(
            "backstay_incident_frames_lost_total",
            "Decisions that could not be kept in the cluster beside their incident.",
        )
        self.notifications = counter(
            "backstay_notifications_total", "Notifications, by what became of them.", "outcome"
        )
        for delivery in Delivery:
            self.notifications.add(delivery.value, amount=0.0)
        self.notifications_waiting = gauge(
            "backstay_notifications_waiting", "Notifications that are still to be delivered."
        )
        self.stall = gauge(
            "backstay_loop_stall_seconds", "The longest that the process was held up of late."
        )

    @property
    def labels(self) -> Mapping[str, Labels]:
        """Of each family, by its name."""
        return {family.name: family.labels for family in self._families}

    def render(self) -> bytes:
        lines = [line for family in self._families for line in family.lines()]
        return ("\n".join(lines) + "\n").encode()

    def _gauge(self, name: str, meaning: str, *labels: str, starts: bool = True) -> Gauge:
        gauge = Gauge(name, meaning, labels, starts=starts)
        self._families.append(gauge)
        return gauge

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        counter = Counter(name, meaning, labels)
        self._families.append(counter)
        return counter

    def _histogram(self, name: str, meaning: str, *labels: str) -> Histogram:
        histogram = Histogram(name, meaning, labels, STAGE_BOUNDS)
        self._families.append(histogram)
        return histogram


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(text: str, *, quotes: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text

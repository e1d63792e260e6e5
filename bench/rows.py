"""The catalogue: what is measured, beside whom, and the bar that we set ourselves."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from bench.report import Result


@dataclass(frozen=True)
class Contender:
    """``label`` is what the table says; ``function`` is in one of the modules beside this one.

    ``amount`` pods, events, writes, electors or starts make one round; ``quick`` is for a smoke
    test. Slow peers get fewer, because their figure is per piece, and fewer is kinder to them.
    """

    label: str
    function: str
    amount: int
    quick: int


class Style(Enum):
    """How the rounds of a row are run."""

    IN_TURNS = "the two processes stay, and are measured in turns"
    AFRESH = "in turns, but in a new process each time"
    AT_ONCE = "once, both at the same time: it is time that is measured, not work"


class Serves(Enum):
    """What the measuring server has to have ready."""

    NOTHING = "there is no server"
    CALLS = "answers to single calls"
    PODS = "all pods, in pages"
    EVENTS = "a watch"
    CONTROL_PLANE = "a real one, with a node that lives"
    FLEET = "an embedded API with 1,000 nodes"
    FLEET_WITH_GUESTS = "the same with 5,000 VMs, 200 of them on a node that is silent"


@dataclass(frozen=True)
class Bar:
    """What we hold ourselves to."""

    sentence: str
    met: Callable[[Result], bool]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    unit: str
    ours: Contender
    peer: Contender
    serves: Serves = Serves.NOTHING
    style: Style = Style.IN_TURNS
    most_rounds: int = 100
    bar: Bar | None = None


_BARE_JSON = Contender("bare JSON work", "bench.embedded:bare_json", 20_000, 50)

ROWS = (
    Row(
        name="cache.bytes_per_pod",
        unit="bytes",
        ours=Contender("backstay", "bench.memory:ours", 100_000, 2_000),
        peer=Contender("dicts of json.loads", "bench.memory:dicts", 10_000, 500),
        style=Style.AFRESH,
        most_rounds=3,  # Memory varies by a percent or so.
    ),
    Row(
        name="cache.cpu_vs_official",
        unit="us/pod",
        ours=Contender("backstay", "bench.decode:ours", 2_000, 50),
        peer=Contender("kubernetes 37", "bench.decode:official", 2_000, 50),
        bar=Bar("at least 50 times less CPU than the peer", lambda row: row.ratio <= 1 / 50),
    ),
    Row(
        name="cache.cpu_vs_json",
        unit="us/pod",
        ours=Contender("backstay", "bench.decode:ours", 2_000, 50),
        peer=Contender("json.loads", "bench.decode:stdlib_json", 2_000, 50),
    ),
    Row(
        name="cache.max_stall_ms",
        unit="ms",
        ours=Contender("backstay", "bench.stall:ours", 100_000, 1_000),
        peer=Contender("bare aiohttp", "bench.stall:bare", 100_000, 1_000),
        serves=Serves.PODS,
        bar=Bar("no stall over 25 ms", lambda row: row.ours <= 25),
    ),
    Row(
        name="watch.events_per_second",
        unit="events/s",
        ours=Contender("backstay", "bench.watching:ours", 20_000, 500),
        peer=Contender("kubernetes_asyncio 36", "bench.watching:kubernetes_asyncio", 1_000, 20),
        serves=Serves.EVENTS,
        bar=Bar("at least 20,000 on one core", lambda row: row.ours >= 20_000),
    ),
    Row(
        name="write.cpu_us",
        unit="us",
        ours=Contender("backstay", "bench.writing:ours", 4_000, 4),
        peer=Contender("bare aiohttp", "bench.writing:bare", 4_000, 4),
        serves=Serves.CALLS,
    ),
    Row(
        name="write.cpu_us_vs_kubernetes_asyncio",
        unit="us",
        ours=Contender("backstay", "bench.writing:ours", 4_000, 4),
        peer=Contender("kubernetes_asyncio 36", "bench.writing:kubernetes_asyncio", 1_000, 4),
        serves=Serves.CALLS,
    ),
    Row(
        name="lease.seconds_past_deadline",
        unit="s",
        ours=Contender("backstay", "bench.electing:ours", 5, 1),
        peer=Contender("kubernetes_asyncio 36", "bench.electing:kubernetes_asyncio", 5, 1),
        serves=Serves.CALLS,
        style=Style.AT_ONCE,
        bar=Bar("never past the deadline", lambda row: row.ours <= 0),
    ),
    Row(
        name="failover.vs_floor",
        unit="ms",
        ours=Contender("backstay", "bench.failing_over:ours", 100, 4),
        peer=Contender("200 bare DELETEs", "bench.failing_over:bare", 100, 4),
        serves=Serves.CONTROL_PLANE,
        bar=Bar("at most twice the bare deletions", lambda row: row.ratio <= 2),
    ),
    Row(
        name="controller.rss_mb_1000_nodes",
        unit="MB",
        ours=Contender("backstay run", "bench.controlling:our_memory", 10, 1),
        peer=Contender("bare aiohttp", "bench.controlling:bare_memory", 10, 1),
        serves=Serves.FLEET,
        style=Style.AFRESH,
        most_rounds=2,  # Memory varies by a percent or so.
        bar=Bar("less than 80 MB", lambda row: row.ours < 80),
    ),
    Row(
        name="controller.rss_mb_5000_vms",
        unit="MB",
        ours=Contender("backstay run", "bench.controlling:our_memory", 60, 1),
        peer=Contender("bare aiohttp", "bench.controlling:bare_memory", 10, 1),
        serves=Serves.FLEET_WITH_GUESTS,
        style=Style.AFRESH,
        most_rounds=2,  # Memory varies by a percent or so.
        bar=Bar("less than 110 MB", lambda row: row.ours < 110),
    ),
    Row(
        name="decide.ms_200_vms",
        unit="ms",
        ours=Contender("backstay", "bench.deciding:ours", 200, 5),
        peer=Contender("empty calls", "bench.deciding:bare_calls", 200, 5),
        bar=Bar("less than 20 ms", lambda row: row.ours < 20),
    ),
    Row(
        name="linstor.burst_cpu_s",
        unit="s",
        ours=Contender("backstay", "bench.promotions:ours", 5_000, 50),
        peer=Contender("json.loads", "bench.promotions:bare_json", 5_000, 50),
        bar=Bar("less than 1 s for 5,000 events", lambda row: row.ours < 1),
    ),
    Row(
        name="linstor.lag_ms",
        unit="ms",
        ours=Contender("backstay", "bench.lagging:ours", 1_000, 20),
        peer=Contender("one by one, as v0.x", "bench.lagging:one_by_one", 1_000, 20),
        most_rounds=2,  # Virtual time does not vary.
        bar=Bar("at most 500 ms after the grace, with 1,000 volumes", lambda row: row.ours <= 500),
    ),
    Row(
        name="controller.idle_cpu_percent_1000_nodes",
        unit="%",
        ours=Contender("backstay run", "bench.controlling:our_cpu", 60, 2),
        peer=Contender("bare aiohttp", "bench.controlling:bare_cpu", 60, 2),
        serves=Serves.FLEET,
        style=Style.AT_ONCE,
        bar=Bar("less than 4 % of a core", lambda row: row.ours < 4),
    ),
    Row(
        name="cli.help_ms",
        unit="ms",
        ours=Contender("backstay", "bench.starting:backstay_help", 5, 1),
        peer=Contender("python -c pass", "bench.starting:nothing", 5, 1),
        bar=Bar("at most 150 ms", lambda row: row.ours <= 150),
    ),
    Row(
        name="api.gets_per_second",
        unit="calls/s",
        ours=Contender("embedded API", "bench.embedded:gets", 20_000, 50),
        peer=_BARE_JSON,
        bar=Bar("at least 10,000 on one core", lambda row: row.ours >= 10_000),
    ),
    Row(
        name="api.merge_patches_per_second",
        unit="calls/s",
        ours=Contender("embedded API", "bench.embedded:merge_patches", 5_000, 50),
        peer=_BARE_JSON,
        bar=Bar("at least 5,000 on one core, with 3 watchers", lambda row: row.ours >= 5_000),
    ),
    Row(
        name="api.applies_per_second",
        unit="calls/s",
        ours=Contender("embedded API", "bench.embedded:applies", 1_000, 10),
        peer=_BARE_JSON,
        bar=Bar("at least 2,000 of 8 KB on one core", lambda row: row.ours >= 2_000),
    ),
    Row(
        name="api.events_delivered_per_second",
        unit="events/s",
        ours=Contender("embedded API", "bench.embedded:events", 2_000, 20),
        peer=_BARE_JSON,
        bar=Bar("at least 80,000 to 50 watchers on one core", lambda row: row.ours >= 80_000),
    ),
    Row(
        name="sim.calls_per_cpu_second",
        unit="calls/s",
        ours=Contender("client and network", "bench.embedded:simulated_calls", 5_000, 50),
        peer=Contender("the handler alone", "bench.embedded:handled_calls", 20_000, 50),
    ),
    Row(
        name="sim.scenario_cpu_s",
        unit="s",
        ours=Contender("10 minutes, 20 VMs", "bench.simulating:scenario", 20, 1),
        peer=Contender("life", "bench.simulating:scenario_in_life", 20, 1),
        bar=Bar("at most 0.5 s of CPU, and 4,000 calls of ours", lambda row: row.ours <= 0.5),
    ),
    Row(
        name="sim.fuzz_seeds_per_cpu_minute",
        unit="1/min",
        ours=Contender("backstay sim fuzz", "bench.simulating:fuzz", 40, 1),
        peer=Contender("life", "bench.simulating:fuzz_in_life", 40, 1),
        bar=Bar("at least 500: 0.12 s of CPU each", lambda row: row.ours >= 500),
    ),
)

"""Contests: one row, measured.

Ours, the peer, ours, the peer: in turns, so that whatever else the machine does hits both. The
first round is thrown away (caches are cold in it), and each figure is the median of the others.
"""

import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import msgspec

from bench.processes import control_plane, fleet, server, worker
from bench.report import Result
from bench.rows import Contender, Row, Serves, Style
from bench.worker import Job, Measure

Say = Callable[[str], None]

_MANY_NODES, _FEW_NODES = 1_000, 10


def contest(row: Row, *, rounds: int, quick: bool, say: Say) -> Result:
    """Measures one row. Raises ``BenchError`` when it cannot be measured."""
    say(f"{row.name}: preparing")
    rounds = min(rounds, row.most_rounds)
    with _server(row, quick) as where:
        ours, peer = _job(row.ours, where, quick), _job(row.peer, where, quick)
        figures = _figures(row, ours, peer, rounds=rounds, say=say)
    return Result.of(row.name, figures, peer_name=row.peer.label, unit=row.unit)


def _figures(row: Row, ours: Job, peer: Job, *, rounds: int, say: Say) -> tuple[float, float]:
    if row.style is Style.AFRESH:
        return in_turns(
            lambda: _once(row.ours, ours), lambda: _once(row.peer, peer), rounds=rounds, say=say
        )
    with worker(row.ours.function, ours) as first, worker(row.peer.function, peer) as second:
        if row.style is Style.IN_TURNS:
            return in_turns(first.measure, second.measure, rounds=rounds, say=say)
        first.begin()
        second.begin()
        return first.figure(), second.figure()


def in_turns(ours: Measure, peer: Measure, *, rounds: int, say: Say) -> tuple[float, float]:
    """The medians of ``rounds`` rounds, after one that does not count."""
    figures: list[tuple[float, float]] = []
    for number in range(rounds + 1):
        figures.append((ours(), peer()))
        label = f"round {number} of {rounds}" if number else "warming up"
        say("  {}: ours {:.4g}, peer {:.4g}".format(label, *figures[-1]))
    our_figures, peer_figures = zip(*figures[1:], strict=True)
    return statistics.median(our_figures), statistics.median(peer_figures)


def _once(contender: Contender, job: Job) -> float:
    with worker(contender.function, job) as process:
        return process.measure()


def _amount(contender: Contender, quick: bool) -> int:
    return contender.quick if quick else contender.amount


def _job(contender: Contender, where: Job, quick: bool) -> Job:
    return msgspec.structs.replace(where, amount=_amount(contender, quick))


def _server(row: Row, quick: bool) -> AbstractContextManager[Job]:
    amount = _amount(row.ours, quick)
    match row.serves:
        case Serves.NOTHING:
            return nullcontext(Job(amount=0))
        case Serves.CALLS:
            return server()
        case Serves.PODS:
            return server(pods=amount)
        case Serves.EVENTS:
            return server(events=amount)
        case Serves.CONTROL_PLANE:
            return control_plane()
        case Serves.FLEET:
            return fleet(nodes=_FEW_NODES if quick else _MANY_NODES)
        case Serves.FLEET_WITH_GUESTS:
            nodes, guests = (_FEW_NODES, 30) if quick else (_MANY_NODES, 5 * _MANY_NODES)
            return fleet(nodes=nodes, guests=guests)

"""Simulating: CPU seconds for disasters under virtual time.

``scenario`` is ten minutes of a cluster of five nodes and 20 VMs, one of which dies and is
confirmed dead, with two controllers and every invariant checked. ``fuzz`` plays cases as ``backstay
sim fuzz`` draws and plays them, one after the other; what the processes cost that it starts counts.
Everybody else in these rows is life, in which ten minutes take ten minutes.
"""

import os
import time

from backstay.lab.campaign import campaign
from backstay.lab.fuzz import draw
from backstay.lab.play import play
from backstay.lab.scenario import Do, Scenario, Step, Vm, Workloads
from bench.worker import Job, Measure

MOST_CALLS = 4_000
_MINUTE = 60.0


def _ten_minutes(vms: int) -> Scenario:
    nodes = ("n1", "n2", "n3", "n4", "n5")
    return Scenario(
        name="ten-minutes",
        question="How long do ten minutes take?",
        nodes=nodes,
        workloads=Workloads(
            vms=tuple(Vm(name=f"vm-{n}", node=nodes[n % len(nodes)]) for n in range(vms))
        ),
        controllers=2,
        steps=(
            Step(at=20, do=Do.KILL, node="n2"),
            Step(at=70, do=Do.CONFIRM, node="n2"),
        ),
        until=10 * _MINUTE,
    )


def scenario(job: Job) -> Measure:
    """CPU seconds; a run that breaks anything, or asks the API too often, gives no figure."""
    case = _ten_minutes(job.amount)

    def measure() -> float:
        began = time.process_time()
        played = play(case)
        took = time.process_time() - began
        if played.breaches:
            raise RuntimeError(f"it broke {', '.join(played.broken)}")
        if played.calls > MOST_CALLS:
            raise RuntimeError(f"{played.calls} calls are more than {MOST_CALLS}")
        return took

    return measure


def scenario_in_life(job: Job) -> Measure:
    return lambda: _ten_minutes(job.amount).until


def fuzz(job: Job) -> Measure:
    """Cases in a minute of CPU time."""

    def measure() -> float:
        began = _cpu()
        report = campaign(range(job.amount))
        took = _cpu() - began
        if report.findings:
            raise RuntimeError(f"seed {report.findings[0].seed} went wrong")
        return job.amount / took * _MINUTE

    return measure


def _cpu() -> float:
    """Seconds, with those of processes that have ended."""
    return sum(os.times()[:4])


def fuzz_in_life(job: Job) -> Measure:
    seconds = sum(draw(seed).until for seed in range(job.amount))
    return lambda: job.amount / seconds * _MINUTE

"""Shrink: the smallest scenario that goes wrong in the same way.

What chance has drawn has much in it that does not matter, and who looks for the cause would have
to look at all of it. So parts are taken away one by one, and whatever still goes wrong without a
part never gets it back: first steps, then workloads, controllers and nodes, then the time at the
end in which nothing happens. It is done again until nothing more can go.

Every attempt plays a whole scenario. ``enough`` says when to be content with what there is.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from backstay.lab.scenario import (
    API_SERVER,
    PROGRAMS,
    VIRT_CONTROLLER,
    Deployment,
    Scenario,
    StatefulSet,
    Vm,
)

T = TypeVar("T")
W = TypeVar("W", Vm, StatefulSet, Deployment)

Reduction = Callable[[Scenario, int], Scenario | None]
"""The scenario without its part of that number; None when there is none of it."""

_FEWEST_NODES = 2


def shrink(
    scenario: Scenario,
    goes_wrong: Callable[[Scenario], bool],
    *,
    enough: Callable[[], bool] = lambda: False,
) -> Scenario:
    """See the module. ``goes_wrong`` is not asked about the scenario itself."""
    while True:
        before = scenario
        for reduction in REDUCTIONS:
            scenario = _reduced(scenario, reduction, goes_wrong, enough)
        if enough() or scenario == before:
            return scenario


def _reduced(
    scenario: Scenario,
    reduction: Reduction,
    goes_wrong: Callable[[Scenario], bool],
    enough: Callable[[], bool],
) -> Scenario:
    number = 0
    while not enough() and (smaller := reduction(scenario, number)) is not None:
        if goes_wrong(smaller):
            # What came behind it has this number now.
            scenario = smaller
        else:
            number += 1
    return scenario


def _without_step(scenario: Scenario, number: int) -> Scenario | None:
    if number >= len(scenario.steps):
        return None
    return _with(scenario, steps=_all_but(scenario.steps, number))


def _without_one_of(kind: str) -> Reduction:
    """Of the workloads of that kind."""

    def without(scenario: Scenario, number: int) -> Scenario | None:
        there = getattr(scenario.workloads, kind)
        if number >= len(there):
            return None
        fewer = msgspec.structs.replace(scenario.workloads, **{kind: _all_but(there, number)})
        return _consistent(_with(scenario, workloads=fewer))

    return without


def _without_controller(scenario: Scenario, number: int) -> Scenario | None:
    if number or scenario.controllers == 1:
        return None
    return _consistent(_with(scenario, controllers=scenario.controllers - 1))


def _without_node(scenario: Scenario, number: int) -> Scenario | None:
    if number >= len(scenario.nodes) or len(scenario.nodes) <= _FEWEST_NODES:
        return None
    return _consistent(_with(scenario, nodes=_all_but(scenario.nodes, number)))


def _without_quiet_end(scenario: Scenario, number: int) -> Scenario | None:
    last = max((step.at for step in scenario.steps), default=0.0)
    shorter = round(last + (scenario.until - last) / 2, 1)
    if number or scenario.until - shorter < 1.0:
        return None
    return _with(scenario, until=shorter)


REDUCTIONS: tuple[Reduction, ...] = (
    _without_step,
    _without_one_of("vms"),
    _without_one_of("stateful_sets"),
    _without_one_of("deployments"),
    _without_controller,
    _without_node,
    _without_quiet_end,
)


def _consistent(scenario: Scenario) -> Scenario:
    """Without what is about something that is no longer there."""
    workloads, nodes = scenario.workloads, scenario.nodes
    there = {"", *nodes, *scenario.controller_names, *workloads.names(), *PROGRAMS}
    return _with(
        scenario,
        steps=tuple(s for s in scenario.steps if {s.about, s.peer} <= there),
        linstor=None if scenario.linstor is None else scenario.linstor.on(nodes),
        bmcs=None if scenario.bmcs is None else scenario.bmcs.on(nodes),
        exempt=tuple(node for node in scenario.exempt if node in nodes),
        control_plane=tuple(node for node in scenario.control_plane if node in nodes),
        hosts=_hosted(scenario),
        workloads=msgspec.structs.replace(
            workloads,
            vms=tuple(_placed(each, nodes) for each in workloads.vms),
            stateful_sets=tuple(_placed(each, nodes) for each in workloads.stateful_sets),
            deployments=tuple(_placed(each, nodes) for each in workloads.deployments),
        ),
    )


def _hosted(scenario: Scenario) -> dict[str, tuple[str, ...]]:
    """On the nodes that are left, whoever of ours is left; the other programs always are."""
    there = {*scenario.controller_names, API_SERVER, VIRT_CONTROLLER}
    return {
        node: left
        for node, programs in scenario.hosts.items()
        if node in scenario.nodes and (left := tuple(p for p in programs if p in there))
    }


def _placed(workload: W, nodes: Sequence[str]) -> W:
    """Anywhere, if its node is gone."""
    if not workload.node or workload.node in nodes:
        return workload
    return msgspec.structs.replace(workload, node="")


def _all_but(items: Sequence[T], number: int) -> tuple[T, ...]:
    return (*items[:number], *items[number + 1 :])


def _with(scenario: Scenario, **changes: object) -> Scenario:
    return msgspec.structs.replace(scenario, **changes)

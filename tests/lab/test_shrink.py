"""What is left of a scenario when everything has gone that does not matter."""

from collections.abc import Callable

from backstay.lab.fuzz import draw
from backstay.lab.scenario import (
    Deployment,
    Do,
    Scenario,
    StatefulSet,
    Step,
    Vm,
    Workloads,
    dump,
    load,
)
from backstay.lab.shrink import shrink

BIG = Scenario(
    name="big",
    question="What is left?",
    nodes=("n1", "n2", "n3"),
    workloads=Workloads(
        vms=(Vm(name="a", node="n1"), Vm(name="b", node="n3")),
        stateful_sets=(StatefulSet(name="db"),),
        deployments=(Deployment(name="web", node="n3"),),
    ),
    controllers=2,
    steps=(
        Step(at=1, do=Do.KILL, node="n1"),
        Step(at=2, do=Do.CUT, node="n2"),
        Step(at=3, do=Do.KILL_PROGRAM, program="kube-scheduler"),
        Step(at=4, do=Do.CONFIRM, node="n1"),
        Step(at=5, do=Do.PAUSE_CONTROLLER, controller="backstay-2"),
        Step(at=6, do=Do.STOP_VM, workload="b"),
    ),
    until=100,
)


def _does(*wanted: Do) -> Callable[[Scenario], bool]:
    """A failure that needs exactly these steps."""
    return lambda scenario: set(wanted) <= {step.do for step in scenario.steps}


def test_only_the_steps_that_matter_are_left() -> None:
    small = shrink(BIG, _does(Do.KILL, Do.CONFIRM))
    assert [step.do for step in small.steps] == [Do.KILL, Do.CONFIRM]


def test_what_no_step_needs_is_taken_away() -> None:
    small = shrink(BIG, _does(Do.KILL))
    assert small.workloads == Workloads()
    assert small.controllers == 1
    assert small.nodes == ("n1", "n3")
    assert small.until < 3


def test_what_a_step_is_about_stays_with_it() -> None:
    small = shrink(BIG, _does(Do.STOP_VM, Do.PAUSE_CONTROLLER))
    assert small.workloads.names() == ("b",)
    assert small.controllers == 2


def test_a_workload_whose_node_is_gone_may_run_anywhere() -> None:
    def needs_b(scenario: Scenario) -> bool:
        return "b" in scenario.workloads.names() and "n2" in scenario.nodes

    small = shrink(BIG, needs_b)
    assert small.nodes == ("n2", "n3")
    smaller = shrink(BIG, lambda s: needs_b(s) and "n1" in s.nodes)
    assert smaller.nodes == ("n1", "n2")
    assert smaller.workloads.vms == (Vm(name="b"),)
    with_web = shrink(BIG, lambda s: "web" in s.workloads.names() and "n3" not in s.nodes)
    assert with_web.workloads == Workloads(deployments=(Deployment(name="web"),))


def test_every_attempt_is_a_scenario_that_can_be_written_down() -> None:
    attempts: list[Scenario] = []

    def note(scenario: Scenario) -> bool:
        attempts.append(scenario)
        return len(attempts) % 2 == 0

    for seed in range(20):
        shrink(draw(seed), note)
    assert len(attempts) > 200
    assert all(load(dump(each)) == each for each in attempts)


def test_it_is_content_with_what_there_is_when_that_is_enough() -> None:
    asked: list[Scenario] = []

    def goes_wrong(scenario: Scenario) -> bool:
        asked.append(scenario)
        return True

    small = shrink(BIG, goes_wrong, enough=lambda: len(asked) >= 3)
    assert len(asked) == 3
    assert small == asked[-1]


def test_what_needs_everything_stays_as_it_is() -> None:
    assert shrink(BIG, lambda _: False) == BIG

"""Whether KubeVirt starts a guest again, and whether we do."""

from typing import Any

import msgspec
import pytest

from backstay.decide.guests import aftermath, is_due_to_start, notes, stays_down
from backstay.model.guest import Guest
from backstay.model.policy import Terms
from backstay.model.workload import Workload, WorkloadKind
from tests.decide.cases import VM

STARTS = Terms(start=True)


def machine(strategy: str, **guest: Any) -> Workload:
    about = Guest(**{"phase": "Running", **guest})
    return msgspec.structs.replace(VM, run_strategy=strategy, guest=about)


def deleted(workload: Workload) -> Workload:
    return msgspec.structs.replace(workload, restarts=False, leaving=True)


@pytest.mark.parametrize(
    ("workload", "code"),
    [
        (machine("Always"), "Released"),
        (machine("Always", going=True), "Released"),
        (machine("RerunOnFailure"), "Released"),
        (machine("RerunOnFailure", going=True), "StaysDown"),
        (machine("RerunOnFailure", going=True, asked=("Start",)), "Released"),
        (machine("RerunOnFailure", phase="Succeeded"), "StaysDown"),
        (machine("Manual"), "StaysDown"),
        (machine("Manual", asked=("Stop", "Start")), "Released"),
        (machine("Once"), "RunsOnce"),
        (machine("Once", going=True), "Released"),
        (machine("Halted"), "StaysDown"),
        (machine("Always", needs_recovery=True), "NeedsRecovery"),
        (machine("Always", slow="v1.1.1"), "NoticedLate"),
        (deleted(machine("Always", going=True)), "NoLongerWanted"),
        (deleted(machine("Manual", needs_recovery=True)), "NoLongerWanted"),
    ],
)
def test_what_becomes_of_it_is_a_matter_of_its_run_strategy(workload: Workload, code: str) -> None:
    assert aftermath(workload, Terms()).why.code == code


@pytest.mark.parametrize(
    ("workload", "code"),
    [
        (machine("Manual"), "ToBeStarted"),
        (machine("RerunOnFailure", going=True), "ToBeStarted"),
        (machine("RerunOnFailure", phase="Succeeded"), "ToBeStarted"),
        (machine("Manual", asked=("Stop",)), "StaysDown"),
        (machine("Manual", needs_recovery=True), "NeedsRecovery"),
        (machine("Once"), "RunsOnce"),
        (machine("Halted"), "StaysDown"),
        (deleted(machine("Manual")), "NoLongerWanted"),
    ],
)
def test_a_policy_starts_what_can_be_started_and_nobody_has_stopped(
    workload: Workload, code: str
) -> None:
    then = aftermath(workload, STARTS)
    assert then.why.code == code
    assert then.start is (code == "ToBeStarted")


def test_a_guest_of_nobodys_is_said_to_have_nobody_who_starts_it() -> None:
    alone = msgspec.structs.replace(VM, kind=WorkloadKind.INSTANCE, restarts=False, guest=Guest())
    assert aftermath(alone, STARTS).why.code == "NobodyStartsIt"
    assert stays_down(alone) == "nobody creates it anew"


@pytest.mark.parametrize(
    ("workload", "due"),
    [
        (machine("Manual", phase="Failed"), True),
        (machine("Manual", phase="", gone=True), True),
        (machine("Manual", phase="Scheduling"), False),
        (machine("Manual", phase="Failed", asked=("Stop", "Start")), False),
        (machine("RerunOnFailure", phase="Failed"), False),
        (machine("RerunOnFailure", phase="", gone=True), True),
        (machine("RerunOnFailure", phase="", gone=True, asked=("Start",)), False),
        (machine("RerunOnFailure", phase="Succeeded", going=True), False),
        (machine("Always", phase="", gone=True), False),
        (machine("Halted", phase="", gone=True), False),
        (machine("Once", phase="Failed"), False),
    ],
)
def test_it_is_due_only_if_nobody_else_would_start_it(workload: Workload, due: bool) -> None:
    assert is_due_to_start(workload) is due


def test_what_is_worth_knowing_is_noted_in_advance() -> None:
    odd = machine(
        "Manual", starts_paused=True, failures=2, retry_after="2026-01-01T00:00:00Z",
        slow="v1.1.1", replaced_by="VirtualMachinePool/shop/farm",
    )  # fmt: skip
    codes = [why.code for why in notes(odd, STARTS)]
    assert codes == [
        "StartsPaused", "StartBackoff", "NoticesLate", "IsReplaced", "WouldBeStarted",
    ]  # fmt: skip
    assert notes(machine("Always"), STARTS) == ()

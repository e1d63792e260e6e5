"""Every run strategy, with proof, without it, and while the guest is seen to live."""

import msgspec
import pytest

from backstay.lab.play import play
from backstay.lab.scenario import Do, Expect, Scenario, Step, Vm, Workloads

STRATEGIES = {
    "till": "Always", "batch": "RerunOnFailure", "desk": "Manual", "setup": "Once",
}  # fmt: skip
EVERY_STRATEGY = Scenario(
    name="every-strategy",
    question="What if a node dies that has a VM of every run strategy?",
    nodes=("n1", "n2", "n3"),
    workloads=Workloads(
        vms=tuple(
            msgspec.convert({"name": name, "node": "n2", "runStrategy": strategy}, Vm)
            for name, strategy in STRATEGIES.items()
        )
    ),
    until=100,
)


def n2(at: float, do: Do) -> Step:
    return Step(at=at, do=do, node="n2")


@pytest.mark.parametrize(
    ("steps", "expect"),
    [
        pytest.param(
            (n2(5, Do.KILL), n2(60, Do.CONFIRM)),
            Expect(recovered=("till", "batch"), down=("desk", "setup"), held={}),
            id="proven",
        ),
        pytest.param(
            (n2(5, Do.KILL),),
            Expect(untouched=tuple(STRATEGIES), held=dict.fromkeys(STRATEGIES, "ProofMissing")),
            id="unproven",
        ),
        pytest.param(
            (n2(5, Do.KILL_KUBELET),),
            Expect(
                untouched=tuple(STRATEGIES),
                down=(),
                held=dict.fromkeys(STRATEGIES, "GuestAliveKubeletDead"),
            ),
            id="alive",
        ),
    ],
)
def test_a_guest_ends_as_its_strategy_says(steps: tuple[Step, ...], expect: Expect) -> None:
    scenario = msgspec.structs.replace(EVERY_STRATEGY, steps=steps, expect=expect)
    assert play(scenario).unmet == ()

"""What would come of switching a node off, asked in advance."""

from typing import Any

import pytest

from backstay.decide.failover import CHAIN
from backstay.decide.readiness import NodeOutlook, readiness
from backstay.decide.storm import Fleet
from backstay.model.policy import Job, Ownership
from backstay.model.power import DeviceReport
from tests.decide.cases import TIMES, changed

WORKS = {"n1": DeviceReport()}
WRONG = {"n1": DeviceReport("WrongDevice", "the BMC of n1 is that of another machine.")}


def outlook(devices: dict[str, DeviceReport] | None = WORKS, **change: Any) -> NodeOutlook:
    snapshot = changed(policy={"power": True, **change.pop("policy", {})}, **change)
    return readiness(snapshot, times=TIMES, chain=CHAIN, devices=devices)


def test_a_working_device_is_proof_for_everything_and_says_how_soon() -> None:
    found = outlook()
    assert found.proof[0] == "its BMC, within 10 s or so of the alarm"
    [only] = found.outlooks
    assert only.by_itself
    assert "ProvenByPower" in {why.code for why in only.caveats}
    assert found.notes == ()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"devices": WRONG}, "WrongDevice"),
        ({"devices": {}}, "NoDevice"),
        ({"facts": {"in_maintenance": True}}, "InMaintenance"),
        ({"policy": {"owners": {Job.FENCING: Ownership.FOREIGN}}}, "NotOurJob"),
        (
            {
                "facts": {"control_plane": True},
                "fleet": Fleet(nodes=3, control_plane=("n1", "n2"), control_plane_alive=("n1",)),
            },
            "ControlPlaneNeedsIt",
        ),
    ],
)
def test_what_keeps_it_from_being_proof_is_noted(change: dict[str, Any], code: str) -> None:
    found = outlook(**change)
    assert [why.code for why in found.notes] == [code]
    assert found.proof == ("a person: backstay confirm-dead",)
    assert not any(each.by_itself for each in found.outlooks)


@pytest.mark.parametrize("change", [{"policy": {"power": False}}, {"devices": None}])
def test_where_nobody_asks_for_it_or_knows_of_it_nothing_is_said(change: dict[str, Any]) -> None:
    found = outlook(**change)
    assert found.notes == ()
    assert found.proof == ("a person: backstay confirm-dead",)

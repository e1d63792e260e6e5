"""KubeVirt around its guests, as it stands in the API."""

import msgspec
import pytest

from backstay.apis.kubevirt import Instance, VirtualMachine, instance_row, virtual_machine_row
from backstay.apis.machines import GuestSet, KubeVirt, kubevirt_row, waits_for_heartbeats

META = {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "1"}


@pytest.mark.parametrize(
    ("release", "late"),
    [
        ("v1.1.1", True), ("1.0.0", True), ("v0.59.2", True), ("v1.2.0", False),
        ("v1.2.0-rc.1", False), ("v1.10.0", False), ("v2.0.0", False), ("", False),
        ("devel", False),
    ],
)  # fmt: skip
def test_a_kubevirt_before_1_2_waits_for_heartbeats(release: str, late: bool) -> None:
    assert waits_for_heartbeats(release) is late


def test_what_is_observed_goes_before_what_its_operator_is() -> None:
    both = {"observedKubeVirtVersion": "v1.8.0", "operatorVersion": "v1.9.0"}
    found = [
        kubevirt_row(msgspec.convert({"metadata": META, "status": status}, KubeVirt)).release
        for status in (both, {"operatorVersion": "v1.9.0"}, {})
    ]
    assert found == ["v1.8.0", "v1.9.0", ""]


def test_a_set_is_complete_when_as_many_as_it_wants_are_ready() -> None:
    def made(replicas: int | None, ready: int | None) -> GuestSet:
        body = {
            "metadata": META,
            "spec": {"replicas": replicas},
            "status": {"readyReplicas": ready},
        }
        return msgspec.convert(body, GuestSet)

    assert made(2, 2).is_complete
    assert not made(2, 1).is_complete
    assert not made(None, None).is_complete, "one is wanted if nothing is said"
    assert made(0, None).is_complete


def test_what_a_guest_says_of_its_own_moves() -> None:
    def row(*conditions: dict[str, str]) -> tuple[bool | None, str, bool]:
        status = {"phase": "Running", "conditions": list(conditions)}
        found = instance_row(msgspec.convert({"metadata": META, "status": status}, Instance))
        return found.migratable, found.immovable, found.paused

    assert row() == (None, "", False)
    assert row({"type": "LiveMigratable", "status": "True"}) == (True, "", False)
    cannot = {"type": "LiveMigratable", "status": "False", "reason": "X", "message": "why"}
    assert row(cannot, {"type": "Paused", "status": "True"}) == (False, "why", True)


def test_what_a_machine_still_has_to_do() -> None:
    status = {
        "printableStatus": "CrashLoopBackOff",
        "stateChangeRequests": [{"action": "Stop", "uid": "x"}, {"action": "Start"}],
        "startFailure": {"consecutiveFailCount": 3, "retryAfterTimestamp": "2026-01-01T00:00:00Z"},
        "conditions": [{"type": "ManualRecoveryRequired", "status": "True"}],
    }
    spec = {"runStrategy": "Manual", "template": {"metadata": {"labels": {"tier": "a"}}}}
    body = {"metadata": META, "spec": spec, "status": status}
    row = virtual_machine_row(msgspec.convert(body, VirtualMachine))
    assert (row.asked, row.word, row.failures) == (("Stop", "Start"), "CrashLoopBackOff", 3)
    assert (row.retry_after, row.needs_recovery) == ("2026-01-01T00:00:00Z", True)
    assert row.template_labels == {"tier": "a"}

"""What a network fence says, and of whom."""

from typing import Any

import msgspec
import pytest

from backstay.apis.csiaddons import (
    AddonsNodeWire,
    FenceRow,
    FenceWire,
    addons_node_row,
    fence_row,
)

DONE = {"result": "Succeeded", "message": "fencing operation successful"}
UNDONE = {"result": "Succeeded", "message": "unfencing operation successful"}


def fence(status: dict[str, str] | None = None, meta: dict[str, Any] | None = None) -> FenceRow:
    return fenced("Fenced", status, meta)


def fenced(
    state: str, status: dict[str, str] | None, meta: dict[str, Any] | None = None
) -> FenceRow:
    body = {
        "metadata": {"name": "f", "uid": "u", "resourceVersion": "1", **(meta or {})},
        "spec": {
            "driver": "rbd",
            "fenceState": state,
            "cidrs": ["10.0.0.1/32", "10.9.0.0/24", "fd00::1/128"],
            "parameters": {"clusterID": "c1"},
        },
        "status": status or {},
    }
    return fence_row(msgspec.convert(body, FenceWire))


def test_a_fence_holds_when_the_storage_has_said_so_of_this_very_operation() -> None:
    assert fence(DONE).holds
    assert not fence().holds
    assert not fence({"result": "Failed", "message": "fencing operation successful"}).holds


def test_the_success_of_a_former_lifting_is_not_the_success_of_a_fence() -> None:
    assert not fence(UNDONE).holds
    assert not fenced("Unfenced", DONE).is_lifted
    assert fenced("Unfenced", UNDONE).is_lifted


def test_a_fence_that_is_being_deleted_is_nothing_to_rest_on() -> None:
    assert not fence(DONE, {"deletionTimestamp": "2030-01-01T00:00:00Z"}).holds


@pytest.mark.parametrize(
    ("addresses", "covered"),
    [
        (["10.0.0.1"], True),
        (["10.0.0.1", "10.9.0.7"], True),
        (["10.9.0.0/25"], True),
        (["10.9.0.0/16"], False),
        (["10.0.0.1", "10.0.0.2"], False),
        (["fd00::1"], True),
        (["fd00::2"], False),
        (["node.example"], False),
        ([], False),
    ],
)
def test_a_fence_covers_a_node_only_if_it_covers_all_of_its_addresses(
    addresses: list[str], *, covered: bool
) -> None:
    assert fence(DONE).covers(addresses) is covered


def test_a_driver_may_tell_by_which_addresses_it_knows_a_node() -> None:
    clients = [{"id": "1", "cidrs": ["10.9.0.1/32"]}]
    body = {
        "metadata": {"name": "n", "namespace": "csi", "uid": "u", "resourceVersion": "1"},
        "spec": {"driver": {"name": "rbd", "nodeID": "n1", "endpoint": "pod://x"}},
        "status": {
            "networkFenceClientStatus": [{"networkFenceClassName": "c", "ClientDetails": clients}]
        },
    }
    row = addons_node_row(msgspec.convert(body, AddonsNodeWire))
    assert (row.driver, row.node, row.clients) == ("rbd", "n1", ("10.9.0.1/32",))

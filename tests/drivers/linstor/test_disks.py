"""Which replicas have the data, as LINSTOR tells."""

import msgspec
import pytest

from backstay.drivers.linstor.disks import disks_from
from backstay.drivers.linstor.wire import Unreadable
from backstay.model.drbd import DiskSight


def resource(node: str, *states: str | None, **more: object) -> dict[str, object]:
    volumes = [
        {"volume_number": n, **({"state": {"disk_state": state}} if state else {})}
        for n, state in enumerate(states)
    ]
    layer = {"type": "DRBD"}
    return {"name": "R1", "node_name": node, "layer_object": layer, "volumes": volumes, **more}


def read(*resources: dict[str, object]) -> tuple[DiskSight, ...]:
    return disks_from(msgspec.json.encode(resources))


def test_each_volume_of_a_replica_has_its_state() -> None:
    assert read(resource("N1", "UpToDate", "Outdated")) == (
        DiskSight(resource="r1", node="n1", states=("UpToDate", "Outdated")),
    )


def test_what_is_not_told_is_not_known() -> None:
    (disk,) = read(resource("n1", None))
    assert disk.states == (None,)


@pytest.mark.parametrize("flag", ["DISKLESS", "DRBD_DISKLESS", "TIE_BREAKER", "diskless"])
def test_who_has_no_disk_has_no_copy(flag: str) -> None:
    assert read(resource("n1", "Diskless", flags=[flag])) == ()


def test_what_drbd_does_not_replicate_is_none_of_its_business() -> None:
    assert read(resource("n1", "UpToDate", layer_object={"type": "STORAGE"})) == ()


@pytest.mark.parametrize("body", [b"{", b"{}", b'[{"name": "r"}]', b"[1]"])
def test_a_list_that_cannot_be_read_is_none(body: bytes) -> None:
    with pytest.raises(Unreadable):
        disks_from(body)

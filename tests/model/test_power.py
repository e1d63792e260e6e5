"""Whether two names are those of one machine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.model.power import machine_of, same_machine

UUID = "4c4c4544-0042-3010-8051-b4c04f4a3132"
SWAPPED = "44454c4c-4200-1030-8051-b4c04f4a3132"


@pytest.mark.parametrize(
    "other",
    [UUID, UUID.upper(), SWAPPED, SWAPPED.upper(), UUID.replace("-", ""), f"urn:uuid:{UUID}"],
)
def test_one_machine_has_many_ways_to_be_written(other: str) -> None:
    assert same_machine(UUID, other)
    assert same_machine(other, UUID)


@pytest.mark.parametrize(
    "other",
    [
        "",
        " ",
        UUID[:-1],
        UUID[:-1] + "3",
        "4c4c4544-0042-3010-5180-b4c04f4a3132",
        "44454c4c-0042-3010-8051-b4c04f4a3132",
    ],
)
def test_another_machine_is_another(other: str) -> None:
    assert not same_machine(UUID, other)


@pytest.mark.parametrize(
    "nobodys",
    [
        "",
        "00000000-0000-0000-0000-000000000000",
        "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
        "03000200-0400-0500-0006-000700080009",
        "00020003-0004-0005-0006-000700080009",
    ],
)
def test_what_many_machines_are_called_is_no_name(nobodys: str) -> None:
    assert machine_of(nobodys) == ""
    assert not same_machine(nobodys, nobodys)


@given(st.uuids(), st.uuids())
def test_two_machines_are_never_taken_for_one(one: object, other: object) -> None:
    swapped = same_machine(str(one), str(other)) and str(one) != str(other)
    assert not swapped or sorted(str(one)) == sorted(str(other))
    assert same_machine(str(one), str(one).upper()) is (machine_of(str(one)) != "")

"""Who could know that the API was restored from a backup."""

import pytest

from backstay.lab.restores import Backup, Restores
from backstay.sim.api.store import Snapshot

OURS = "backstay-1"
RESTORED = 100.0


def looks(restores: Restores, *pairs: tuple[float, int]) -> None:
    for at, version in pairs:
        restores.looked(OURS, at, version)


@pytest.mark.parametrize(
    ("looked", "renewed", "raised", "shows"),
    [
        ((95.0, 900), (80.0, 880), 0, False),
        ((95.0, 901), (80.0, 880), 0, True),
        ((85.0, 901), (80.0, 880), 0, False),
        ((95.0, 901), (80.0, 880), 1_000_000, False),
        ((95.0, 901), (95.0, 880), 1_000_000, True),
        ((85.0, 890), (80.0, 880), 1_000_000_000, True),
    ],
)
def test_what_nobody_has_seen_more_of_than_the_backup_has_gives_nothing_away(
    looked: tuple[float, int], renewed: tuple[float, int], raised: int, shows: bool
) -> None:
    restores = Restores(1.0)
    looks(restores, looked)
    renewals(restores, renewed)
    backup = Backup(90.0, Snapshot(900, {}))
    assert restores.shows(backup, raised=raised) == shows


def test_a_version_that_went_back_gives_it_away() -> None:
    restores = Restores(1.0)
    looks(restores, (95.0, 900))
    restores.happened(RESTORED, stamp="")
    looks(restores, (105.0, 500))
    assert not restores.was_known_to(OURS, 104.0)
    assert restores.was_known_to(OURS, 106.0)


def renewals(restores: Restores, *pairs: tuple[float, int]) -> None:
    for at, version in pairs:
        restores.renewed(OURS, at, version)


def test_a_lease_that_is_older_than_it_was_written_gives_it_away_at_the_next_look() -> None:
    restores = Restores(1.0)
    looks(restores, (95.0, 900))
    renewals(restores, (96.0, 890), (98.0, 895))
    restores.happened(RESTORED, stamp="")
    looks(restores, (101.0, 10_000))
    renewals(restores, (102.0, 600))
    looks(restores, (105.0, 10_001))
    assert not restores.was_known_to(OURS, 106.0)
    looks(restores, (113.0, 10_002))
    assert not restores.was_known_to(OURS, 112.0)
    assert restores.was_known_to(OURS, 114.0)


def test_a_lease_that_goes_on_from_where_it_was_gives_nothing_away() -> None:
    restores = Restores(1.0)
    looks(restores, (95.0, 900))
    renewals(restores, (96.0, 890), (98.0, 895))
    restores.happened(RESTORED, stamp="")
    renewals(restores, (102.0, 895), (104.0, 10_000))
    looks(restores, (101.0, 10_000), (113.0, 10_002))
    assert not restores.was_known_to(OURS, 114.0)


def test_of_the_lease_nobody_knows_more_than_since_it_was_started_or_noticed_a_restore() -> None:
    for begins_anew in ("started", "noticed"):
        restores = Restores(1.0)
        looks(restores, (50.0, 900))
        renewals(restores, (51.0, 890))
        if begins_anew == "noticed":
            restores.happened(60.0, stamp="")
            restores.armed("tuesday")
            restores.happened(70.0, stamp="tuesday")
        looks(restores, (95.0, 900))
        restores.happened(RESTORED, stamp="")
        if begins_anew == "started":
            restores.started(OURS)
        renewals(restores, (102.0, 600))
        looks(restores, (101.0, 10_000), (113.0, 10_002))
        assert not restores.was_known_to(OURS, 114.0)


def test_what_one_saw_right_before_it_was_killed_is_lost() -> None:
    restores = Restores(1.0)
    looks(restores, (75.0, 400), (95.0, 900))
    restores.happened(RESTORED, stamp="")
    restores.started(OURS)
    looks(restores, (105.0, 500))
    assert not restores.was_known_to(OURS, 106.0)


def test_what_one_saw_long_before_it_was_killed_is_on_its_disk() -> None:
    restores = Restores(1.0)
    looks(restores, (75.0, 800), (95.0, 900))
    restores.happened(RESTORED, stamp="")
    restores.started(OURS)
    looks(restores, (105.0, 500))
    assert restores.was_known_to(OURS, 106.0)


def test_that_it_went_back_is_on_the_disk_at_once() -> None:
    restores = Restores(1.0)
    looks(restores, (95.0, 900))
    restores.happened(RESTORED, stamp="")
    looks(restores, (101.0, 500))
    restores.started(OURS)
    looks(restores, (110.0, 950))
    assert restores.was_known_to(OURS, 111.0)

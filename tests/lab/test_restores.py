"""Who could know that the API was restored from a backup."""

from backstay.lab.restores import Restores

OURS = "backstay-1"
RESTORED = 100.0


def looks(restores: Restores, *pairs: tuple[float, int]) -> None:
    for at, version in pairs:
        restores.looked(OURS, at, version)


def test_a_version_that_went_back_gives_it_away() -> None:
    restores = Restores(1.0)
    looks(restores, (95.0, 900))
    restores.happened(RESTORED, stamp="")
    looks(restores, (105.0, 500))
    assert not restores.was_known_to(OURS, 104.0)
    assert restores.was_known_to(OURS, 106.0)


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

"""TellingCache: whom it wakes, and for what not."""

import asyncio

import msgspec

from backstay.sim.nodes.telling_cache import TellingCache


class Row(msgspec.Struct, frozen=True):
    key: str
    uid: str
    version: str


def shown(cache: TellingCache[Row], *rows: Row) -> None:
    """A full picture."""
    staged = cache.replacement()
    staged.add(rows)
    for _ in staged.settle(version="9", as_of=0.0):
        pass


def asleep(*rows: Row) -> tuple[TellingCache[Row], asyncio.Event]:
    """One that has had its first picture, and whose program has looked at it."""
    news = asyncio.Event()
    cache: TellingCache[Row] = TellingCache(news)
    shown(cache, *rows)
    news.clear()
    return cache, news


def test_a_row_that_comes_wakes_the_program() -> None:
    cache, news = asleep()
    cache.put(Row("a", "uid", "1"))
    assert news.is_set()


def test_a_row_that_changes_wakes_the_program() -> None:
    cache, news = asleep(Row("a", "uid", "1"))
    cache.put(Row("a", "uid", "2"))
    assert news.is_set()


def test_a_row_that_goes_wakes_the_program() -> None:
    cache, news = asleep(Row("a", "uid", "1"))
    cache.drop("a")
    assert news.is_set()


def test_a_row_that_is_told_again_wakes_nobody() -> None:
    cache, news = asleep(Row("a", "uid", "1"))
    cache.put(Row("a", "uid", "1"))
    assert not news.is_set()


def test_a_server_that_has_nothing_new_to_say_wakes_nobody() -> None:
    cache, news = asleep(Row("a", "uid", "1"))
    cache.heard(5.0, "10")
    assert not news.is_set()
    assert cache.age(6.0) == 1.0


def test_a_first_picture_without_any_row_wakes_the_program() -> None:
    news = asyncio.Event()
    cache: TellingCache[Row] = TellingCache(news)
    shown(cache)
    assert news.is_set()


def test_a_later_picture_without_any_change_wakes_the_program() -> None:
    cache, news = asleep(Row("a", "uid", "1"))
    shown(cache, Row("a", "uid", "1"))
    assert news.is_set()

"""The cache: against a naive model that recomputes everything, and rule by rule."""

import logging
import math
from collections.abc import Callable, Iterable

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from backstay.kube.cache import Cache, Replacement
from backstay.kube.projection import Unreadable


class Row(msgspec.Struct, frozen=True, gc=False):
    key: str
    uid: str
    version: str
    places: tuple[str, ...] = ()
    colour: str = ""


Told = tuple[Row | None, Row | None]

INDEXES: dict[str, Callable[[Row], tuple[str, ...]]] = {
    "place": lambda row: row.places,
    "colour": lambda row: (row.colour,) if row.colour else (),
}


def row(key: str = "a", version: int = 1, *, uid: str = "", places: str = "") -> Row:
    return Row(key, uid or f"uid-{key}", str(version), tuple(places))


def bad(key: str = "a", version: int = 2) -> Unreadable:
    return Unreadable(key, str(version), "makes no sense")


def filled(*rows: Row, unreadable: Iterable[Unreadable] = ()) -> Cache[Row]:
    cache: Cache[Row] = Cache(INDEXES)
    replace(cache, *rows, unreadable=unreadable)
    return cache


def replace(
    cache: Cache[Row], *rows: Row, unreadable: Iterable[Unreadable] = (), as_of: float = 0.0
) -> None:
    staged = cache.replacement()
    staged.add(rows, unreadable)
    settle(staged, as_of=as_of)


def settle(staged: Replacement[Row], *, as_of: float = 0.0) -> None:
    for _ in staged.settle(version="9", as_of=as_of):
        pass


def listening(cache: Cache[Row]) -> list[Told]:
    told: list[Told] = []
    cache.subscribe(lambda old, new: told.append((old, new)))
    return told


# Against a model


class CacheMachine(RuleBasedStateMachine):
    """Few keys, places and versions, so that everything meets everything.

    ``rows`` and ``quarantine`` are the model. A staged picture has a model of its own, built from
    the list of everything that was put into it.
    """

    keys = st.sampled_from("abcd")
    lives = st.integers(1, 2)
    versions = st.integers(1, 4)
    # The server never sends two different objects under the same uid and version.
    rows_ = st.builds(
        lambda key, life, version: Row(
            key, f"{key}{life}", str(version),
            tuple("xyz"[: (version + life) % 4]), ("", "red", "blue")[version % 3],
        ),
        keys, lives, versions,
    )  # fmt: skip
    bad_ones = st.builds(bad, keys, versions)

    def __init__(self) -> None:
        super().__init__()
        self.cache: Cache[Row] = Cache(INDEXES)
        self.rows: dict[str, Row] = {}
        self.quarantine: dict[str, Unreadable] = {}
        self.staged: Replacement[Row]
        self.staged_rows: dict[str, Row]
        self.staged_bad: dict[str, Unreadable]
        self.begin_a_picture()
        self.replays: list[dict[str, Row]] = []
        self.now = 0.0
        self.heard_at = -math.inf
        self.subscribe()

    @rule()
    @precondition(lambda self: len(self.replays) < 4)
    def subscribe(self) -> None:
        replay: dict[str, Row] = {}
        self.replays.append(replay)

        def listen(old: Row | None, new: Row | None) -> None:
            one = new if new is not None else old
            assert one is not None
            assert replay.pop(one.key, None) is old
            if new is not None:
                assert new is not old
                replay[one.key] = new

        self.cache.subscribe(listen)

    @rule(new=rows_)
    def put(self, new: Row) -> None:
        self.cache.put(new)
        self.quarantine.pop(new.key, None)
        if self.rows.get(new.key) != new:
            self.rows[new.key] = new

    @rule(key=keys)
    def drop(self, key: str) -> None:
        self.cache.drop(key)
        self.rows.pop(key, None)
        self.quarantine.pop(key, None)

    @rule(one=bad_ones)
    def set_aside(self, one: Unreadable) -> None:
        self.cache.set_aside(one)
        self.quarantine[one.key] = one

    def begin_a_picture(self) -> None:
        self.staged = self.cache.replacement()
        self.staged_rows, self.staged_bad = {}, {}

    @rule()
    def give_up_the_picture(self) -> None:
        self.begin_a_picture()

    @rule()
    def add_what_is_known_to_the_picture(self) -> None:
        # As it comes from the server: equal, but not the same object.
        self.add_to_the_picture([msgspec.structs.replace(each) for each in self.rows.values()], [])

    @rule(rows=st.lists(rows_, max_size=5), unreadable=st.lists(bad_ones, max_size=2))
    def add_to_the_picture(self, rows: list[Row], unreadable: list[Unreadable]) -> None:
        self.staged.add(rows, unreadable)
        for each in rows:
            known = self.rows.get(each.key)
            self.staged_rows[each.key] = known if known == each and known is not None else each
            self.staged_bad.pop(each.key, None)
        for one in unreadable:
            self.staged_bad[one.key] = one
            if one.key not in self.staged_rows and one.key in self.rows:
                self.staged_rows[one.key] = self.rows[one.key]

    @rule(key=keys)
    def drop_from_the_picture(self, key: str) -> None:
        self.staged.drop(key)
        self.staged_rows.pop(key, None)
        self.staged_bad.pop(key, None)

    @rule(slice_size=st.integers(1, 5), newcomer=st.booleans())
    def settle(self, slice_size: int, newcomer: bool) -> None:
        self.heard_at = self.now
        slices = self.staged.settle(version="9", as_of=self.now, slice_size=slice_size)
        self.rows, self.quarantine = self.staged_rows, self.staged_bad
        for _ in slices:
            self.everything_is_found_as_if_recomputed()
            if newcomer and len(self.replays) < 4:
                self.subscribe()
        assert self.cache.synced
        self.begin_a_picture()

    @rule(seconds=st.integers(1, 5))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule()
    def hear(self) -> None:
        self.cache.heard(self.now, "9")
        self.heard_at = self.now

    @invariant()
    def everything_is_found_as_if_recomputed(self) -> None:
        cache = self.cache
        assert {each.key: each for each in cache} == self.rows
        # A row that did not change is the very object that readers hold.
        assert all(cache.get(key) is each for key, each in self.rows.items())
        assert len(cache) == len(self.rows)
        for life in ("a1", "a2", "b1", "b2", "c1", "c2", "d1", "d2"):
            found = [each for each in self.rows.values() if each.uid == life]
            assert cache.by_uid(life) is (found[0] if found else None)
        for name, function in INDEXES.items():
            recomputed: dict[str, list[Row]] = {}
            for each in self.rows.values():
                for value in function(each):
                    recomputed.setdefault(value, []).append(each)
            assert cache.counts(name) == {value: len(all_) for value, all_ in recomputed.items()}
            for value, all_ in recomputed.items():
                by_key = sorted(cache.by_index(name, value), key=lambda each: each.key)
                assert by_key == sorted(all_, key=lambda each: each.key)

    @invariant()
    def listeners_can_replay_it(self) -> None:
        assert all(replay == self.rows for replay in self.replays)
        assert self.cache.listener_failures == 0

    @invariant()
    def the_quarantine_is_as_it_should_be(self) -> None:
        assert self.cache.quarantine == self.quarantine

    @invariant()
    def the_age_is_that_of_the_last_word(self) -> None:
        expected = self.now - self.heard_at if self.cache.synced else math.inf
        assert self.cache.age(self.now) == expected


TestCacheAgainstTheModel = CacheMachine.TestCase
TestCacheAgainstTheModel.settings = settings(max_examples=70, stateful_step_count=25)


def test_a_row_that_moved_is_found_where_it_is_and_no_longer_where_it_was() -> None:
    cache = filled(row("a", places="xy"))
    cache.put(row("a", 2, places="yz"))
    assert cache.by_index("place", "x") == []
    assert cache.by_index("place", "y") == [row("a", 2, places="yz")]
    assert cache.by_index("place", "z") == [row("a", 2, places="yz")]
    assert cache.counts("place") == {"y": 1, "z": 1}


# Pictures


def test_readers_see_the_old_picture_until_the_new_one_is_complete() -> None:
    cache = filled(row("a"), row("b", places="x"))
    staged = cache.replacement()
    staged.add([row("a", 2), row("c", places="x")])
    assert {each.key for each in cache} == {"a", "b"}
    assert cache.get("a") == row("a")
    assert cache.by_index("place", "x") == [row("b", places="x")]
    settle(staged)
    assert {each.key for each in cache} == {"a", "c"}
    assert cache.get("a") == row("a", 2)
    assert cache.by_index("place", "x") == [row("c", places="x")]
    assert cache.by_uid("uid-b") is None


def test_a_row_that_did_not_change_stays_the_same_object_and_is_not_told() -> None:
    cache = filled(row("a"))
    held, told = cache.get("a"), listening(cache)
    told.clear()
    cache.put(row("a"))
    replace(cache, row("a"))
    assert cache.get("a") is held
    assert told == []


def test_the_same_name_with_another_uid_is_another_object() -> None:
    cache = filled(row("a", uid="first"))
    told = listening(cache)
    cache.put(row("a", uid="second"))
    replace(cache, row("a", uid="third"))
    assert told[1:] == [
        (row("a", uid="first"), row("a", uid="second")),
        (row("a", uid="second"), row("a", uid="third")),
    ]
    assert cache.by_uid("first") is None
    assert cache.by_uid("second") is None
    assert cache.by_uid("third") is cache.get("a")


def test_listeners_are_told_exactly_the_difference_of_two_pictures() -> None:
    cache = filled(row("a"), row("b"), row("c"))
    told = listening(cache)
    told.clear()
    replace(cache, row("a"), row("b", 2), row("d"))
    assert told == [(row("b"), row("b", 2)), (None, row("d")), (row("c"), None)]


@pytest.mark.parametrize(("before", "after"), [(0, 30), (30, 30), (30, 0)])
def test_a_picture_is_settled_in_slices(before: int, after: int) -> None:
    cache = filled(*(row(f"{n}") for n in range(before)))
    told: list[Told] = []
    cache.subscribe(lambda old, new: told.append((old, new)))
    staged = cache.replacement()
    staged.add([row(f"{n}", 2) for n in range(after)])
    told.clear()
    told_in: list[int] = []
    for _ in staged.settle(version="9", as_of=0.0, slice_size=10):
        told_in.append(len(told))
        told.clear()
    assert max(told_in) <= 10
    # Those that did not change cost a look as well.
    assert len(told_in) == (before + after) // 10


def test_every_reader_sees_the_swap_before_any_listener_hears_of_it() -> None:
    cache = filled(row("a"))
    seen: list[set[str]] = []
    cache.subscribe(lambda _old, _new: seen.append({each.key for each in cache}))
    replace(cache, row("b"), row("c"))
    assert seen == [{"a"}, {"b", "c"}, {"b", "c"}, {"b", "c"}]


def test_one_who_subscribes_in_the_middle_of_a_swap_hears_each_row_once() -> None:
    cache = filled(row("a"), row("b"))
    staged = cache.replacement()
    staged.add([row("b", 2), row("c"), row("d")])
    slices = staged.settle(version="9", as_of=0.0, slice_size=1)
    next(slices)
    told = listening(cache)
    for _ in slices:
        pass
    assert sorted(told, key=str) == [(None, row("b", 2)), (None, row("c")), (None, row("d"))]


def test_one_who_subscribes_from_within_a_listener_hears_each_row_once() -> None:
    cache = filled()
    told: list[Told] = []

    def recruit(_old: Row | None, _new: Row | None) -> None:
        cache.subscribe(lambda old, new: told.append((old, new)))

    cache.subscribe(recruit)
    cache.put(row("a"))
    assert told == [(None, row("a"))]


def test_an_abandoned_picture_leaves_no_trace() -> None:
    cache = filled(row("a"))
    told = listening(cache)
    cache.replacement().add([row("b")], [bad("a")])
    assert [each.key for each in cache] == ["a"]
    assert not cache.quarantine
    assert told == [(None, row("a"))]
    assert cache.replacements == 1


# Quarantine


def test_an_object_that_cannot_be_read_keeps_its_last_good_row() -> None:
    cache = filled(row("a", places="x"))
    told = listening(cache)
    cache.set_aside(bad("a"))
    assert cache.get("a") == row("a", places="x")
    assert cache.by_index("place", "x") == [row("a", places="x")]
    assert cache.quarantine == {"a": bad("a")}
    assert told == [(None, row("a", places="x"))]


def test_it_keeps_it_across_a_new_picture_too() -> None:
    cache = filled(row("a", places="x"), row("b"))
    held, told = cache.get("a"), listening(cache)
    told.clear()
    replace(cache, unreadable=[bad("a")])
    assert cache.get("a") is held
    assert cache.by_uid("uid-a") is held
    assert cache.by_index("place", "x") == [held]
    assert cache.quarantine == {"a": bad("a")}
    assert told == [(row("b"), None)]


def test_an_object_that_could_never_be_read_is_in_quarantine_alone() -> None:
    cache = filled(unreadable=[bad("a")])
    assert cache.get("a") is None
    assert cache.quarantine == {"a": bad("a")}


def test_a_good_row_ends_the_quarantine() -> None:
    cache = filled(row("a"), unreadable=[bad("b")])
    cache.set_aside(bad("a"))
    cache.put(row("a", 3))
    cache.put(row("b", 3))
    assert not cache.quarantine


def test_the_very_row_that_was_kept_ends_the_quarantine_when_it_comes_again() -> None:
    cache = filled(row("a"))
    cache.set_aside(bad("a"))
    cache.put(row("a"))
    assert not cache.quarantine


def test_a_deletion_ends_the_quarantine() -> None:
    cache = filled(row("a"), unreadable=[bad("b")])
    cache.set_aside(bad("a"))
    cache.drop("a")
    cache.drop("b")
    assert not cache.quarantine


def test_a_new_picture_ends_the_quarantine_of_what_it_shows_well_or_not_at_all() -> None:
    cache = filled(row("a"), row("b"), row("c"))
    for key in "abc":
        cache.set_aside(bad(key))
    replace(cache, row("a"), unreadable=[bad("c", 5)])
    assert cache.quarantine == {"c": bad("c", 5)}
    assert {each.key for each in cache} == {"a", "c"}


def test_within_one_picture_the_later_word_counts() -> None:
    cache = filled(row("a"), row("b"))
    staged = cache.replacement()
    staged.add([row("b", 3)], [bad("a")])
    staged.add([row("a", 4)], [bad("b", 5), bad("c")])
    staged.drop("c")
    settle(staged)
    assert cache.get("a") == row("a", 4)
    # Newer than the one that the cache held before, if not as new as it should be.
    assert cache.get("b") == row("b", 3)
    assert cache.quarantine == {"b": bad("b", 5)}


def test_what_stays_unreadable_is_counted_each_time_but_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache = filled(row("a"))
    with caplog.at_level(logging.WARNING, "backstay.cache"):
        cache.set_aside(bad("a"))
        cache.set_aside(bad("a", 3))
        replace(cache, unreadable=[bad("a", 4)])
    assert cache.unreadable_total == 3
    assert caplog.messages == ["cannot read a: makes no sense"]


# Listeners, age


def test_a_listener_that_fails_is_counted_and_disturbs_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache = filled(row("a"))

    def fails(_old: Row | None, new: Row | None) -> None:
        raise RuntimeError(f"on {new.key if new else 'nothing'}")

    cache.subscribe(fails)
    told = listening(cache)
    cache.put(row("b"))
    cache.drop("a")
    replace(cache, row("c"))
    assert cache.listener_failures == 5
    assert told == [
        (None, row("a")), (None, row("b")), (row("a"), None), (None, row("c")), (row("b"), None),
    ]  # fmt: skip
    assert [each.key for each in cache] == ["c"]
    assert [record.message for record in caplog.records] == [
        f"a listener failed on {key}" for key in ("a", "b", "a", "c", "b")
    ]


def test_nothing_is_told_of_what_was_not_there() -> None:
    cache = filled()
    told = listening(cache)
    cache.drop("a")
    assert told == []


def test_the_age_is_infinite_before_the_first_full_picture() -> None:
    cache: Cache[Row] = Cache()
    assert cache.age(100.0) == math.inf
    cache.heard(100.0, "5")
    cache.put(row("a"))
    assert cache.age(100.0) == math.inf
    assert not cache.synced


def test_a_picture_is_as_old_as_its_request() -> None:
    cache = filled()
    replace(cache, row("a"), as_of=100.0)
    assert cache.age(160.0) == 60.0
    assert cache.version == "9"
    cache.heard(170.0)
    assert cache.age(175.0) == 5.0
    assert cache.version == "9"


def test_an_index_that_does_not_exist_is_a_mistake_and_not_empty() -> None:
    cache = filled(row("a"))
    with pytest.raises(KeyError):
        cache.by_index("plaice", "x")


def test_what_an_index_hands_out_may_be_kept_while_the_cache_changes() -> None:
    cache = filled(row("a", places="x"), row("b", places="x"))
    found = cache.by_index("place", "x")
    cache.drop("a")
    assert [each.key for each in found] == ["a", "b"]
    assert cache.counts("place") == {"x": 1}


def test_an_index_that_names_a_value_twice_counts_it_once() -> None:
    twice: Cache[Row] = Cache({"place": lambda row: (*row.places, *row.places)})
    twice.put(row("a", places="x"))
    assert twice.counts("place") == {"x": 1}
    twice.drop("a")
    assert twice.counts("place") == {}

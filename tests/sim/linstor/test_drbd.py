"""DRBD's rules, on three nodes."""

import dataclasses

import pytest

from backstay.sim.chance import Chance
from backstay.sim.linstor.drbd import Drbd
from backstay.sim.linstor.quorum import Ballot, has_quorum
from backstay.sim.linstor.replicas import Disk, Kind, Link, Options, Role
from tests.sim.linstor.drbd_rig import THREE, TWO_AND_A_HALF, Rig

OFF = Options(quorum="off")


# Quorum


@pytest.mark.parametrize(
    ("rule", "present", "voters", "quorum"),
    [
        ("majority", 2, 3, True),
        ("majority", 1, 3, False),
        ("majority", 2, 4, False),
        ("majority", 1, 1, True),
        ("all", 3, 3, True),
        ("all", 2, 3, False),
        ("off", 0, 3, True),
        ("2", 2, 5, True),
        ("2", 1, 5, False),
    ],
)
def test_quorum_is_counted_among_those_who_have_disks(
    rule: str, present: int, voters: int, quorum: bool
) -> None:
    ballot = Ballot(voters=voters, present=present, diskless=0, diskless_present=0)
    assert has_quorum(rule, ballot) is quorum


def test_half_of_the_voters_win_with_a_tie_breaker_and_not_without() -> None:
    seen = Ballot(voters=2, present=1, diskless=1, diskless_present=1)
    assert has_quorum("majority", seen)
    assert not has_quorum("majority", dataclasses.replace(seen, diskless_present=0))


def test_a_tie_breaker_does_not_make_a_minority_a_majority() -> None:
    assert not has_quorum("majority", Ballot(voters=3, present=1, diskless=1, diskless_present=1))


# Promotion


def test_only_one_is_primary() -> None:
    rig = Rig()
    assert rig.promote("a") == ""
    assert rig.promote("b") == "Multiple primaries not allowed by config"
    assert rig.writers == ["a"]
    rig.drbd.demote("r", "a")
    assert rig.promote("b") == ""
    assert rig.writers == ["b"]


def test_two_are_primary_where_that_is_allowed() -> None:
    rig = Rig(options=Options(allow_two_primaries=True))
    assert rig.promote("a") == rig.promote("b") == ""
    assert rig.writers == ["a", "b"]


def test_nobody_is_promoted_without_quorum() -> None:
    rig = Rig()
    rig.isolate("a")
    rig.pass_time()
    assert rig.promote("a") == "No quorum"
    assert not rig.sight("a").may_promote


def test_nobody_is_promoted_before_silence_is_noticed() -> None:
    """The peer that is believed to be there is asked, and does not answer."""
    rig = Rig()
    rig.promote("a")
    rig.drbd.lose_power("a")
    assert not rig.sight("b").may_promote, "a is Primary as far as it knows"
    assert rig.promote("b") == "Timeout in operation"
    rig.pass_time()
    assert rig.sight("b").may_promote
    assert rig.promote("b") == ""


def test_a_replica_without_a_disk_writes_through_its_peers() -> None:
    rig = Rig(TWO_AND_A_HALF)
    rig.drbd.add_diskless("r", "d")
    assert rig.promote("d") == ""
    assert rig.writers == ["d"]
    for node in ("a", "b"):
        rig.drbd.lose_power(node)
    rig.pass_time()
    assert rig.writers == []


# Silence


def test_silence_is_noticed_after_some_ten_seconds_by_each_for_itself() -> None:
    rig = Rig()
    rig.isolate("a")
    rig.pass_time(6.9)
    assert rig.sight("a").connections == {"b": Link.CONNECTED, "c": Link.CONNECTED}
    assert rig.sight("b").connections["a"] is Link.CONNECTED
    rig.pass_time(6.2)
    assert rig.sight("a").connections == {"b": Link.CONNECTING, "c": Link.CONNECTING}
    assert rig.sight("b").connections == {"a": Link.CONNECTING, "c": Link.CONNECTED}


def test_a_silence_that_nobody_noticed_did_no_harm() -> None:
    rig = Rig()
    rig.promote("a")
    rig.isolate("a")
    rig.pass_time(3)
    assert not rig.can_write("a"), "nobody confirms its writes"
    rig.rejoin("a")
    assert rig.can_write("a")
    rig.pass_time()
    assert rig.sight("a").connections == {"b": Link.CONNECTED, "c": Link.CONNECTED}


def test_a_cut_in_one_direction_ends_a_connection_for_both() -> None:
    rig = Rig()
    rig.drbd.cut("a", "b", one_way=True)
    rig.pass_time()
    assert rig.sight("a").connections["b"] is Link.CONNECTING
    assert rig.sight("b").connections["a"] is Link.CONNECTING


def test_who_shuts_down_is_missed_at_once_and_has_no_vote() -> None:
    rig = Rig()
    rig.promote("a")
    rig.drbd.shut_down("c")
    assert rig.sight("a").connections["c"] is Link.CONNECTING
    rig.drbd.shut_down("b")
    assert rig.writers == ["a"], "both who left know that they are outdated"
    rig.drbd.boot("b")
    rig.drbd.boot("c")
    rig.pass_time()
    assert rig.disk("b") == Disk.UP_TO_DATE


# A Primary that is cut off


def test_a_primary_without_quorum_cannot_write_and_goes_on_when_nobody_took_over() -> None:
    rig = Rig()
    rig.promote("a")
    rig.isolate("a")
    assert rig.writers == []
    rig.pass_time()
    assert rig.sight("a").suspended
    assert rig.writers == []
    rig.rejoin("a")
    rig.pass_time()
    assert rig.writers == ["a"]
    assert not rig.sight("a").suspended


def test_a_primary_that_fails_writes_is_not_suspended_and_cannot_write_either() -> None:
    rig = Rig(options=Options(on_no_quorum="io-error"))
    rig.promote("a")
    rig.isolate("a")
    rig.pass_time()
    assert not rig.sight("a").suspended
    assert rig.writers == []


def test_an_old_primary_is_made_secondary_when_it_meets_newer_data() -> None:
    rig = Rig()
    rig.promote("a")
    rig.isolate("a")
    rig.pass_time()
    assert rig.promote("b") == ""
    rig.rejoin("a")
    rig.pass_time(5.1)
    assert rig.resource["a"].role is Role.SECONDARY
    assert rig.disk("a") in (Disk.INCONSISTENT, Disk.OUTDATED)
    rig.pass_time()
    assert rig.disk("a") == Disk.UP_TO_DATE
    assert rig.writers == ["b"]
    assert rig.most_writers == 1


def test_an_old_primary_stays_apart_where_it_is_not_to_be_forced() -> None:
    rig = Rig(options=Options(outdated_primary="disconnect"))
    rig.promote("a")
    rig.isolate("a")
    rig.pass_time()
    rig.promote("b")
    rig.drbd.demote("r", "b")
    rig.rejoin("a")
    rig.pass_time()
    assert rig.sight("a").suspended
    assert set(rig.sight("a").connections.values()) == {Link.CONNECTING}
    rig.drbd.demote("r", "a")
    rig.pass_time()
    assert rig.disk("a") == Disk.UP_TO_DATE


def test_who_slept_through_a_primary_is_outdated_even_when_that_one_is_gone_again() -> None:
    rig = Rig()
    rig.drbd.lose_power("c")
    rig.pass_time()
    rig.promote("a")
    for node in ("a", "b"):
        rig.drbd.lose_power(node)
    rig.drbd.boot("c")
    rig.pass_time()
    assert rig.promote("c") == "No quorum"
    rig.drbd.boot("b")
    rig.pass_time(5.1)
    assert rig.disk("c") == Disk.INCONSISTENT
    rig.pass_time()
    assert rig.disk("c") == Disk.UP_TO_DATE


def test_a_primary_that_was_freed_from_quorum_writes_on_alone() -> None:
    rig = Rig()
    rig.drbd.configure("r", Options(), {"a": Options(quorum="off")})
    rig.promote("a")
    rig.isolate("a")
    rig.pass_time()
    assert rig.promote("b") == "", "the others have the quorum"
    assert rig.writers == ["a", "b"]


# Three nodes, one link


def test_with_one_link_down_the_primary_writes_and_nobody_else_can_take_over() -> None:
    """A and B have lost each other, and C is connected to both: B has quorum, and may even say
    that it could be promoted, but whoever asks is told of A."""
    rig = Rig()
    rig.promote("a")
    rig.drbd.cut("a", "b")
    rig.pass_time()
    assert rig.writers == ["a"]
    assert rig.sight("b").quorum
    assert rig.sight("b").may_promote
    assert not rig.sight("c").may_promote
    assert rig.promote("b") == "Multiple primaries not allowed by config"
    assert rig.disk("b") == Disk.OUTDATED
    assert rig.most_writers == 1
    rig.drbd.mend("a", "b")
    rig.pass_time()
    assert rig.disk("b") == Disk.UP_TO_DATE


def test_with_a_tie_breaker_in_between_nobody_can_take_over_either() -> None:
    rig = Rig(TWO_AND_A_HALF)
    rig.promote("a")
    rig.drbd.cut("a", "b")
    rig.pass_time()
    assert rig.writers == ["a"]
    assert rig.sight("b").quorum
    assert rig.promote("b") == "Need access to UpToDate data", "the tie-breaker told it"


def test_an_old_primary_does_not_come_back_through_the_tie_breaker() -> None:
    rig = Rig(TWO_AND_A_HALF)
    rig.promote("a")
    rig.isolate("a")
    rig.pass_time()
    rig.promote("b")
    rig.drbd.mend("a", "c")
    rig.pass_time()
    assert rig.writers == ["b"]
    assert rig.resource["a"].role is Role.SECONDARY
    assert rig.disk("a") == Disk.OUTDATED
    assert rig.most_writers == 1


# Split brain


def test_without_quorum_both_write_and_stand_alone_when_they_meet() -> None:
    rig = Rig({"a": Kind.DISKFUL, "b": Kind.DISKFUL}, OFF)
    rig.promote("a")
    rig.drbd.cut("a", "b")
    assert rig.writers == []
    rig.pass_time()
    assert rig.promote("b") == ""
    assert rig.writers == ["a", "b"]
    rig.drbd.mend("a", "b")
    rig.pass_time()
    assert rig.sight("a").connections == {"b": Link.STAND_ALONE}
    assert rig.sight("b").connections == {"a": Link.STAND_ALONE}
    assert rig.writers == ["a", "b"]


def test_a_split_brain_ends_when_one_side_gives_up_its_data() -> None:
    rig = Rig({"a": Kind.DISKFUL, "b": Kind.DISKFUL}, OFF)
    rig.promote("a")
    rig.drbd.cut("a", "b")
    rig.pass_time()
    rig.promote("b")
    rig.drbd.mend("a", "b")
    rig.pass_time()
    rig.drbd.demote("r", "b")
    rig.drbd.reconnect("r", "b", discard=True)
    rig.pass_time()
    assert rig.disk("b") == Disk.UP_TO_DATE
    assert rig.writers == ["a"]


# Whatever happens


def _something_happens(rig: Rig, chance: Chance) -> bool:
    """Whether somebody was promoted by it."""
    one, other = chance.pick("abc"), chance.pick("abc")
    match chance.below(11):
        case 0:
            rig.drbd.cut(one, other)
        case 1:
            rig.drbd.cut(one, other, one_way=True)
        case 2 | 3:
            rig.drbd.mend(one, other)
        case 4:
            rig.drbd.lose_power(one)
        case 5:
            rig.drbd.shut_down(one)
        case 6 | 7:
            rig.drbd.boot(one)
        case 8:
            rig.drbd.demote("r", one)
        case _:
            return rig.promote(one) == ""
    return False


@pytest.mark.parametrize("replicas", [THREE, TWO_AND_A_HALF], ids=["three", "tie-breaker"])
def test_with_quorum_nobody_writes_beside_another_whatever_happens(
    replicas: dict[str, Kind],
) -> None:
    promotions = 0
    for seed in range(40):
        rig, chance = Rig(replicas, seed=seed), Chance(seed, "what happens")
        for _ in range(60):
            promotions += _something_happens(rig, chance)
            rig.pass_time(chance.exponential(6))
            up = [replica for replica in rig.resource.replicas.values() if replica.up]
            links = {end.link for replica in up for end in replica.ends.values()}
            assert Link.STAND_ALONE not in links, "a split brain"
        assert rig.most_writers < 2
    assert promotions > 100, "else nothing was tried"


def test_a_follower_that_was_released_hears_nothing_more() -> None:
    heard: list[str] = []
    drbd = Drbd(now=lambda: 0.0, between=Chance(1, "drbd").between)
    release = drbd.follow(heard.append)
    drbd.create("r", THREE)
    release()
    drbd.promote("r", "a")
    assert heard == ["r"]


def test_who_comes_back_after_the_tie_breaker_is_brought_up_to_date() -> None:
    """The primary, which has the newest data, can then be reached by way of the tie-breaker."""
    rig = Rig(TWO_AND_A_HALF)
    rig.promote("a")
    rig.isolate("a")
    rig.pass_time()
    assert rig.writers == []
    rig.drbd.mend("a", "c")
    rig.pass_time()
    assert rig.writers == ["a"], "one of two, and the tie-breaker"
    rig.drbd.mend("a", "b")
    rig.pass_time()
    assert rig.sight("b").connections["a"] is Link.CONNECTED
    assert rig.disk("b") == Disk.UP_TO_DATE
    assert rig.writers == ["a"]


# Disowned


def test_a_primary_that_the_others_were_told_to_forget_cannot_write() -> None:
    rig = Rig()
    rig.promote("a")
    rig.drbd.disown("r", "a")
    assert rig.writers == []
    rig.pass_time()
    assert rig.writers == [], "it counts those who have left it"
    assert rig.sight("b").may_promote
    assert rig.sight("b").connections == {"c": Link.CONNECTED}
    assert rig.promote("b") == ""
    assert rig.writers == ["b"]


def test_whom_the_others_were_told_to_forget_has_no_vote_with_them() -> None:
    rig = Rig()
    rig.drbd.disown("r", "a")
    rig.drbd.cut("b", "c")
    rig.pass_time()
    assert not rig.sight("b").quorum, "one of two"
    rig.drbd.disown("r", "c")
    assert rig.sight("b").quorum, "one of one"

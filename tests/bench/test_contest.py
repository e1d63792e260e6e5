"""Rounds: whose turn it is, and which figures count."""

from bench.contest import in_turns


def quiet(line: str) -> None:
    pass


def test_ours_and_the_peer_take_turns() -> None:
    turns: list[str] = []

    def measured(who: str) -> float:
        turns.append(who)
        return 1.0

    in_turns(lambda: measured("ours"), lambda: measured("peer"), rounds=2, say=quiet)

    assert turns == ["ours", "peer"] * 3


def test_the_first_round_does_not_count() -> None:
    ours, peer = iter([1000.0, 3.0, 1.0, 2.0]), iter([1000.0, 30.0, 10.0, 20.0])

    figures = in_turns(lambda: next(ours), lambda: next(peer), rounds=3, say=quiet)

    assert figures == (2.0, 20.0)


def test_every_round_is_told_while_it_goes_on() -> None:
    lines: list[str] = []

    in_turns(lambda: 1.5, lambda: 3.0, rounds=1, say=lines.append)

    assert lines == ["  warming up: ours 1.5, peer 3", "  round 1 of 1: ours 1.5, peer 3"]

"""Cases that are drawn by chance: the same for the same seed, and none of them goes wrong."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from backstay.lab.bugs import BUGS
from backstay.lab.campaign import MOST, Report, Troupe, campaign
from backstay.lab.fuzz import GAME, LONGEST, SIBLINGS, dealt, draw
from backstay.lab.fuzz.deck import story_of
from backstay.lab.fuzz.themes import THEMES
from backstay.lab.fuzz.words import deaf_to_the_api
from backstay.lab.scenario import Do, dump, load
from tests.support.sim_command import backstay_sim, backstay_sim_begun

CHUNK = 25
CHUNKS = 40

CHEAP = 60
"""A seed whose case is short, and shows the bug below."""

SILENCE = next(bug.name for bug in BUGS if bug.name.startswith("silence"))

NEVER_DRAWN = {Do.DELETE_NODE, Do.FORCE_DELETE}
"""They start a second copy whatever we do."""


def _python(code: str, *arguments: str, hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# Drawing


def test_a_seed_is_the_same_case_in_every_process() -> None:
    code = (
        "from backstay.lab.fuzz import draw\n"
        "from backstay.lab.scenario import dump\n"
        "print(*(dump(draw(seed)) for seed in range(50)), sep='', end='')"
    )
    here = "".join(dump(draw(seed)) for seed in range(50))
    assert {_python(code, hash_seed=hash_seed) for hash_seed in ("1", "2")} == {here}


def test_a_case_has_the_same_history_in_every_process() -> None:
    code = (
        "import sys, msgspec\n"
        "from backstay.sim.hash_seed import reexec_with_fixed_hash_seed\n"
        "reexec_with_fixed_hash_seed()\n"
        "from backstay.lab.fuzz import draw\n"
        "from backstay.lab.play import play\n"
        "print(*(msgspec.json.encode(play(draw(seed))) for seed in map(int, sys.argv[1:])))"
    )
    first, second = (_python(code, "3", "10", hash_seed=hash_seed) for hash_seed in ("1", "2"))
    assert first == second
    assert "recovered" in first


def test_cases_are_small_and_can_be_written_down() -> None:
    for seed in range(100):
        case = draw(seed)
        assert 3 <= len(case.nodes) <= 5
        assert len(case.workloads.vms) <= 6
        assert case.workloads.names()
        assert case.until <= LONGEST
        assert load(dump(case)) == case


def test_everything_that_can_happen_is_drawn_sooner_or_later() -> None:
    steps = [step for seed in range(2_000) for step in draw(seed).steps]
    drawn = {step.do for step in steps}
    assert set(Do) - drawn == NEVER_DRAWN
    waiting = Counter(step.waits for step in steps)
    assert 0.05 < waiting[True] / len(steps) < 0.5


def test_neighbouring_seeds_are_different_cases() -> None:
    assert len({repr(draw(seed).steps) for seed in range(100)}) == 100


def test_a_group_of_seeds_begins_with_the_same_world() -> None:
    worlds = set()
    for group in range(20):
        seeds = range(group * SIBLINGS, (group + 1) * SIBLINGS)
        [world] = {dump(draw(seed).beginning) for seed in seeds}
        worlds.add(world)
    assert len(worlds) > 15


@pytest.mark.parametrize("first", [0, 7 * SIBLINGS, 3 * GAME + SIBLINGS])
def test_wherever_one_begins_every_theme_comes_as_often_as_it_has_cards(first: int) -> None:
    seeds = range(first, first + GAME)
    cards = {theme.name: theme.cards * SIBLINGS for theme in THEMES}
    assert Counter(dealt(seed)[0].name for seed in seeds) == cards


def test_every_story_of_a_theme_comes_as_often_as_it_has_weight_before_any_comes_again() -> None:
    for theme in THEMES:
        weights = Counter({story: weight for weight, story in theme.stories})
        for first in (0, weights.total()):
            told = [story_of(theme, first + turn) for turn in range(weights.total())]
            assert Counter(story for story, _ in told) == weights
            assert Counter(story for story, alone in told if alone) == Counter(set(weights))


def test_nothing_is_laid_over_a_story_that_is_told_alone() -> None:
    alone = [seed for seed in range(GAME) if story_of(*dealt(seed)) == (deaf_to_the_api, True)]
    assert [len(draw(seed).steps) for seed in alone] == [1]


# Playing


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_case_goes_wrong(chunk: int) -> None:
    report = campaign(range(chunk * CHUNK, (chunk + 1) * CHUNK))
    assert report.findings == ()
    assert report.seeds == CHUNK
    assert report.checked > 100 * CHUNK


def test_a_deliberate_bug_is_found_and_made_small() -> None:
    report = campaign(range(CHEAP, CHEAP + 1), bug=SILENCE)
    [finding] = report.findings
    assert "NoDeleteWithoutEvidence" in finding.broken
    assert any(sentence.startswith("NoDeleteWithoutEvidence: ") for sentence in finding.sentences)
    small = load(finding.scenario)
    assert small.bug == SILENCE
    assert len(small.steps) == 1
    with Troupe() as troupe:
        assert troupe.outcome(small).broken


def test_a_campaign_ends_when_it_has_found_enough() -> None:
    told: list[Report] = []
    report = campaign(range(1_000), bug=SILENCE, told=told.append, patience=lambda: lambda: True)
    assert len(report.findings) == MOST
    assert report.seeds < 50
    assert [each.seeds for each in told] == list(range(1, report.seeds + 1))


def test_a_case_that_cannot_be_played_to_its_end_is_a_finding() -> None:
    case = msgspec.structs.replace(draw(1), bug="nobody has written it")
    with Troupe() as troupe:
        assert troupe.outcome(case).broken == ("BadScenario",)


# The command


def test_several_processes_find_the_same_as_one() -> None:
    # Two whole groups and a part of a third.
    seeds = ("--first", "10", "--seeds", "12", "--output", "json")
    alone, shared = backstay_sim("fuzz", *seeds), backstay_sim("fuzz", *seeds, "--jobs", "2")
    assert (alone.returncode, shared.returncode) == (0, 0), alone.stderr + shared.stderr
    report = msgspec.json.decode(alone.stdout, type=Report)
    assert report == msgspec.json.decode(shared.stdout, type=Report)
    assert report.seeds == 12
    assert report.checked > 1_200


def test_what_went_wrong_is_written_down_and_the_exit_code_says_so(tmp_path: Path) -> None:
    done = backstay_sim(
        "fuzz", "--first", str(CHEAP), "--seeds", "1", "--bug", SILENCE, "--corpus", str(tmp_path)
    )
    assert done.returncode == 4, done.stderr
    [file] = tmp_path.iterdir()
    assert f"NEXT: backstay sim run {file}" in done.stdout
    assert load(file.read_text()).bug == SILENCE


def test_a_corpus_that_cannot_be_written_to_is_named_before_anything_is_played() -> None:
    done = backstay_sim("fuzz", "--seeds", "100000", "--corpus", "/dev/null/corpus")
    assert done.returncode == 1
    assert done.stderr == "Error: /dev/null/corpus cannot be written to: Not a directory.\n"


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
def test_who_interrupts_it_is_told_what_came_of_it_so_far(
    tmp_path: Path, told: signal.Signals
) -> None:
    case = ("--first", str(CHEAP), "--seeds", "100000", "--most", "1000", "--bug", SILENCE)
    soak = backstay_sim_begun("fuzz", *case, "--corpus", str(tmp_path / "corpus"))
    file = tmp_path / "corpus" / f"fuzz-{CHEAP}.yaml"
    while not file.exists() and soak.poll() is None:
        time.sleep(0.05)
    soak.send_signal(told)
    said, wrong = soak.communicate()
    assert soak.returncode == 130, wrong
    assert f"NEXT: backstay sim run {file}" in said
    assert f"seeds from {CHEAP} on" in said


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
def test_who_ends_it_ends_those_that_it_has_started(told: signal.Signals) -> None:
    soak = backstay_sim_begun("fuzz", "--seeds", "100000", "--jobs", "2")
    started = Path(f"/proc/{soak.pid}/task/{soak.pid}/children")
    while len(workers := started.read_text().split()) < 2:
        time.sleep(0.05)
    soak.send_signal(told)
    said, wrong = soak.communicate()
    assert soak.returncode == 130, wrong
    # asyncio may add that it was not the one to learn of a child's end.
    assert wrong.endswith("Interrupted.\n")
    assert "0 seeds went wrong" in said
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


def test_an_unknown_bug_is_named() -> None:
    done = backstay_sim("fuzz", "--bug", "nonsense")
    assert done.returncode == 1
    assert "there is no bug 'nonsense': 'backstay sim bugs' lists them." in done.stderr

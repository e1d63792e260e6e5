"""``backstay sim run``, as a person runs it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BACKSTAY = Path(sys.executable).parent / "backstay"
GOLDEN = Path(__file__).parents[1] / "lab" / "golden"

QUIET = """\
name: quiet
question: What if nothing happens?
nodes: [n1, n2]
workloads:
  vms: [{name: till, node: n2}]
until: 5
expect:
  untouched: [till]
  down: []
"""
BUGGY = """\
name: buggy
question: What if silence counted as death?
nodes: [n1, n2, n3]
workloads:
  vms: [{name: till, node: n2}]
bug: BUG
steps:
  - {at: 2, do: cut, node: n2}
until: 60
"""


def sim_run(*args: str | Path) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "COLUMNS": "100"}
    command = [BACKSTAY, "sim", "run", *args]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)


def written(directory: Path, text: str) -> Path:
    file = directory / "mine.yaml"
    file.write_text(text)
    return file


def told(text: str) -> list[str]:
    """To the second; how many calls it took is no part of the story."""
    return re.sub(r"^( *\d+)\.\d", r"\1", text, flags=re.MULTILINE).splitlines()[:-1]


def test_the_story_of_a_scenario_is_as_it_was() -> None:
    """To renew it: COLUMNS=100 backstay sim run node-dies > tests/lab/golden/node-dies.txt"""
    said = sim_run("node-dies")
    assert said.stderr == ""
    assert told(said.stdout) == told((GOLDEN / "node-dies.txt").read_text())
    assert said.returncode == 0


def test_one_seed_is_one_story_in_every_process() -> None:
    assert sim_run("manual-vm", "--seed", "7").stdout == sim_run("manual-vm", "--seed", "7").stdout


def test_several_are_summed_up_in_a_table(tmp_path: Path) -> None:
    said = sim_run(written(tmp_path, QUIET), "diskless-vm")
    assert said.stdout.splitlines() == [
        "SCENARIO      OUTCOME",
        "quiet         As expected",
        "diskless-vm   As expected",
    ]
    assert said.returncode == 0


def test_programs_get_all_of_it_as_json(tmp_path: Path) -> None:
    (played,) = json.loads(sim_run(written(tmp_path, QUIET), "-o", "json").stdout)
    assert played["name"] == "quiet"
    assert played["untouched"] == ["till"]
    assert played["running"] == {"till": ["n2"]}
    assert (played["breaches"], played["unmet"]) == ([], [])


def test_what_does_not_come_as_expected_is_said_and_is_exit_code_1(tmp_path: Path) -> None:
    said = sim_run(written(tmp_path, QUIET.replace("down: []", "down: [till]")))
    assert "Not as expected: down was to be till, and is nothing." in said.stdout
    assert said.returncode == 1


def test_a_broken_invariant_is_exit_code_4(tmp_path: Path) -> None:
    said = sim_run(written(tmp_path, BUGGY.replace("BUG", "silence-is-death")))
    assert "NoDeleteWithoutEvidence" in said.stdout
    assert said.returncode == 4


@pytest.mark.parametrize(
    ("good", "bad", "sentence"),
    [
        ("until", "untill", "untill: there is no such field."),
        ("node: n2", "node: n7", "workloads.vms[0].node: there is no node n7."),
        ("until: 5", "until: soon", "until: expected float, got str."),
        ("name: quiet", "name: [", "it is not YAML at line 2"),
    ],
)
def test_bad_input_is_answered_in_one_sentence(
    tmp_path: Path, good: str, bad: str, sentence: str
) -> None:
    file = written(tmp_path, QUIET.replace(good, bad, 1))
    said = sim_run("diskless-vm", file)
    assert said.stdout == ""
    assert said.stderr.startswith(f"Error: {file}: ")
    assert sentence in said.stderr
    assert len(said.stderr.splitlines()) == 1
    assert said.returncode == 1


def test_an_unknown_bug_is_bad_input(tmp_path: Path) -> None:
    said = sim_run(written(tmp_path, BUGGY))
    assert "bug: there is no bug BUG" in said.stderr
    assert said.returncode == 1


def test_what_is_neither_a_file_nor_shipped_is_said_to_be_so() -> None:
    said = sim_run("no-such-thing")
    assert said.stderr.startswith("Error: no-such-thing is neither a file nor a scenario")
    assert said.returncode == 1


def test_something_has_to_be_named() -> None:
    said = sim_run()
    assert "Name what to play" in said.stderr
    assert said.returncode == 1

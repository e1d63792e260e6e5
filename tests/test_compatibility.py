"""docs/compatibility.md keeps its word: each bug that we do not have is shown by its test."""

import re
from pathlib import Path

import pytest

from backstay.cli.drain import command as drain

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "compatibility.md").read_text()
FLAGS = (
    "attacher-name", "known-resource-grace-period", "kubeconfig", "leader-election",
    "leader-election-healtz-port", "leader-election-lease-name", "leader-election-namespace",
    "leader-election-resource-name", "new-resource-grace-period", "pod-label-selector",
    "reconcile-interval", "v",
)  # fmt: skip


def written(path: Path) -> set[str]:
    return {*re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)}


def test_every_bug_has_its_test_and_every_test_its_line() -> None:
    files = (ROOT / "tests" / "lab").glob("test_piraeus_bugs*.py")
    there = set[str]().union(*map(written, files))
    assert {*re.findall(r"`(test_\w+)`", PAGE)} == there


@pytest.mark.parametrize("flag", FLAGS)
def test_every_flag_of_the_piraeus_ha_controller_has_its_line(flag: str) -> None:
    section = PAGE.partition("### Flags")[2].partition("\n### ")[0]
    assert f"`--{flag}`" in section


def test_every_flag_of_kubectl_drain_is_there_and_has_its_line() -> None:
    section = PAGE.partition("### kubectl drain")[2].partition("\n### ")[0]
    ours = {name for option in drain.params for name in option.opts if name.startswith("--")}
    theirs = {
        "--chunk-size", "--delete-emptydir-data", "--disable-eviction", "--dry-run", "--force",
        "--grace-period", "--ignore-daemonsets", "--pod-selector", "--selector",
        "--skip-wait-for-delete-timeout", "--timeout",
    }  # fmt: skip
    assert theirs <= ours
    assert not [flag for flag in theirs if f"`{flag}`" not in section]

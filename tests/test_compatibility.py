"""docs/compatibility.md keeps its word: each bug that we do not have is shown by its test."""

import re
from pathlib import Path

import pytest

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

"""Every kind of VM ends as docs/policy.md says, whatever there is to show that its node is dead."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from backstay.lab.matrix import DIES, KINDS, MOVES, STARTS, Kind, Shown, scenario, tables
from backstay.lab.play import Played, play

POLICY = Path(__file__).parents[2] / "docs" / "policy.md"


@dataclass(frozen=True)
class End:
    """Of one VM: whether it runs on its old node, or on another; whether we touched it; and what is
    told of it while it does not run."""

    runs: str
    touched: bool
    told: str


def expected(kind: Kind, shown: Shown) -> End:
    held = kind.held(shown)
    stays = "where it was" if shown is Shown.REFUTED else "nowhere"
    if held != MOVES:
        return End(stays, touched=False, told=held)
    return End("elsewhere" if kind.down == STARTS else "nowhere", touched=True, told=kind.down)


def found(kind: Kind, played: Played) -> End:
    places = {"where it was" if node == DIES else "elsewhere" for node in played.running[kind.name]}
    told = played.held.get(kind.name) or played.stays_down.get(kind.name, "")
    return End(" and ".join(sorted(places)) or "nowhere", kind.name not in played.untouched, told)


@pytest.mark.parametrize("shown", Shown, ids=lambda shown: shown.name.lower())
def test_every_kind_of_vm_ends_as_the_table_says(shown: Shown) -> None:
    played = play(scenario(shown))
    ends = {kind.name: found(kind, played) for kind in KINDS}
    assert ends == {kind.name: expected(kind, shown) for kind in KINDS}
    assert played.breaches == ()


def test_there_is_a_vm_of_every_kind() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS) == 5 * 2 * 4


def test_the_page_on_policy_has_the_tables() -> None:
    written = POLICY.read_text()
    assert tables() in written, (
        "python -m backstay.lab.matrix prints what docs/policy.md is to have"
    )

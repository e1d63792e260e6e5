"""Every kind of VM ends as docs/policy.md says, whatever there is to show that its node is dead."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from backstay.decide.failover import Action
from backstay.lab.matrix import DIES, KINDS, MOVES, STARTS, Disks, Kind, Shown, scenario, tables
from backstay.lab.play import Played, play
from backstay.model.evidence import ProviderState, Testimony
from backstay.model.labels import TMAX_PROTECT
from backstay.model.reasons import Reason
from backstay.model.workload import Volume
from tests.decide.cases import NOW, changed, verdict

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


_SHARED, _SINGLE = ("ReadWriteMany",), ("ReadWriteOnce",)

VOLUMES: dict[Disks, tuple[Volume, ...]] = {
    Disks.FILES: (Volume(claim="root", access_modes=_SHARED),),
    Disks.BLOCK: (Volume(claim="root", access_modes=_SHARED, block=True),),
    Disks.ONE_NODE: (Volume(claim="root", access_modes=_SINGLE),),
    Disks.PLUGGED: (
        Volume(claim="root", access_modes=_SHARED),
        Volume(claim="plugged", access_modes=_SINGLE),
    ),
    Disks.LOCAL: (Volume(claim="root", access_modes=_SINGLE, only_on="n1"),),
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_is_observed_is_as_good_as_what_a_person_confirms(kind: Kind) -> None:
    off = ProviderState(
        source="the provider", instance="i-1", off=True, detail="stopped", observed_at=NOW
    )
    labels = {TMAX_PROTECT: "true"} if kind.consents else {}
    vm = {"volumes": VOLUMES[kind.disks], "labels": labels, "run_strategy": kind.run_strategy}
    found = verdict(changed(workload=vm, confirmations=(), testimony=Testimony(provider=off)))
    held = kind.held(Shown.CONFIRMED)
    moves = (Action.RELEASE, Reason.MayBeReleased.name)
    assert (found.action, found.why.code) == (moves if held == MOVES else (Action.HOLD, held))


def test_there_is_a_vm_of_every_kind() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS) == 5 * 2 * 4


def test_the_page_on_policy_has_the_tables() -> None:
    written = POLICY.read_text()
    assert tables() in written, (
        "python -m backstay.lab.matrix prints what docs/policy.md is to have"
    )

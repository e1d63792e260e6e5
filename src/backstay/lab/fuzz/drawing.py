"""Drawing: from a seed to a case. See the package."""

from collections.abc import Mapping, Sequence

import msgspec

from backstay.lab.fuzz.scene import LONGEST, Scene, rounded, weighted
from backstay.lab.fuzz.themes import FOREIGN, THEMES, Theme
from backstay.lab.scenario import Do, Scenario, Step
from backstay.sim.chance import Chance

SIBLINGS = 5
"""So many seeds in a row begin with the same world, and differ in what happens to it."""

_MORE_OF_IT = 0.25
_SOMETHING_ELSE = 0.35

_PATIENCE = 62.0
"""Seconds after which all must be done that can be done at all."""

_NODE_IS_LOST = 48.0
_IS_DEALT_WITH = 22.0
_AFTERMATH: Mapping[Do, float] = {
    **dict.fromkeys(
        (
            Do.KILL, Do.CUT, Do.CUT_OUT, Do.CUT_IN, Do.CUT_API, Do.FREEZE, Do.KILL_KUBELET,
            Do.KILL_SOURCE, Do.KILL_TARGET, Do.START_CONTROLLER,
        ),
        _NODE_IS_LOST,
    ),
    **dict.fromkeys(
        (Do.CONFIRM, Do.CONFIRM_OFF, Do.PUT_OUT, Do.REMEDIATE, Do.ARM, Do.BOOT, Do.HEAL, Do.THAW),
        _IS_DEALT_WITH,
    ),
}  # fmt: skip
"""Seconds until it shows what comes of it; of all else it shows soon."""
_SOON = 10.0


def draw(seed: int, *, bug: str = "") -> Scenario:
    """The case that ``seed`` stands for, for a controller with that deliberate bug or none."""
    theme = theme_of(seed)
    opening = theme.world(Chance(seed // SIBLINGS, "world"))
    scene = Scene(Chance(seed, "steps"), opening)
    steps = _steps(theme, scene)
    return msgspec.structs.replace(
        opening,
        name=f"fuzz-{seed}",
        question="Does anything break that must not?",
        seed=seed,
        bug=bug,
        steps=tuple(steps),
        until=_end(theme, scene.dice, steps),
    )


def theme_of(seed: int) -> Theme:
    """What the case is mostly about."""
    return _dealt(seed // SIBLINGS)


def _dealt(group: int) -> Theme:
    """Themes are dealt like cards: each comes as often as it has cards before any comes again."""
    deck = [theme for theme in THEMES for _ in range(theme.cards)]
    game, place = divmod(group, len(deck))
    dice = Chance(game, "deck")
    for last in range(len(deck) - 1, 0, -1):
        other = dice.below(last + 1)
        deck[last], deck[other] = deck[other], deck[last]
    return deck[place]


def _steps(theme: Theme, scene: Scene) -> list[Step]:
    dice = scene.dice
    stories = [weighted(dice, theme.stories)]
    if dice.happens(_MORE_OF_IT):
        stories.append(weighted(dice, theme.stories))
    others = theme.others + (1 if dice.happens(_SOMETHING_ELSE) else 0)
    stories += [weighted(dice, FOREIGN) for _ in range(others)]
    steps = [step for story in stories for step in story(scene) if step.at < LONGEST]
    if scene.opening.policy.disarmed_for or any(step.do is Do.DISARM for step in steps):
        # It ends at a time of day: whoever sets our clock decides when, not we.
        steps = [step for step in steps if step.do is not Do.SKEW_CONTROLLER]
    return sorted(steps, key=lambda step: step.at)


def _end(theme: Theme, dice: Chance, steps: Sequence[Step]) -> float:
    shown = (step.at + _AFTERMATH.get(step.do, _SOON) for step in steps)
    patience = _PATIENCE if dice.happens(theme.patience) else 0.0
    end = rounded(max(theme.lasts, *shown, 0.0) + patience)
    return min(end, max(LONGEST, theme.lasts))

"""Drawing: from a seed to a case. See the package."""

from collections.abc import Mapping, Sequence

import msgspec

from backstay.lab.fuzz.deck import SIBLINGS, dealt, is_patient, story_of
from backstay.lab.fuzz.scene import LONGEST, Scene, Story, rounded, weighted
from backstay.lab.fuzz.themes import FOREIGN, Theme
from backstay.lab.scenario import Do, Scenario, Step
from backstay.sim.chance import Chance

_PATIENCE = 62.0
"""Seconds after which all must be done that can be done at all."""

_DEATHS = frozenset({Do.KILL, Do.KILL_SOURCE, Do.KILL_TARGET})
_LOSSES = _DEATHS | {
    Do.CUT, Do.CUT_OUT, Do.CUT_IN, Do.CUT_API, Do.FREEZE, Do.KILL_KUBELET, Do.CUT_REPLICATION,
    Do.SWITCH_OFF,
}  # fmt: skip
_AFTERMATH: Mapping[Do, float] = {
    # An address that is another's now shows when its node is confirmed, by deeds done in vain.
    Do.TAKE_ADDRESS: 38.0,
    # What is in the way of a drain has to be told by then, and what no longer is, is to be used.
    Do.MAINTAIN: 112.0,
    **dict.fromkeys((Do.DELETE_BUDGET, Do.END_MAINTENANCE), 66.0),
    **dict.fromkeys((Do.KILL_CONTROLLER, Do.START_CONTROLLER), 24.0),
    **dict.fromkeys(
        (Do.CONFIRM, Do.CONFIRM_OFF, Do.PUT_OUT, Do.REMEDIATE, Do.ARM, Do.BOOT, Do.HEAL, Do.THAW),
        9.0,
    ),
}
"""Seconds until it shows what comes of it; of all else it shows soon."""
_SOON = 6.0
_MISSED = 36.0
"""Seconds after which a node has been missed for so long that a word about it is acted upon."""


def draw(seed: int, *, bug: str = "") -> Scenario:
    """The case that ``seed`` stands for, for a controller with that deliberate bug or none."""
    theme, turn = dealt(seed)
    opening = theme.world(Chance(seed // SIBLINGS, "world"))
    scene = Scene(Chance(seed, "steps"), opening)
    story, alone = story_of(theme, turn)
    steps = _steps(theme, story, scene, mixed=0.0 if alone else theme.mixed)
    return msgspec.structs.replace(
        opening,
        name=f"fuzz-{seed}",
        question="Does anything break that must not?",
        seed=seed,
        bug=bug,
        steps=tuple(steps),
        until=_end(theme, steps, patient=is_patient(theme, turn)),
    )


def _steps(theme: Theme, story: Story, scene: Scene, *, mixed: float) -> list[Step]:
    dice = scene.dice
    stories = [story]
    if dice.happens(mixed):
        stories.append(weighted(dice, theme.stories))
    others = theme.others + (1 if dice.happens(mixed) else 0)
    stories += [weighted(dice, FOREIGN) for _ in range(others)]
    steps = [step for story in stories for step in story(scene) if step.at < LONGEST]
    return sorted(steps, key=lambda step: step.at)


def _end(theme: Theme, steps: Sequence[Step], *, patient: bool) -> float:
    """When it shows what came of each step."""
    end = max((step.at + _shows_after(theme, step, steps) for step in steps), default=0.0)
    return rounded(min(LONGEST, max(theme.lasts, end) + (_PATIENCE if patient else 0.0)))


def _shows_after(theme: Theme, step: Step, steps: Sequence[Step]) -> float:
    if step.do not in _LOSSES:
        return _AFTERMATH.get(step.do, _SOON)
    settled = any(each.at > step.at and _confirms(each, step) for each in steps)
    return _MISSED if settled else theme.loss


def _confirms(word: Step, loss: Step) -> bool:
    if word.do is Do.CONFIRM_OFF:
        return loss.do in _DEATHS
    return word.do is Do.CONFIRM and word.node == loss.node

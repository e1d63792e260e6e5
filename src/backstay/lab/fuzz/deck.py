"""Deck: themes and stories are dealt like cards, so that none waits long for its turn.

Left to themselves, dice cluster: of ten stories that are as likely as each other, ten cases tell
six or seven. What is rare is met soon, wherever one begins, because of three rules:

* The deck of themes is dealt over and over in the same order, in which the cards of each theme lie
  evenly. So any ``GAME`` seeds in a row have each theme as often as it has cards.
* The stories of a theme are dealt to its cases one by one, each as often as it has weight before
  any comes again. Here the order is another one each time, and the first time each is told alone:
  most of what is laid over a story ends it before its time.
* The share of cases that are patient is kept as evenly.
"""

from backstay.lab.fuzz.scene import Story
from backstay.lab.fuzz.themes import THEMES, Theme
from backstay.sim.chance import Chance

SIBLINGS = 5
"""So many seeds in a row begin with the same world, and differ in what happens to it."""

_IN_ORDER = sorted(
    ((card + number / len(THEMES)) / theme.cards, number)
    for number, theme in enumerate(THEMES)
    for card in range(theme.cards)
)
_DECK = tuple(THEMES[number] for _, number in _IN_ORDER)

GAME = len(_DECK) * SIBLINGS
"""Seeds until the deck is dealt anew."""


def dealt(seed: int) -> tuple[Theme, int]:
    """What a case is mostly about, and how many cases of that theme come before it."""
    group, sibling = divmod(seed, SIBLINGS)
    game, place = divmod(group, len(_DECK))
    theme = _DECK[place]
    before = game * theme.cards + sum(other is theme for other in _DECK[:place])
    return theme, before * SIBLINGS + sibling


def story_of(theme: Theme, turn: int) -> tuple[Story, bool]:
    """The one of its own that is told for certain in its case of that number, and whether it is
    told alone."""
    stories = [(story, again == 0) for weight, story in theme.stories for again in range(weight)]
    time, place = divmod(turn, len(stories))
    dice = Chance(time, theme.name)
    for last in range(len(stories) - 1, 0, -1):
        other = dice.below(last + 1)
        stories[last], stories[other] = stories[other], stories[last]
    return stories[place]


def is_patient(theme: Theme, turn: int) -> bool:
    return int((turn + 1) * theme.patience) > int(turn * theme.patience)

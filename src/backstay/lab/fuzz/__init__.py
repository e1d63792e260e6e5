"""Fuzz: disasters that nobody has thought of, each drawn from a seed.

``draw(seed)`` is a pure function: a seed is the same scenario everywhere and always, as long as
this package stays as it is, and a scenario that went wrong is kept as YAML, which outlives it.

A case has a *theme*: what it is mostly about, such as leaders that stand still in the midst of
their work. The theme draws a small cluster in which that matters (``worlds.py``) and the *stories*
that are told about it. Each story by itself makes sense to somebody who runs clusters; one or two
of other themes are laid over it in time, without regard for that. Many steps wait for a write of
ours instead of for a moment, because what goes wrong between two writes is what nobody tries by
hand. Themes and their stories are dealt like cards (``deck.py``), so that
none waits long for its turn.

Seeds come in groups of ``SIBLINGS``, which begin with the same world: that is set up once for all.

Not drawn is what starts a second copy whatever we do: somebody who deletes pods by force, or a
node that lives out of the API. The truth would show it, and it would say nothing about us.
"""

from backstay.lab.fuzz.deck import GAME as GAME
from backstay.lab.fuzz.deck import SIBLINGS as SIBLINGS
from backstay.lab.fuzz.deck import dealt as dealt
from backstay.lab.fuzz.drawing import draw as draw
from backstay.lab.fuzz.scene import LONGEST as LONGEST

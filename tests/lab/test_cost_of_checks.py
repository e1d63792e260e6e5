"""Looking at everything that happens must stay cheap, or fewer disasters would be played.

Counted in function calls, which are the same in every run: those that are made while a checker is
looking, wherever they lead, among all.
"""

import sys
from pathlib import Path
from types import FrameType

from backstay import lab
from backstay.lab import shipped
from backstay.lab.play import play

MOST = 0.08
"""Of a scenario that has neither drains nor BMCs, for which their rules are asked nevertheless."""

_ROOM = Path(lab.__file__).parent
CHECKERS = frozenset(
    str(_ROOM / f"{name}.py")
    for name in (
        "witness", "knocks", "terms", "happenings", "inspector", "invariants", "liveness", "pace",
        "timeline", "addresses", "drbd_rules", "guest_rules", "linstor_rules", "policy_rules",
        "silence_rules", "storage_rules", "restores", "signs", "looks", "copies", "inbound",
        "maintenances", "powers", "drain_rules", "drain_promises", "power_rules", "address_rules",
    )
)  # fmt: skip


PASSING = frozenset({"handle", "_carry_out"})
"""What leads through the witness to the API is no part of looking."""


class Counter:
    """A profile function."""

    def __init__(self) -> None:
        self.all = 0
        self.checking = 0
        self._checker: FrameType | None = None

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event in ("call", "c_call"):
            self.all += 1
            if self._checker is None and event == "call" and _looks(frame):
                self._checker = frame
            self.checking += self._checker is not None
        elif event == "return" and frame is self._checker:
            self._checker = None


def _looks(frame: FrameType) -> bool:
    return frame.f_code.co_filename in CHECKERS and frame.f_code.co_name not in PASSING


def test_checkers_take_a_small_share_of_a_scenario() -> None:
    case, count = shipped.find("node-dies"), Counter()
    sys.setprofile(count)
    try:
        played = play(case)
    finally:
        sys.setprofile(None)
    assert played.checked > 100
    assert 0 < count.checking < MOST * count.all

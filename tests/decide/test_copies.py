"""Which data would be out of reach if a node went down."""

import pytest

from backstay.decide.copies import last_copies
from backstay.model.drbd import DiskSight

GOOD, BAD, UNKNOWN = "UpToDate", "Outdated", None


def on(node: str, *states: str | None, to: tuple[str, ...] | None = ("n1", "n2")) -> DiskSight:
    peers = None if to is None else frozenset(to) - {node}
    return DiskSight(resource="r", node=node, states=states, connected=peers)


@pytest.mark.parametrize(
    ("disks", "online", "expected"),
    [
        ([on("n1", GOOD), on("n2", GOOD)], {"n1", "n2"}, ()),
        ([on("n1", GOOD), on("n2", GOOD)], {"n1"}, ("r",)),
        ([on("n1", GOOD), on("n2", BAD)], {"n1", "n2"}, ("r",)),
        ([on("n1", GOOD), on("n2", UNKNOWN)], {"n1", "n2"}, ("r",)),
        ([on("n1", GOOD)], {"n1"}, ("r",)),
        ([on("n1", BAD)], {"n1"}, ()),
        ([on("n1", UNKNOWN)], {"n1"}, ("r",)),
        ([on("n1")], {"n1"}, ("r",)),
        ([on("n1", BAD, GOOD), on("n2", GOOD, BAD)], {"n1", "n2"}, ("r",)),
        ([on("n1", GOOD, GOOD), on("n2", GOOD, GOOD)], {"n2"}, ()),
        # Who has lost the other may lack what was written since, and does not know it.
        ([on("n1", GOOD), on("n2", GOOD, to=())], {"n1", "n2"}, ("r",)),
        ([on("n1", GOOD), on("n2", GOOD, to=None)], {"n1", "n2"}, ("r",)),
        ([on("n1", GOOD, to=()), on("n2", GOOD)], {"n1", "n2"}, ("r",)),
        ([on("n1", UNKNOWN, to=None), on("n2", GOOD)], {"n2"}, ()),
        ([on("n2", GOOD)], {"n2"}, ()),
        ([], set(), ()),
    ],
)
def test_the_only_copy_is_what_nobody_else_has_as_far_as_is_known(
    disks: list[DiskSight], online: set[str], expected: tuple[str, ...]
) -> None:
    assert last_copies("n1", disks, online) == expected

"""Copies: where a workload runs more than once, and whether somebody else has taken that risk."""

from collections.abc import Sequence

from backstay.lab.witness import Witness
from backstay.sim.nodes.truth import Running


def was_accepted(copies: Sequence[Running], witness: Witness) -> bool:
    """Whether all but one of them were taken out of the API while they ran. That this was done by
    us without somebody's word for it is the breach of another rule, and here as well."""
    answers = (_went_on_a_word(each.uid, witness) for each in copies)
    return sum(answers) >= len(copies) - 1


def _went_on_a_word(uid: str, witness: Witness) -> bool:
    gone = witness.removed(uid)
    return gone is not None and gone.still_ran and (not gone.by_us or gone.vouched)


def places(running: Sequence[Running]) -> str:
    return " and ".join(f"{each.name} on {each.node}" for each in running)

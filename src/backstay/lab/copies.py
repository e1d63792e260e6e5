"""Second copies (I1, OneWriter): what runs twice, and whether somebody has taken that risk.

A person can be wrong, and so can a BMC, and a node that is cut off cannot object: two copies that
come of a pod which was removed on somebody's word, or by somebody else, while it ran and nobody
could see it, are an ``accepted`` risk and not a breach. Two copies of anything else are one,
whatever anybody has said.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from backstay.lab.witness import Happening, Witness, workload_of
from backstay.sim.nodes.truth import Entry, Running, What

SECOND_COPIES = frozenset({What.STARTED, What.WRITING, What.ADMITTED})
"""By what there can be another copy that writes."""


def one_writer(happening: Happening, witness: Witness) -> str | None:
    found = _second_copy(happening, witness)
    return None if found is None or found.accepted else found.sentence


def accepted_risk(happening: Happening, witness: Witness) -> str | None:
    found = _second_copy(happening, witness)
    return found.sentence if found is not None and found.accepted else None


@dataclass(frozen=True)
class _Doubled:
    sentence: str
    accepted: bool


def _second_copy(happening: Happening, witness: Witness) -> _Doubled | None:
    """Every volume here is one workload's: two that write to it are two copies."""
    if not isinstance(happening, Entry) or happening.what not in SECOND_COPIES:
        return None
    truth = witness.truth
    for volume in happening.volumes:
        writers = truth.writers(volume)
        if len(writers) > 1:
            sentence = f"{volume} is written to by {places(writers)}"
            return _Doubled(sentence, was_accepted(writers, witness))
    if happening.what is What.ADMITTED:
        return None
    started = workload_of(happening)
    copies = [
        each
        for each in truth.running()
        # The other end of a migration runs too, without a guest.
        if workload_of(each) == started and not truth.is_held_back(each.node, each.uid)
    ]
    if len(copies) <= 1:
        return None
    return _Doubled(f"{started} runs on {places(copies)}", was_accepted(copies, witness))


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

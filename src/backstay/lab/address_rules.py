"""OneAddress: no two pods have one address, and none is taken from a pod that may still use it."""

from backstay.lab.addresses import released
from backstay.lab.copies import places, was_accepted
from backstay.lab.witness import Asked, Committed, Happening, Witness
from backstay.sim.api.store import Commit
from backstay.sim.nodes.truth import Entry, What


def one_address(happening: Happening, witness: Witness) -> str | None:
    if isinstance(happening, Entry) and happening.what in (What.STARTED, What.WRITING):
        return _second_user(happening, witness)
    if isinstance(happening, Committed) and happening.by is not None:
        return _taken_from_the_living(happening.commit, happening.by, witness)
    return None


def _second_user(entry: Entry, witness: Witness) -> str | None:
    truth = witness.truth
    for address in entry.addresses:
        users = [
            each
            for each in truth.users(address)
            # The other end of a migration has it too, without a guest.
            if not truth.is_held_back(each.node, each.uid)
        ]
        if len(users) > 1 and not was_accepted(users, witness):
            return f"{address} is used by {places(users)}"
    return None


def _taken_from_the_living(commit: Commit, by: Asked, witness: Witness) -> str | None:
    """By what the address is used for, and by what Calico says of it."""
    for held in released(commit):
        nodes = {each.node: each.name for each in witness.truth.users(held.address)}
        nodes.setdefault(held.node, held.pod)
        for node, pod in nodes.items():
            if node and (doubt := witness.doubt(by, node)):
                return f"{held.address} was taken from {pod} on {node}, and {doubt}"
    return None

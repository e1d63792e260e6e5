"""Broken parts that have to do with what people have said; see ``broken.py``."""

import msgspec

from backstay.control.failover import FailoverLoop
from backstay.control.guard import Guard, Leave
from backstay.control.incident import OpenIncident
from backstay.control.outcomes import Outcome, Proof
from backstay.decide.failover import CHAIN, Case, Check, Objection, Snapshot, is_it_a_storm
from backstay.kube.lease import Term
from backstay.lab.broken import Credulous
from backstay.model.evidence import Strength
from backstay.model.policy import Ownership, Policy
from backstay.model.reasons import Reason, Why


class Unruly(Credulous):
    """Takes the policy for what ``_obey`` makes of it, also where no node is looked at."""

    @property
    def policy(self) -> Policy:
        return self._obey(super().policy)


class WithoutPolicies(Unruly):
    """Knows of the configuration, and of no owner's policy."""

    def _obey(self, policy: Policy) -> Policy:
        return msgspec.structs.replace(policy, rules=())


class WithoutKinds(Unruly):
    """Does not know that the configuration can leave VMs or StatefulSets out."""

    def _obey(self, policy: Policy) -> Policy:
        return msgspec.structs.replace(policy, virtual_machines=True, stateful_sets=True)


class WithoutBounds(Unruly):
    """Grants owners whatever they ask for."""

    def _obey(self, policy: Policy) -> Policy:
        return msgspec.structs.replace(policy, weakest=Strength.PRESUMED)


class EverybodysAddresses(Guard):
    async def _free_addresses(
        self, proof: Proof, owner: Ownership, leave: Leave
    ) -> tuple[Why, ...]:
        return await super()._free_addresses(proof, Ownership.OURS, leave)


class Forgetful(FailoverLoop):
    """Does not know how much it has just released."""

    async def _release(
        self, snapshot: Snapshot, incident: OpenIncident, moments: list[Why], term: Term
    ) -> Outcome:
        outcome = await super()._release(snapshot, incident, moments, term)
        self._history._releases.clear()
        return outcome


def is_it_a_storm_of_silence(case: Case) -> Objection | None:
    """The check for storms, without its pace."""
    objection = is_it_a_storm(case)
    paced = objection is not None and objection.why.code == Reason.StormPaced.name
    return None if paced else objection


def chain_without_pace() -> tuple[Check, ...]:
    return tuple(is_it_a_storm_of_silence if each is is_it_a_storm else each for each in CHAIN)

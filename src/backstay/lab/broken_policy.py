"""Broken parts that have to do with what people have said; see ``broken.py``."""

from abc import ABC, abstractmethod

import msgspec

from backstay.control.failover import FailoverLoop
from backstay.control.guard import Guard, Outcome, Proof
from backstay.control.incident import OpenIncident
from backstay.control.observe import Observer
from backstay.decide.failover import CHAIN, Case, Check, Objection, Snapshot, is_it_a_storm
from backstay.kube.lease import Term
from backstay.model.evidence import Confirmation, Strength, Testimony
from backstay.model.node import NodeFacts
from backstay.model.policy import Ownership, Policy
from backstay.model.reasons import Reason, Why


class Reading(Observer, ABC):
    """Takes what people have said for what ``_take`` makes of it."""

    def _snapshot(
        self,
        facts: NodeFacts,
        policy: Policy,
        confirmations: tuple[Confirmation, ...],
        testimony: Testimony,
    ) -> Snapshot:
        return super()._snapshot(facts, self._take(policy), confirmations, testimony)

    @property
    def policy(self) -> Policy:
        return self._take(super().policy)

    @abstractmethod
    def _take(self, policy: Policy) -> Policy: ...


class WithoutPolicies(Reading):
    """Knows of the configuration, and of no owner's policy."""

    def _take(self, policy: Policy) -> Policy:
        return msgspec.structs.replace(policy, rules=())


class WithoutBounds(Reading):
    """Grants owners whatever they ask for."""

    def _take(self, policy: Policy) -> Policy:
        return msgspec.structs.replace(policy, weakest=Strength.PRESUMED)


class EverybodysAddresses(Guard):
    async def _free_addresses(self, proof: Proof, owner: Ownership, term: Term) -> tuple[Why, ...]:
        return await super()._free_addresses(proof, Ownership.OURS, term)


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

"""Fuzz: what people could have said, drawn by chance; see ``fuzz.py``.

Most of it is said before anything happens; ``another_rule`` is for those who change their minds in
the midst. What is limited to a time lasts longer than any case: whose clock is how wrong must not
decide what is right.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from backstay.lab.scenario import PolicySpec
from backstay.model.labels import PROTECT, VM_NAME
from backstay.sim.chance import Chance

Json = dict[str, Any]

_DAY = 1440
_STRENGTHS = ("Observed", "Confirmed", "Presumed")
_ON_KUBELET_LOSS = ("Leave", "Migrate", "StopAndMove")
_DETACH = ("Attachments", "OutOfServiceTaint", "Leave")
_OWNERS = ("Ours", "Foreign", "Off")
_JOBS = ("failover", "detach", "addresses")


def with_policies(dice: Chance, policy: PolicySpec, vms: Sequence[str]) -> PolicySpec:
    """The same, with limits and defaults of the cluster and with policies of owners."""
    asked = {f"policy-{number + 1}": _asked(dice, vms) for number in range(dice.below(3))}
    return msgspec.structs.replace(
        policy, config={**_config(dice), **policy.config}, policies={**asked, **policy.policies}
    )


def _config(dice: Chance) -> Json:
    return {
        "limits": _some(
            dice,
            attempts=1 + dice.below(3),
            coolDownMinutes=_DAY,
            nodesDown=1 + dice.below(3),
            releasesPerMinute=1 + dice.below(4),
        ),
        "defaults": _some(
            dice,
            onKubeletLoss=dice.pick(_ON_KUBELET_LOSS),
            detach=dice.pick(_DETACH),
            start=dice.happens(0.5),
        ),
        "proof": _some(dice, weakest=dice.pick(_STRENGTHS[1:]), presumeAfterSeconds=160),
        "owners": {job: dice.pick(_OWNERS[1:]) for job in _JOBS if dice.happens(0.1)},
    }


def another_rule(dice: Chance) -> Json:
    """One thing that somebody writes into the configuration while it is in force."""
    return dice.pick(
        (
            {"owners": {dice.pick(_JOBS): dice.pick(_OWNERS)}},
            {"defaults": {"detach": dice.pick(_DETACH)}},
            {"defaults": {"onKubeletLoss": dice.pick(_ON_KUBELET_LOSS)}},
            {"proof": {"weakest": dice.pick(_STRENGTHS)}},
            {"limits": {"nodesDown": 1 + dice.below(3)}},
            {"protect": {dice.pick(("virtualMachines", "statefulSets")): dice.happens(0.5)}},
        )
    )


def _asked(dice: Chance, vms: Sequence[str]) -> Json:
    protect = not dice.happens(0.2)
    # What is to be left alone has no use for consent, and the API refuses to have both.
    strengths = _STRENGTHS if protect else _STRENGTHS[:2]
    return {
        **_selector(dice, vms),
        **_some(
            dice,
            protect=protect,
            minimumProof=dice.pick(strengths),
            onKubeletLoss=dice.pick(_ON_KUBELET_LOSS),
            detach=dice.pick(("Attachments", "Leave")),
            start=dice.happens(0.5),
            singleton=dice.happens(0.5),
            priority=dice.below(150),
        ),
    }


def _selector(dice: Chance, vms: Sequence[str]) -> Json:
    if vms and dice.happens(0.5):
        return {"selector": {"matchLabels": {VM_NAME: dice.pick(vms)}}}
    if dice.happens(0.3):
        unsaid = {"key": PROTECT, "operator": "DoesNotExist"}
        return {"selector": {"matchExpressions": [unsaid]}}
    return {}


def _some(dice: Chance, **fields: object) -> Json:
    """Each of them is said in one of two cases."""
    return {field: value for field, value in fields.items() if dice.happens(0.5)}

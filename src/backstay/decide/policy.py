"""Terms: what holds for one workload, and who has said so.

From the weakest to the strongest: what ships, the cluster's configuration, the namespace's
policies, the workload's own labels. What an owner asks for is bounded by the cluster: nobody can
consent to more than ``weakest`` allows.
"""

from backstay.model.evidence import Strength
from backstay.model.labels import PROTECT, TMAX_PROTECT
from backstay.model.policy import Policy, Terms
from backstay.model.workload import Workload


def terms_of(workload: Workload, policy: Policy) -> Terms:
    """See the module."""
    minimum, because = _minimum(workload)
    if not minimum.suffices(policy.weakest):
        minimum, because = policy.weakest, "BackstayConfig cluster"
    return Terms(
        protect=workload.label,
        minimum=minimum,
        presume_block=policy.presume_block,
        on_kubelet_loss=policy.on_kubelet_loss,
        detach=policy.detach,
        start=policy.start,
        origins={"minimum": because, "protect": f"its label {PROTECT}"},
    )


def _minimum(workload: Workload) -> tuple[Strength, str]:
    """The label of the controller that we replace is consent to act on silence."""
    if workload.labels.get(TMAX_PROTECT, "").lower() == "true":
        return Strength.PRESUMED, f"label {TMAX_PROTECT}"
    return Strength.CONFIRMED, "default"

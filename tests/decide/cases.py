"""A node that is lost and confirmed dead, and a VM on it that may be released: where the tests of
the rules begin, to change one thing."""

from typing import Any

import msgspec

from backstay.decide.failover import CHAIN, Check, Decision, Snapshot, Verdict, decide
from backstay.model.evidence import Confirmation
from backstay.model.node import Life, NodeFacts, NodeLife
from backstay.model.policy import Mode, Policy, Times
from backstay.model.reasons import Reason
from backstay.model.workload import PodRef, Volume, Workload, WorkloadKind

TIMES = Times()

HEARD = 100.0
"""When the node was last heard of, and when it was suspected, confirmed, and looked at."""
SUSPECTED = HEARD + TIMES.suspect
CONFIRMED = 130.0
NOW = 150.0

FACTS = NodeFacts(
    name="n1",
    uid="u1",
    boot_id="b1",
    ready="Unknown",
    looked_at=NOW,
    lease_seen_at=10.0,
    lease_changed_at=HEARD,
)
LIFE = NodeLife(
    node_uid="u1",
    boot_id="b1",
    state=Life.LOST,
    since=HEARD + TIMES.lost,
    suspected_at=SUSPECTED,
    why=Reason.NodeLost.because(node="n1", seconds=50),
)
WORD = Confirmation(
    name="n1",
    uid="c1",
    node="n1",
    node_uid="u1",
    boot_id="b1",
    by="carla",
    reason="pulled the plug",
    seen_at=CONFIRMED,
)
VM = Workload(
    kind=WorkloadKind.VIRTUAL_MACHINE,
    namespace="shop",
    name="web",
    node="n1",
    pods=(PodRef("shop", "virt-launcher-web-x", "p1", "7"),),
    volumes=(Volume(claim="root", pv="pv", driver="csi", access_modes=("ReadWriteMany",)),),
    run_strategy="Always",
)
READY = Snapshot(
    facts=FACTS,
    life=LIFE,
    policy=Policy(mode=Mode.ARMED),
    workloads=(VM,),
    confirmations=(WORD,),
)


def changed(
    *,
    facts: dict[str, Any] | None = None,
    life: dict[str, Any] | None = None,
    policy: dict[str, Any] | None = None,
    word: dict[str, Any] | None = None,
    workload: dict[str, Any] | None = None,
    **snapshot: Any,
) -> Snapshot:
    """The snapshot, with some fields of its parts replaced."""
    replace = msgspec.structs.replace
    parts: dict[str, Any] = {
        "facts": replace(FACTS, **(facts or {})),
        "life": replace(LIFE, **(life or {})),
        "policy": replace(READY.policy, **(policy or {})),
        "confirmations": (replace(WORD, **(word or {})),),
        "workloads": (replace(VM, **(workload or {})),),
    }
    return replace(READY, **(parts | snapshot))


def decided(snapshot: Snapshot, chain: tuple[Check, ...] = CHAIN) -> Decision:
    return decide(snapshot, NOW, times=TIMES, chain=chain)


def verdict(snapshot: Snapshot) -> Verdict:
    [only] = decided(snapshot).verdicts
    return only

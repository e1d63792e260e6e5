"""A node that died, what ran on it, and what was decided, for tests that tell of it."""

from collections.abc import Iterable

from backstay.decide.failover import CHAIN, Action, Decision, Snapshot, Verdict, decide
from backstay.model.evidence import Confirmation
from backstay.model.node import Life, NodeFacts, NodeLife
from backstay.model.policy import Mode, Policy, Times
from backstay.model.reasons import Reason, Why
from backstay.model.workload import PodRef, Volume, Workload, WorkloadKind
from backstay.record.frames import Frame, Frames
from backstay.seam.system import SystemClock

NODE = NodeFacts(name="n1", uid="node-uid", boot_id="boot-1", lease_seen_at=0.0)
TIMES = Times()
CONFIRMED = Confirmation(
    name="n1", uid="c-1", node="n1", node_uid="node-uid", boot_id="boot-1",
    by="ann@example.com", reason="the rack has no power", seen_at=41.0,
)  # fmt: skip


def workload(
    name: str, *, kind: WorkloadKind = WorkloadKind.VIRTUAL_MACHINE, marked: bool = False
) -> Workload:
    return Workload(
        kind=kind,
        namespace="shop",
        name=name,
        node="n1",
        pods=(PodRef("shop", f"launcher-{name}", f"uid-{name}", "7", marked),),
        volumes=(Volume(claim=f"disk-{name}", pv=f"pv-{name}", driver="csi.example.com"),),
    )


def lost(*, seconds: int = 40) -> NodeLife:
    why = Reason.NodeLost.because(node="n1", seconds=seconds)
    return life(Life.LOST, why)


def life(state: Life, why: Why) -> NodeLife:
    return NodeLife(
        node_uid="node-uid", boot_id="boot-1", state=state, since=40.0, suspected_at=22.0, why=why
    )


def snapshot(
    *workloads: Workload,
    mode: Mode = Mode.ARMED,
    confirmed: bool = False,
    of: NodeLife | None = None,
    view_age: float = 1.0,
) -> Snapshot:
    return Snapshot(
        facts=NODE,
        life=of or lost(),
        policy=Policy(mode=mode),
        workloads=workloads,
        confirmations=(CONFIRMED,) if confirmed else (),
        view_age=view_age,
    )


def decided(about: Snapshot, now: float = 50.0) -> Decision:
    return decide(about, now, times=TIMES, chain=CHAIN)


def judged(why: Why, verdicts: Iterable[tuple[Workload, Action, Why]] = ()) -> Decision:
    return Decision("n1", why, tuple(Verdict(*each) for each in verdicts))


def frame_of(about: Snapshot, now: float = 50.0) -> Frame:
    """Of what was decided about it."""
    made = Frames(SystemClock(), times=TIMES, chain=CHAIN).of(about, decided(about, now), now)
    assert made is not None
    return made

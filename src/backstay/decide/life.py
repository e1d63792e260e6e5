"""A node's life: one enum, one ``step``.

::

    Healthy ──silence──▶ Suspect ──more of it──▶ Lost ──proof──▶ Proven ──done──▶ Recovered
       ▲                    │                     │                │                 │
       ├────── life ────────┘                     └────────── life, or a new boot ───┤
       └───────────── nothing of the incident runs there ────────── Returning ◀──────┘

* Only silence of the kubelet raises suspicion: neither its lease nor its status changes. That
  Kubernetes marks the node is a consequence of the same silence, not a second witness. A kubelet
  that says "not ready" is alive.
* A person's confirmation shortens the wait, but not to nothing: at least one renewal must have
  been missed before our own eyes. So does a storage that has lost the node as well: two kinds of
  channel are silent then, and what was suspected is no mere delay.
* Life is a value that we saw change after suspicion began. It ends everything but the return.
* A life belongs to one boot. A new boot id is a new life: whatever was decided about the old one
  is over.
"""

from backstay.model.node import Life, NodeFacts, NodeLife
from backstay.model.policy import Times
from backstay.model.reasons import Reason, Why


def born(facts: NodeFacts, now: float) -> NodeLife:
    """A boot that we have not seen before."""
    return NodeLife(
        node_uid=facts.uid,
        boot_id=facts.boot_id,
        state=Life.HEALTHY,
        since=now,
        why=Reason.NodeHealthy.because(node=facts.name),
    )


def step(
    life: NodeLife,
    facts: NodeFacts,
    now: float,
    *,
    times: Times,
    confirmed: bool = False,
    cut_off: bool = False,
    proven: bool = False,
    recovered: bool = False,
    clean: bool = False,
) -> NodeLife:
    """Where the node stands now. Total: any facts in any state lead somewhere.

    ``confirmed``: a confirmation that counts is there. ``cut_off``: its storage has lost the node
    too. ``proven``: the proof held after the
    barrier. ``recovered``: nothing is left to do. ``clean``: nothing of an incident is left on the
    node, neither running pods nor our taint.
    """
    if (life.node_uid, life.boot_id) != (facts.uid, facts.boot_id):
        return _reborn(life, facts, now)
    if life.state is Life.HEALTHY:
        return _watch(life, facts, now, times, confirmed=confirmed)
    if life.state is Life.RETURNING:
        return _settle(life, facts, now, times, clean=clean)
    if shows_life(life, facts):
        if life.state is Life.SUSPECT:
            return born(facts, now)
        return _turn(life, Life.RETURNING, now, Reason.NodeReturned.because(node=facts.name))
    patience = times.confirmed if confirmed else times.suspect if cut_off else times.lost
    return _decline(life, facts, now, patience, proven=proven, recovered=recovered)


def shows_life(life: NodeLife, facts: NodeFacts) -> bool:
    """Whether the kubelet has been heard of since suspicion began."""
    suspected = life.suspected_at
    if suspected is None:
        return False
    lease, status = facts.lease_changed_at, facts.status_changed_at
    return (lease is not None and lease > suspected) or (status is not None and status > suspected)


def guests_alive(life: NodeLife, facts: NodeFacts, times: Times) -> bool:
    """Whether virt-handler has been heard of since suspicion began, and the kubelet has not.

    It beats once in a minute or two. One that has not been heard of for longer than that has died
    as well: what it said once must not hold a guest for ever.
    """
    beat, suspected = facts.heartbeat_changed_at, life.suspected_at
    if beat is None or suspected is None or beat <= suspected or shows_life(life, facts):
        return False
    return facts.looked_at - beat < times.heartbeat


def silence(facts: NodeFacts) -> float:
    """For how long we have watched the lease not change, nor the kubelet's status. A node without
    a lease has told us nothing that could have stopped, so it is never suspected."""
    if facts.lease_seen_at is None:
        return 0.0
    heard = max(facts.lease_seen_at, facts.lease_changed_at or 0.0, facts.status_changed_at or 0.0)
    return facts.looked_at - heard if facts.looked_at > heard else 0.0


def _reborn(life: NodeLife, facts: NodeFacts, now: float) -> NodeLife:
    if life.state in (Life.HEALTHY, Life.SUSPECT) and not facts.tainted:
        return born(facts, now)
    return NodeLife(
        node_uid=facts.uid,
        boot_id=facts.boot_id,
        state=Life.RETURNING,
        since=now,
        suspected_at=life.suspected_at,
        why=Reason.NodeRebooted.because(node=facts.name),
    )


def _watch(
    life: NodeLife, facts: NodeFacts, now: float, times: Times, *, confirmed: bool
) -> NodeLife:
    silent = silence(facts)
    if silent < times.suspect and not (confirmed and silent > 0):
        if not facts.tainted or facts.lease_changed_at is None:
            return life
        # Somebody else's incident, or one from before we were there, and it lives.
        return _turn(life, Life.RETURNING, now, Reason.NodeReturned.because(node=facts.name))
    return _turn(
        life, Life.SUSPECT, now, _silent(Reason.NodeSuspect, facts, silent), suspected_at=now
    )


def _decline(
    life: NodeLife,
    facts: NodeFacts,
    now: float,
    patience: float,
    *,
    proven: bool,
    recovered: bool,
) -> NodeLife:
    silent = silence(facts)
    if life.state is Life.SUSPECT and silent >= patience:
        return _turn(life, Life.LOST, now, _silent(Reason.NodeLost, facts, silent))
    if life.state is Life.LOST and proven:
        return _turn(life, Life.PROVEN, now, life.why)
    if life.state is Life.PROVEN and recovered:
        why = Reason.NodeRecovered.because(node=facts.name)
        return _turn(life, Life.RECOVERED, now, why)
    return life


def _settle(life: NodeLife, facts: NodeFacts, now: float, times: Times, *, clean: bool) -> NodeLife:
    silent = silence(facts)
    if silent >= times.suspect:
        why = _silent(Reason.NodeSuspect, facts, silent)
        return _turn(life, Life.SUSPECT, now, why, suspected_at=now)
    return born(facts, now) if clean else life


def _turn(
    life: NodeLife, state: Life, now: float, why: Why, *, suspected_at: float | None = None
) -> NodeLife:
    return NodeLife(
        node_uid=life.node_uid,
        boot_id=life.boot_id,
        state=state,
        since=now,
        suspected_at=life.suspected_at if suspected_at is None else suspected_at,
        why=why,
    )


def _silent(reason: Reason, facts: NodeFacts, seconds: float) -> Why:
    return reason.because(node=facts.name, seconds=round(seconds))

"""Readiness: what would happen if a node died now.

The very decision of a failover, asked of a death that has not happened: once with nothing to
prove it but what DRBD and the node's BMC would say then, which shows what is held; once with a
person's word, which shows what that would settle.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from backstay.decide.failover import Action, Check, Snapshot, Verdict, decide
from backstay.decide.guests import aftermath, notes
from backstay.decide.policy import terms_of
from backstay.decide.power_outlook import SECONDS, PowerOutlook, as_if_off, power_outlook
from backstay.decide.proof import VANTAGES, is_of, objection, presumed_after
from backstay.decide.quorum import as_if_lost, shut_out
from backstay.decide.storm import Fleet
from backstay.model.caveats import Caveat
from backstay.model.evidence import Confirmation, Evidence, EvidenceKind, Strength, Testimony
from backstay.model.node import Life, NodeFacts, NodeLife
from backstay.model.policy import Detach, Job, Mode, Ownership, Policy, Terms, Times
from backstay.model.power import DeviceReport
from backstay.model.reasons import Reason, Why
from backstay.model.workload import Workload, WorkloadKind

_SHARED = frozenset({"ReadWriteMany", "ReadOnlyMany"})

_DOCKER = "docker://"

_PINGS = 10.0
"""Seconds until DRBD has missed a peer, as it comes."""

_NEVER_STARTS = frozenset({Reason.AddressBound.name, Reason.AddressUnreadable.name})
"""What is wrong with how it asks for addresses, and keeps its new pod from starting."""


class Ending(StrEnum):
    """How it would end for a workload, once the death is proven."""

    RECOVERS = "Recovers"
    STAYS_DOWN = "StaysDown"
    """It is released, but nobody starts it again."""
    HELD = "Held"
    """No proof of the death would help."""
    LEFT = "Left"
    """It is none of our business, or needs nothing."""


class Outlook(msgspec.Struct, frozen=True):
    """One workload: what would hold it (None: nothing), and how it ends once that is settled.

    ``caveats`` are what could still delay it or be lost; ``fix`` is what would make it recover,
    ``down`` why it would stay down.
    """

    workload: Workload
    held_by: Why | None
    then: Why
    ending: Ending
    caveats: tuple[Why, ...] = ()
    fix: str = ""
    down: str = ""

    @property
    def recovers(self) -> bool:
        return self.ending is Ending.RECOVERS

    @property
    def by_itself(self) -> bool:
        """Whether nobody's word is needed."""
        return self.recovers and self.held_by is None


class NodeOutlook(msgspec.Struct, frozen=True):
    """One node. ``proof`` says what could prove its death at present, ``notes`` what makes that
    harder."""

    node: str
    outlooks: tuple[Outlook, ...]
    proof: tuple[str, ...]
    notes: tuple[Why, ...] = ()

    @property
    def recovering(self) -> int:
        return self.count(Ending.RECOVERS)

    def count(self, ending: Ending) -> int:
        return sum(outlook.ending is ending for outlook in self.outlooks)


def readiness(
    snapshot: Snapshot,
    *,
    times: Times,
    chain: Sequence[Check],
    places: int | None = None,
    devices: Mapping[str, DeviceReport] | None = None,
) -> NodeOutlook:
    """See the module. The snapshot's own life, policy mode and age are put aside; of its testimony
    only that of DRBD counts, as it would be then. ``places`` is on how many nodes controllers of
    ours run, and ``devices`` how those were found that could switch nodes off, if that is known."""
    dead = _as_if_dead(snapshot)
    name, known = snapshot.facts.name, devices or {}
    power = power_outlook(snapshot, known.get(name), known=devices is not None)
    if power.proves:
        dead = as_if_off(dead)
    unproven = decide(dead, 0.0, times=times, chain=chain)
    proven = decide(_confirmed(dead), 0.0, times=times, chain=chain)
    outlooks = tuple(
        _outlook(before, after, snapshot, dead, power)
        for before, after in zip(unproven.verdicts, proven.verdicts, strict=True)
    )
    switched = (f"its BMC, within {SECONDS} s or so of the alarm",) if power.proves else ()
    proof = (*switched, *_drbd(unproven.verdicts), "a person: backstay confirm-dead")
    unpowered = () if power.proves or power.why is None else (power.why,)
    hardships = [*_hardships(snapshot.facts), *_loneliness(outlooks, places), *unpowered]
    return NodeOutlook(snapshot.facts.name, outlooks, proof, tuple(hardships))


def _drbd(verdicts: Sequence[Verdict]) -> Iterator[str]:
    kinds = [each.evidence.kind for each in verdicts if each.evidence is not None]
    count = kinds.count(EvidenceKind.STORAGE_QUORUM)
    if count:
        yield f"DRBD's quorum, for {count} of {len(verdicts)} workloads"


def _loneliness(outlooks: Sequence[Outlook], places: int | None) -> Iterator[Why]:
    caveats = (why.code for outlook in outlooks for why in outlook.caveats)
    if places is not None and places < VANTAGES and Caveat.PresumedOnSilence.name in caveats:
        yield Caveat.SeenFromOnePlace.because(count=places, needed=VANTAGES)


def _hardships(facts: NodeFacts) -> Iterator[Why]:
    if facts.runtime.startswith(_DOCKER):
        yield Caveat.OutlivesItsDaemon.because(node=facts.name, runtime=facts.runtime)


def _outlook(
    before: Verdict, after: Verdict, snapshot: Snapshot, dead: Snapshot, power: PowerOutlook
) -> Outlook:
    workload, node = before.workload, snapshot.facts.name
    if before.action is Action.LEAVE:
        return Outlook(workload, None, before.why, Ending.LEFT, fix=before.why.next)
    held = before.why if before.action is Action.HOLD else None
    if after.action is not Action.RELEASE:
        return Outlook(workload, held, after.why, Ending.HELD, fix=_unbinding(workload, after.why))
    terms = terms_of(workload, snapshot.policy)
    then = aftermath(workload, terms)
    switched = (power.why,) if power.proves and power.why is not None else ()
    caveats = (*_caveats(workload, terms, snapshot), *switched, *_on_drbd(workload, dead))
    stuck = next((note for note in workload.notes if note.code in _NEVER_STARTS), None)
    if not then.down and stuck is not None:
        return Outlook(workload, held, stuck, Ending.STAYS_DOWN, caveats, stuck.next)
    if not then.down:
        why = Reason.WouldRecover.because(workload=workload, node=node)
        return Outlook(workload, held, why, Ending.RECOVERS, caveats)
    fix = then.why.next if then.why.code == Reason.NeedsRecovery.name else _starting(workload)
    return Outlook(workload, held, then.why, Ending.STAYS_DOWN, caveats, fix, then.down)


def _unbinding(workload: Workload, why: Why) -> str:
    """What would let it run elsewhere, if that is what holds it."""
    if why.code != Reason.CannotRunElsewhere.name:
        return why.next
    bound = [volume.claim for volume in workload.volumes if volume.only_on]
    if bound and not workload.pinned_by:
        return f"move {bound[0]} to storage that other nodes can reach"
    return f"let {workload} run on more than one node"


def _starting(workload: Workload) -> str:
    """What would let it start again by itself."""
    if workload.kind is WorkloadKind.VIRTUAL_MACHINE:
        patch = '{"spec":{"runStrategy":"Always"}}'
        name = f"vm {workload.name} -n {workload.namespace}"
        return f"kubectl patch {name} --type merge -p '{patch}'"
    if workload.kind is WorkloadKind.INSTANCE:
        return f"run {workload.namespace}/{workload.name} as a VirtualMachine"
    return f"give {workload} a controller, such as a StatefulSet"


def _caveats(workload: Workload, terms: Terms, snapshot: Snapshot) -> tuple[Why, ...]:
    node, found = snapshot.facts.name, list(notes(workload, terms))
    found += [note for note in workload.notes if note.code not in _NEVER_STARTS]
    for volume in workload.volumes:
        if not volume.driver:
            about = {"volume": volume.claim, "namespace": workload.namespace}
            found.append(Caveat.VolumeUnknown.because(**about))
        elif not set(volume.access_modes) & _SHARED:
            modes = ", ".join(volume.access_modes) or "access mode unknown"
            how = _detaching(terms, snapshot.policy)
            about = {"volume": volume.claim, "modes": modes, "node": node, "how": how}
            found.append(Caveat.WaitsForDetach.because(**about))
    left = (Caveat.LeavesDataBehind.because(where=each, node=node) for each in workload.also_writes)
    return (*found, *left, *_on_silence(workload, terms, snapshot))


def _on_drbd(workload: Workload, dead: Snapshot) -> Iterator[Why]:
    """How soon DRBD would have shown that the node cannot write to its volumes any more; or what
    keeps it from ever showing that."""
    node, seconds = dead.facts.name, 0.0
    for volume in workload.volumes:
        for sight in dead.testimony.quorums:
            if not is_of(volume, sight):
                continue
            if (because := shut_out(sight)) is not None:
                about = {"volume": volume.claim, "node": node, "because": because}
                yield Caveat.NotProvenByDrbd.because(**about)
                return
            seconds = max(seconds, _PINGS + sight.grace)
    if seconds:
        yield Caveat.ProvenByDrbd.because(node=node, seconds=round(seconds))


def _on_silence(workload: Workload, terms: Terms, snapshot: Snapshot) -> Iterator[Why]:
    """What the owner's consent to a presumption comes to."""
    if terms.minimum is not Strength.PRESUMED:
        return
    facts = snapshot.facts
    silence = Evidence(
        kind=EvidenceKind.PRESUMED,
        node=facts.name,
        node_uid=facts.uid,
        boot_id=facts.boot_id,
        source="",
        detail="",
        observed_at=0.0,
    )
    because = objection(silence, workload, terms)
    if because is not None:
        yield Caveat.SilenceNotEnough.because(node=facts.name, because=because)
    else:
        seconds = round(presumed_after(snapshot.policy, Times()))
        yield Caveat.PresumedOnSilence.because(node=facts.name, seconds=seconds)


def _detaching(terms: Terms, policy: Policy) -> str:
    """Who frees a volume of the dead node, and how soon."""
    ours = policy.owner_of(Job.DETACH) is Ownership.OURS
    match terms.detach if ours else Detach.LEAVE:
        case Detach.ATTACHMENTS:
            return "Backstay does that, and Kubernetes notices it within a minute"
        case Detach.OUT_OF_SERVICE:
            return "Backstay puts the node out of service, and Kubernetes does it at once"
        case Detach.LEAVE:
            return "Kubernetes does that after six minutes"


def _as_if_dead(snapshot: Snapshot) -> Snapshot:
    facts = msgspec.structs.replace(
        snapshot.facts,
        lease_seen_at=-1.0,
        lease_changed_at=None,
        heartbeat_changed_at=None,
        status_changed_at=None,
    )
    life = NodeLife(
        node_uid=facts.uid,
        boot_id=facts.boot_id,
        state=Life.LOST,
        since=0.0,
        suspected_at=0.0,
        why=Reason.NodeLost.because(node=facts.name, seconds=40),
    )
    policy = msgspec.structs.replace(snapshot.policy, mode=Mode.ARMED, rolled_back="")
    return msgspec.structs.replace(
        snapshot,
        facts=facts,
        life=life,
        policy=policy,
        confirmations=(),
        testimony=Testimony(
            quorums=tuple(as_if_lost(each, 0.0) for each in snapshot.testimony.quorums)
        ),
        fleet=Fleet(),
        view_age=0.0,
    )


def _confirmed(dead: Snapshot) -> Snapshot:
    facts = dead.facts
    word = Confirmation(
        name=facts.name,
        uid="",
        node=facts.name,
        node_uid=facts.uid,
        boot_id=facts.boot_id,
        by="somebody",
        reason="asked in advance",
        seen_at=0.0,
        last_renewal=facts.renewal,
        last_heartbeat=facts.heartbeat,
        last_status=facts.status,
    )
    return msgspec.structs.replace(dead, confirmations=(word,))

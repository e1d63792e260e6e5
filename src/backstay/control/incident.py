"""An incident that is being written: its row in the API, moved on write by write."""

from collections.abc import Mapping, Sequence

import msgspec

from backstay.apis.backstay import IncidentRow
from backstay.decide.failover import Action, Decision, Snapshot
from backstay.kube.lease import Term
from backstay.model.incident import Intent, Progress, StageTime, Step, WorkloadRecord
from backstay.model.power import NO_POWER, PowerRecord
from backstay.model.reasons import Why
from backstay.model.storage import Owed
from backstay.model.workload import PodRef
from backstay.record import telling
from backstay.record.incidents import IncidentBook
from backstay.record.telling import Advance

_CUT_OFF = "it was cut off; what is left of it is decided anew"


class OpenIncident:
    """Every method is one write at most, and raises ``Conflict`` if somebody else wrote.
    ``stale`` says that somebody else has changed or deleted it: it has to be read anew."""

    def __init__(self, book: IncidentBook, row: IncidentRow) -> None:
        self.row = row
        self.stale = False
        self._book = book

    def under_way(self) -> list[WorkloadRecord]:
        """The workloads that were released and have not been seen to run again."""
        return [r for r in self.row.status.workloads if r.progress is Progress.RELEASED]

    def vanished(self, snapshot: Snapshot) -> list[WorkloadRecord]:
        """The workloads whose pods are gone, although nobody has told that they were released: a
        leader died before it could say so, or somebody else took them away."""
        here = {pod.uid for workload in snapshot.workloads for pod in workload.pods}
        waiting = (Progress.HELD, Progress.DUE, Progress.MARKED)
        return [
            record
            for record in self.row.status.workloads
            if record.progress in waiting and record.uids and here.isdisjoint(record.uids)
        ]

    def unfinished(self) -> bool:
        """Whether anything is left that will or should still happen."""
        ends = (Progress.LEFT, Progress.RECOVERED, Progress.STAYS_DOWN)
        return any(record.progress not in ends for record in self.row.status.workloads)

    def is_given_up(self, decision: Decision) -> bool:
        """Whether something that was announced, begun and cut off is not ours to finish."""
        intent = telling.unsettled(self.row.status)
        if intent is None or intent.step is not Step.BARRIER:
            return False
        begun = {name.rpartition("/")[2] for name in intent.pods}
        left = (each.workload for each in decision.verdicts if each.action is Action.LEAVE)
        return any(pod.marked and pod.uid in begun for workload in left for pod in workload.pods)

    def uids(self) -> set[str]:
        """Of all pods that were marked or removed on account of it."""
        touched = (Progress.MARKED, Progress.RELEASED, Progress.RECOVERED, Progress.STAYS_DOWN)
        records = self.row.status.workloads
        return {uid for r in records if r.progress in touched for uid in r.uids}

    def owed(self) -> list[Owed]:
        """The volumes of all that was released, which others may wait for."""
        return [
            Owed(
                workload=r.workload,
                claim=v.claim,
                pv=v.volume,
                driver=v.driver,
                cluster=v.cluster,
                handle=v.handle,
                exported=v.exported,
                shared=v.shared,
            )
            for r in self.row.status.workloads
            if r.progress in (Progress.RELEASED, Progress.RECOVERED, Progress.STAYS_DOWN)
            for v in r.volumes
        ]

    async def intend(self, pods: Sequence[PodRef], *, epoch: int, not_after: float) -> None:
        """Says which pods are about to be marked and removed."""
        names = tuple(f"{pod.key}/{pod.uid}" for pod in pods)
        await self.announce(Step.BARRIER, names, epoch=epoch, not_after=not_after)

    async def claim_power(
        self, step: Step, name: str, *, seconds: float, epoch: int, not_after: float
    ) -> None:
        """Says that a device is about to be asked to switch off or on, and for how long that may be
        under way: whoever comes next waits for all that may be, not only for the last."""
        record = self.row.status.power or NO_POWER
        power = PowerRecord(
            offs=record.offs + (step is Step.POWER_OFF),
            ons=record.ons + (step is Step.POWER_ON),
            epoch=epoch,
            seconds=max(record.seconds, round(seconds, 1)),
            at=self._book.now_text,
        )
        await self.announce(step, (name,), epoch=epoch, not_after=not_after, power=power)

    async def announce(
        self,
        step: Step,
        names: tuple[str, ...],
        *,
        epoch: int,
        not_after: float,
        power: PowerRecord | None = None,
    ) -> None:
        """Says what is about to be done. One that a crash left open is closed by the same write."""
        self.became(_CUT_OFF)
        intent, row = Intent(step, epoch, names, self._book.now_text), self.row
        if power is not None:
            status = msgspec.structs.replace(row.status, power=power)
            row = msgspec.structs.replace(row, status=status)
        self.row = await self._book.intend(row, intent, not_after=not_after)

    def became(self, outcome: str) -> None:
        """What became of what was announced last, for whatever is written next."""
        status = self.row.status
        if telling.unsettled(status):
            self.row = msgspec.structs.replace(self.row, status=telling.settled(status, outcome))

    def was_proven(self, decision: Decision) -> None:
        """What spoke for the death when it was decided, for whatever is written next: where the
        proof did not hold, nobody finds it any more."""
        status = self.row.status
        found = telling.evidence(status.evidence, decision.evidence, self._book.now_text)
        status = msgspec.structs.replace(status, evidence=found)
        self.row = msgspec.structs.replace(self.row, status=status)

    async def tell(
        self,
        snapshot: Snapshot,
        decision: Decision,
        *,
        term: Term,
        advances: Mapping[str, Advance] = telling.NO_ADVANCE,
        moments: Sequence[Why] = (),
        stages: Sequence[StageTime] = (),
        outcome: str = "",
    ) -> None:
        """What was decided and what became of it, in one write, or none if it is no news."""
        status = telling.told(
            self.row.status,
            life=snapshot.life,
            decision=decision,
            now_text=self._book.now_text,
            mode=snapshot.policy.mode,
            epoch=term.epoch,
            advances=advances,
            moments=moments,
            stages=stages,
        )
        if outcome and telling.unsettled(status):
            status = telling.settled(status, outcome)
        self.row = await self._book.update(self.row, status, not_after=term.require())

    async def close(self, why: Why, *, term: Term) -> None:
        self.row = await self._book.close(self.row, why, not_after=term.require())

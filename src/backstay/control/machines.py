"""Machines: what KubeVirt is asked to do about guests, guarded like everything that changes much.

* **Rescue**: a guest that lives on without a kubelet is migrated, or shut down, if its policy says
  so. Right before that the node is looked at by quorum reads and decided on again: a kubelet that
  is back, a guest that has gone, somebody who has disarmed us, each ends it.
* **Start**: what was released and would stay down by its run strategy is started, if its policy
  says so. Whoever stopped or deleted it meanwhile is heeded.

Every request carries the end of our term, and is made only while people say what they said when it
was decided (``guard.Leave``). What KubeVirt refuses is told, in its own words, and
asked again with the next look; none of these requests does harm if it is made twice.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from backstay.act import machines
from backstay.control.guard import Leave
from backstay.control.incident import OpenIncident
from backstay.control.observe import Observer
from backstay.decide.failover import Action, Check, Verdict, decide
from backstay.decide.guests import is_due_to_start
from backstay.decide.policy import terms_of
from backstay.kube.client import KubeClient
from backstay.kube.errors import ApiError, NotFound, Retryable
from backstay.kube.lease import Term
from backstay.model.policy import Job, Mode, Ownership, Times
from backstay.model.reasons import Reason, Why
from backstay.model.workload import Workload
from backstay.record.telling import MOST_PODS
from backstay.seam.tasks import side_by_side

_AT_ONCE = 8

Told = Callable[[Why], None]


class Machines:
    """See the module."""

    def __init__(
        self, client: KubeClient, observer: Observer, *, times: Times, chain: Sequence[Check]
    ) -> None:
        self._client = client
        self._observer = observer
        self._times = times
        self._chain = chain
        self._asked: dict[str, float] = {}

    async def rescue(self, node: str, *, term: Term, incident: OpenIncident, told: Told) -> str:
        """Has KubeVirt move what lives on there without a kubelet, as far as policies ask for it.
        What came of it; empty if there was nothing to do."""
        # Whether it can be started elsewhere must not rest on what was looked up long ago.
        self._observer.look_up_again(node)
        snapshot = await self._observer.look_closely(node)
        if snapshot is None:
            return ""
        now = asyncio.get_running_loop().time()
        decided = decide(snapshot, now, times=self._times, chain=self._chain).rescues
        verdicts = [each for each in decided if self._is_due(each.workload, now)][:MOST_PODS]
        if not verdicts:
            return ""
        pods = [verdict.workload.pods[0] for verdict in verdicts]
        await incident.intend(pods, epoch=term.epoch, not_after=term.require())
        move = partial(self._move, leave=Leave(term, self._observer, snapshot), told=told)
        await side_by_side(verdicts, move, at_once=_AT_ONCE)
        self._observer.look_up_again(node)
        return f"asked KubeVirt to move {len(verdicts)}"

    def _is_due(self, workload: Workload, now: float) -> bool:
        """What KubeVirt has refused is not asked for again at once."""
        asked = self._asked.get(workload.key)
        return asked is None or now - asked >= self._times.fresh

    async def _move(self, verdict: Verdict, *, leave: Leave, told: Told) -> None:
        workload = verdict.workload
        self._asked[workload.key] = asyncio.get_running_loop().time()
        about = {"workload": workload, "node": workload.node}
        try:
            if verdict.action is Action.MIGRATE:
                await self._migrate(workload, leave)
                told(Reason.MigrationRequested.because(**about))
            else:
                await self._restart(workload, leave)
                told(Reason.StopRequested.because(**about))
        except ApiError as error:
            if isinstance(error, Retryable):
                raise
            told(_refused(Reason.MoveRefused, workload, error))

    async def start(self, node: str, due: Sequence[Workload], *, term: Term, told: Told) -> None:
        """Starts those of the machines that stay down otherwise, by the policy as it is now."""
        snapshot = await self._observer.look_closely(node)
        if snapshot is None or snapshot.policy.mode is not Mode.ARMED:
            return
        if snapshot.policy.owner_of(Job.FAILOVER) is not Ownership.OURS:
            return
        policy = self._observer.policy
        now = asyncio.get_running_loop().time()
        due = [each for each in due if self._is_due(each, now)]
        wanted = [w for w in due if is_due_to_start(w) and terms_of(w, policy).start]
        start = partial(self._start, leave=Leave(term, self._observer, snapshot), told=told)
        await side_by_side(wanted, start, at_once=_AT_ONCE)

    async def _start(self, workload: Workload, *, leave: Leave, told: Told) -> None:
        self._asked[workload.key] = asyncio.get_running_loop().time()
        try:
            await machines.start(
                self._client, workload.namespace, workload.name, not_after=leave.require()
            )
        except NotFound:
            return
        except ApiError as error:
            if isinstance(error, Retryable):
                raise
            told(_refused(Reason.StartRefused, workload, error))
        else:
            told(Reason.StartRequested.because(workload=workload))

    async def _migrate(self, workload: Workload, leave: Leave) -> None:
        await machines.migrate(
            self._client,
            workload.namespace,
            workload.name,
            launcher=workload.pods[0].uid,
            not_after=leave.require(),
        )

    async def _restart(self, workload: Workload, leave: Leave) -> None:
        await machines.restart(
            self._client, workload.namespace, workload.name, not_after=leave.require()
        )


def _refused(reason: Reason, workload: Workload, error: ApiError) -> Why:
    return reason.because(
        workload=workload,
        name=workload.name,
        namespace=workload.namespace,
        because=str(error).rstrip("."),
    )

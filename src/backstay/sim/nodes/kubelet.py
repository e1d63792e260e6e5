"""What a kubelet does with pods, without input or output: pods in, starts, stops and reports out.

The rules, as a real kubelet keeps them (pkg/kubelet/pod_workers.go and status_manager.go):

* A pod that is marked for deletion, or is in a final phase, when the kubelet first learns of it
  is never started. It is reported as ended and, if marked, deleted.
* A mark for deletion, a final phase written by somebody else, or the disappearance of the
  object ends a running pod, with its grace period; a grace period only ever gets shorter.
* The object is deleted (grace 0, this uid only) after nothing of the pod runs any more and the
  API has been told its final phase.
* What ran before a loss of power starts again if its restart policy allows it. A pod with
  ``restartPolicy: Never`` has failed.
* A pod whose claims have volumes is started once they are there (``resolved``, ``mounted``).
  What has to be attached for that is *in use* from before it is mounted until after nothing of
  the pod runs any more.
* Where pods are given addresses by a network plugin, a pod is started once it has some
  (``connected``), and its object is deleted after it has given them back (``cleared``).
* What waits for a disk that does not answer cannot be ended (``is_stuck``): it is tried again.
* A kubelet that begins while containers run takes them over, and ends those that no pod wants.
* Two pods of the same name and different uids do not know of each other.

``advance`` does all that is due. A kubelet that is frozen is simply not called.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

from backstay.seam.clock import WallClock
from backstay.sim.nodes.network import Sandbox
from backstay.sim.nodes.podstatus import Facts, Step, differs, pod_status
from backstay.sim.nodes.runtime import Mount, Runtime
from backstay.sim.nodes.wire import Json, Pod

KILLED = 137


@dataclass(frozen=True)
class Pace:
    """How long things take, in seconds; the heartbeats' defaults are a real kubelet's."""

    start: float = 0.0
    stop: float = 0.0
    restart: float = 0.0
    lease: float = 10.0
    lease_duration: int = 40
    status: float = 10.0
    report: float = 300.0
    mount_retry: float = 0.5
    longest_mount_retry: float = 122.0
    network_retry: float = 10.0
    second: float = 1.0
    """How long a second of a grace period lasts."""

    def scaled(self, factor: float) -> "Pace":
        """The same at another speed. A lease's duration is a whole number."""
        changes = {each.name: getattr(self, each.name) * factor for each in fields(self)}
        changes["lease_duration"] = max(1, round(changes["lease_duration"]))
        return replace(self, **changes)


@dataclass(frozen=True)
class Report:
    """What to tell the API about a pod: a new status, then perhaps its deletion."""

    pod: Pod
    status: Json | None
    delete: bool


@dataclass
class _Worker:
    pod: Pod
    step: Step
    pod_ips: tuple[str, ...]
    due: float | None = None
    stopping_since: float = 0.0
    gone: bool = False
    deleted: bool = False
    news: Report | None = None
    """What the API is still to be told."""
    mounts: tuple[Mount, ...] | None = None

    @property
    def is_unprepared(self) -> bool:
        return self.step is Step.STARTING and self.due is None

    def move(self, step: Step, *, due: float | None = None) -> None:
        self.step = step
        self.due = due


class Kubelet:
    """One boot's kubelet: a loss of power takes all that it remembers."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        pace: Pace,
        wall: WallClock,
        host_ip: str,
        pod_subnet: str,
        has_plugin: bool = False,
        is_stuck: Callable[[str], bool] = lambda uid: False,
    ) -> None:
        self._runtime = runtime
        self._pace = pace
        self._wall = wall
        self._host_ip = host_ip
        self._pod_subnet = pod_subnet
        self._has_plugin = has_plugin
        self._is_stuck = is_stuck
        self._addresses = 0
        self._workers: dict[str, _Worker] = {}

    # What the API says

    def saw(self, pod: Pod, now: float) -> None:
        """The API has this pod for our node."""
        worker = self._workers.get(pod.uid)
        if worker is None:
            worker = self._workers[pod.uid] = self._admit(pod, now)
        elif int(pod.version) <= int(worker.pod.version):
            # A watch lags behind the answers to our own writes.
            return
        else:
            worker.pod = pod
        self._consider(worker, now)

    def lost(self, uid: str, now: float) -> None:
        """The API has it no more."""
        worker = self._workers.get(uid)
        if worker is not None:
            worker.gone = True
            self._consider(worker, now)

    # Volumes and addresses

    def unprepared(self) -> list[Pod]:
        """The pods that wait for their volumes, or for their network."""
        return [worker.pod for worker in self._workers.values() if worker.is_unprepared]

    def is_unprepared(self, uid: str) -> bool:
        worker = self._workers.get(uid)
        return worker is not None and worker.is_unprepared

    def resolved(self, uid: str, mounts: tuple[Mount, ...]) -> None:
        """It is known what the pod's claims stand for."""
        if worker := self._workers.get(uid):
            worker.mounts = mounts

    def mounted(self, uid: str, now: float) -> None:
        """All of it is attached and can be used, and it has its network."""
        worker = self._workers.get(uid)
        if worker is not None and worker.is_unprepared:
            worker.due = now + self._pace.start

    def connected(self, uid: str) -> None:
        """The pod has been given its addresses."""
        if worker := self._workers.get(uid):
            worker.pod_ips = self._runtime.addresses(uid)

    def abandoned(self) -> list[Sandbox]:
        """The sandboxes in which nothing runs, nor will again."""
        kept = {uid for uid, worker in self._workers.items() if worker.step is not Step.ENDED}
        return [
            sandbox
            for uid, sandbox in self._runtime.sandboxes.items()
            if uid not in kept and not self._runtime.runs(uid)
        ]

    def cleared(self, uid: str) -> None:
        """Its sandbox is no more."""
        if worker := self._workers.get(uid):
            self._note(worker)

    @property
    def in_use(self) -> list[str]:
        """The devices that must not be detached from this node."""
        busy = (w.mounts or () for w in self._workers.values() if w.step is not Step.ENDED)
        return sorted({mount.device for mounts in busy for mount in mounts if mount.device})

    @property
    def holding(self) -> set[str]:
        """The pods that have their volumes, or are about to."""
        return {uid for uid, worker in self._workers.items() if worker.step is not Step.ENDED}

    def take_over(self, is_wanted: Callable[[str], bool], now: float) -> None:
        """Ends containers of an earlier kubelet that the API has no pod for."""
        for uid, run in self._runtime.running.items():
            if uid not in self._workers and not is_wanted(uid):
                ips = self._known_addresses(run.pod)
                worker = _Worker(run.pod, Step.RUNNING, ips, gone=True, mounts=run.mounts)
                self._workers[uid] = worker
                self._consider(worker, now)

    # What is due

    def advance(self, now: float) -> float | None:
        """Does what is due; returns when there will be something to do again."""
        for uid, worker in list(self._workers.items()):
            if worker.step in (Step.RUNNING, Step.STOPPING) and not self._runtime.runs(uid):
                self._notice_exit(worker, now)
            if worker.due is not None and worker.due <= now:
                self._act(worker, now)
                self._note(worker)
        return min((w.due for w in self._workers.values() if w.due is not None), default=None)

    # What to tell

    def reports(self) -> list[Report]:
        """Everything that the API should hear, again and again until it has heard it.

        ``saw`` with the API's answer, ``deleted`` and ``unwanted`` say that it has.
        """
        return [worker.news for worker in self._workers.values() if worker.news is not None]

    def deleted(self, report: Report) -> None:
        """The API took our deletion; it is not repeated while somebody's finalizer holds on."""
        if worker := self._workers.get(report.pod.uid):
            worker.deleted = True
            self._note(worker)

    def unwanted(self, report: Report) -> None:
        """The API knows no such pod; if it ever did, its watch will say what became of it."""
        if worker := self._workers.get(report.pod.uid):
            worker.news = None

    # Inside

    def _admit(self, pod: Pod, now: float) -> _Worker:
        run = self._runtime.running.get(pod.uid)
        if run is not None:
            ips = self._known_addresses(pod)
            return _Worker(pod, Step.RUNNING, ips, mounts=run.mounts)
        waits = self._has_plugin and not pod.spec.host_network
        ips = () if waits else self._next_address()
        ended = self._runtime.ended(pod.uid)
        if ended is None or _restartable(pod, ended.code):
            due = None if pod.claims or waits else now + self._pace.start
            return _Worker(pod, Step.STARTING, ips, due=due)
        why = f"restartPolicy {pod.spec.restart_policy} does not let it run again"
        self._runtime.refuse(pod, why=why)
        return _Worker(pod, Step.ENDED, ips)

    def _next_address(self) -> tuple[str, ...]:
        self._addresses += 1
        return (f"{self._pod_subnet}.{self._addresses % 250 + 1}",)

    def _known_addresses(self, pod: Pod) -> tuple[str, ...]:
        told = pod.status.get("podIP")
        return self._runtime.addresses(pod.uid) or ((str(told),) if told else ())

    def _consider(self, worker: _Worker, now: float) -> None:
        """Ends what must not go on, and drops what is over and gone."""
        why = _must_end(worker)
        if why and worker.step in (Step.STARTING, Step.RESTARTING):
            self._runtime.refuse(worker.pod, why=why)
            worker.move(Step.ENDED)
        elif why and worker.step is Step.RUNNING:
            worker.stopping_since = now
            worker.move(Step.STOPPING, due=now + self._time_to_stop(worker.pod))
        elif worker.step is Step.STOPPING and worker.due is not None:
            # The API may have shortened the grace period since.
            sooner = worker.stopping_since + self._time_to_stop(worker.pod)
            worker.due = min(worker.due, sooner)
        self._note(worker)

    def _time_to_stop(self, pod: Pod) -> float:
        return min(self._pace.stop, self._grace(pod))

    def _grace(self, pod: Pod) -> float:
        granted = pod.metadata.deletion_grace_period_seconds
        seconds = pod.spec.termination_grace_period_seconds if granted is None else granted
        return max(1, seconds) * self._pace.second

    def _notice_exit(self, worker: _Worker, now: float) -> None:
        ended = self._runtime.ended(worker.pod.uid)
        again = worker.step is Step.RUNNING and _restartable(
            worker.pod, ended.code if ended else KILLED
        )
        if again:
            worker.move(Step.RESTARTING, due=now + self._pace.restart)
        else:
            worker.move(Step.ENDED)
        self._note(worker)

    def _act(self, worker: _Worker, now: float) -> None:
        pod = worker.pod
        if worker.step is Step.STOPPING and self._is_stuck(pod.uid):
            worker.due = now + self._pace.second
        elif worker.step is Step.STOPPING:
            killed = self._pace.stop > self._grace(pod)
            self._runtime.stop(
                pod.uid,
                code=KILLED if killed else 0,
                reason="Error" if killed else "Completed",
                why=_must_end(worker) or "",
            )
            worker.move(Step.ENDED)
        else:
            again = self._runtime.ended(pod.uid) is not None
            why = "started again" if again else "started"
            self._runtime.start(pod, why=why, mounts=worker.mounts or ())
            worker.move(Step.RUNNING)

    def _note(self, worker: _Worker) -> None:
        """Decides whether there is news for the API, or nothing left to remember."""
        if not worker.gone:
            worker.news = self._report(worker)
        elif worker.step is Step.ENDED:
            del self._workers[worker.pod.uid]
            self._runtime.forget(worker.pod.uid)
        else:
            worker.news = None

    def _report(self, worker: _Worker) -> Report | None:
        wanted = self._status(worker)
        status = wanted if differs(wanted, worker.pod.status) else None
        delete = _deletable(worker) and not self._runtime.has_sandbox(worker.pod.uid)
        return Report(worker.pod, status, delete) if status is not None or delete else None

    def _status(self, worker: _Worker) -> Json:
        uid = worker.pod.uid
        facts = Facts(
            step=worker.step,
            running_since=self._runtime.running_since(uid),
            ended=self._runtime.ended(uid),
            restarts=self._runtime.restarts(uid),
            host_ip=self._host_ip,
            pod_ips=worker.pod_ips,
        )
        return pod_status(worker.pod, facts, now=self._wall.now())


def _must_end(worker: _Worker) -> str | None:
    if worker.gone:
        return "it is gone from the API"
    if worker.pod.deleting:
        return "it is marked for deletion"
    if worker.pod.over:
        return f"its phase is {worker.pod.phase}"
    return None


def _restartable(pod: Pod, code: int) -> bool:
    policy = pod.spec.restart_policy
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def _deletable(worker: _Worker) -> bool:
    return worker.step is Step.ENDED and worker.pod.deleting and not worker.deleted

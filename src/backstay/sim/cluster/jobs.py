"""Jobs: pods that run until they have succeeded, so many of them.

A pod that is being deleted counts as failed and is replaced at once, also if it is on a node that
is silent and may still be running there: a Job promises that its work is done at least once, not
at most once. With ``podReplacementPolicy: Failed`` it waits until the pod is over.

Every pod has a finalizer until it was counted, so that nobody can make one disappear before. After
a failure the next pod waits, ten seconds the first time and then twice as long each time; after
``backoffLimit`` failures the Job has failed. Not here: indexes, suspension, deadlines, policies for
success and failure, and cleaning up after a while.
"""

import asyncio

from backstay.sim.api.kinds import Object
from backstay.sim.api.operations import Operations
from backstay.sim.api.store import Key
from backstay.sim.cluster.desk import (
    JOBS,
    PODS,
    Json,
    condition,
    is_deleting,
    is_over,
    is_ready,
    key_of,
    owned_by,
    with_condition,
)
from backstay.sim.cluster.owners import OwnerController

UNCOUNTED = "batch.kubernetes.io/job-tracking"

_FIRST_BACKOFF = 10.0
_LONGEST_BACKOFF = 600.0


class Jobs(OwnerController):
    """Works on the keys of jobs."""

    storage = JOBS
    kind = "Job"

    def __init__(self, operations: Operations) -> None:
        super().__init__(operations)
        self._not_before: dict[str, float] = {}

    def begin(self) -> None:
        self._not_before.clear()
        super().begin()

    def work(self, key: Key) -> None:
        job = self.owner_of(key)
        if job is None:
            return
        pods = self.made_for(job)
        job = self._count(job, pods)
        if is_deleting(job) or _is_finished(job):
            return
        active = [pod for pod in pods if not _counts(pod, job)]
        status = job["status"]
        spec, done = job["spec"], status.get("succeeded", 0)
        left = spec.get("completions", 1) - done
        if status.get("failed", 0) > spec.get("backoffLimit", 6):
            self._end(job, active, "Failed", "BackoffLimitExceeded")
        elif left <= 0:
            self._end(job, active, "Complete", "CompletionsReached")
        else:
            self._fill(key, job, min(spec.get("parallelism", 1), left) - len(active))

    def _count(self, job: Object, pods: list[Object]) -> Object:
        """Counts every pod that is over, once, and lets go of it; the job as it is then."""
        over = [pod for pod in pods if _counts(pod, job) and _is_uncounted(pod)]
        succeeded = sum(pod["status"]["phase"] == "Succeeded" for pod in over)
        failed = len(over) - succeeded
        before = job.get("status") or {}
        active = [pod for pod in pods if not _counts(pod, job)]
        status = {
            **before,
            "startTime": before.get("startTime") or self._desk.now(),
            "active": len(active),
            "ready": sum(map(is_ready, active)),
            "succeeded": before.get("succeeded", 0) + succeeded,
            "failed": before.get("failed", 0) + failed,
        }
        if status != before:
            job = self._desk.change(
                JOBS, key_of(job), lambda obj: {**obj, "status": status}, status=True
            )
        for pod in over:
            self._desk.change(PODS, key_of(pod), _counted)
        if failed:
            wait = min(_LONGEST_BACKOFF, _FIRST_BACKOFF * 2.0 ** (status["failed"] - 1))
            uid = job["metadata"]["uid"]
            self._not_before[uid] = asyncio.get_running_loop().time() + wait
        return job

    def _fill(self, key: Key, job: Object, missing: int) -> None:
        now = asyncio.get_running_loop().time()
        wait = self._not_before.get(job["metadata"]["uid"], now) - now
        if missing > 0 and wait > 0:
            self.add_after(key, wait)
            return
        for _ in range(missing):
            self._desk.create(PODS, _pod(job), key[0])

    def _end(self, job: Object, active: list[Object], kind: str, reason: str) -> None:
        for pod in active:
            self._desk.delete(PODS, key_of(pod), uid=pod["metadata"]["uid"])
        now = self._desk.now()
        over = {"type": kind, "status": "True", "reason": reason}

        def ended(obj: Object) -> Object:
            told = with_condition(obj, over, now=now)
            finished = {"completionTime": now} if kind == "Complete" else {}
            return {**told, "status": {**told["status"], **finished}}

        self._desk.change(JOBS, key_of(job), ended, status=True)


def _is_finished(job: Json) -> bool:
    return any(condition(job, kind).get("status") == "True" for kind in ("Complete", "Failed"))


def _counts(pod: Json, job: Json) -> bool:
    """Whether it is over as far as its job is concerned."""
    waits = job["spec"].get("podReplacementPolicy") == "Failed"
    return is_over(pod) or (is_deleting(pod) and not waits)


def _is_uncounted(pod: Json) -> bool:
    return UNCOUNTED in (pod["metadata"].get("finalizers") or ())


def _counted(pod: Object) -> Object:
    meta = pod["metadata"]
    kept = [each for each in meta["finalizers"] if each != UNCOUNTED]
    return {**pod, "metadata": {**meta, "finalizers": kept}}


def _pod(job: Json) -> Object:
    meta, template = job["metadata"], job["spec"]["template"]
    said = template.get("metadata") or {}
    return {
        "metadata": {
            "generateName": f"{meta['name']}-",
            "labels": {
                **(said.get("labels") or {}),
                "batch.kubernetes.io/controller-uid": meta["uid"],
                "batch.kubernetes.io/job-name": meta["name"],
                "job-name": meta["name"],
            },
            "annotations": said.get("annotations") or {},
            "finalizers": [UNCOUNTED],
            "ownerReferences": [{**owned_by(job, "Job"), "apiVersion": "batch/v1"}],
        },
        "spec": template["spec"],
    }

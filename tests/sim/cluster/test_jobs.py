"""Jobs: pods that run until they have succeeded."""

import asyncio

from backstay.kube.resource import Resource
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.cluster.jobs import UNCOUNTED
from tests.sim.cluster.stages import Cast, Json, deleting, play

JOBS = Resource("batch", "v1", "jobs", "Job")


def job(name: str = "copy", **spec: object) -> Json:
    container = {"name": "main", "image": "example/copy"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"metadata": {"name": name}, "spec": {"template": template, **spec}}


async def end(cast: Cast, pod: Json, *, code: int) -> None:
    node = cast.cluster.nodes[pod["spec"]["nodeName"]]
    node.exit("default", pod["metadata"]["name"], code=code)


async def running(cast: Cast, count: int = 1) -> list[Json]:
    def found() -> list[Json]:
        return [
            p for p in cast.all("pods") if p["status"]["phase"] == "Running" and not deleting(p)
        ]

    await cast.until(lambda: len(found()) == count)
    return found()


def status(cast: Cast) -> Json:
    (found,) = cast.all("jobs.batch")
    return dict(found.get("status") or {})


def word(cast: Cast) -> str:
    conditions = status(cast).get("conditions") or ()
    return next((c["type"] for c in conditions if c["status"] == "True"), "")


def test_a_job_is_complete_when_its_pod_has_succeeded() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.create(job(), JOBS)
        (pod,) = await running(cast)
        assert UNCOUNTED in pod["metadata"]["finalizers"]
        await end(cast, pod, code=0)
        await cast.until(lambda: word(cast) == "Complete")
        (over,) = cast.all("pods")
        assert over["status"]["phase"] == "Succeeded"
        assert not over["metadata"].get("finalizers")
        assert status(cast)["succeeded"] == 1

    play(scenario)


def test_so_many_run_at_once_and_so_many_have_to_succeed() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.create(job(parallelism=2, completions=3), JOBS)
        for pod in await running(cast, 2):
            await end(cast, pod, code=0)
        await cast.until(lambda: status(cast).get("succeeded") == 2)
        (last,) = await running(cast, 1)
        await end(cast, last, code=0)
        await cast.until(lambda: word(cast) == "Complete")

    play(scenario)


def test_after_a_failure_the_next_pod_waits() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.create(job(), JOBS)
        (pod,) = await running(cast)
        await end(cast, pod, code=1)
        await asyncio.sleep(8)
        assert len(cast.all("pods")) == 1
        await running(cast)
        assert status(cast)["failed"] == 1

    play(scenario)


def test_a_job_gives_up_after_so_many_failures() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.create(job(backoffLimit=0), JOBS)
        (pod,) = await running(cast)
        await end(cast, pod, code=1)
        await cast.until(lambda: word(cast) == "Failed")
        await asyncio.sleep(60)
        assert len(cast.all("pods")) == 1

    play(scenario)


def test_the_pod_of_a_dead_node_is_replaced_while_it_may_still_run() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.create(job(), JOBS)
        (pod,) = await running(cast)
        node = pod["spec"]["nodeName"]
        cluster.nodes[node].cut_off()
        await cluster.until(lambda: len(cluster.truth.running()) == 2, timeout=600)
        assert status(cast)["failed"] == 1

    play(scenario)


def test_one_that_is_to_wait_waits_until_its_pod_is_over() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.create(job(podReplacementPolicy="Failed"), JOBS)
        (pod,) = await running(cast)
        cluster.nodes[pod["spec"]["nodeName"]].cut_off()
        await asyncio.sleep(900)
        assert len(cast.all("pods")) == 1
        assert len(cluster.truth.running()) == 1

    play(scenario)


def test_a_pod_that_was_not_counted_cannot_be_removed() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.create(job(), JOBS)
        (pod,) = await running(cast)
        cluster.nodes[pod["spec"]["nodeName"]].kill()
        cluster.control_plane.kill("kube-controller-manager")
        await cast.delete(pod["metadata"]["name"], grace=0)
        await asyncio.sleep(30)
        (there,) = cast.all("pods")
        assert there["metadata"]["finalizers"] == [UNCOUNTED]
        cluster.control_plane.start("kube-controller-manager")
        await cast.until(lambda: status(cast).get("failed") == 1)

    play(scenario)

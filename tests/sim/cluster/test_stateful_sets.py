"""Pods with names of their own: in order, and one of each at most."""

import asyncio

from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.nodes.truth import What
from tests.sim.cluster.stages import STATEFUL_SETS, Cast, deleting, play, said, stateful_set


def started(cluster: EmbeddedCluster) -> list[str]:
    return [entry.name for entry in cluster.truth.log if entry.what is What.STARTED]


async def make(cast: Cast, **options: object) -> None:
    await cast.create(stateful_set(**options), STATEFUL_SETS)  # type: ignore[arg-type]


def test_pods_are_made_in_order_each_when_the_one_before_is_ready() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.cordon("n1")
        await make(cast, replicas=2)
        await asyncio.sleep(10)
        assert [p["metadata"]["name"] for p in cast.all("pods")] == ["db-0"]
        await cast.cordon("n1", on=False)
        await cast.ready("db-1")
        assert started(cluster) == ["db-0", "db-1"]

    play(scenario, nodes=1)


def test_with_parallel_management_all_are_made_at_once() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await cast.cordon("n1")
        await make(cast, replicas=3, podManagementPolicy="Parallel")
        await cast.until(lambda: len(cast.all("pods")) == 3)

    play(scenario, nodes=1)


def test_pods_are_taken_away_from_the_end() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await make(cast, replicas=3)
        await cast.ready("db-2")
        await cast.client.merge_patch(
            STATEFUL_SETS, "db", {"spec": {"replicas": 1}}, namespace="default"
        )
        await cast.until(lambda: len(cast.all("pods")) == 1)
        stopped = [e.name for e in cluster.truth.log if e.what is What.STOPPED]
        assert stopped == ["db-2", "db-1"]

    play(scenario)


def test_each_pod_gets_claims_of_its_own_which_its_successor_takes_over() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await make(cast, replicas=2, claims=True)
        await cast.ready("db-1")
        volumes = {c["metadata"]["name"]: c["spec"]["volumeName"] for c in cast.all(CLAIMS)}
        assert sorted(volumes) == ["data-db-0", "data-db-1"]
        uid = cast.pod("db-0")["metadata"]["uid"]
        await cast.delete("db-0")
        await cast.until(
            lambda: (
                cast.pod("db-0")["metadata"]["uid"] != uid
                and said(cast.pod("db-0"), "Ready") == "True"
                if cast.get("pods", "db-0")
                else False
            )
        )
        again = {c["metadata"]["name"]: c["spec"]["volumeName"] for c in cast.all(CLAIMS)}
        assert again == volumes
        (run,) = [r for r in cluster.truth.running() if r.name == "db-0"]
        assert run.volumes == (volumes["data-db-0"],)

    play(scenario)


def test_nothing_is_done_while_a_pod_is_terminating_on_a_dead_node() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await make(cast)
        where = await cast.runs("db-0")
        uid = cast.pod("db-0")["metadata"]["uid"]
        cluster.nodes[where].kill()
        await asyncio.sleep(1800)
        assert cast.pod("db-0")["metadata"]["uid"] == uid
        assert deleting(cast.pod("db-0"))
        assert cast.copies("db-0") == []
        await cast.delete("db-0", grace=0)
        assert await cast.runs("db-0") != where

    play(scenario)


def test_its_status_counts_what_is_ready() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        cast = Cast(cluster)
        await make(cast, replicas=2)
        await cast.until(lambda: _ready(cast) == 2)
        cluster.nodes[cast.copies("db-1")[0]].kill()
        await cast.until(lambda: _ready(cast) == 1, 120)

    play(scenario)


def _ready(cast: Cast) -> int:
    (owner,) = cast.all("statefulsets.apps")
    return int((owner.get("status") or {}).get("readyReplicas", 0))


CLAIMS = "persistentvolumeclaims"

"""Keeping a node free, and giving it back as it was."""

import inspect
import math
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec

import pytest

from backstay.act.cordons import cordon, give_back, mark
from backstay.kube.calls import Reply
from backstay.kube.client import KubeClient
from backstay.kube.errors import TooLate
from backstay.kube.resource import NODES
from backstay.model.labels import DRAIN_TAINT, EXCLUDE, MAINTENANCE
from backstay.model.maintenance import Marks, marks_of
from backstay.sim.cluster.embedded import EmbeddedCluster
from backstay.sim.cluster.taints import UNSCHEDULABLE
from tests.sim.cluster.stages import play

Json = dict[str, Any]
P = ParamSpec("P")

OTHER = {"key": "example.com/theirs", "effect": "NoExecute", "value": "v"}


def on_a_node(
    story: Callable[Concatenate[KubeClient, P], Awaitable[None]],
) -> Callable[P, None]:
    """Played with a client of a cluster that has the node n1."""

    def test(*args: P.args, **kwargs: P.kwargs) -> None:
        async def told(cluster: EmbeddedCluster) -> None:
            await story(cluster.client(), *args, **kwargs)

        play(told, nodes=1)

    _, *parameters = inspect.signature(story).parameters.values()
    test.__name__ = story.__name__
    test.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return test


def never() -> float:
    raise TooLate("not any more")


def leave() -> float:
    return math.inf


async def live(client: KubeClient) -> Json:
    found: Json = (await client.get(NODES, "n1")).json()
    return found


async def put_on(client: KubeClient, *, uid: str = "m1", inherits: bool = False) -> bool:
    node = await live(client)
    return await mark(
        client, "n1", uid=node["metadata"]["uid"], maintenance=uid, name="it", inherits=inherits,
        leave=leave,
    )  # fmt: skip


async def change(client: KubeClient, patch: Json) -> None:
    await client.merge_patch(NODES, "n1", patch)


def stripped(node: Json) -> Json:
    """What a person would compare."""
    meta = node["metadata"]
    taints = [t for t in node["spec"].get("taints") or () if t["key"] != UNSCHEDULABLE]
    return {
        "labels": meta.get("labels") or {},
        "annotations": meta.get("annotations") or {},
        "spec": {**node["spec"], "taints": taints},
    }


@pytest.mark.parametrize(
    "before",
    [
        {},
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [OTHER]}},
        {"spec": {"taints": [{"key": DRAIN_TAINT, "effect": "NoSchedule"}, OTHER]}},
        {"metadata": {"labels": {EXCLUDE: "true"}}},
        {"metadata": {"labels": {EXCLUDE: "false"}}},
        {"metadata": {"annotations": {"theirs": "yes"}}, "spec": {"unschedulable": True}},
    ],
)
@on_a_node
async def test_a_node_is_given_back_exactly_as_it_was(client: KubeClient, before: Json) -> None:
    await change(client, before)
    as_it_was = stripped(await live(client))
    assert await put_on(client)
    marked = await live(client)
    assert marked["spec"]["unschedulable"]
    assert any(taint["key"] == DRAIN_TAINT for taint in marked["spec"]["taints"])
    assert EXCLUDE in marked["metadata"]["labels"]
    await give_back(client, "n1", maintenance="m1", inherits=False, leave=leave)
    assert stripped(await live(client)) == as_it_was


@on_a_node
async def test_what_is_marked_already_is_not_written_again(client: KubeClient) -> None:
    assert await put_on(client)
    assert not await put_on(client)


@on_a_node
async def test_what_somebody_took_off_and_we_put_back_is_ours(client: KubeClient) -> None:
    await change(client, {"spec": {"unschedulable": True}})
    await put_on(client)
    await change(client, {"spec": {"unschedulable": None}})
    assert await put_on(client)
    marks = marks_of((await live(client))["metadata"]["annotations"][MAINTENANCE])
    assert marks is not None
    assert marks.cordon


@on_a_node
async def test_another_maintenance_inherits_what_is_ours_and_not_more(client: KubeClient) -> None:
    await change(client, {"spec": {"unschedulable": True}})
    await put_on(client, uid="m1")
    await put_on(client, uid="m2")
    assert await give_back(client, "n1", maintenance="m1", inherits=False, leave=leave) is None
    given = await give_back(client, "n1", maintenance="m2", inherits=False, leave=leave)
    assert given is not None
    assert (given.cordon, given.taint, given.label) == (False, True, True)
    assert (await live(client))["spec"]["unschedulable"]


@on_a_node
async def test_what_another_program_has_begun_is_inherited_only_with_its_taint(
    client: KubeClient,
) -> None:
    await change(client, {"spec": {"unschedulable": True}})
    await put_on(client, inherits=True)
    await give_back(client, "n1", maintenance="m1", inherits=False, leave=leave)
    assert (await live(client))["spec"]["unschedulable"], "somebody had cordoned it"
    taints = [{"key": DRAIN_TAINT, "effect": "NoSchedule"}]
    await change(client, {"spec": {"taints": taints}})
    await put_on(client, inherits=True)
    await give_back(client, "n1", maintenance="m1", inherits=False, leave=leave)
    assert not (await live(client))["spec"].get("unschedulable")


@on_a_node
async def test_without_leave_nothing_is_written(client: KubeClient) -> None:
    before = await live(client)
    with pytest.raises(TooLate):
        await mark(
            client, "n1", uid=before["metadata"]["uid"], maintenance="m1", name="it",
            inherits=False, leave=never,
        )  # fmt: skip
    assert stripped(await live(client)) == stripped(before)


@on_a_node
async def test_another_node_of_the_name_is_left_alone(client: KubeClient) -> None:
    before = await live(client)
    written = await mark(
        client, "n1", uid="another", maintenance="m1", name="it", inherits=False, leave=leave
    )
    assert not written
    assert stripped(await live(client)) == stripped(before)


@on_a_node
async def test_a_conflict_means_to_look_again(client: KubeClient) -> None:
    node = await live(client)
    tries: list[int] = []

    class Beaten(KubeClient):
        async def merge_patch(self, *args: Any, **how: Any) -> Reply:
            tries.append(1)
            if len(tries) == 1:
                await change(client, {"spec": {"taints": [OTHER]}})
            return await super().merge_patch(*args, **how)

    beaten = Beaten(client._transport, client.access)
    assert await mark(
        beaten, "n1", uid=node["metadata"]["uid"], maintenance="m1", name="it", inherits=False,
        leave=leave,
    )  # fmt: skip
    assert len(tries) == 2
    keys = [taint["key"] for taint in stripped(await live(client))["spec"]["taints"]]
    assert keys == [OTHER["key"], DRAIN_TAINT]


@on_a_node
async def test_a_plain_cordon_says_whether_it_was_needed(client: KubeClient) -> None:
    assert await cordon(client, "n1", dry_run=True)
    assert not (await live(client))["spec"].get("unschedulable")
    assert await cordon(client, "n1")
    assert not await cordon(client, "n1")


def test_what_cannot_be_read_says_nothing_of_what_is_ours() -> None:
    assert marks_of("") is None
    assert marks_of("{") is None
    assert marks_of('{"cordon": true}') is None
    assert marks_of('{"maintenance": "u", "name": "a/b"}') is None
    assert marks_of('{"maintenance": "u", "name": "it"}') == Marks("u", "it")

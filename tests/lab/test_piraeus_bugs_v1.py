"""What was wrong with the Piraeus HA controller since v1, in virtual time.

Each test says one bug, or one wish of its users, in a sentence, and shows that it is not here. What
was wrong before is in ``test_piraeus_bugs.py``.
"""

import asyncio

import pytest

from backstay.apis.storage import ATTACHMENTS, VOLUMES
from backstay.kube.resource import NODES
from backstay.kube.resource import Resource as Kind
from backstay.lab.linstor_spec import What
from backstay.lab.witness import Asked, Happening
from backstay.model.labels import IGNORE_FAIL_OVER
from backstay.sim.api.kinds import Object
from backstay.sim.cluster.desk import Desk
from backstay.sim.kubevirt.names import MIGRATIONS
from backstay.sim.linstor.front import Trouble
from backstay.sim.linstor.replicas import Link, Resource, Role
from backstay.sim.nodes.machine import Cut
from tests.lab.drbd import (
    BASE,
    DATABASE,
    DISK,
    ELSEWHERE,
    LABEL,
    LABELLED_ONLY,
    ONE_DATABASE,
    Json,
    Scene,
    staged,
)

BUDGETS = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")


@pytest.fixture(scope="module")
def lost() -> Scene:
    """Only what is labelled is to be helped; n1 dies, and with it all that is difficult."""

    async def happen(scene: Scene) -> None:
        await scene.start("spared", labels=LABEL, annotations={IGNORE_FAIL_OVER: ""})
        await scene.start("clock", labels=LABEL, **host_path("/etc/localtime", read_only=True))
        await scene.start("writer", labels=LABEL, **host_path("/var/lib/own", read_only=False))
        await scene.start("guarded", labels=LABEL)
        await scene.client.create(BUDGETS, budget("guarded"), namespace="shop")
        numbered = await scene.volume("numbered", resource="several", handle="Several/1")
        await scene.start("numbered", claim=numbered, labels=LABEL)
        kindless = {"spec": {"claimRef": {"kind": None}}}
        await scene.client.merge_patch(VOLUMES, "pv-numbered", kindless)
        export = {"linstor.csi.linbit.com/nfs-export": "true"}
        exported = await scene.volume("exported", resource="nfs", handle="nfs", **export)
        await scene.start("exported", claim=exported, labels=LABEL)
        await scene.start("renamed", claim=await scene.claim("other", of="gold"), labels=LABEL)
        placed = scene.linstor.classes["linstor"]
        scene.linstor.database.define("outside", placed.replicas, props=placed.props)
        scene.linstor.drbd.promote("outside", "n1")
        scene.happen(What.HUGE_NUMBERS)
        quicker = be_quicker(scene)
        await scene.lose("n1")
        assert quicker == ["backstay-1"]

    gold = "linstor: {controller: n3, upperCase: true, classes: {gold: {renamed: true}}}"
    return staged(LABELLED_ONLY.replace("linstor: {controller: n3}", gold), happen)


def be_quicker(scene: Scene) -> list[str]:
    """Whenever one of ours is about to delete an attachment for the first time, somebody else does
    it. Returns who was too late."""
    desk = Desk(scene.cluster.embedded.api.operations, "somebody")
    late: list[str] = []

    def told(happening: Happening) -> None:
        if isinstance(happening, Asked) and happening.storage == ATTACHMENTS.label and not late:
            late.append(happening.user)
            desk.delete(ATTACHMENTS.label, happening.key)
            desk.change(ATTACHMENTS.label, happening.key, without_finalizers)

    scene.cluster.witness.watch(told)
    return late


def without_finalizers(attachment: Object) -> Object:
    return {**attachment, "metadata": {**attachment["metadata"], "finalizers": []}}


def host_path(path: str, *, read_only: bool) -> Json:
    return {
        "volumes": [{"name": "host", "hostPath": {"path": path}}],
        "mounts": [{"name": "host", "mountPath": path, "readOnly": read_only}],
    }


def budget(app: str) -> Json:
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": app}}}
    return {"metadata": {"name": app}, "spec": spec}


# What was not found, or not understood


def test_what_is_held_says_why(lost: Scene) -> None:
    """A pod with a directory of its node was never moved, for /etc/localtime even, and only the
    most detailed log said so."""
    assert lost.places("clock") in ELSEWHERE, "nobody writes to /etc/localtime"
    code, sentence = lost.why("writer")
    assert code == "ProofMissing"
    assert "hostPath /var/lib/own" in sentence
    [event] = [each for each in lost.events("writer") if sentence in each["message"]]
    assert (event["type"], event["reason"]) == ("Warning", code)


def test_a_claim_ref_without_a_kind_is_found(lost: Scene) -> None:
    """A volume whose claimRef has no kind, as KubeVirt's importer makes them, was not protected."""
    volume = lost.cluster.store.get("persistentvolumes", ("", "pv-numbered"))
    assert volume is not None
    assert not volume.object["spec"]["claimRef"].get("kind")
    assert lost.places("numbered") in ELSEWHERE


def test_numbers_beyond_63_bits_are_no_obstacle(lost: Scene) -> None:
    """One counter that was too large, and nothing of what DRBD said was read."""
    assert lost.linstor.faults.trouble is Trouble.HUGE_NUMBERS
    assert lost.places("guarded") in ELSEWHERE


def test_a_handle_with_a_volume_number_is_understood(lost: Scene) -> None:
    """The number of a volume was taken for a part of the resource's name."""
    assert lost.places("numbered") in ELSEWHERE
    assert "numbered" not in lost.attached("n1")


def test_an_attachment_is_found_where_the_resource_has_another_name(lost: Scene) -> None:
    """Attachments were looked up under the name of the resource, and are kept under that of the
    volume: nothing was detached where the two differ."""
    assert lost.resource("other") != lost.volumes()["other"]
    assert lost.places("renamed") in ELSEWHERE
    assert "other" not in lost.attached("n1")


# What was taken away, and should not have been


def test_an_nfs_export_is_left_alone(lost: Scene) -> None:
    """A volume that LINSTOR itself exports was taken from whoever was serving it."""
    assert lost.why("exported")[0] == "ProofMissing"
    assert "exported" in lost.attached("n1")
    assert not any(pod.startswith("exported") for pod in lost.touched)


def test_an_exempt_pod_keeps_its_attachment(lost: Scene) -> None:
    """Its pod was left alone as it had asked, and its volume was detached all the same."""
    assert "spared-data" in lost.attached("n1")
    assert not any(pod.startswith("spared") for pod in lost.touched)


def test_a_resource_without_a_volume_is_no_business_of_ours(lost: Scene) -> None:
    """A resource that is no volume of Kubernetes was demoted, and then the process crashed."""
    lost.linstor.drbd.promote("outside", "n2")
    assert not any("outside" in line for line in lost.timeline())


def test_io_that_was_suspended_for_a_snapshot_takes_nothing_away() -> None:
    """A primary whose writes waited for a snapshot was demoted by force."""

    async def wait(scene: Scene) -> None:
        drbd, resource = scene.linstor.drbd, scene.resource(DISK)
        drbd.hold_back(resource, "n1")
        assert not drbd.can_write(resource, "n1")
        await asyncio.sleep(60)
        scene.cluster.nodes["n1"].cut_off(Cut.API)
        await asyncio.sleep(180)
        assert drbd.resources[resource]["n1"].role is Role.PRIMARY
        drbd.hold_back(resource, "n1", on=False)
        assert drbd.can_write(resource, "n1")

    assert staged(ONE_DATABASE, wait).touched == []


# What stood in the way


def test_an_attachment_that_is_gone_already_is_no_error(lost: Scene) -> None:
    """That somebody else had been quicker was an error, and ended the fail-over."""
    assert lost.attached("n1") == {"spared-data", "writer-data", "exported"}
    for words in (b"failed and will be tried again", b"is not detached yet"):
        assert words not in lost.world.log.text


def test_a_disruption_budget_does_not_keep_a_dead_node_s_volume(lost: Scene) -> None:
    """Pods were evicted: where a budget did not allow that, the volume was never freed."""
    assert lost.places("guarded") in ELSEWHERE
    assert "guarded-data" not in lost.attached("n1")


def test_a_taint_that_conflicts_is_put_on_by_the_next_look() -> None:
    """Where somebody else changed the node at the same time, the whole fail-over was given up."""
    conflicts: list[str] = []

    async def interfere(scene: Scene) -> None:
        desk = Desk(scene.cluster.embedded.api.operations, "somebody")

        def told(happening: Happening) -> None:
            if not isinstance(happening, Asked) or happening.storage != NODES.label:
                return
            if happening.method == "PATCH" and len(conflicts) < 7:
                conflicts.append(happening.user)
                note = {"somebody.example/turn": str(len(conflicts))}
                desk.change(NODES.label, happening.key, lambda node: annotated(node, note))

        scene.cluster.witness.watch(told)
        await scene.lose("n1")

    scene = staged(ONE_DATABASE, interfere)
    assert len(conflicts) == 7, "more than one look's attempts"
    assert scene.tainted() == {"n1"}
    assert scene.places(DATABASE) in ELSEWHERE


def annotated(node: Object, note: Json) -> Object:
    meta = node["metadata"]
    return {**node, "metadata": {**meta, "annotations": {**meta.get("annotations", {}), **note}}}


# Taints


def test_a_node_that_lost_some_quorums_is_neither_tainted_nor_emptied() -> None:
    """A healthy node that had lost the quorum of one resource was tainted, and everything on it
    was evicted."""

    async def lose_some(scene: Scene) -> None:
        for peer in ("n2", "n3"):
            scene.on_stage.cut("n1", peer)
        await asyncio.sleep(120)
        drbd = scene.linstor.drbd
        assert not drbd.can_write(scene.resource(DISK), "n1")
        assert drbd.can_write(scene.resource("data-1-logs-0"), "n1")
        app = scene.cluster.leader
        assert app is not None
        assert "n1 is alive, but DRBD has shut it out" in " ".join(app.status().notes)

    text = BASE.replace("n3]", "n3, n4, n5]", 1).replace(
        "{controller: n3}", "{controller: n3, classes: {far: {replicas: [n1, n4, n5]}}}"
    )
    sets = """workloads:
  statefulSets:
    - {name: db, node: n1, claims: [linstor]}
    - {name: logs, node: n1, claims: [linstor], storageClass: far}
"""
    scene = staged(text + sets, lose_some)
    assert (scene.touched, scene.tainted()) == ([], set())
    assert scene.places(DATABASE) == scene.places("logs-0") == ["n1"]


@pytest.fixture(scope="module")
def returned() -> Scene:
    """There is nowhere else to go: n1 is cut off for long, comes back, and is cut off again for a
    short time."""

    async def happen(scene: Scene) -> None:
        for other in ("n2", "n3"):
            await scene.client.merge_patch(NODES, other, {"spec": {"unschedulable": True}})
        node = scene.cluster.nodes["n1"]
        node.cut_off()
        await asyncio.sleep(100)
        assert scene.touched == 2 * [DATABASE]
        assert scene.tainted() == {"n1"}
        node.heal()
        await asyncio.sleep(120)
        assert scene.places(DATABASE) == ["n1"]
        node.cut_off()
        await asyncio.sleep(40)
        node.heal()
        await asyncio.sleep(120)

    return staged(ONE_DATABASE, happen)


def test_our_taint_goes_with_the_incident(returned: Scene) -> None:
    """Taints stayed, came back, and kept others away from healthy nodes."""
    assert returned.tainted() == set()
    assert returned.cluster.open_incidents() == []


def test_a_pod_that_is_put_back_is_not_killed_in_a_loop(returned: Scene) -> None:
    """A pod for which there was no other node was put back, and killed again, for ever."""
    assert returned.touched == 2 * [DATABASE]
    assert returned.places(DATABASE) == ["n1"]


def test_each_loss_of_a_connection_has_its_own_grace(returned: Scene) -> None:
    """The time of the first loss was kept: the next one had no grace at all."""
    assert returned.touched == 2 * [DATABASE], "the second one was shorter than the grace"


def test_a_node_that_never_returns_leaves_no_taint_behind() -> None:
    """The taint of a node that never came back was never removed."""

    async def replace(scene: Scene) -> None:
        await scene.lose("n1")
        await scene.client.delete(NODES, "n1")
        await asyncio.sleep(30)
        assert scene.cluster.open_incidents() == []
        scene.cluster.nodes["n1"].reboot()
        await asyncio.sleep(60)
        assert scene.tainted() == set()

    assert staged(ONE_DATABASE, replace).touched == 2 * [DATABASE]


# Two who write, or could


def test_a_split_brain_is_not_evicted_in_a_loop() -> None:
    """While replicas stood alone after a split brain, pods were evicted again and again."""

    async def split(scene: Scene) -> None:
        resource = scene.resource(DISK)
        for peer in ("n2", "n3"):
            scene.on_stage.cut("n1", peer)
        await asyncio.sleep(20)
        drbd = scene.linstor.drbd
        drbd.promote(resource, "n2")
        for peer in ("n2", "n3"):
            scene.on_stage.mend("n1", peer)
        await asyncio.sleep(20)
        ends = drbd.resources[resource]["n1"].ends
        assert {end.link for end in ends.values()} == {Link.STAND_ALONE}
        await asyncio.sleep(120)
        assert (scene.touched, scene.tainted()) == ([], set())
        await scene.lose("n1", seconds=120)
        assert scene.why(DATABASE)[0] == "ProofMissing"

    text = ONE_DATABASE.replace(
        "{controller: n3}", '{controller: n3, classes: {linstor: {quorum: "off"}}}'
    )
    scene = staged(text, split)
    assert scene.touched == []


def test_a_dead_kubelet_with_a_living_primary_is_held_and_said() -> None:
    """Nothing was done, which was right, and nobody was told why."""

    async def die(scene: Scene) -> None:
        scene.cluster.nodes["n1"].kill_kubelet()
        await asyncio.sleep(120)

    scene = staged(ONE_DATABASE, die)
    assert scene.touched == []
    assert scene.places(DATABASE) == ["n1"]
    code, sentence = scene.why(DATABASE)
    assert code == "GuestAliveKubeletDead"
    assert sentence in scene.events(DATABASE)[-1]["message"]


def test_two_primaries_for_a_live_migration_are_left_alone() -> None:
    """While a VM was being migrated, its volume had two primaries, and one of them was taken for
    lost."""

    async def migrate(scene: Scene) -> None:
        migration = {"metadata": {"name": "by-hand"}, "spec": {"vmiName": "till"}}
        await scene.client.create(MIGRATIONS, migration, namespace="shop")
        resource = scene.linstor.drbd.resources[scene.resource("till-disk-1")]
        await scene.cluster.until(lambda: primaries(resource) == {"n1", "n2"})
        scene.cluster.nodes["n1"].kill()
        await asyncio.sleep(120)
        code, sentence = scene.why("till")
        assert code == "ProofMissing"
        assert "it allows two primaries at a time" in sentence

    def primaries(resource: Resource) -> set[str]:
        return {each.node for each in resource.replicas.values() if each.is_primary}

    text = f"{BASE}workloads: {{vms: [{{name: till, node: n1, claims: [linstor-shared]}}]}}\n"
    assert staged(text, migrate).touched == []


def test_a_replica_that_is_itself_primary_is_no_witness() -> None:
    """Whoever could be promoted was taken for a successor, even one that was primary itself."""

    async def promote(scene: Scene) -> None:
        scene.cluster.nodes["n1"].kill()
        await asyncio.sleep(30)
        drbd, resource = scene.linstor.drbd, scene.resource(DISK)
        drbd.promote(resource, "n2")
        assert drbd.resources[resource]["n2"].role is Role.PRIMARY
        await asyncio.sleep(120)
        code, sentence = scene.why(DATABASE)
        assert code == "ProofMissing"
        assert "n2 is still its primary" in sentence

    assert staged(ONE_DATABASE, promote).touched == []

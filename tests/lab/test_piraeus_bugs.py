"""What was wrong with the Piraeus HA controller before v1, in virtual time.

Each test says one bug in a sentence, and shows that it is not here. What was wrong with v1 is in
``test_piraeus_bugs_v1.py``.
"""

import asyncio

import msgspec
import pytest

from backstay.cli.manifests import drop_in
from backstay.kube.access import GivenAccess, Grant
from backstay.kube.client import KubeClient
from backstay.kube.events import EventRecorder, ObjectRef
from backstay.lab.linstor_spec import What
from backstay.lab.play import Played, play
from backstay.lab.scenario import load
from backstay.seam.serve import Answer, Inbound
from backstay.seam.system import SystemClock, SystemRng
from backstay.seam.tasks import Tasks
from backstay.sim.api.access import AccessControl, User
from backstay.sim.api.server import ApiServer
from backstay.sim.cluster.embedded import API
from backstay.sim.fate import ALL_WELL, Attempt, Fate
from backstay.sim.linstor.database import QUORUM
from backstay.sim.linstor.front import Trouble
from backstay.sim.network import Network
from backstay.sim.process import State
from tests.lab.drbd import (
    DATABASE,
    DISK,
    ELSEWHERE,
    FAILED_OVER,
    LABEL,
    LABELLED_ONLY,
    ONE_DATABASE,
    Json,
    Scene,
    staged,
)

# Fail-overs that did not happen


def test_a_volume_fails_over_a_second_time() -> None:
    """After one fail-over of a volume, the next was ignored for ever."""

    async def twice(scene: Scene) -> None:
        await scene.lose("n1")
        [second] = scene.places(DATABASE)
        scene.cluster.nodes["n1"].reboot()
        await asyncio.sleep(60)
        await scene.lose(second)
        [third] = scene.places(DATABASE)
        assert third not in (second, "")
        assert scene.attached(third) == {DISK}
        assert scene.attached(second) == set()
        assert scene.touched == 4 * [DATABASE], "marked and removed, on each of both nodes"

    staged(ONE_DATABASE, twice)


def test_a_detachment_that_failed_is_tried_again() -> None:
    """A volume that could not be detached at the first attempt was forgotten."""
    refused: list[str] = []

    async def refuse(scene: Scene) -> None:
        def fate(attempt: Attempt) -> Fate:
            request = attempt.request
            deletes = request.method == "DELETE" and "/volumeattachments/" in request.url
            if deletes and len(refused) < 5:
                refused.append(attempt.caller)
                return Fate(lose_request="reset")
            return ALL_WELL

        scene.world.network.fate = fate
        await scene.lose("n1")

    scene = staged(ONE_DATABASE, refuse)
    assert len(refused) == 5
    assert scene.places(DATABASE) in ELSEWHERE
    assert scene.attached("n1") == set()


def test_a_stream_that_was_cut_is_opened_again() -> None:
    """After the stream of events was lost, nothing was ever heard of again."""

    async def cut(scene: Scene) -> None:
        for _ in range(10):
            scene.happen(What.CUT_STREAMS)
            await asyncio.sleep(3)
        scene.happen(What.END_STREAMS)
        await asyncio.sleep(40)
        app = scene.cluster.leader
        assert app is not None
        assert app.linstor is not None
        assert app.linstor.promotions.connected
        scene.happen(What.SILENCE_STREAMS)
        await scene.lose("n1")

    assert staged(ONE_DATABASE, cut).places(DATABASE) in ELSEWHERE


def played(*steps: str, expect: str, more: str = "") -> Played:
    """Two controllers, of which ``leader`` leads at first, and a database on n1."""
    text = f"{ONE_DATABASE}controllers: 2\n{more}steps: [{', '.join(steps)}]\nexpect: {{{expect}}}"
    done = play(load(text.replace("until: 1\n", "until: 200\n")))
    assert done.unmet == ()
    return done


def leaders(done: Played) -> list[str]:
    return [line.who for line in done.timeline if line.what == "leads"]


def removals(done: Played) -> int:
    return sum(line.what.startswith("removes the pod") for line in done.timeline)


@pytest.mark.parametrize("deed", ["mark", "removal"])
def test_a_failover_goes_on_when_the_leader_dies(deed: str) -> None:
    """What the leader had begun and not finished, its successor did not take up."""
    done = played(
        "{at: 5, do: kill, node: n1}",
        f"{{at: 6, do: kill-controller, controller: leader, after: {deed}}}",
        expect="recovered: [db-0]",
    )
    assert len(leaders(done)) == 1, "the second one took over"
    assert removals(done) == 1


def test_a_new_leader_does_not_act_on_what_was_seen_before() -> None:
    """Who did not lead remembered a lost volume for ever, and took it away on coming to power,
    long after its node was back."""
    done = played(
        "{at: 5, do: cut, node: n1}",
        "{at: 100, do: heal, node: n1}",
        "{at: 120, do: kill-controller, controller: leader}",
        expect="untouched: [db-0], taints: [], open: []",
        more="policy: {disarmedFor: 115}\n",
    )
    assert len(leaders(done)) == 1
    assert done.running == {DATABASE: ("n1",)}


# Bystanders


@pytest.fixture(scope="module")
def bystanders() -> Scene:
    """Only what is labelled is to be helped; n1 dies, and with it all kinds of pods."""

    async def happen(scene: Scene) -> None:
        await scene.start("plain")
        await scene.start("labelled", labels=LABEL)
        await scene.start("set", kind="StatefulSet", labels=LABEL)
        await scene.start("bare", kind="Pod", labels=LABEL)
        await scene.start("job", kind="Pod", restartPolicy="Never")
        scene.cluster.nodes["n1"].exit("shop", "job", code=0)
        await asyncio.sleep(10)
        await scene.start("after", claim="job-data", labels=LABEL)
        await scene.start("renamed", claim=await scene.claim("other", of="gold"), labels=LABEL)
        await scene.lose("n1")

    gold = "linstor: {controller: n3, upperCase: true, classes: {gold: {renamed: true}}}"
    return staged(LABELLED_ONLY.replace("linstor: {controller: n3}", gold), happen)


def test_a_workload_without_the_label_keeps_its_attachment(bystanders: Scene) -> None:
    """A volume was detached although nobody had asked for help for any pod that used it."""
    assert "plain-data" in bystanders.attached("n1")
    assert not any(pod.startswith("plain") for pod in bystanders.touched)
    assert bystanders.why("plain")[0] == "NotProtected"


def test_a_pod_that_has_finished_uses_nothing(bystanders: Scene) -> None:
    """A pod that had completed counted as a user of its volume."""
    assert bystanders.places("after") in ELSEWHERE
    assert "job-data" not in bystanders.attached("n1")
    assert "job" not in bystanders.touched


def test_the_label_works_on_any_pod(bystanders: Scene) -> None:
    """Nobody could tell whether it worked on anything but a StatefulSet's."""
    for name in ("labelled", "set"):
        assert bystanders.places(name) in ELSEWHERE
    assert bystanders.why("labelled")[0] == "Replaced", "another pod of its ReplicaSet"
    assert bystanders.why("bare")[0] == "NobodyStartsIt", "it is free for whoever makes another"
    assert bystanders.attached("n1") == {"plain-data"}


def test_a_resource_of_another_name_than_its_volume_is_found(bystanders: Scene) -> None:
    """The resource was taken to be called like the volume."""
    assert bystanders.resource("other") != bystanders.volumes()["other"]
    assert bystanders.places("renamed") in ELSEWHERE


def test_a_shared_volume_is_taken_from_the_lost_node_only() -> None:
    """Of several pods and attachments of one volume the last one seen was taken, wherever it
    was."""

    async def share(scene: Scene) -> None:
        claim = await scene.claim("shared", mode="ReadWriteMany")
        await scene.start("lost", claim=claim, labels=LABEL)
        await scene.start("kept", claim=claim, labels=LABEL, on="n2", only_reads=True)
        await scene.lose("n1", seconds=90)
        code, sentence = scene.why("lost")
        assert code == "ProofMissing"
        assert "two primaries" in sentence
        await scene.cluster.confirm_dead("n1", by="ana", reason="it burned")
        await asyncio.sleep(90)
        assert len(scene.places("lost")) == 1
        assert scene.places("kept") == ["n2"]
        assert {pod.partition("-")[0] for pod in scene.touched} == {"lost"}
        assert scene.attached("n1") == set()
        assert scene.attached("n2") == {claim}

    staged(LABELLED_ONLY, share)


# What was taken for a loss


def test_two_short_windows_are_no_grace() -> None:
    """The state was looked at now and again: two short losses looked like one long one."""

    async def flap(scene: Scene) -> None:
        node = scene.cluster.nodes["n1"]
        for _ in range(3):
            node.cut_off()
            await asyncio.sleep(40)
            node.heal()
            await asyncio.sleep(6)
        assert scene.touched == []
        node.cut_off()
        await asyncio.sleep(FAILED_OVER)
        assert scene.touched == 2 * [DATABASE], "one long one is one"

    staged(ONE_DATABASE, flap)


def test_a_volume_that_nobody_has_opened_yet_is_left_alone() -> None:
    """All replicas of a volume that a slow pod had not opened yet could have been promoted, so it
    was detached from under it."""

    async def wait(scene: Scene) -> None:
        scene.linstor.drbd.demote(scene.resource(DISK), "n1")
        await asyncio.sleep(90)
        scene.cluster.nodes["n1"].kill_kubelet()
        await asyncio.sleep(90)

    scene = staged(ONE_DATABASE, wait)
    assert scene.touched == []
    assert scene.attached("n1") == {DISK}
    assert scene.tainted() == set()


# What LINSTOR was asked


def test_quorum_that_is_switched_on_later_protects_and_that_of_a_group_counts() -> None:
    """Whether a resource had quorum was read once, at the first sight, and from the resource
    alone."""

    async def switch(scene: Scene) -> None:
        late = await scene.claim("late", of="loose")
        await scene.start("late", claim=late, labels=LABEL)
        await scene.start("grouped", claim=await scene.claim("grouped", of="group"), labels=LABEL)
        await scene.lose("n1", seconds=90)
        assert scene.attached("n1") == {"late"}
        assert "quorum is off" in scene.why("late")[1]
        scene.linstor.database.set_property(QUORUM, "majority", resource=scene.resource(late))
        await asyncio.sleep(FAILED_OVER)
        assert scene.places("late") in ELSEWHERE
        assert scene.places("grouped") in ELSEWHERE

    classes = 'classes: {loose: {quorum: "off"}, group: {level: group}}'
    text = LABELLED_ONLY.replace("{controller: n3}", f"{{controller: n3, {classes}}}")
    staged(text, switch)


def test_a_question_that_failed_is_asked_again() -> None:
    """One failed question about a resource, and what had made it worth asking was forgotten."""

    async def fail(scene: Scene) -> None:
        faults = scene.linstor.faults
        faults.trouble, faults.on = Trouble.BROKEN, "/v1/resource-definitions"
        await scene.lose("n1", seconds=60)
        assert scene.touched == []
        faults.trouble = None
        await asyncio.sleep(FAILED_OVER)

    assert staged(ONE_DATABASE, fail).places(DATABASE) in ELSEWHERE


def test_an_error_of_linstor_or_a_watch_ends_nothing() -> None:
    """Any passing error of LINSTOR, or a watch that was too old, ended the process."""

    async def err(scene: Scene) -> None:
        troubles = (What.ERROR_EVENT, What.BROKEN, What.GARBLED, What.HTML, What.BREAKS_OFF)
        for what in troubles:
            scene.happen(what)
            scene.happen(What.CUT_STREAMS)
            await asyncio.sleep(8)
        scene.happen(What.WELL)
        control_plane = scene.cluster.embedded.control_plane
        control_plane.kill(API)
        await asyncio.sleep(2)
        scene.cluster.store.compact()
        control_plane.start(API)
        await asyncio.sleep(30)
        await scene.lose("n1")
        [app] = scene.cluster.apps.values()
        assert app is scene.first, "it is the very same program"
        process = scene.world.processes[scene.cluster.process_of("backstay-1")]
        assert process.state is State.RUNNING

    assert staged(ONE_DATABASE, err).places(DATABASE) in ELSEWHERE


def test_a_satellite_that_is_called_online_and_is_dead_proves_nothing() -> None:
    """LINSTOR alone was believed, which may take a satellite for online long after its death."""

    async def die(scene: Scene) -> None:
        scene.cluster.nodes["n1"].kill()
        await asyncio.sleep(20)
        scene.on_stage.stay_online("n2")
        scene.cluster.nodes["n2"].kill()
        await asyncio.sleep(120)
        code, sentence = scene.why(DATABASE)
        assert code == "ProofMissing"
        assert "n2, whose word it is, has not been heard of lately" in sentence

    scene = staged(ONE_DATABASE.replace("n3]", "n3, n4, n5]", 1), die)
    assert scene.touched == []


# The program itself


def test_two_leaders_are_never_there_and_would_do_no_harm() -> None:
    """One that had lost its lease went on as leader."""
    done = played(
        "{at: 5, do: kill, node: n1}",
        "{at: 6, do: pause-controller, controller: leader, after: taint}",
        "{at: 100, do: resume-controller, controller: leader}",
        "{at: 102, do: delete-lease}",
        expect="recovered: [db-0]",
    )
    assert removals(done) == 1


async def test_an_event_that_repeats_is_counted_and_not_refused() -> None:
    """Events that repeat are patched, which its role did not allow."""
    server = ApiServer(wall=SystemClock(), rng=SystemRng(1))
    account = User("system:serviceaccount:ha-controller:ha-controller")
    guarded = AccessControl(server, {"token": account})
    default = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    for document in [default, *drop_in()]:
        if document["kind"] in ("Namespace", "ClusterRole", "ClusterRoleBinding"):
            await put(server, document)

    async def as_the_account(inbound: Inbound) -> Answer:
        headers = {**inbound.headers, "authorization": "Bearer token"}
        return await guarded.handle(msgspec.structs.replace(inbound, headers=headers))

    network = Network(grace=0.1, keeps_record=False)
    listener = await network.serve.listen(as_the_account)
    client = KubeClient(network.transport, GivenAccess(listener.url, Grant()))
    events = EventRecorder(
        client, component="backstay", instance="ha-1", wall=SystemClock(), rng=SystemRng(1)
    )
    about = ObjectRef(api_version="v1", kind="Node", name="n1")
    async with Tasks("test") as tasks:
        tasks.spawn(events.run(), name="events")
        for _ in range(2):
            events.record(about=about, type="Warning", reason="NodeLost", message="n1 is lost.")
            assert await events.flush(10)
    await listener.close()
    [event] = [each.object for each in server.store.all("events")]
    assert (event["count"], events.sent, events.refused) == (2, 2, 0)


async def put(server: ApiServer, document: Json) -> None:
    group, _, version = document["apiVersion"].rpartition("/")
    [info] = [
        each for each in server.kinds.of_kind(group, document["kind"]) if each.version == version
    ]
    path = info.resource.path(namespace=document["metadata"].get("namespace"))
    body, headers = msgspec.json.encode(document), {"content-type": "application/json"}
    answer = await server.handle(Inbound(method="POST", path=path, headers=headers, body=body))
    assert answer.status == 201, answer.body


def test_it_ends_well_when_it_is_told_to() -> None:
    """SIGTERM made it end with an error, and its lease had to run out."""

    async def end(scene: Scene) -> None:
        first = scene.stage.leader()
        process = scene.world.processes[scene.cluster.process_of(first)]
        process.terminate()
        await asyncio.sleep(3)
        assert process.state is State.ENDED
        assert process.failure is None
        second = scene.stage.leader()
        assert second not in ("", first), "nobody had to wait for the lease to run out"
        await scene.lose("n1")

    assert staged(f"{ONE_DATABASE}controllers: 2\n", end).places(DATABASE) in ELSEWHERE

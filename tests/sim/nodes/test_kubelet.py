"""The rules of a kubelet, one by one, on a clock that the test turns itself."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from backstay.sim.chance import Chance
from backstay.sim.nodes.kubelet import Kubelet, Pace, Report
from backstay.sim.nodes.runtime import Mount, Runtime
from backstay.sim.nodes.truth import Truth, What
from backstay.sim.nodes.wire import Json, Pod


class StillClock:
    def now(self) -> datetime:
        return datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class World:
    """One machine, its kubelet, and an API that is nothing but a few objects."""

    def __init__(self, **pace: float) -> None:
        self.now = 100.0
        self.truth = Truth(lambda: self.now)
        self.runtime = Runtime("n1", truth=self.truth, wall=StillClock(), rng=Chance(1, "boots"))
        self.pace = Pace(**pace)  # type: ignore[arg-type] # the tests give floats only
        self.objects: dict[str, Json] = {}
        self.deletions: list[str] = []
        self.version = 0
        self.boot()

    def boot(self) -> None:
        self.runtime.power_on()
        self.new_kubelet()

    def new_kubelet(self) -> None:
        self.kubelet = Kubelet(
            self.runtime, pace=self.pace, wall=StillClock(), host_ip="10.0.0.1", pod_subnet="10.1.1"
        )

    def create(self, uid: str, name: str = "web", **spec: Any) -> None:
        """Somebody makes a pod; the kubelet does not know of it yet."""
        self.objects[uid] = {
            "metadata": {"uid": uid, "name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "main", "image": "i"}]} | spec,
            "status": {"phase": "Pending"},
        }

    def mark_deleted(self, uid: str, grace: int = 30) -> None:
        meta = self.objects[uid]["metadata"]
        meta["deletionTimestamp"] = "2026-01-02T03:04:05Z"
        meta["deletionGracePeriodSeconds"] = grace

    def tell(self, uid: str) -> None:
        """The kubelet sees the object as it is."""
        self.kubelet.saw(self.pod(uid), self.now)
        self.kubelet.advance(self.now)

    def pod(self, uid: str) -> Pod:
        self.version += 1
        self.objects[uid]["metadata"]["resourceVersion"] = str(self.version)
        return msgspec.convert(msgspec.json.decode(msgspec.json.encode(self.objects[uid])), Pod)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.kubelet.advance(self.now)

    def deliver(self) -> list[Report]:
        """The API hears everything that the kubelet has to say."""
        reports = self.kubelet.reports()
        for report in reports:
            if report.status is not None:
                self.status(report.pod.uid).update(report.status)
                self.tell(report.pod.uid)
            if report.delete:
                self.deletions.append(report.pod.uid)
                self.kubelet.deleted(report)
        return reports

    def status(self, uid: str) -> Json:
        status: Json = self.objects[uid]["status"]
        return status

    def condition(self, uid: str, kind: str) -> str:
        conditions = self.status(uid)["conditions"]
        return next(str(each["status"]) for each in conditions if each["type"] == kind)

    @property
    def running(self) -> list[str]:
        return [each.uid for each in self.truth.running()]

    @property
    def history(self) -> list[tuple[What, str]]:
        return [(entry.what, entry.why) for entry in self.truth.log]


def running_world(uid: str = "u1", *, stop: float = 0.0, **spec: Any) -> World:
    """A world in which one pod runs and the API knows."""
    world = World(stop=stop)
    world.create(uid, **spec)
    world.tell(uid)
    world.deliver()
    assert world.running == [uid]
    return world


def test_a_pod_is_started_and_the_api_told_that_it_is_ready() -> None:
    world = running_world()
    assert world.status("u1")["phase"] == "Running"
    assert world.condition("u1", "Ready") == "True"
    assert "running" in world.status("u1")["containerStatuses"][0]["state"]
    assert world.status("u1")["podIP"].startswith("10.1.1.")


def test_what_the_api_knows_already_is_not_said_again() -> None:
    world = running_world()
    world.tell("u1")
    world.wait(1000)
    assert world.deliver() == []


def test_a_pod_that_takes_time_to_start_is_pending_meanwhile() -> None:
    world = World(start=5)
    world.create("u1")
    world.tell("u1")
    world.deliver()
    assert world.running == []
    assert world.status("u1")["phase"] == "Pending"
    world.wait(5)
    assert world.running == ["u1"]


def test_a_pod_that_is_marked_for_deletion_is_never_started_but_reported_and_deleted() -> None:
    world = World()
    world.create("u1")
    world.mark_deleted("u1")
    world.tell("u1")
    world.deliver()
    world.wait(1000)
    assert world.history == [(What.REFUSED, "it is marked for deletion")]
    assert world.status("u1")["phase"] == "Failed"
    assert world.deletions == ["u1"]


def test_a_mark_that_comes_while_it_starts_still_keeps_it_from_starting() -> None:
    world = World(start=5)
    world.create("u1")
    world.tell("u1")
    world.mark_deleted("u1")
    world.tell("u1")
    world.wait(1000)
    assert world.history == [(What.REFUSED, "it is marked for deletion")]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_in_a_final_phase_is_not_started(phase: str) -> None:
    world = World()
    world.create("u1")
    world.status("u1")["phase"] = phase
    world.tell("u1")
    world.wait(1000)
    assert world.history == [(What.REFUSED, f"its phase is {phase}")]


def test_a_deleted_pod_runs_until_it_has_stopped_and_only_then_its_object_goes() -> None:
    world = running_world(stop=3)
    world.mark_deleted("u1", grace=30)
    world.tell("u1")
    world.deliver()
    assert (world.running, world.deletions) == (["u1"], [])
    world.wait(3)
    assert world.running == []
    world.deliver()
    assert world.status("u1")["phase"] == "Succeeded"
    assert world.deletions == ["u1"]


def test_a_pod_that_outlasts_its_grace_period_is_killed() -> None:
    world = running_world(stop=60)
    world.mark_deleted("u1", grace=10)
    world.tell("u1")
    world.wait(10)
    world.deliver()
    assert world.running == []
    terminated = world.status("u1")["containerStatuses"][0]["state"]["terminated"]
    assert terminated["exitCode"] == 137
    assert world.status("u1")["phase"] == "Failed"


def test_a_grace_period_can_be_shortened_but_not_prolonged() -> None:
    world = running_world(stop=60)
    world.mark_deleted("u1", grace=20)
    world.tell("u1")
    world.wait(1)
    world.mark_deleted("u1", grace=5)
    world.tell("u1")
    world.mark_deleted("u1", grace=50)
    world.tell("u1")
    world.wait(3)
    assert world.running == ["u1"]
    world.wait(1)
    assert world.running == []


def test_a_pod_that_vanished_from_the_api_is_stopped_with_its_own_grace_period() -> None:
    world = running_world(stop=60, terminationGracePeriodSeconds=7)
    world.kubelet.lost("u1", world.now)
    world.wait(6)
    assert world.running == ["u1"]
    world.wait(1)
    assert world.running == []
    assert world.deliver() == []


def test_a_running_pod_that_others_declared_failed_is_ended() -> None:
    world = running_world()
    world.status("u1")["phase"] = "Failed"
    world.tell("u1")
    assert world.running == []
    world.deliver()
    assert world.status("u1")["phase"] == "Failed"


def test_ready_comes_back_after_somebody_took_it_away() -> None:
    world = running_world()
    for condition in world.status("u1")["conditions"]:
        if condition["type"] == "Ready":
            condition["status"] = "False"
    world.tell("u1")
    world.deliver()
    assert world.condition("u1", "Ready") == "True"


def test_a_watch_that_lags_behind_our_own_write_changes_nothing() -> None:
    world = World()
    world.create("u1")
    before = world.pod("u1")
    world.kubelet.saw(before, world.now)
    world.kubelet.advance(world.now)
    world.deliver()
    world.kubelet.saw(before, world.now)
    assert world.deliver() == []


def test_a_report_that_was_not_delivered_is_made_again() -> None:
    world = World()
    world.create("u1")
    world.tell("u1")
    assert len(world.kubelet.reports()) == 1
    assert len(world.deliver()) == 1


def test_a_report_on_a_pod_that_the_api_does_not_know_is_not_repeated() -> None:
    world = World()
    world.create("u1")
    world.tell("u1")
    for report in world.kubelet.reports():
        world.kubelet.unwanted(report)
    assert world.kubelet.reports() == []


def test_a_deletion_is_not_repeated_while_a_finalizer_holds_the_object() -> None:
    world = running_world()
    world.mark_deleted("u1")
    world.tell("u1")
    world.deliver()
    world.tell("u1")
    world.deliver()
    assert world.deletions == ["u1"]


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [
        ("Always", 0, True),
        ("Always", 1, True),
        ("OnFailure", 0, False),
        ("OnFailure", 1, True),
        ("Never", 0, False),
        ("Never", 1, False),
    ],
)
def test_the_restart_policy_decides_what_follows_an_exit(
    policy: str, code: int, again: bool
) -> None:
    world = running_world(restartPolicy=policy)
    world.runtime.stop("u1", code=code, reason="", why="exited")
    assert world.running == []
    world.wait(0)
    world.deliver()
    assert world.running == (["u1"] if again else [])
    ended = "Failed" if code else "Succeeded"
    assert world.status("u1")["phase"] == ("Running" if again else ended)
    assert world.status("u1")["containerStatuses"][0]["restartCount"] == (1 if again else 0)


def test_after_a_power_loss_a_pod_starts_again_and_says_what_ended_it() -> None:
    world = running_world()
    world.runtime.lose_power()
    assert world.running == []
    world.boot()
    world.tell("u1")
    world.deliver()
    assert world.running == ["u1"]
    status = world.status("u1")["containerStatuses"][0]
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 255
    assert [boot for boot in {entry.boot for entry in world.truth.log} if not boot] == []


def test_after_a_power_loss_a_pod_that_never_restarts_has_failed() -> None:
    world = running_world(restartPolicy="Never")
    world.runtime.lose_power()
    world.boot()
    world.tell("u1")
    world.deliver()
    assert world.running == []
    assert world.status("u1")["phase"] == "Failed"


def test_after_a_power_loss_a_pod_that_was_marked_meanwhile_does_not_come_back() -> None:
    world = running_world()
    world.runtime.lose_power()
    world.mark_deleted("u1")
    world.boot()
    world.tell("u1")
    world.deliver()
    assert world.running == []
    assert world.deletions == ["u1"]


def test_a_kubelet_that_stood_still_first_does_what_it_had_in_mind() -> None:
    world = World(start=5)
    world.create("u1")
    world.tell("u1")
    # Frozen for an hour, in which the pod was deleted: nobody calls the kubelet.
    world.wait(3600)
    assert world.running == ["u1"]
    world.kubelet.lost("u1", world.now)
    world.wait(0)
    assert world.running == []


def test_two_pods_of_one_name_run_side_by_side() -> None:
    world = running_world("u1")
    world.create("u2")
    world.tell("u2")
    assert world.truth.copies("default", "web") == ["n1", "n1"]
    assert world.truth.most_copies("default", "web") == 2


def test_init_containers_are_reported_as_completed_and_sidecars_as_running() -> None:
    world = running_world(
        initContainers=[{"name": "prepare"}, {"name": "sidecar", "restartPolicy": "Always"}]
    )
    prepare, sidecar = world.status("u1")["initContainerStatuses"]
    assert prepare["state"]["terminated"]["exitCode"] == 0
    assert "running" in sidecar["state"]


# Volumes

DISK = Mount("pv-1", "kubernetes.io/csi/csi.example^1", writable=True)
PAPERS = Mount("pv-2", "kubernetes.io/csi/csi.example^2", writable=False)


def world_with_claim() -> World:
    world = World()
    claim = {"claimName": "disk"}
    world.create("u1", volumes=[{"name": "data", "persistentVolumeClaim": claim}])
    world.tell("u1")
    return world


def test_a_pod_with_claims_waits_until_its_volumes_are_there() -> None:
    world = world_with_claim()
    world.wait(1000)
    assert world.running == []
    assert [pod.uid for pod in world.kubelet.unprepared()] == ["u1"]
    world.kubelet.resolved("u1", (DISK,))
    world.wait(1000)
    assert world.running == []
    world.kubelet.mounted("u1", world.now)
    world.wait(0)
    assert world.running == ["u1"]
    assert world.kubelet.unprepared() == []


def test_only_what_may_be_written_to_makes_a_writer() -> None:
    world = world_with_claim()
    world.kubelet.resolved("u1", (DISK, PAPERS))
    world.kubelet.mounted("u1", world.now)
    world.wait(0)
    assert [run.uid for run in world.truth.writers("pv-1")] == ["u1"]
    assert world.truth.writers("pv-2") == []


def test_a_volume_is_in_use_from_before_it_is_mounted_until_its_pod_has_ended() -> None:
    world = world_with_claim()
    assert world.kubelet.in_use == []
    world.kubelet.resolved("u1", (DISK,))
    assert world.kubelet.in_use == [DISK.device]
    world.kubelet.mounted("u1", world.now)
    world.wait(0)
    world.deliver()
    assert world.kubelet.in_use == [DISK.device]
    world.mark_deleted("u1")
    world.tell("u1")
    world.wait(0)
    assert world.running == []
    assert world.kubelet.in_use == []


def test_a_pod_that_is_deleted_while_it_waits_for_volumes_is_never_started() -> None:
    world = world_with_claim()
    world.kubelet.resolved("u1", (DISK,))
    world.mark_deleted("u1")
    world.tell("u1")
    world.kubelet.mounted("u1", world.now)
    world.wait(1000)
    assert world.running == []
    assert world.kubelet.in_use == []


def test_after_a_loss_of_power_volumes_have_to_be_there_again() -> None:
    world = world_with_claim()
    world.kubelet.resolved("u1", (DISK,))
    world.kubelet.mounted("u1", world.now)
    world.wait(0)
    world.runtime.lose_power()
    world.boot()
    world.tell("u1")
    world.wait(1000)
    assert world.running == []


# Another kubelet of the same boot


def test_a_new_kubelet_takes_over_what_runs() -> None:
    world = running_world()
    address = world.status("u1")["podIP"]
    world.new_kubelet()
    world.create("u2", name="other")
    world.tell("u2")
    world.tell("u1")
    world.deliver()
    assert world.status("u1")["podIP"] == address
    assert world.history == [(What.STARTED, "started")] * 2
    world.mark_deleted("u1")
    world.tell("u1")
    world.wait(0)
    assert world.running == ["u2"]


def test_a_new_kubelet_knows_which_volumes_are_in_use() -> None:
    world = world_with_claim()
    world.kubelet.resolved("u1", (DISK,))
    world.kubelet.mounted("u1", world.now)
    world.wait(0)
    world.new_kubelet()
    world.tell("u1")
    assert world.kubelet.in_use == [DISK.device]


def test_a_new_kubelet_ends_what_the_api_no_longer_has() -> None:
    world = running_world()
    world.new_kubelet()
    world.kubelet.take_over(lambda uid: True, world.now)
    world.wait(0)
    assert world.running == ["u1"]
    world.kubelet.take_over(lambda uid: False, world.now)
    world.wait(0)
    assert world.running == []
    assert world.deliver() == []

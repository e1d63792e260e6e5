"""What becomes of each pod of a node, and what the answers to evictions mean."""

from datetime import UTC, datetime

import pytest

from backstay.decide.drain import answer_of, plan
from backstay.model.drain import (
    MAINTENANCE_OPTIONS,
    BudgetSight,
    DaemonSight,
    DrainOptions,
    Fate,
    GuestSight,
    Plan,
    Planned,
    PodSight,
    Refusal,
    Verdict,
)
from backstay.model.policy import Requirement

NOW = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)
REPLICA_SET = ("apps", "ReplicaSet", "web-1", "u-rs")
DAEMON_SET = ("apps", "DaemonSet", "agent", "u-ds")
GUEST = ("kubevirt.io", "VirtualMachineInstance", "vm", "u-vmi")
PLAIN = DrainOptions()
ALL = DrainOptions(force=True, ignore_daemonsets=True, delete_emptydir=True)


def pod(name: str = "web", **what: object) -> PodSight:
    about: dict[str, object] = {
        "key": f"ns/{name}", "uid": f"u-{name}", "version": "1", "namespace": "ns", "name": name,
        "node": "n1", "phase": "Running", "ready": True, "owner": REPLICA_SET,
        "labels": {"app": "web"},
    }  # fmt: skip
    return PodSight(**{**about, **what})  # type: ignore[arg-type]


def budget(name: str = "web", **what: object) -> BudgetSight:
    about: dict[str, object] = {
        "key": f"ns/{name}", "uid": f"u-{name}", "version": "1", "namespace": "ns",
        "selector": (Requirement("app", "In", ("web",)),),
    }  # fmt: skip
    return BudgetSight(**{**about, **what})  # type: ignore[arg-type]


def guest(strategy: str, **what: object) -> GuestSight:
    about: dict[str, object] = {
        "key": "ns/vm", "uid": "u-vmi", "version": "1", "node": "n1", "phase": "Running",
        "strategy": strategy, "migratable": True,
    }  # fmt: skip
    return GuestSight(**{**about, **what})  # type: ignore[arg-type]


def planned(one: PodSight, options: DrainOptions = PLAIN, **more: object) -> Planned:
    (found,) = plan("n1", [one], options=options, **more).planned  # type: ignore[arg-type]
    return found


def fate(one: PodSight, options: DrainOptions = PLAIN, **more: object) -> tuple[Fate, str]:
    found = planned(one, options, **more)
    return found.fate, found.why.code


# What kubectl drain asks


@pytest.mark.parametrize(
    ("one", "options", "expected"),
    [
        (pod(), PLAIN, (Fate.EVICT, "WillBeEvicted")),
        (pod(owner=DAEMON_SET), PLAIN, (Fate.BLOCKED, "DaemonSetRefused")),
        (pod(owner=DAEMON_SET), ALL, (Fate.SKIP, "DaemonSetPod")),
        (pod(owner=DAEMON_SET, phase="Failed"), PLAIN, (Fate.EVICT, "WillBeEvicted")),
        (pod(mirror=True, owner=None), PLAIN, (Fate.SKIP, "StaticPod")),
        (pod(mirror=True, empty_dirs=("tmp",)), PLAIN, (Fate.SKIP, "StaticPod")),
        (pod(empty_dirs=("tmp",)), PLAIN, (Fate.BLOCKED, "LocalDataRefused")),
        (pod(empty_dirs=("tmp",)), ALL, (Fate.EVICT, "WillBeEvicted")),
        (pod(empty_dirs=("tmp",), phase="Succeeded"), PLAIN, (Fate.EVICT, "WillBeEvicted")),
        (pod(owner=None), PLAIN, (Fate.BLOCKED, "UnmanagedRefused")),
        (pod(owner=None), ALL, (Fate.EVICT, "WillBeEvicted")),
        (pod(owner=None, phase="Failed"), PLAIN, (Fate.EVICT, "WillBeEvicted")),
        (pod(terminating="2030-01-01T11:59:00Z"), PLAIN, (Fate.GONE, "LeavesAlready")),
    ],
)
def test_a_pod_meets_the_fate_that_kubectl_drain_has_for_it(
    one: PodSight, options: DrainOptions, expected: tuple[Fate, str]
) -> None:
    assert fate(one, options) == expected


@pytest.mark.parametrize(
    ("found", "options", "expected"),
    [
        (DaemonSight(False), PLAIN, (Fate.BLOCKED, "DaemonSetGone")),
        (DaemonSight(False), ALL, (Fate.EVICT, "WillBeEvicted")),
        (DaemonSight(None, "no right"), ALL, (Fate.BLOCKED, "DaemonSetUnknown")),
    ],
)
def test_a_daemon_set_that_is_gone_keeps_its_pods_only_without_force(
    found: DaemonSight, options: DrainOptions, expected: tuple[Fate, str]
) -> None:
    assert fate(pod(owner=DAEMON_SET), options, daemons={"ns/agent": found}) == expected


def test_what_the_options_do_not_allow_refuses_the_whole_drain() -> None:
    found = plan("n1", [pod("a"), pod("b", owner=None)], options=PLAIN)
    assert [each.pod.name for each in found.refused] == ["b"]


@pytest.mark.parametrize(("seconds", "expected"), [(30.0, Fate.SKIP), (90.0, Fate.GONE)])
def test_who_ends_for_too_long_is_not_waited_for_if_that_is_asked(
    seconds: float, expected: Fate
) -> None:
    options = DrainOptions(skip_wait_after=seconds)
    ending = pod(terminating="2030-01-01T11:59:00Z")
    assert fate(ending, options, now=NOW)[0] is expected


def test_pods_of_other_nodes_are_nobodys_business() -> None:
    assert plan("n1", [pod(node="n2")], options=ALL).planned == ()


# What the API will answer


@pytest.mark.parametrize(
    ("sight", "expected"),
    [
        (guest("LiveMigrate"), (Fate.MIGRATE, "WillBeMigrated")),
        (guest("LiveMigrate", migratable=False), (Fate.BLOCKED, "NotLiveMigratable")),
        (guest("LiveMigrate", migratable=None), (Fate.BLOCKED, "NotLiveMigratable")),
        (guest("LiveMigrateIfPossible"), (Fate.MIGRATE, "WillBeMigrated")),
        (guest("LiveMigrateIfPossible", migratable=False), (Fate.SHUTDOWN, "WillBeRestarted")),
        (guest("External"), (Fate.MIGRATE, "WillBeMovedByOthers")),
        (guest("None"), (Fate.SHUTDOWN, "WillBeRestarted")),
        (guest(""), (Fate.SHUTDOWN, "WillBeRestarted")),
        (guest("LiveMigrate", node="n2"), (Fate.MIGRATE, "IncomingMigration")),
    ],
)
def test_what_becomes_of_a_guest_is_a_matter_of_its_strategy(
    sight: GuestSight, expected: tuple[Fate, str]
) -> None:
    assert fate(pod(owner=GUEST), ALL, guests={"ns/vm": sight}) == expected


def test_without_evictions_a_guest_is_shut_down_whatever_it_says() -> None:
    options = DrainOptions(force=True, disable_eviction=True)
    found = fate(pod(owner=GUEST), options, guests={"ns/vm": guest("LiveMigrate")})
    assert found == (Fate.SHUTDOWN, "WillBeRestarted")


def test_the_launcher_that_a_guest_has_left_is_evicted() -> None:
    left = pod(owner=GUEST, phase="Succeeded")
    sight = {"ns/vm": guest("LiveMigrate", node="n2")}
    assert fate(left, ALL, guests=sight) == (Fate.EVICT, "WillBeEvicted")


def test_plugged_volumes_go_with_their_guest_and_are_not_asked() -> None:
    launcher = pod("launcher", owner=GUEST)
    plugged = pod("hp", owner=("", "Pod", "launcher", "u-launcher"), plugs=True)
    found = {each.pod.name: each for each in plan("n1", [launcher, plugged], options=ALL).planned}
    assert (found["hp"].why.code, found["hp"].asked) == ("GoesWithItsGuest", False)
    alone = planned(plugged, ALL)
    assert (alone.fate, alone.asked) == (Fate.EVICT, True)


@pytest.mark.parametrize(
    ("one", "sight", "expected"),
    [
        (pod(), budget(allowed=1), "WillBeEvicted"),
        (pod(), budget(allowed=0, desired=3, healthy=3), "BudgetExhausted"),
        (pod(), budget(allowed=1, counted=False), "BudgetUncounted"),
        (pod(phase="Pending"), budget(allowed=0), "WillBeEvicted"),
        (pod(phase="Failed"), budget(allowed=0), "WillBeEvicted"),
        (pod(ready=False), budget(allowed=0, desired=2, healthy=2), "WillBeEvicted"),
        (pod(ready=False), budget(allowed=0, desired=2, healthy=1), "BudgetExhausted"),
        (pod(ready=False), budget(allowed=0, desired=2, unhealthy_may_go=True), "WillBeEvicted"),
        (pod(), budget(selector=None), "WillBeEvicted"),
        (pod(), budget(selector=()), "BudgetExhausted"),
        (pod(), budget(namespace="other"), "WillBeEvicted"),
        (pod(labels={"app": "db"}), budget(), "WillBeEvicted"),
    ],
)
def test_a_budget_has_its_say(one: PodSight, sight: BudgetSight, expected: str) -> None:
    assert planned(one, budgets=[sight]).why.code == expected


def test_two_budgets_are_one_too_many() -> None:
    found = planned(pod(), budgets=[budget(allowed=1), budget("all", selector=(), allowed=1)])
    assert found.why.code == "TwoBudgets"
    assert "ns/all, ns/web" in found.why.sentence


def test_a_budget_does_not_count_where_evictions_are_disabled() -> None:
    options = DrainOptions(disable_eviction=True)
    assert fate(pod(), options, budgets=[budget()]) == (Fate.EVICT, "WillBeEvicted")


def test_guests_are_asked_first_and_what_stays_comes_last() -> None:
    pods = [pod("z"), pod("agent", owner=DAEMON_SET), pod("vm", owner=GUEST)]
    found = plan("n1", pods, options=ALL, guests={"ns/vm": guest("LiveMigrate")})
    assert [each.pod.name for each in found.planned] == ["vm", "z", "agent"]


def seconds(found: Plan) -> float:
    return found.seconds


def test_the_estimate_counts_rounds_of_a_budget_and_pairs_of_guests() -> None:
    pods = [pod(str(n), grace=10) for n in range(4)]
    assert seconds(plan("n1", pods, options=ALL)) == 10
    assert seconds(plan("n1", pods, options=ALL, budgets=[budget(allowed=2)])) == 50
    # One that lets nobody go at present is taken to let them go one by one.
    assert seconds(plan("n1", pods, options=ALL, budgets=[budget(allowed=0)])) == 130
    guests = {f"ns/vm{n}": guest("LiveMigrate", key=f"ns/vm{n}") for n in range(3)}
    launchers = [pod(f"vm{n}", owner=(*GUEST[:2], f"vm{n}", "")) for n in range(3)]
    assert seconds(plan("n1", launchers, options=ALL, guests=guests)) == 120


def test_the_options_of_a_maintenance_are_those_of_the_node_maintenance_operator() -> None:
    assert (MAINTENANCE_OPTIONS.force, MAINTENANCE_OPTIONS.delete_emptydir) == (True, True)
    assert (MAINTENANCE_OPTIONS.ignore_daemonsets, MAINTENANCE_OPTIONS.grace) == (True, -1)
    assert not MAINTENANCE_OPTIONS.disable_eviction


# What the API has answered

LAUNCHERS = 'admission webhook "virt-launcher-eviction-interceptor.kubevirt.io" denied the request:'
PLUGGED = 'admission webhook "hotplug-pod-eviction-interceptor.kubevirt.io" denied the request:'
NO = "Cannot evict pod as it would violate the pod's disruption budget."


def by_budget(said: str) -> Refusal:
    return Refusal(
        status=429,
        reason="TooManyRequests",
        message=NO,
        causes=(("DisruptionBudget", f"The disruption budget {said}"),),
    )


@pytest.mark.parametrize(
    ("refusal", "verdict", "code"),
    [
        (Refusal(status=404), Verdict.GONE, ""),
        (
            Refusal(status=409, message="the UID in the precondition (a) does not match"),
            Verdict.GONE,
            "EvictionUnanswered",
        ),
        (Refusal(status=409, message="try again"), Verdict.LATER, "EvictionUnanswered"),
        (by_budget("web needs 3 healthy pods and has 3"), Verdict.BUDGET, "BudgetExhausted"),
        (
            by_budget("web is still being processed by the server."),
            Verdict.BUDGET,
            "BudgetUncounted",
        ),
        (
            Refusal(status=429, message=f'{LAUNCHERS} Eviction triggered evacuation of VMI "a/b"'),
            Verdict.MOVING,
            "",
        ),
        (
            Refusal(status=429, message=f"{LAUNCHERS} Evacuation in progress: Eviction triggered"),
            Verdict.MOVING,
            "",
        ),
        (
            Refusal(
                status=429,
                message=f"{LAUNCHERS} VMI b is configured with an eviction strategy but is not "
                "live-migratable",
            ),
            Verdict.STUCK,
            "NotLiveMigratable",
        ),
        (
            Refusal(status=429, message=f"{LAUNCHERS} Eviction request for target Pod"),
            Verdict.MOVING,
            "",
        ),
        (
            Refusal(status=429, message=f"{PLUGGED} cannot evict hotplug pod: hp-1"),
            Verdict.MOVING,
            "",
        ),
        (
            Refusal(
                status=429,
                message='admission webhook "pods.example.org" denied the request: Eviction '
                "triggered evacuation of nobody",
            ),
            Verdict.STUCK,
            "EvictionDenied",
        ),
        (Refusal(status=429, message="slow down"), Verdict.LATER, "EvictionUnanswered"),
        (
            Refusal(status=403, causes=(("NamespaceTerminating", "ns is going"),)),
            Verdict.STUCK,
            "NamespaceGoing",
        ),
        (Refusal(status=403, message="no right"), Verdict.STUCK, "EvictionForbidden"),
        (
            Refusal(status=500, message="This pod has more than one PodDisruptionBudget, which"),
            Verdict.STUCK,
            "TwoBudgets",
        ),
        (Refusal(status=500, message="etcd is gone"), Verdict.LATER, "EvictionUnanswered"),
        (Refusal(status=422, message="invalid"), Verdict.STUCK, "EvictionDenied"),
        (Refusal(status=0, message="nobody answers"), Verdict.LATER, "EvictionUnanswered"),
    ],
)
def test_an_answer_is_progress_or_a_budget_or_in_the_way(
    refusal: Refusal, verdict: Verdict, code: str
) -> None:
    answer = answer_of(refusal, pod(owner=GUEST))
    assert answer.verdict is verdict
    assert (answer.why.code if answer.why is not None else "") == code


def test_only_the_first_answer_of_an_evacuation_says_that_we_have_caused_it() -> None:
    triggered = Refusal(status=429, message=f"{LAUNCHERS} Eviction triggered evacuation of VMI")
    under_way = Refusal(status=429, message=f"{LAUNCHERS} Evacuation in progress: Eviction trig")
    assert answer_of(triggered, pod(owner=GUEST)).caused
    assert not answer_of(under_way, pod(owner=GUEST)).caused


def test_a_budget_that_refuses_is_known_by_its_name() -> None:
    answer = answer_of(by_budget("web needs 3 healthy pods and has 3 currently"), pod())
    assert answer.budget == "ns/web"
    assert answer.why is not None
    assert "needs 3 healthy pods and has 3 currently" in answer.why.sentence


def test_the_budget_by_which_kubevirt_protects_a_guest_is_progress() -> None:
    refusal = by_budget("kubevirt-disruption-budget-x7 needs 2 healthy pods and has 1")
    assert answer_of(refusal, pod(owner=GUEST)).verdict is Verdict.MOVING
    assert answer_of(refusal, pod()).verdict is Verdict.BUDGET


def test_a_server_that_asks_for_time_is_given_it() -> None:
    answer = answer_of(Refusal(status=429, message="busy", retry_after=17.0), pod())
    assert answer.again == 17.0


def test_what_others_write_at_length_is_cut() -> None:
    answer = answer_of(Refusal(status=422, message="x" * 5000), pod())
    assert answer.why is not None
    assert len(answer.why.sentence) < 500

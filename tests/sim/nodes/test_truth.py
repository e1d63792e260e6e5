"""What really runs, and who can write."""

from backstay.sim.nodes.truth import Entry, Truth, What


def start(truth: Truth, node: str, name: str = "db-0", *volumes: str) -> None:
    record(truth, What.STARTED, node, name, *volumes)


def stop(truth: Truth, node: str, name: str = "db-0") -> None:
    record(truth, What.STOPPED, node, name)


def record(truth: Truth, what: What, node: str, name: str, *volumes: str) -> None:
    uid = f"{name}@{node}"
    truth.record(
        what, node=node, boot="b", uid=uid, namespace="default", name=name, why="", volumes=volumes
    )


def writers(truth: Truth, volume: str = "disk") -> list[str]:
    return sorted(run.node for run in truth.writers(volume))


def a_truth() -> Truth:
    return Truth(lambda: 1.0)


def test_whoever_runs_with_a_volume_can_write_to_it() -> None:
    truth = a_truth()
    start(truth, "n1", "db-0", "disk")
    start(truth, "n2", "web-0", "other")
    assert writers(truth) == ["n1"]
    stop(truth, "n1")
    assert writers(truth) == []


def test_two_that_run_with_one_volume_can_both_write() -> None:
    truth = a_truth()
    start(truth, "n1", "db-0", "disk")
    start(truth, "n2", "db-0", "disk")
    assert writers(truth) == ["n1", "n2"]


def test_a_node_that_the_storage_refuses_cannot_write_whatever_it_starts() -> None:
    truth = a_truth()
    start(truth, "n1", "db-0", "disk", "log")
    truth.bar("n1", ["disk"], why="fenced")
    assert (writers(truth), writers(truth, "log")) == ([], ["n1"])
    stop(truth, "n1")
    start(truth, "n1", "db-0", "disk")
    assert writers(truth) == []
    truth.admit("n1", ["disk"], why="unfenced")
    assert writers(truth) == ["n1"]


def test_one_that_is_held_back_runs_and_does_not_write() -> None:
    truth = a_truth()
    start(truth, "n1", "vm", "disk")
    start(truth, "n2", "vm", "disk")
    truth.hold_back("n2", "vm@n2", why="the guest is not here yet")
    assert writers(truth) == ["n1"]
    truth.hold_back("n1", "vm@n1", why="the guest has left")
    truth.let_write("n2", "vm@n2", why="the guest is here")
    assert writers(truth) == ["n2"]
    assert truth.copies("default", "vm") == ["n1", "n2"]


def test_a_pod_that_is_started_anew_is_no_longer_held_back() -> None:
    truth = a_truth()
    start(truth, "n1", "vm", "disk")
    truth.hold_back("n1", "vm@n1", why="")
    stop(truth, "n1", "vm")
    start(truth, "n1", "vm", "disk")
    assert writers(truth) == ["n1"]


def test_followers_are_called_when_it_is_already_true_and_not_after_they_left() -> None:
    truth = a_truth()
    seen: list[tuple[What, list[str]]] = []
    release = truth.follow(lambda entry: seen.append((entry.what, writers(truth))))
    start(truth, "n1", "db-0", "disk")
    truth.bar("n1", ["disk"], why="fenced")
    release()
    stop(truth, "n1")
    assert seen == [(What.STARTED, ["n1"]), (What.BARRED, [])]


def test_the_log_tells_everything_in_order() -> None:
    truth = a_truth()
    start(truth, "n1", "db-0", "disk")
    truth.hold_back("n1", "db-0@n1", why="migrating")
    truth.bar("n1", ["disk"], why="fenced")
    assert truth.log[1:] == [
        Entry(1.0, "n1", "b", "db-0@n1", "default", "db-0", What.HELD_BACK, "migrating", ("disk",)),
        Entry(1.0, "n1", "", "", "", "", What.BARRED, "fenced", ("disk",)),
    ]

"""``backstay incidents``: the table, one incident in full, and what the exit code says."""

import json
from pathlib import Path
from typing import Any

from tests.support.small_cluster import SmallCluster, small_cluster

PATH = "/apis/backstay.dev/v1alpha1/incidents"

STATUS = {
    "state": "Lost",
    "code": "NodeLost",
    "sentence": "n1 is lost: no sign of life for 41 s.",
    "mode": "Armed",
    "openedAt": "2030-01-01T00:00:00Z",
    "held": 1,
    "recovered": 2,
    "evidence": [
        {"kind": "OperatorConfirmed", "source": "carla", "detail": "pulled the plug", "at": "x"}
    ],
    "workloads": [
        {
            "workload": "VirtualMachine/shop/web", "progress": "Held", "code": "ProofMissing",
            "sentence": "VM shop/web is held.", "next": "backstay confirm-dead n1",
        }
    ],
    "timeline": [
        {"at": "2030-01-01T00:00:00Z", "code": "NodeSuspect", "sentence": "n1 is silent."},
        {"at": "2030-01-01T00:00:18Z", "code": "NodeLost", "sentence": "n1 is lost."},
        {"at": "some day", "code": "Odd", "sentence": "A moment that nobody can read."},
    ],
}  # fmt: skip


async def incident(cluster: SmallCluster, name: str, **status: Any) -> None:
    await cluster.put({
        "apiVersion": "backstay.dev/v1alpha1", "kind": "Incident", "metadata": {"name": name},
        "spec": {"node": "n1", "nodeUID": "u", "bootID": "b"},
    })  # fmt: skip
    await cluster.change(f"{PATH}/{name}/status", {"status": STATUS | status})


async def test_open_incidents_are_listed_and_held_workloads_set_the_exit_code(
    cluster: SmallCluster,
) -> None:
    await incident(cluster, "n1-a")
    await incident(cluster, "n1-b", closedAt="2030-01-01T01:00:00Z")
    said = await cluster.run("viewer", "incidents")
    assert said.code == 2
    assert "n1-a" in said.out
    assert "n1-b" not in said.out
    assert max(map(len, said.out.splitlines())) <= 100
    assert "NEXT: backstay incidents show n1-a" in said.err


async def test_those_that_are_over_are_listed_on_demand_and_hold_nothing(
    cluster: SmallCluster,
) -> None:
    await incident(cluster, "n1-b", closedAt="2030-01-01T01:00:00Z")
    said = await cluster.run("viewer", "incidents")
    assert (said.code, said.out) == (0, "No incident is open.\n")
    assert "NEXT: backstay incidents --all" in said.err
    said = await cluster.run("viewer", "incidents", "--all")
    assert said.code == 0
    assert "n1-b" in said.out


async def test_one_incident_is_told_with_the_seconds_of_each_stage(cluster: SmallCluster) -> None:
    await incident(cluster, "n1-a")
    said = await cluster.run("viewer", "incidents", "show", "n1-a")
    assert said.code == 2
    for words in ("+18 s", "OperatorConfirmed", "pulled the plug", "VirtualMachine/shop/web"):
        assert words in said.out
    assert "A moment that nobody can read." in said.out
    assert "NEXT: backstay confirm-dead n1" in said.out


async def test_programs_get_the_status_as_it_is(cluster: SmallCluster) -> None:
    await incident(cluster, "n1-a")
    said = await cluster.run("viewer", "incidents", "show", "n1-a", "-o", "json")
    told = json.loads(said.out)
    assert (told["name"], told["node"]) == ("n1-a", "n1")
    assert told["status"]["timeline"] == STATUS["timeline"]


async def test_an_unknown_incident_is_met_with_names_like_it(cluster: SmallCluster) -> None:
    await incident(cluster, "n1-20300101")
    said = await cluster.run("viewer", "incidents", "show", "n1-2030010")
    assert said.code == 1
    assert "Did you mean n1-20300101?" in said.err


async def test_the_options_may_stand_before_show(cluster: SmallCluster) -> None:
    await incident(cluster, "n1-a")
    config = str(cluster.kubeconfig("viewer"))
    said = await cluster.run("stranger", "incidents", "--kubeconfig", config, "show", "n1-a")
    assert said.code == 2, said.err


async def test_on_a_cluster_without_our_kinds_it_says_how_to_install_them(tmp_path: Path) -> None:
    async with small_cluster(tmp_path, with_kinds=False) as cluster:
        said = await cluster.run("admin", "incidents")
    assert said.code == 1
    assert "NEXT: backstay crds | kubectl apply -f -" in said.err


async def test_who_may_not_look_is_told_what_is_missing(cluster: SmallCluster) -> None:
    said = await cluster.run("stranger", "incidents")
    assert said.code == 1
    assert 'cannot list resource "incidents"' in said.err


STAGES = ("detect", "prove", "barrier", "removal", "together")
LONG = "a-name-of-some-length-" * 4 + "z"
TOLD: dict[str, Any] = {
    "stages": [
        {"stage": "detect", "seconds": 40.2},
        {"stage": "prove", "seconds": 12.5},
        {"stage": "barrier", "seconds": 0.3},
        {"stage": "removal", "seconds": 0.4},
    ],
    "workloads": [
        {
            "workload": "VirtualMachine/shop/web", "progress": "Recovered", "code": "ReadyAgain",
            "sentence": "VM shop/web is ready on n2.", "ready": True,
            "releasedAfter": 53.4, "runningAfter": 58.1, "readyAfter": 61.0,
            "phases": [
                {"phase": "Scheduling", "at": "2030-01-01T00:00:54Z"},
                {"phase": "Running", "at": "2030-01-01T00:00:58Z"},
            ],
        },
        {
            "workload": f"VirtualMachine/shop/{LONG}",
            "progress": "Released", "code": "Released", "sentence": "It was released.",
            "releasedAfter": 53.4,
        },
    ],
}  # fmt: skip


async def test_the_seconds_of_each_stage_add_up_and_fit_a_terminal_of_eighty_columns(
    cluster: SmallCluster,
) -> None:
    await incident(cluster, "n1-a", **TOLD)
    said = await cluster.run("viewer", "incidents", "show", "n1-a")
    lines = [line.split() for line in said.out.splitlines()]
    stages = [(line[0], float(line[1])) for line in lines if line and line[0] in STAGES]
    assert stages == [(each["stage"], each["seconds"]) for each in TOLD["stages"]] + [
        ("together", 53.4)
    ]
    assert ["53.4", "58.1", "61.0", "VM", "shop/web"] in [line[:5] for line in lines]
    assert ["53.4", "-", "-", "VM"] in [line[:4] for line in lines]
    assert "KubeVirt says: Scheduling 00:00:54, Running" in " ".join(said.out.split())
    assert said.out.index("together") < said.out.index("WHAT HAPPENED")
    assert [line for line in said.out.splitlines() if len(line) > 80] == []
    said = await cluster.run("viewer", "incidents", "show", "n1-a", "-o", "json")
    status = json.loads(said.out)["status"]
    assert status["stages"] == TOLD["stages"]
    assert status["workloads"] == TOLD["workloads"]


async def test_what_was_not_measured_is_said_not_guessed(cluster: SmallCluster) -> None:
    recovered = {
        "workload": "VirtualMachine/shop/web", "progress": "Recovered", "code": "Recovered",
        "sentence": "It runs.",
    }  # fmt: skip
    await incident(cluster, "n1-a", workloads=[recovered])
    said = await cluster.run("viewer", "incidents", "show", "n1-a")
    assert "No seconds are shown" in said.out

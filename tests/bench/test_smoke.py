"""The machinery of the benchmarks, on little data: that it works, not what it measures."""

import json
from pathlib import Path

import msgspec
import pytest

from bench.__main__ import main
from bench.processes import BenchError, fleet, server, worker
from bench.worker import Job


def test_a_quick_run_writes_a_row_for_each_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    names = ["cache.cpu_vs_json", "write.cpu_us"]

    code = main(["--quick", "--rounds", "1", "--only", *names, "--output", str(path)])

    results = json.loads(path.read_bytes())
    assert code == 0
    assert [result["name"] for result in results] == names
    for result in results:
        assert set(result) == {"name", "ours", "peer", "peer_name", "ratio", "unit"}
        assert result["ours"] > 0
        assert result["peer"] > 0


def test_a_controller_leads_over_a_small_fleet() -> None:
    with fleet(nodes=3) as where:
        job = msgspec.structs.replace(where, amount=1)
        with worker("bench.controlling:our_memory", job) as contender:
            assert contender.measure() > 0
        with worker("bench.controlling:bare_cpu", job) as contender:
            assert contender.measure() >= 0


def test_our_reflector_takes_in_all_pages() -> None:
    with server(pods=600) as where:
        job = msgspec.structs.replace(where, amount=600)
        with worker("bench.stall:ours", job) as contender:
            assert contender.measure() > 0


def test_our_reflector_takes_in_all_events() -> None:
    with server(events=50) as where:
        job = msgspec.structs.replace(where, amount=50)
        with worker("bench.watching:ours", job) as contender:
            assert contender.measure() > 0


def test_our_driver_hears_all_promotions() -> None:
    with worker("bench.promotions:ours", Job(amount=50)) as contender:
        assert contender.measure() > 0


def test_a_peer_that_is_not_installed_is_named() -> None:
    with (
        pytest.raises(BenchError, match=r"bench\.nobody is not installed: make bench"),
        worker("bench.nobody:at_all", Job(amount=1)),
    ):
        pass


def test_a_contender_that_breaks_is_named() -> None:
    with (
        worker("bench.decode:stdlib_json", Job(amount=0)) as contender,
        pytest.raises(BenchError, match=r"bench\.decode:stdlib_json ended without an answer"),
    ):
        contender.measure()

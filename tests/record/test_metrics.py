"""Metrics: what is counted, and that a scraper can read it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.record.metrics import Counter, Gauge, Histogram, Metrics, Stage
from tests.support.exposition import parse


def test_a_new_controllers_metrics_can_be_read() -> None:
    read = parse(Metrics(version="0.1.0").render())
    assert read.value("backstay_build_info", version="0.1.0") == 1
    assert read.value("backstay_leading") == 0
    assert read.kinds["backstay_stage_seconds"] == "histogram"


def test_a_used_controllers_metrics_can_be_read() -> None:
    metrics = Metrics(version="0.1.0")
    metrics.leading.set(1)
    metrics.epoch.set(7)
    metrics.nodes.set_all({"Healthy": 4, "Lost": 1})
    metrics.held.set_all({"ProofMissing": 3})
    metrics.decisions.add("ProofMissing", "Hold")
    metrics.decisions.add("ProofMissing", "Hold")
    metrics.stages.observe(22.4, Stage.DETECT)
    metrics.stages.observe(1000.0, Stage.DETECT)
    metrics.api_age.set(math.inf, "nodes")
    metrics.frames_lost.reached(5)
    read = parse(metrics.render())
    assert read.value("backstay_nodes", state="Lost") == 1
    assert read.value("backstay_decisions_total", code="ProofMissing", action="Hold") == 2
    assert read.value("backstay_stage_seconds_bucket", stage="detect", le="10") == 0
    assert read.value("backstay_stage_seconds_bucket", stage="detect", le="25") == 1
    assert read.value("backstay_stage_seconds_bucket", stage="detect", le="+Inf") == 2
    assert read.value("backstay_stage_seconds_sum", stage="detect") == 1022.4
    assert read.value("backstay_api_age_seconds", kind="nodes") == math.inf
    assert read.value("backstay_recorder_lost_total") == 5


def test_every_name_follows_the_conventions() -> None:
    for name, kind in parse(Metrics(version="1").render()).kinds.items():
        assert name.startswith("backstay_")
        assert name.endswith("_total") == (kind == "counter")


def test_a_state_that_no_node_is_in_any_more_is_gone() -> None:
    gauge = Gauge("g", "help", ["state"])
    gauge.set_all({"Lost": 1})
    gauge.set_all({"Healthy": 1})
    assert [*gauge.lines()][2:] == ['g{state="Healthy"} 1']


def test_a_counter_never_goes_back() -> None:
    counter = Counter("c_total", "help", [])
    counter.reached(5)
    counter.reached(3)
    assert counter.value() == 5
    with pytest.raises(ValueError, match="only grows"):
        counter.add(amount=-1)


def test_a_label_too_few_is_a_bug_and_said_so() -> None:
    with pytest.raises(ValueError, match="has the labels"):
        Counter("c_total", "help", ["code", "action"]).add("ProofMissing")


def test_two_controllers_share_no_numbers() -> None:
    one, other = Metrics(version="1"), Metrics(version="1")
    one.decisions.add("X", "Hold")
    assert other.decisions.value("X", "Hold") == 0


@given(st.text(st.characters(codec="utf-8")), st.floats())
def test_whatever_stands_in_a_label_comes_back_out_of_it(text: str, value: float) -> None:
    gauge = Gauge("g", text, ["label"])
    gauge.set(value, text)
    read = parse("".join(f"{line}\n" for line in gauge.lines()).encode())
    ((_, labels),) = read.values
    ((_, escaped),) = labels
    plain = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
    unescaped, rest = "", escaped
    while rest:
        taken = plain.get(rest[:2], rest[:1])
        rest = rest[2:] if rest[:2] in plain else rest[1:]
        unescaped += taken
    assert unescaped == text


@given(st.lists(st.floats(0, 1000)))
def test_a_histogram_adds_up(values: list[float]) -> None:
    histogram = Histogram("h", "help", ["stage"], [1.0, 10.0, 100.0])
    for value in values:
        histogram.observe(value, "detect")
    assert histogram.count("detect") == len(values)
    read = parse("".join(f"{line}\n" for line in histogram.lines()).encode())
    for bound in (1, 10, 100) if values else ():
        below = sum(value <= bound for value in values)
        assert read.value("h_bucket", stage="detect", le=str(bound)) == below


@pytest.mark.parametrize(
    "text",
    [
        "g 1",
        "# TYPE g gauge\ng 1",
        "# TYPE g gauge\ng one\n",
        '# TYPE g gauge\ng{a="1",a="2"} 1\n',
        "# TYPE g gauge\ng 1\ng 2\n",
        '# TYPE g gauge\ng{a="1} 1\n',
        "g 1\n",
        "# TYPE g gauge\n# TYPE h gauge\nh 1\ng 1\n",
        '# TYPE h histogram\nh_bucket{le="1"} 2\nh_bucket{le="+Inf"} 1\nh_sum 1\nh_count 1\n',
    ],
)
def test_the_checker_refuses_what_a_scraper_would_not_understand(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(text.encode())


def test_a_number_about_what_is_not_there_is_left_out_until_it_has_a_value() -> None:
    metrics = Metrics(version="0")
    assert b"\nbackstay_linstor_stream_connected " not in metrics.render()
    metrics.linstor_connected.set(0.0)
    assert parse(metrics.render()).value("backstay_linstor_stream_connected") == 0

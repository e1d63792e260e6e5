"""The alerts: about numbers that exist, each with a page that says what to type, and that it can
be typed."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from backstay.cli.main import backstay
from backstay.cli.manifests import alerting
from backstay.model.labels import COMPONENT
from backstay.model.policy import Mode
from backstay.model.power import WORKS
from backstay.record.metrics import Delivery, Metrics
from tests.deploy.test_manifests import printed
from tests.support.exposition import parse

RUNBOOKS = Path(__file__).parents[2] / "docs" / "runbooks"
(RULE,) = alerting()
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in RULE["spec"]["groups"] for rule in group["rules"]
}
METRICS = Metrics(version="0")

# What PromQL calls its own; every other word is a number of ours or one of its labels.
FUNCTIONS = frozenset({"sum", "max", "min", "absent", "increase"})
KEYWORDS = frozenset({"by"})
VALUES = {
    ("backstay_mode", "mode"): {mode.value for mode in Mode},
    ("backstay_api_age_seconds", "kind"): {"leases"},
    ("backstay_power_devices", "code"): {WORKS},
    ("backstay_notifications_total", "outcome"): {delivery.value for delivery in Delivery},
}
SELECTOR = re.compile(r"\b([a-z_]+)(?:\{([^}]*)\})?(?:\[\d+[smh]\])?")
MATCHER = re.compile(r'([a-z_]+)(?:=|!=|=~|!~)"([^"]*)"')
GROUPING = re.compile(r"\bby \(([^)]*)\)")


def grouping(expression: str) -> set[str]:
    return {name.strip() for names in GROUPING.findall(expression) for name in names.split(",")}


def selectors(expression: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Every metric that is named, with the labels and values that it is narrowed down by."""
    for name, matchers in SELECTOR.findall(GROUPING.sub("", expression)):
        if name not in FUNCTIONS | KEYWORDS:
            yield name, MATCHER.findall(matchers)


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_an_alert_is_about_numbers_and_labels_that_are_there(alert: str) -> None:
    expression = ALERTS[alert]["expr"]
    rendered = parse(METRICS.render()).kinds
    found = list(selectors(expression))
    assert found
    for name, matchers in found:
        assert name in rendered
        for label, value in matchers:
            assert label in METRICS.labels[name]
            assert value in VALUES[name, label]
        assert grouping(expression) <= {*METRICS.labels[name]}


def test_a_misspelt_number_would_be_noticed() -> None:
    (found,) = selectors('sum by (code) (increase(backstay_worklods_held{code!="x"}[15m])) > 0')
    assert found == ("backstay_worklods_held", [("code", "x")])
    assert found[0] not in METRICS.labels


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_an_alert_says_what_it_is_in_words_that_can_be_filled_in(alert: str) -> None:
    rule = ALERTS[alert]
    said = rule["annotations"]
    assert rule["labels"]["severity"] in ("critical", "warning")
    for words in (said["summary"], said["description"]):
        assert words.endswith(".")
        assert {*re.findall(r"\$labels\.(\w+)", words)} <= grouping(rule["expr"])
    for command in re.findall(r"Type (backstay [a-z -]+)\.", said["description"]):
        parse_command(command)


def test_every_alert_has_its_page_and_every_page_its_alert() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == {*ALERTS}
    for alert, rule in ALERTS.items():
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{alert}.md"


def commands(page: str) -> list[str]:
    """In blocks and in between words; one may be piped into something else."""
    blocks = "\n".join(re.findall(r"^```\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
    typed = [*blocks.splitlines(), *re.findall(r"`([^`\n]+)`", page)]
    return [line.partition("|")[0].strip(" \\") for line in typed if line.startswith("backstay ")]


def parse_command(line: str) -> None:
    """Raises what a person would see who types it wrongly."""
    command: click.Command = backstay
    words = shlex.split(line)[1:]
    context = click.Context(command)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words.pop(0))
        assert found is not None, line
        command = found
    command.make_context(line, words)


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_a_page_says_what_it_means_how_to_look_and_what_to_type(alert: str) -> None:
    page = (RUNBOOKS / f"{alert}.md").read_text()
    assert page.startswith(f"# {alert}\n")
    parts = [page.index(f"**{part}.**") for part in ("What it means", "How to look")]
    assert [*parts, page.index("**What to do next.**")] == sorted(
        [*parts, page.index("**What to do next.**")]
    )
    typed = commands(page)
    assert typed
    for line in typed:
        parse_command(line)
    for link in re.findall(r"\]\(([^)#]+)", page):
        assert (RUNBOOKS / link).exists(), link


@pytest.mark.parametrize("line", ["backstay statis", "backstay confirm-dead", "backstay arm --now"])
def test_a_command_that_is_none_would_be_noticed(line: str) -> None:
    with pytest.raises((click.UsageError, AssertionError)):
        parse_command(line)


def test_the_alerts_can_be_printed_with_the_address_of_your_own_pages() -> None:
    assert RULE["metadata"]["labels"][COMPONENT] == "backstay"
    said = printed("manifests", "--alerts", "--runbooks", "https://wiki.example/ha/")
    assert "runbook_url: https://wiki.example/ha/NoLeader.md" in said

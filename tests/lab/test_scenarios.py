"""Every scenario that comes with Backstay ends as it says, and breaks no invariant."""

from pathlib import Path

import pytest

from backstay.lab import shipped
from backstay.lab.play import play
from backstay.lab.scenario import dump, load
from backstay.lab.scenarios_page import page

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", shipped.names())
def test_a_scenario_ends_as_expected(name: str) -> None:
    played = play(shipped.find(name))
    assert played.unmet == ()
    assert played.checked > 100


def test_there_are_answers_to_many_questions() -> None:
    scenarios = shipped.shipped()
    assert len(scenarios) >= 40
    assert len({each.question for each in scenarios}) == len(scenarios)
    assert all(each.answer and each.question.endswith("?") for each in scenarios)


def test_every_topic_has_a_scenario() -> None:
    assert {each.topic for each in shipped.shipped()} == set(shipped.TOPICS)


@pytest.mark.parametrize("name", shipped.names())
def test_a_scenario_says_what_it_expects(name: str) -> None:
    expect = shipped.find(name).expect
    asked = (expect.recovered, expect.untouched, expect.held, expect.maintained)
    assert any(each is not None for each in asked)


@pytest.mark.parametrize("name", shipped.names())
def test_a_scenario_survives_being_written_and_read(name: str) -> None:
    scenario = shipped.find(name)
    assert load(dump(scenario)) == scenario


def test_the_page_of_scenarios_is_up_to_date() -> None:
    written = (ROOT / "docs" / "scenarios.md").read_text()
    assert written == page(), "run: python -m backstay.lab.scenarios_page > docs/scenarios.md"

"""Scenarios as YAML: what is wrong with one is said in a sentence that names file and field."""

import pytest

from backstay.lab.scenario import BadScenario, Do, Scenario, Step, dump, load

GOOD = """\
name: node-dies
question: What if a node dies?
nodes: [n1, n2]
workloads:
  vms:
    - {name: till, node: n2}
  statefulSets:
    - {name: db, replicas: 2}
steps:
  - {at: 5, do: kill, node: n2}
  - {at: 60, do: kill-controller, controller: backstay-1, after: mark, afterWrites: 2}
until: 120
expect:
  recovered: [till]
"""


def refused(text: str) -> str:
    with pytest.raises(BadScenario) as caught:
        load(text, file="mine.yaml")
    return str(caught.value)


def test_a_good_one_is_read() -> None:
    scenario = load(GOOD)
    assert scenario.workloads.names() == ("till", "db-0", "db-1")
    assert scenario.steps[0] == Step(at=5, do=Do.KILL, node="n2")
    assert scenario.steps[1].after_writes == 2


def test_what_is_written_is_read_as_the_same() -> None:
    scenario = load(GOOD)
    assert load(dump(scenario)) == scenario


def test_a_step_is_written_on_one_line() -> None:
    assert "- {at: 5.0, do: kill, node: n2}\n" in dump(load(GOOD))


def test_a_scenario_that_is_a_value_can_be_written() -> None:
    made = Scenario(name="a", question="What if?", nodes=("n1",), until=10)
    assert load(dump(made)) == made


@pytest.mark.parametrize(
    ("good", "bad", "sentence"),
    [
        ("nodes: [", "nods: [", "mine.yaml: nods: there is no such field."),
        ("replicas", "replics", "workloads.statefulSets[0].replics: there is no such field."),
        ("until: 120\n", "", "mine.yaml: until: it is missing."),
        ("do: kill, node", "do: maintain, node", "steps[0].do: maintain needs maintenance."),
        (
            "replicas: 2",
            "replicas: 2, budget: {minAvailable: 1, maxUnavailable: 1}",
            "workloads.statefulSets[0].budget: it is minAvailable or maxUnavailable",
        ),
        ("replicas: 2", "replicas: 2, budget: {}", "workloads.statefulSets[0].budget: it is"),
        ("recovered: [till]", "maintained: {n9: Running}", "expect.maintained: there is no node"),
        ("until: 120", "until: 120\nstorageNetwork: true", "storageNetwork: only with csiAddons"),
        ("at: 5,", "at: five,", "mine.yaml: steps[0].at: expected float, got str."),
        ("do: kill,", "do: kil,", "mine.yaml: steps[0].do: invalid enum value 'kil'."),
        ("recovered: [till]", "recovered: till", "expect.recovered: expected array | null"),
        ("node: n2}\n  - {at: 60", "node: n9}\n  - {at: 60", "steps[0].node: there is no node n9."),
        ("till, node: n2", "till, node: n9", "workloads.vms[0].node: there is no node n9."),
        ("do: kill, node: n2", "do: kill", "mine.yaml: steps[0].node: kill needs one."),
        ("do: kill, node", "do: arm, node", "mine.yaml: steps[0].node: arm has none."),
        ("do: kill, node: n2", "do: configure", "mine.yaml: steps[0].config: configure needs one."),
        ("backstay-1", "backstay-2", "steps[1].controller: there is no controller backstay-2."),
        ("[till]", "[tilt]", "mine.yaml: expect.recovered: there is no workload tilt."),
        ("at: 5,", "at: 500,", "steps[0].at: it is to be between 0 and the end, which is at 120."),
        ("at: 5,", "at: .nan,", "steps[0].at: it is to be between 0 and the end"),
        ("until: 120", "until: .inf", "mine.yaml: until: it is to be more than 0"),
        ("name: till", "name: db-0", "mine.yaml: workloads: there are two of the name db-0."),
        (
            "[n1, n2]",
            "[n1, N2]",
            "'N2' is to consist of small letters, digits and dashes, 42 at most.",
        ),
        ("replicas: 2", "replicas: 99", "workloads.statefulSets[0].replicas: between 1 and 50"),
        ("do: kill, node: n2", "do: disarm", "steps[0].seconds: disarm needs to know for how long"),
        ("do: kill, node: n2", "do: stop-vm, workload: db-0", "workload: db-0 is no VM."),
        (
            "until: 120",
            "until: 120\npolicy: {config: {protect: {statefulSets: false}}}",
            "policy.config.protect: say policy.virtualMachines or policy.statefulSets instead.",
        ),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(good: str, bad: str, sentence: str) -> None:
    assert good in GOOD
    said = refused(GOOD.replace(good, bad, 1))
    assert sentence in said
    assert said.startswith("mine.yaml: ")
    assert "\n" not in said


@pytest.mark.parametrize("text", ["a: [", "name: x: y", "\x00", "{" * 1000])
def test_what_is_not_yaml_is_said_to_be_none(text: str) -> None:
    said = refused(text)
    assert said.startswith("mine.yaml: it is ")
    assert "\n" not in said


@pytest.mark.parametrize("text", ["", "5", "- a", "just words"])
def test_what_is_no_mapping_is_told_what_a_scenario_is(text: str) -> None:
    assert refused(text) == (
        "mine.yaml: a scenario is a mapping with name, question, nodes and until."
    )


def test_bytes_that_are_no_text_are_not_yaml() -> None:
    with pytest.raises(BadScenario, match="it is not YAML"):
        load(b"\xff\xfe\xfa", file="mine.yaml")

"""BMCs in a lab: how they are described, what is known of what they were asked, who is judged."""

import msgspec
import pytest

from backstay.lab import power_cases
from backstay.lab.knocks import Knocks
from backstay.lab.play import Performance, play, seed_of_beginning
from backstay.lab.power_rules import power_order
from backstay.lab.power_spec import BmcSpec, BmcsSpec, How
from backstay.lab.powers import POWER, Powers, Reading, Switched
from backstay.lab.scenario import BadScenario, Do, Scenario, Step, dump, load
from backstay.lab.shrink import shrink
from backstay.lab.witness import Asked, Happening, Witness
from backstay.sim.bmc import Reset, swapped
from backstay.sim.nodes.nodestatus import system_uuid
from backstay.sim.nodes.truth import Entry, What
from backstay.sim.world import World

GOOD = """\
name: cut-off
question: What if a node is cut off?
nodes: [n1, n2]
bmcs: {without: [n1], of: {n2: {takes: 5}}}
steps:
  - {at: 5, do: bmc, node: n2, how: slow, seconds: 3}
  - {at: 9, do: switch-on, node: n2, after: asked-off}
until: 60
"""


# The language


@pytest.mark.parametrize(
    ("good", "bad", "sentence"),
    [
        ("[n1], of", "[n9], of", "bmcs.without: there is no node n9."),
        ("takes: 5", "wiredTo: n9", "bmcs.of.n2.wiredTo: there is no node n9."),
        ("takes: 5", "takes: 0", "bmcs.of.n2.takes: it is to be more than 0"),
        ("takes: 5", "uuid: mine", "bmcs.of[...].uuid: invalid enum value 'mine'."),
        ("how: slow, ", "", "steps[0].how: bmc needs one."),
        (", seconds: 3", "", "steps[0].seconds: bmc needs to know for how long"),
        ("do: switch-on,", "do: switch-on, how: well,", "steps[1].how: switch-on has none."),
        ("bmcs: {without: [n1], of: {n2: {takes: 5}}}\n", "", "steps[0].do: bmc needs bmcs."),
    ],
)
def test_what_is_wrong_with_bmcs_is_said_in_a_sentence(good: str, bad: str, sentence: str) -> None:
    assert good in GOOD
    with pytest.raises(BadScenario) as caught:
        load(GOOD.replace(good, bad, 1), file="mine.yaml")
    assert str(caught.value).startswith(f"mine.yaml: {sentence}")


def test_a_scenario_with_bmcs_survives_being_written_and_read() -> None:
    scenario = load(GOOD)
    assert load(dump(scenario)) == scenario
    assert scenario.bmcs == BmcsSpec(without=("n1",), of={"n2": BmcSpec(takes=5)})


def test_every_node_has_a_usual_bmc_unless_it_is_said_otherwise() -> None:
    spec = BmcsSpec(without=("n1",), of={"n2": BmcSpec(uuid="none")})
    assert (spec.of_node("n1"), spec.of_node("n3")) == (None, BmcSpec())
    assert (BmcSpec().identity("n3"), BmcSpec(uuid="none").identity("n2")) == (
        system_uuid("n3").upper(),
        "",
    )
    assert BmcSpec(uuid="swapped").identity("n3") == swapped(system_uuid("n3")).upper()


def test_what_leads_to_a_node_that_is_taken_away_goes_with_it() -> None:
    spec = BmcsSpec(without=("n3",), of={"n1": BmcSpec(wired_to="n2"), "n2": BmcSpec(takes=1)})
    assert spec.on(("n1", "n3")) == BmcsSpec(without=("n3",))
    scenario = Scenario(name="a", question="?", nodes=("n1", "n2", "n3"), bmcs=spec, until=10)
    small = shrink(scenario, lambda each: len(each.nodes) >= 2)
    assert load(dump(small)) == small


# What is known


def test_a_reading_counts_for_whoever_has_it_until_it_reads_something_else() -> None:
    powers = Powers()
    powers.note_reading("backstay-1", "n2", Reading(10.0, 100, True))
    assert powers.read_off("backstay-1", "n2", sent=11.0) == [100]
    assert powers.read_off("backstay-1", "n2", sent=9.0) == []
    assert powers.read_off("backstay-2", "n2", sent=11.0) == []
    assert powers.read_off("backstay-1", "n2", sent=11.0, since=101) == []
    assert powers.read_off("backstay-1", "n2", sent=11.0, before=100) == []
    powers.note_reading("backstay-1", "n2", Reading(12.0, 120, False))
    assert powers.read_off("backstay-1", "n2", sent=13.0) == []
    assert powers.read_off("backstay-1", "n2", sent=11.0) == [100]


def test_what_was_taken_from_a_node_is_awaited_until_it_runs() -> None:
    powers = Powers()
    powers.taken("shop/till", "n2", at=5.0)
    powers.taken("shop/desk", "n2", at=6.0)
    powers.started("shop/till")
    assert powers.awaited == {"n2": {"shop/desk": 6.0}}


def _heard(scenario: Scenario) -> list[Happening]:
    """All that the witness told of."""
    found: list[Happening] = []

    async def story(world: World) -> None:
        performance = Performance(world, scenario, {})
        await performance.set_up()
        performance.cluster.witness.watch(found.append)
        await performance.perform(scenario, None)

    with World(seed_of_beginning(scenario)) as world:
        world.run(story(world))
    return found


def test_a_request_to_a_bmc_is_known_by_its_sender_and_by_when_it_left() -> None:
    asked = [
        each
        for each in _heard(power_cases.HELD_UP)
        if isinstance(each, Asked) and each.storage == POWER
    ]
    assert [each.subresource for each in asked] == ["ForceOff", "On"]
    held_up, other = asked
    assert (held_up.user, held_up.key) == ("backstay-1", ("", "n2"))
    assert held_up.at - held_up.sent == pytest.approx(16.5, abs=0.1)
    assert other.at - other.sent < 0.1


def test_the_truth_tells_by_whom_a_machine_was_switched() -> None:
    switched = [
        (each.what, each.node, each.why)
        for each in _heard(power_cases.HELD_UP)
        if isinstance(each, Entry) and each.what in (What.SWITCHED_OFF, What.SWITCHED_ON)
    ]
    assert switched == [
        (What.SWITCHED_OFF, "n2", "alice"),
        (What.SWITCHED_ON, "n2", "backstay-1"),
    ]


def test_a_bmc_without_power_of_its_own_is_back_with_its_machine() -> None:
    scenario = msgspec.structs.replace(
        power_cases.OFF_BY_ITSELF,
        bmcs=BmcsSpec(of={"n2": BmcSpec(shares_power=True)}),
        steps=(
            Step(at=5, do=Do.KILL, node="n2"),
            Step(at=60, do=Do.BOOT, node="n2"),
            Step(at=80, do=Do.SWITCH_OFF, node="n2"),
        ),
        until=130,
    )
    played = play(scenario)
    codes = {line.what.partition(":")[0] for line in played.timeline if line.at < 60}
    assert {"NodeLost", "ProofMissing"} <= codes
    assert "EvidenceFound" not in codes
    # What its BMC has switched off leaves the BMC alone.
    assert set(played.recovered) == {"till"}


def test_one_that_lies_is_a_risk_and_one_whose_node_answers_is_not_believed() -> None:
    lies = Step(at=2, do=Do.BMC, node="n2", how=How.LIES)
    steps = {
        do: msgspec.structs.replace(
            power_cases.STUCK, steps=(lies, Step(at=5, do=do, node="n2")), until=80
        )
        for do in (Do.CUT, Do.CUT_API)
    }
    believed, doubted = play(steps[Do.CUT]), play(steps[Do.CUT_API])
    assert (believed.broken, bool(believed.accepted)) == ((), True)
    assert (doubted.broken, doubted.accepted, doubted.recovered) == ((), (), {})


# Who is judged


def _order(*, sent: float, at: float, ended: float) -> str | None:
    """What is said of an off that lands after the on of its incident had landed at 100 s."""
    witness = Witness(ours=(), renewal=10.0, hold=10.0, knocks=Knocks())
    lease = {"spec": {"holderIdentity": "backstay-1", "leaseTransitions": 1}}
    witness.terms.led("backstay-1", lease, sent=ended - 10.0, now=ended - 10.0)
    intent = {"step": "PowerOff", "epoch": 1, "pods": ["power/n2/boot-1"]}
    witness.terms.told("backstay-1", "incident", {"status": {"intent": intent}}, now=sent)
    witness.powers.switched.append(Switched("backstay-2", "n2", True, 99.0, 100.0, "boot-1"))
    body = {"ResetType": "ForceOff", "machine": "n2", "accepted": True}
    asked = Asked(at, sent, "backstay-1", "POST", POWER, ("", "n2"), Reset.OFF.value, body)
    return power_order(asked, witness)


def test_an_off_that_lands_after_the_on_of_its_incident_is_a_breach() -> None:
    said = _order(sent=95.0, at=105.0, ended=98.0)
    assert said == "n2 was switched off 5 s after it had been switched on again"


def test_nobody_answers_for_what_the_network_has_kept_after_it_was_given_up() -> None:
    assert _order(sent=95.0, at=108.5, ended=98.0) is None

"""The show, played to its end under virtual time: it is over at once, and it is all there."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import pytest

from backstay.lab import view
from backstay.lab.recovery import STAGES
from backstay.lab.show import DIES, IS_CUT_OFF, Pace, Report, Show
from backstay.lab.summary import summary
from backstay.lab.view import Frame, News
from backstay.seam import Seams
from backstay.sim.cluster.ground import on_this_loop
from backstay.sim.world import World


@dataclass
class Onlooker:
    """Keeps all that an audience is shown."""

    frames: list[Frame] = field(default_factory=list)
    captions: list[str] = field(default_factory=list)
    looks: list[Frame] = field(default_factory=list)
    news: list[str] = field(default_factory=list)

    def draw(self, frame: Frame) -> None:
        self.frames.append(frame)

    def scene(self, frame: Frame) -> None:
        self.captions.append(frame.caption)

    def hear(self, item: News) -> None:
        self.news.append(item.text)

    def look(self, frame: Frame) -> None:
        self.looks.append(frame)


@dataclass(frozen=True)
class Played:
    report: Report
    onlooker: Onlooker
    seconds: float


@pytest.fixture(scope="module")
def played() -> Iterator[Played]:
    onlooker = Onlooker()
    reports: list[Report] = []

    async def main(seams: Seams) -> None:
        async with on_this_loop(seams) as plain, on_this_loop(seams) as ours:
            reports.append(await Show((ours, plain), onlooker, Pace()).play())

    with World(seed=1) as world:

        async def scenario() -> float:
            await world.start("demo", main).wait()
            return world.now

        yield Played(seconds=world.run(scenario()), report=reports[0], onlooker=onlooker)


def test_everything_recovers_and_nothing_is_broken(played: Played) -> None:
    report = played.report
    assert report.failure == ""
    assert report.breaches == ()
    assert report.ok
    assert report.recovered == report.protected == 4
    assert report.running == report.workloads == 17
    assert report.invariants_checked > 500


def test_it_is_over_within_two_minutes(played: Played) -> None:
    assert 45 < played.seconds < 90


def test_every_stage_of_the_recovery_has_its_time(played: Played) -> None:
    stages = played.report.stages
    assert tuple(each.stage for each in stages) == STAGES
    assert [each.total for each in stages] == sorted(each.total for each in stages)
    # The timers are ten times shorter than in life: 40 s of silence, counted from a renewal.
    assert 3.0 < stages[0].seconds < 4.6


def test_plain_kubernetes_is_down_until_the_node_has_its_power_back(played: Played) -> None:
    held = next(f for f in played.onlooker.looks if f.stages)
    assert held.picture.plain.up == 13
    assert held.picture.ours.up == 17
    assert played.report.plain_down_seconds > played.report.down_seconds + 5


def test_what_a_lost_node_ran_is_held_and_the_next_step_is_named(played: Played) -> None:
    shown = next(frame for frame in played.onlooker.looks if frame.picture.held)
    held = shown.picture.held
    assert held is not None
    assert held.count == 4
    assert held.next == f"make sure that {DIES} is off, then: backstay confirm-dead {DIES}"
    [node] = [each for each in shown.picture.nodes if each.name == DIES]
    assert (node.condition, node.runs, node.ready, node.life) == ("OFF", 0, "NotReady", "Lost")
    assert node.pods == {"Running": 4}


def test_a_node_that_is_cut_off_keeps_what_it_runs(played: Played) -> None:
    shown = [frame for frame in played.onlooker.looks if frame.picture.held][-1]
    [node] = [each for each in shown.picture.nodes if each.name == IS_CUT_OFF]
    assert (node.condition, node.ready, node.life) == ("CUT OFF", "NotReady", "Lost")
    assert node.runs == played.report.cut_off == played.report.undisturbed == 4


def test_every_frame_fits_a_terminal_of_80_by_24(played: Played) -> None:
    frames = played.onlooker.frames
    assert len(frames) > 200
    for frame in frames:
        lines = view.screen(frame, view.plain)
        assert len(lines) <= view.HEIGHT
        assert max(map(len, lines)) <= view.WIDTH


def test_colours_change_nothing_but_the_colour(played: Played) -> None:
    frame = played.onlooker.looks[0]
    for painted, bare in zip(
        view.screen(frame, view.in_colour), view.screen(frame, view.plain), strict=True
    ):
        assert _without_colours(painted) == bare


def test_it_says_what_a_person_would_type(played: Played) -> None:
    typed = [text for text in played.onlooker.news if text.startswith("$ ")]
    assert [text.split()[2] for text in typed] == [
        "readiness", "confirm-dead", "confirm-dead", "confirm-dead",
    ]  # fmt: skip


def test_the_summary_fits_80_columns(played: Played) -> None:
    report = msgspec.structs.replace(played.report, wrong_confirmation_refused=True)
    assert max(map(len, summary(report, view.plain))) <= view.WIDTH


def test_news_that_do_not_fit_are_left_out_whole(played: Played) -> None:
    frame = next(f for f in played.onlooker.frames if not f.picture.held and not f.stages)
    three_lines_each = tuple(News(float(number), "word " * 40) for number in range(9))
    lines = view.screen(dataclasses.replace(frame, news=three_lines_each), view.plain)
    said = [line for line in lines if "word" in line]
    assert [line[:9].strip() for line in said if line[:9].strip()] == ["6.0 s", "7.0 s", "8.0 s"]
    assert len(said) == 9


def test_the_report_is_an_object_for_programs(played: Played) -> None:
    data = msgspec.json.decode(msgspec.json.encode(played.report))
    assert data["protected"] == data["recovered"] == 4
    assert data["held"] == data["invariants_broken"] == 0
    assert [each["stage"] for each in data["stages"]] == list(STAGES)


@pytest.mark.parametrize(
    "changes",
    [
        {"recovered": 3},
        {"protected": 0, "recovered": 0},
        {"held": 1},
        {"running": 16},
        {"undisturbed": 3},
        {"invariants_broken": 1},
        {"failure": "n2 was not lost"},
    ],
)
def test_anything_amiss_is_a_failure(played: Played, changes: dict[str, object]) -> None:
    assert not msgspec.structs.replace(played.report, **changes).ok


def test_a_show_that_failed_says_at_what() -> None:
    report = Report(
        protected=0, recovered=0, held=0, workloads=17, running=17, undisturbed=0, cut_off=0,
        wrong_confirmation_refused=False, down_seconds=0.0, plain_down_seconds=0.0,
        invariants_checked=10, invariants_broken=1, breaches=("OneWriter: it runs twice",),
        stages=(), speed=10.0, failure="n2 was not lost",
    )  # fmt: skip
    text = "\n".join(summary(report, view.plain))
    assert "n2 was not lost" in text
    assert "OneWriter: it runs twice" in text


def _without_colours(text: str) -> str:
    pieces = text.split("\x1b[")
    return pieces[0] + "".join(piece.partition("m")[2] for piece in pieces[1:])

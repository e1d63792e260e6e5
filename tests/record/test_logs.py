"""Log lines, and what they are about."""

import asyncio
import io
import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from backstay.model.reasons import Reason
from backstay.record.logs import JsonLines, PlainLines, about, install, say

LOGGER = logging.getLogger("backstay.test")


class Noon:
    def now(self) -> datetime:
        return datetime(2026, 11, 16, 12, 0, 0, 250_000, tzinfo=UTC)


def lines(talk: Callable[[], None], formatter: logging.Formatter) -> list[str]:
    stream = io.StringIO()
    with install(stream, formatter, level=logging.INFO):
        talk()
    return stream.getvalue().splitlines()


def one(talk: Callable[[], None]) -> dict[str, str]:
    (line,) = lines(talk, JsonLines(Noon()))
    said: dict[str, str] = json.loads(line)
    return said


def test_a_line_is_one_json_object() -> None:
    assert one(lambda: LOGGER.warning("lost %d of\n%d", 1, 5)) == {
        "time": "2026-11-16T12:00:00.250+00:00",
        "level": "warning",
        "logger": "backstay.test",
        "message": "lost 1 of\n5",
    }


def test_a_line_says_what_it_is_about_however_deep_it_is_said() -> None:
    def talk() -> None:
        with about(node="n1", incident="n1-1"), about(workload="VirtualMachine/shop/db"):
            say(LOGGER, Reason.Released.because(workload="VM shop/db", node="n1"))

    said = one(talk)
    assert (said["node"], said["incident"]) == ("n1", "n1-1")
    assert (said["workload"], said["code"]) == ("VirtualMachine/shop/db", "Released")


def test_what_to_do_next_is_part_of_the_line() -> None:
    why = Reason.Exempt.because(node="n1")
    assert one(lambda: say(LOGGER, why))["message"] == f"{why.sentence} NEXT: {why.next}"


def test_a_subject_ends_with_its_block() -> None:
    def talk() -> None:
        with about(node="n1"):
            pass
        LOGGER.info("hello")

    assert "node" not in one(talk)


async def test_tasks_side_by_side_do_not_mix_their_subjects() -> None:
    stream = io.StringIO()

    async def work(node: str) -> None:
        with about(node=node):
            await asyncio.sleep(0)
            LOGGER.info("%s", node)

    with install(stream, JsonLines(Noon()), level=logging.INFO):
        await asyncio.gather(*(work(f"n{number}") for number in range(5)))
    for line in stream.getvalue().splitlines():
        said = json.loads(line)
        assert said["node"] == said["message"]


def test_an_error_is_in_its_line() -> None:
    def talk() -> None:
        try:
            raise RuntimeError("broken")
        except RuntimeError:
            LOGGER.exception("it failed")

    assert "RuntimeError: broken" in one(talk)["error"]


def test_plain_lines_are_short() -> None:
    def talk() -> None:
        LOGGER.info("hello")
        with about(node="n1"):
            LOGGER.warning("gone")

    assert lines(talk, PlainLines(Noon())) == ["12:00:00 hello", "12:00:00 WARNING [n1] gone"]


def test_what_is_below_the_level_is_not_said_and_nothing_is_left_behind() -> None:
    before = logging.getLogger("backstay").handlers[:]
    assert lines(lambda: LOGGER.debug("psst"), PlainLines(Noon())) == []
    assert logging.getLogger("backstay").handlers == before

"""A pytest plugin: tests marked ``real`` stay together, and never go missing unseen.

A test that needs a real control plane is worth nothing in a run where it quietly did not
happen. So the run says how many there were, and where ``BACKSTAY_REQUIRE_REAL=1`` is set it
fails if there were none or if one was skipped.

With several workers all of them go to the same one, so that one control plane serves them.
xdist's own groups would do that, but ``--dist loadgroup`` has no effect from pytest 9.2 on
(a known fault between it and pytest-xdist), and nobody would notice.
"""

import os
from functools import cache

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

MARK = "real"


class RealTogether(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
    """Shares out single tests, except that all files that use the mark go to one worker."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        super().__init__(config, log)
        self._root = config.rootpath
        self._is_real = cache(self._uses_mark)

    def _split_scope(self, nodeid: str) -> str:
        return MARK if self._is_real(nodeid.partition("::")[0]) else nodeid

    def _uses_mark(self, file: str) -> bool:
        # Only workers import tests; what they would find has to be read from the source.
        return f"pytest.mark.{MARK}" in (self._root / file).read_text()


class RealTests:
    """Counts on whichever process prints the summary; with xdist that is not a worker."""

    def __init__(self, config: pytest.Config) -> None:
        self._required = os.environ.get("BACKSTAY_REQUIRE_REAL") == "1"
        self._is_worker = hasattr(config, "workerinput")
        self._ran = 0
        self._skipped: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(
        self, config: pytest.Config, log: object
    ) -> RealTogether | None:
        ours = config.getvalue("dist") in ("load", "loadgroup")
        return RealTogether(config, log) if ours else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if MARK not in report.keywords:
            return
        expected_failure = hasattr(report, "wasxfail")
        if report.skipped and not expected_failure:
            self._skipped.append(report.nodeid)
        elif report.when == "call":
            self._ran += 1

    @property
    def _complaint(self) -> str | None:
        if self._is_worker or not self._required:
            return None
        if self._skipped:
            return f"BACKSTAY_REQUIRE_REAL=1 allows no skipped one: {', '.join(self._skipped)}"
        if not self._ran:
            return "BACKSTAY_REQUIRE_REAL=1 demands at least one"
        return None

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self._complaint and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not (self._ran or self._skipped or self._required):
            return
        skipped = f", {len(self._skipped)} skipped" if self._skipped else ""
        terminalreporter.write_line(f"real control plane tests: {self._ran} ran{skipped}")
        if complaint := self._complaint:
            terminalreporter.write_line(complaint, red=True)

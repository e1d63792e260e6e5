"""A pytest plugin: tests marked ``real`` share one worker, and never go missing unseen.

A test that needs a real control plane is worth nothing in a run where it quietly did not
happen. So the run says how many there were, and where ``BACKSTAY_REQUIRE_REAL=1`` is set it
fails if there were none or if one was skipped.
"""

import os

import pytest

MARK = "real"


class RealTests:
    """Counts on whichever process prints the summary; with xdist that is not a worker."""

    def __init__(self, config: pytest.Config) -> None:
        self._required = os.environ.get("BACKSTAY_REQUIRE_REAL") == "1"
        self._is_worker = hasattr(config, "workerinput")
        self._ran = 0
        self._skipped: list[str] = []

    def pytest_configure(self, config: pytest.Config) -> None:
        # Only this way of sharing out keeps a group together; -n alone would choose "load".
        if getattr(config.option, "dist", "no") == "load":
            config.option.dist = "loadgroup"

    @pytest.hookimpl(tryfirst=True)  # Before xdist looks at the groups.
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if item.get_closest_marker(MARK):
                item.add_marker(pytest.mark.xdist_group(MARK))

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

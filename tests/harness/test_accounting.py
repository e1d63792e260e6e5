"""Each test runs pytest on a small suite that has the plugin, and reads what came of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

CONFTEST = """
from harness.accounting import RealTests

def pytest_configure(config):
    config.addinivalue_line("markers", "real: needs the real thing")
    config.pluginmanager.register(RealTests(config))
"""

SUITE = """
import os
import pytest

@pytest.mark.real
@pytest.mark.parametrize("number", range(4))
def test_real(number):
    with open(os.environ["WORKERS"], "a") as workers:
        print(os.environ.get("PYTEST_XDIST_WORKER"), file=workers)
"""

PLAIN = """
import pytest

@pytest.mark.parametrize("number", range(8))
def test_plain(number):
    pass
"""

SKIPPING = """
import pytest

@pytest.mark.real
def test_real():
    pass

@pytest.mark.real
def test_skipped():
    pytest.skip("somebody found this convenient")
"""


class Suite:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.workers = directory / "workers"
        (directory / "conftest.py").write_text(CONFTEST)
        (directory / "test_plain.py").write_text(PLAIN)

    def run(self, text: str, *arguments: str, require: bool = True) -> tuple[int, str]:
        (self.directory / "test_suite.py").write_text(text)
        env = {
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "BACKSTAY_REQUIRE_REAL": "1" if require else "",
            "WORKERS": str(self.workers),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "xdist", "--rootdir=.", *arguments],
            cwd=self.directory,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


def test_a_run_says_how_many_real_tests_it_had(suite: Suite) -> None:
    code, output = suite.run(SUITE)
    assert code == 0
    assert "real control plane tests: 4 ran\n" in output


def test_with_several_workers_real_tests_share_one_and_are_counted_all_the_same(
    suite: Suite,
) -> None:
    code, output = suite.run(SUITE, "-n", "2")
    assert code == 0
    assert "real control plane tests: 4 ran\n" in output
    assert len(set(suite.workers.read_text().split())) == 1


def test_a_run_without_real_tests_fails_where_they_are_required(suite: Suite) -> None:
    code, output = suite.run(SUITE, "-m", "not real")
    assert code == 1
    assert "BACKSTAY_REQUIRE_REAL=1 demands at least one" in output


def test_a_skipped_real_test_fails_the_run_where_they_are_required(suite: Suite) -> None:
    code, output = suite.run(SKIPPING, "-n", "2")
    assert code == 1
    assert "real control plane tests: 1 ran, 1 skipped" in output
    assert "allows no skipped one: test_suite.py::test_skipped" in output


def test_where_they_are_not_required_a_developer_may_leave_them_out(suite: Suite) -> None:
    code, output = suite.run(SUITE, "-m", "not real", require=False)
    assert code == 0
    assert "real control plane tests" not in output

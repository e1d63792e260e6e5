"""The front door: what a person meets before any command runs, and when something goes wrong."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BACKSTAY = Path(sys.executable).parent / "backstay"


def backstay(*args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environ}
    return subprocess.run([BACKSTAY, *args], env=env, capture_output=True, text=True, timeout=30)


def test_help_lists_every_command_with_a_line() -> None:
    said = backstay("--help")
    assert said.returncode == 0
    for name in ("doctor", "version"):
        assert f"  {name}" in said.stdout


def test_help_loads_neither_the_client_nor_aiohttp() -> None:
    program = (
        "import sys\n"
        "from backstay.cli.main import backstay\n"
        "try: backstay.main(['--help'], prog_name='backstay')\n"
        "except SystemExit: pass\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in"
        " ('aiohttp', 'msgspec', 'yaml', 'asyncio') or m.startswith('backstay.kube')))\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    assert said.stdout.splitlines()[-1] == "[]"


def test_as_a_kubectl_plugin_it_calls_itself_so() -> None:
    plugin = BACKSTAY.with_name("kubectl-backstay")
    said = subprocess.run([plugin, "--help"], capture_output=True, text=True, timeout=30)
    assert said.stdout.startswith("Usage: kubectl backstay ")


def test_the_arguments_of_the_piraeus_ha_controller_run_the_controller() -> None:
    """As they come from a Deployment whose image alone was exchanged."""
    said = backstay("--v=5", "--leader-election=true", "--leader-election-lease-name=ha-1")
    assert said.returncode == 1
    assert said.stderr.startswith("Error: No cluster to talk to")


def test_other_options_without_a_command_are_met_with_one() -> None:
    said = backstay("--kubeconfig", "/x", "status")
    assert said.returncode == 1
    assert said.stderr.splitlines()[-1].endswith("such as: backstay run --kubeconfig")


def test_a_mistyped_command_is_met_with_the_one_that_was_meant() -> None:
    said = backstay("docter")
    assert said.returncode == 1
    assert "Did you mean 'doctor'?" in said.stderr


def test_without_any_configuration_one_sentence_says_where_it_looked() -> None:
    said = backstay("doctor")
    assert said.returncode == 1
    assert said.stdout == ""
    assert said.stderr.count("\n") == 1
    assert "/nonexistent/.kube/config" in said.stderr
    assert "--kubeconfig" in said.stderr


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "is not YAML"),
        ("[]", "is not a kubeconfig"),
        ("kind: Config\n", "no contexts"),
        ("kind: Config\nclusters: 5\n", "not valid"),
        ("\x00\x01", "is not YAML"),
    ],
    ids=["broken yaml", "a list", "empty", "wrong type", "binary"],
)
def test_a_broken_kubeconfig_is_one_sentence(tmp_path: Path, content: str, expected: str) -> None:
    config = tmp_path / "config"
    config.write_text(content)
    said = backstay("doctor", "--kubeconfig", str(config))
    assert said.returncode == 1
    assert said.stderr.startswith("Error: ")
    assert expected in said.stderr
    assert "Traceback" not in said.stderr


def test_an_api_that_cannot_be_reached_is_blindness(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "current-context: c\n"
        "contexts: [{name: c, context: {cluster: k, user: u}}]\n"
        "clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1'}}]\n"
        "users: [{name: u, user: {token: s3cret}}]\n"
    )
    said = backstay("doctor", "--kubeconfig", str(config))
    assert said.returncode == 3
    assert "BLIND" in said.stdout
    assert "NEXT:" in said.stdout
    assert "s3cret" not in said.stdout + said.stderr


def test_version_still_tells_ours_when_the_cluster_is_unreachable() -> None:
    said = backstay("version")
    assert said.returncode == 0
    assert said.stdout.startswith("Backstay    0.")
    assert "unknown: No cluster to talk to" in said.stdout


def test_a_reader_that_goes_away_is_no_error_message() -> None:
    said = subprocess.run(
        ["sh", "-c", f"{BACKSTAY} --help | true"], capture_output=True, text=True, timeout=30
    )
    assert said.stderr == ""

"""``backstay doctor`` in front of a real API server, as a person runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from harness.cluster import ControlPlane

pytestmark = pytest.mark.real

BACKSTAY = Path(sys.executable).parent / "backstay"


def doctor(kubeconfig: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BACKSTAY, "doctor", "--kubeconfig", str(kubeconfig), *args],
        env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=30,
    )  # fmt: skip


def results(said: subprocess.CompletedProcess[str]) -> dict[str, str]:
    return {check["check"]: check["result"] for check in json.loads(said.stdout)}


def changed(plane: ControlPlane, path: Path, **cluster: object) -> Path:
    config = yaml.safe_load(Path(plane.kubeconfig).read_text())
    for entry in config["clusters"]:
        entry["cluster"].update(cluster)
    path.write_text(yaml.safe_dump(config))
    return path


def test_a_sound_cluster_is_found_sound(control_plane: ControlPlane) -> None:
    said = doctor(control_plane.kubeconfig, "-o", "json")
    assert said.returncode == 0, said.stderr
    assert {*results(said).values()} <= {"ok", "warning"}
    assert results(said)["identity"] == "ok"


def test_a_user_who_may_do_nothing_is_told_what_is_missing(control_plane: ControlPlane) -> None:
    said = doctor(control_plane.kubeconfig, "--context", "ordinary", "-o", "json")
    assert said.returncode == 1
    assert results(said)["permissions"] == "FAILED"
    assert "list nodes" in said.stdout


def test_credentials_that_nobody_knows_are_named_as_such(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    config = yaml.safe_load(Path(control_plane.kubeconfig).read_text())
    for entry in config["users"]:
        entry["user"] = {"token": "nobody-knows-me"}
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    said = doctor(path, "-o", "json")
    assert said.returncode == 1
    assert results(said)["identity"] == "FAILED"
    assert "nobody-knows-me" not in said.stdout + said.stderr


def test_a_server_with_another_authority_is_not_trusted(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    import trustme

    other = trustme.CA().cert_pem.bytes()
    (tmp_path / "other.pem").write_bytes(other)
    path = changed(
        control_plane, tmp_path / "config",
        **{"certificate-authority-data": None, "certificate-authority": "other.pem"},
    )  # fmt: skip
    said = doctor(path, "-o", "json")
    assert said.returncode == 3
    assert results(said)["connection"] == "BLIND"
    assert "cannot be trusted" in said.stdout


def test_version_tells_both(control_plane: ControlPlane) -> None:
    said = subprocess.run(
        [BACKSTAY, "version", "--kubeconfig", str(control_plane.kubeconfig), "-o", "json"],
        env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    assert json.loads(said.stdout)["kubernetes"] == "v1.36.3"

"""Real files, locks and processes; only the compiler is a shell script."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import build
from harness.build import PARTS, BuildError, cache_directory, ensure_binaries

Compiler = Callable[..., None]


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """Puts a ``go`` on the PATH that writes a file instead of compiling one."""
    tools = tmp_path / "tools"
    tools.mkdir()

    def install(*, version: str = "go1.99.0", before: str = "") -> None:
        go = tools / "go"
        go.write_text(
            "#!/bin/sh\n"
            f'if [ "$1" = env ]; then echo {version}; exit; fi\n'
            f"{before}\n"
            'while [ "$1" != -o ]; do shift; done\n'
            'echo "made from $3" > "$2"\n'
        )
        go.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return install


def test_the_cache_is_where_the_user_says_or_where_caches_are() -> None:
    assert cache_directory({"BACKSTAY_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_directory({"XDG_CACHE_HOME": "/b"}) == Path("/b/backstay")
    assert cache_directory({}) == Path.home() / ".cache" / "backstay"


def test_every_binary_is_built_and_said(compiler: Compiler, tmp_path: Path) -> None:
    compiler()
    said: list[str] = []
    binaries = ensure_binaries(cache=tmp_path / "cache", say=said.append)
    for part in PARTS:
        assert binaries.path(part.binary).read_text() == f"made from {part.package}\n"
        assert any(line.startswith(f"building {part.binary} ") for line in said)
        assert any(line.startswith(f"built {part.binary} in ") for line in said)


def test_a_second_time_nothing_is_built(compiler: Compiler, tmp_path: Path) -> None:
    compiler()
    first = ensure_binaries(cache=tmp_path / "cache", say=lambda _: None)
    compiler(before="exit 1")
    said: list[str] = []
    assert ensure_binaries(cache=tmp_path / "cache", say=said.append) == first
    assert said == []


def test_a_build_that_fails_says_why_and_leaves_nothing(compiler: Compiler, tmp_path: Path) -> None:
    compiler(before='case "$*" in *scheduler*) echo no space left >&2; exit 1;; esac')
    with pytest.raises(BuildError, match=r"kube-scheduler could not be built(.|\n)*no space left"):
        ensure_binaries(cache=tmp_path / "cache", say=lambda _: None)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_what_a_killed_build_left_behind_is_cleared_away(
    compiler: Compiler, tmp_path: Path
) -> None:
    compiler()
    leftover = tmp_path / "cache" / ".building-long-ago"
    leftover.mkdir(parents=True)
    ensure_binaries(cache=tmp_path / "cache", say=lambda _: None)
    assert not leftover.exists()


def test_without_a_go_that_is_new_enough_the_sentence_says_what_to_do(
    compiler: Compiler, tmp_path: Path
) -> None:
    compiler(version="go1.2.3")
    with pytest.raises(BuildError, match=r"needs Go 1\.26\.0 or later .* is 1\.2\.3.*make go"):
        ensure_binaries(cache=tmp_path / "cache", say=lambda _: None)


def test_another_pin_is_another_directory(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler()
    first = ensure_binaries(cache=tmp_path / "cache", say=lambda _: None)
    sources = tmp_path / "sources"
    sources.mkdir()
    for name in ("go.mod", "go.sum", "tools.go"):
        (sources / name).write_bytes((build.SOURCES / name).read_bytes())
    with (sources / "go.sum").open("a") as sums:
        sums.write("example.org/other v1.0.0 h1:x\n")
    monkeypatch.setattr(build, "SOURCES", sources)
    second = ensure_binaries(cache=tmp_path / "cache", say=lambda _: None)
    assert second.directory != first.directory


def test_two_processes_do_not_build_at_once_and_the_second_says_that_it_waits(
    compiler: Compiler, tmp_path: Path
) -> None:
    log, gate = tmp_path / "log", tmp_path / "open"
    # The first build stands at the gate until we have seen the second one wait.
    compiler(before=f"echo built >> {log}; until [ -e {gate} ]; do sleep 0.05; done")
    program = [sys.executable, "-m", "harness.build"]
    env = {**os.environ, "BACKSTAY_CACHE": str(tmp_path / "cache")}
    with (
        subprocess.Popen(program, env=env, stderr=subprocess.PIPE, text=True) as first,
        subprocess.Popen(program, env=env, stderr=subprocess.PIPE, text=True) as second,
    ):
        assert first.stderr
        assert second.stderr
        opening = {first.stderr.readline(), second.stderr.readline()}
        gate.touch()
        first.communicate()
        second.communicate()
    assert "waiting for another process that is building the control plane ...\n" in opening
    assert (first.returncode, second.returncode) == (0, 0)
    assert log.read_text() == "built\n" * len(PARTS)

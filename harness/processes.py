"""Child processes that never outlive us, and a directory that does not either.

* A child is killed by the kernel when the thread that started it ends, also when that end is a
  SIGKILL and no clean-up of ours runs. So children are started from the main thread only.
* A child has a process group of its own: Ctrl-C at our terminal is ours to handle.
* A run directory is locked by its owner. Nobody can clean up after a SIGKILL, so whoever comes
  next removes the directories whose lock nobody holds any more.
"""

import asyncio
import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Child:
    """A program that runs until it is stopped; what it prints goes to a file."""

    def __init__(self, name: str, argv: Sequence[str], *, log: Path) -> None:
        self.name = name
        self.log = log
        self._argv = list(argv)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        parent = os.getpid()

        def die_with_parent() -> None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # It died before the kernel knew of our wish.
                os._exit(1)

        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.log.parent,
                process_group=0,
                preexec_fn=die_with_parent,
            )

    def send(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def suspend(self) -> None:
        """Stops it in its tracks; it has stopped when this returns.

        The signal alone is on its way for a moment, in which it can still answer.
        """
        if self._process is not None:
            self.send(signal.SIGSTOP)
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    async def stop(self, *, patience: float = 1.0) -> None:
        """TERM, and KILL when it did not end in time; it has ended when this returns.

        An API server that has watchers takes a minute over a TERM; nobody waits for that.
        """
        if self._process is None:
            return
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)  # A stopped process would not even see the TERM.
        try:
            await asyncio.to_thread(self._process.wait, patience)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL)
            self._process.wait()
        self._process = None

    def tail(self, lines: int = 15) -> str:
        """The last lines that it printed, for error messages."""
        try:
            text = self.log.read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])


class RunDirectory:
    """A temporary directory that exists as long as its owner."""

    _PREFIX = "backstay-control-plane-"

    def __init__(self) -> None:
        _remove_abandoned(self._PREFIX)
        self.path = Path(tempfile.mkdtemp(prefix=self._PREFIX))
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _remove_abandoned(prefix: str) -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        try:
            # A young one may belong to somebody who is about to lock it.
            if time.time() - path.stat().st_mtime < 60:
                continue
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:  # Removed meanwhile, or another user's.
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)

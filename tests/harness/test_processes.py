"""Real children: programs that would run for minutes if nobody ended them."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from harness.processes import Child, RunDirectory

PARENT = """
import sys, time
from pathlib import Path
from harness.processes import Child

child = Child("sleeper", ["sleep", "600"], log=Path(sys.argv[1]))
child.start()
print(child.pid, flush=True)
time.sleep(600)
"""


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout
        child = os.pidfd_open(int(parent.stdout.readline()))
        parent.send_signal(signal.SIGKILL)
    ended, _, _ = select.select([child], [], [], 10)
    os.close(child)
    assert ended


async def test_a_child_that_ignores_a_request_to_end_is_killed(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    stubborn = ["sh", "-c", f"trap '' TERM; echo > {ready}; while :; do sleep 1; done"]
    child = Child("stubborn", stubborn, log=tmp_path / "log")
    child.start()
    await asyncio.to_thread(ready.read_text)
    await child.stop(patience=0.1)
    assert not child.alive


async def test_a_stopped_child_can_be_ended(tmp_path: Path) -> None:
    child = Child("sleeper", ["sleep", "600"], log=tmp_path / "log")
    child.start()
    child.send(signal.SIGSTOP)
    await child.stop()
    assert not child.alive


def test_a_directory_whose_owner_is_gone_is_removed_by_the_next_owner() -> None:
    # An owner that ended without a word: the lock went with it, the directory stayed.
    code = "from harness.processes import RunDirectory; print(RunDirectory().path)"
    left = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    abandoned = Path(left.stdout.strip())
    assert abandoned.is_dir()
    living = RunDirectory()
    for path in (abandoned, living.path):
        os.utime(path, (0, 0))
    RunDirectory().remove()
    assert not abandoned.exists()
    assert living.path.is_dir()
    living.remove()

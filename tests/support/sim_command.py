"""``backstay sim`` as a process that is started by itself: it starts itself anew with other hashes,
and a test is to see that."""

import subprocess
import sys

_FRONT_DOOR = "from backstay.cli.main import main; main()"


def backstay_sim(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _FRONT_DOOR, "sim", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )

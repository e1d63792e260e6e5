"""``backstay sim`` as a process that is started by itself: it starts itself anew with other hashes,
and a test is to see that."""

import subprocess
import sys

# Whoever runs the tests in the background has them ignore Ctrl-C, and so would what they start.
_FRONT_DOOR = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    "from backstay.cli.main import main; main()"
)


def backstay_sim(*arguments: str) -> subprocess.CompletedProcess[str]:
    begun = backstay_sim_begun(*arguments)
    stdout, stderr = begun.communicate()
    return subprocess.CompletedProcess(begun.args, begun.returncode, stdout, stderr)


def backstay_sim_begun(*arguments: str) -> subprocess.Popen[str]:
    """For somebody who does not wait for its end."""
    return subprocess.Popen(
        [sys.executable, "-c", _FRONT_DOOR, "sim", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

"""One hash seed, so that a simulation runs the same way in every process.

Python shuffles the hashes of strings anew each time it starts, and with them the order of every
set of strings. It can be told not to, but only before it starts: a command that promises the same
run for the same seed calls ``reexec_with_fixed_hash_seed`` first, which starts the command over
if need be.
"""

import os
import sys

_VARIABLE = "PYTHONHASHSEED"


def reexec_with_fixed_hash_seed() -> None:
    """Returns in a Python whose hashes are the same in every run."""
    if not sys.flags.hash_randomization:
        return
    if sys.flags.ignore_environment:
        raise RuntimeError(
            "the same seed would not give the same run, because Python was started with -E or -I "
            f"and ignores {_VARIABLE}=0: start it without"
        )
    sys.stdout.flush()
    sys.stderr.flush()
    environ = {**os.environ, _VARIABLE: "0"}  # noqa: TID251 - all of it is passed on as it is
    os.execve(sys.executable, sys.orig_argv, environ)  # noqa: S606 - the same command as before

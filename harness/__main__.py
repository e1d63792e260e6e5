"""``python -m harness``."""

import sys

from harness.console import main

sys.exit(main(sys.argv[1:]))

"""Where the embedded API knowingly differs from a real one.

The same list, with the reasons, is in docs/embedded-api.md; a test holds the two together. A test
that shows a difference carries its id (``@pytest.mark.differs``): it passes on the real server
and must fail on the embedded one, so that a difference that was removed leaves the list too.
"""

from collections.abc import Mapping

DIFFERENCES: Mapping[str, str] = {}

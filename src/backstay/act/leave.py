"""Leave: until when something may be written, by ``loop.time()``; raises ``TooLate`` once it may
not be at all. A verb that reads before it writes, or writes several times, asks for it right before
each write, because people may have said something else meanwhile.
"""

from collections.abc import Callable
from typing import TypeAlias

Leave: TypeAlias = Callable[[], float]

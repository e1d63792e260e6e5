"""The six seams: protocols through which the world comes in, each with a real and a simulated
implementation.

================  =============================================  ==========================
protocol          for                                            real implementation
================  =============================================  ==========================
``Transport``     requests and streams that leave                ``aiohttp_transport.py``
``Serve``         requests that come in                          ``aiohttp_serve.py``
``Exec``          fence agents and credential plugins            ``processes.py``
``Files``         tokens, recorder, edge bus                     ``disk.py``
``WallClock``     the time of day                                ``system.py``
``Rng``           jitter and names                               ``system.py``
================  =============================================  ==========================

Monotonic time is the event loop's ``time()``. Nothing above this room reads a clock, opens a
socket or a file, starts a program or rolls dice in any other way (ruff enforces it), so the
same code runs in a cluster and in a simulated world that can be replayed. Importing this
package is cheap: the real implementations, and aiohttp with them, load in ``real.open_seams``.
"""

from dataclasses import dataclass

from backstay.seam.clock import Rng, WallClock
from backstay.seam.exec import Exec
from backstay.seam.files import Files
from backstay.seam.serve import Serve
from backstay.seam.transport import Transport


@dataclass(frozen=True)
class Seams:
    """One of each, handed down from the composition root."""

    transport: Transport
    serve: Serve
    exec: Exec
    files: Files
    wall: WallClock
    rng: Rng

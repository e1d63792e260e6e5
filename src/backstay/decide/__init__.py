"""Pure rules: from what is known to what should be done, and why.

Nothing here awaits, reads a clock, rolls dice or knows a client. The same functions decide for a
running controller, for ``backstay readiness`` on a death that has not happened, for a replayed
recording, and for ten thousand simulated disasters.
"""

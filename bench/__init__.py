"""What we measure, and beside whom. ``python -m bench`` runs it; docs/benchmarks.md explains it.

====================  =============================================================================
``rows.py``           the catalogue: every row, its two contenders, its bar
``contest.py``        rounds: ours, peer, ours, peer; medians
``processes.py``      contenders and the server as child processes, and what they share
``worker.py``         the child's side: one contender, measured when told to
``server.py``         an API server that costs nothing to answer: its bytes are prepared
``plane.py``          a real control plane, for rows that need one
``fleet.py``          an embedded API with many nodes
``pods.py``           the pods, the same for everyone
``decode.py`` ...     the contenders themselves, a module for each subject
``report.py``         the table, bench/results.json, and the table in docs/benchmarks.md
====================  =============================================================================

Rules:

* Ours and the peer's figure come from the same run, on the same data, in turns.
* Each contender has a process of its own, so that nobody pays for somebody else's garbage.
* Where a choice had to be made, it favours the peer, and docs/benchmarks.md says so.
"""

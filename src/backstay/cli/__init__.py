"""What a person types. This room parses, calls and prints; it decides nothing.

Importing it is cheap: each command's module, and the client with it, loads when the command
runs, so that ``--help`` and completion answer at once.

Exit codes: 0 fine, 1 an error, wrong usage or a failed check, 2 workloads are held, 3 blind (the
API cannot be reached, or its view is not to be relied on), 4 something is not as it must be (a
replayed decision differs, an invariant broke), 130 interrupted.
"""

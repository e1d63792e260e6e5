"""What a person types. This room parses, calls and prints; it decides nothing.

Importing it is cheap: each command's module, and the client with it, loads when the command
runs, so that ``--help`` and completion answer at once.

Exit codes: 0 fine, 1 an error or a failed check, 2 bad usage, 3 blind (the API cannot be
reached), 130 interrupted.
"""

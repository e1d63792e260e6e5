"""Telling: whatever was seen, decided and done is said once, in the same words everywhere.

``telling`` folds decisions into the status of an Incident, and ``incidents`` keeps it in the API;
``events`` says it where ``kubectl describe`` shows it, ``logs`` line by line, ``metrics`` in
numbers; ``recorder`` keeps what a decision rested on, so that ``replay`` can make it again;
``endpoints`` answers who asks over HTTP. Nothing here decides anything.
"""

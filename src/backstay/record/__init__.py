"""Telling: whatever was seen, decided and done is said once, in the same words everywhere.

``telling`` folds decisions into the status of an Incident, and ``incidents`` keeps it in the API,
for as long as ``retention`` says; ``events`` says it where ``kubectl describe`` shows it, ``logs``
line by line, ``metrics`` in numbers, and ``notify`` tells it to a webhook. What a decision rested
on is a frame (``frames``): ``recorder`` keeps them on disk and ``blackbox`` in the cluster, so
that ``replay`` can decide again. ``endpoints`` answers who asks over HTTP. Nothing here decides
anything.
"""

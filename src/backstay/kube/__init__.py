"""A Kubernetes client over the seams. It knows nothing of Backstay.

Reading order: ``access`` (the way to one cluster, as one user), ``client`` (the verbs),
``errors`` (what an answer means), ``watch`` (the pure state machine), ``reflector`` (its shell)
and ``cache`` (what is known), ``queue`` (what to do next), ``lease`` (who may do it) and
``events`` (telling people about it).
"""

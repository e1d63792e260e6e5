"""LINSTOR, which manages DRBD volumes: what its controllers know of them, over REST and events.

=================  ==============================================================
``access``         where the controllers are and how they know us, from ``LS_...``
``credentials``    the headers and the TLS identity that are valid now
``client``         questions, asked of whichever controller answers
``wire``           LINSTOR's JSON as values
``stream``         who may be promoted, as it changes
``sse``            the format in which that comes
``errors``         what can go wrong, by what it means
``refusals``       answers that are none, in one sentence
=================  ==============================================================

Nothing here knows of Kubernetes objects, or judges what it reads. To LINSTOR, names that differ
only in case are the same; those of nodes and resources are handed out in lower case.
"""

"""The embedded world: implementations of the seams that need no machine, under virtual time.

It uses ``seam``, ``kube`` and ``apis`` only; the controller cannot tell it from the real one.
"""

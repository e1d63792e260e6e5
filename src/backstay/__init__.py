"""Backstay keeps virtual machines and stateful workloads on Kubernetes running when nodes
fail, drain or reboot, and proves that it is safe before it acts.

The rooms, each of which may import only from those below it (checked by import-linter):

=============  ==========================================================================
``cli``        what a person types; the only room that prints
``sim``        an embedded world: the seams in memory, under virtual time
``apis``       Kubernetes wire types, projected to the fields that we use, and cache rows
``kube``       a Kubernetes client over the seams; knows nothing of Backstay
``seam``       the six protocols through which the world comes in, and the real ones
=============  ==========================================================================
"""

__version__ = "0.1.0"

"""Hollow nodes: machines that a cluster cannot tell from real ones, and that can be made to fail.

==================  ============================================================================
``truth.py``        what really runs, apart from what the API says
``runtime.py``      a machine with power and containers; the only writer of the truth

the kubelet
``kubelet.py``      what it does with pods, without any input or output
``podstatus.py``    what it writes about a pod
``nodestatus.py``   and about its node
``volumes.py``      what a pod's claims stand for, and whether it is there
``wire.py``         pods as it reads them
``kubelet_program`` all that, joined to an API

the node
``machine.py``      what programs run on: in a ``World``, or on an ordinary loop
``cable.py``        a network for the latter that can be pulled
``agents.py``       other programs on a node
``node.py``         a node made of these, and the faults it knows: ``Node``
``fleet.py``        many on an ordinary loop: ``HollowFleet``
==================  ============================================================================

They speak to any Kubernetes API through a ``KubeClient``: to the embedded one, and to a real
control plane.
"""

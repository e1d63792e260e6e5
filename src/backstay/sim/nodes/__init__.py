"""Hollow nodes: machines that a cluster cannot tell from real ones, and that can be made to fail.

==================  ============================================================================
``truth.py``        what really runs, apart from what the API says
``runtime.py``      a machine with power and containers; the only writer of the truth
``kubelet.py``      what a kubelet does with pods, without any input or output
``podstatus.py``    what it writes about a pod
``nodestatus.py``   and about its node
``wire.py``         pods as it reads them
``hollow.py``       nodes made of these, and the faults they know: ``HollowFleet``
==================  ============================================================================

They speak to any Kubernetes API through a ``KubeClient``: to the embedded one, and to a real
control plane.
"""

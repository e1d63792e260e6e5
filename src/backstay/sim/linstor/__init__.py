"""LINSTOR and DRBD: replicated volumes, and what is said of them.

* ``drbd.py`` (with ``replicas.py`` and ``quorum.py``): DRBD itself, the ground truth. It says who
  can write, whatever anybody reports.
* ``controller.py``: what LINSTOR's controller knows of it, as late and as wrong as the real one.
* ``rest.py``, ``promotions.py`` and ``front.py``: how it tells, over HTTP and as a stream.
* ``storage.py``: its place in an embedded cluster, with kubelets that open devices.
"""

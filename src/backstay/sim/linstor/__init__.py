"""LINSTOR and DRBD: replicated volumes, and what is said of them.

* ``drbd.py`` (with ``replicas.py``, ``quorum.py`` and ``clockwork.py``): DRBD itself, the ground
  truth. It says who can write, whatever anybody reports.
* ``database.py`` and ``controller.py``: what LINSTOR was told, and what its controller knows, as
  late and as wrong as the real one.
* ``rest.py``, ``promotions.py`` and ``front.py``: how it tells, over HTTP and as a stream;
  ``served.py`` listens.
* ``storage.py``, ``provisioner.py`` and ``install.py``: its place in an embedded cluster, with
  kubelets that open devices and a controller that is a pod.
"""

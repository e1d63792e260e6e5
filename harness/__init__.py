"""A real control plane on this machine, with nodes that can be made to fail.

=================  =============================================================================
``build.py``       etcd and the Kubernetes servers, built once from pinned sources
``cluster.py``     starts and stops them: ``ControlPlane``
``processes.py``   child processes that never outlive us
``pki.py``         certificates, tokens and kubeconfigs
``kubelet.py``     what a kubelet does with pods, without any input or output
``truth.py``       what really runs, apart from what the API says
``hollow.py``      nodes on the API that run nothing but keep the truth, and the faults they know
``console.py``     ``python -m harness``: all of it at a prompt
``accounting.py``  a pytest plugin: tests that need the real thing are never skipped unseen
=================  =============================================================================

For development and tests only: nothing of it is shipped.
"""

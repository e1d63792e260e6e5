"""A real control plane on this machine, with nodes that can be made to fail
(``backstay.sim.nodes``).

==================  ============================================================================
a control plane
``build.py``        etcd and the Kubernetes servers, built once from pinned sources
``cluster.py``      starts and stops them: ``ControlPlane``
``processes.py``    child processes that never outlive us
``pki.py``          certificates, tokens and the kubeconfig
``connect.py``      Backstay's client on it, and waiting for objects without sleeping
``facts.py``        what the embedded API copies from it

for people and tests
``console.py``      ``python -m harness``: all of it at a prompt
``accounting.py``   a pytest plugin: tests that need the real thing never go missing unseen
==================  ============================================================================

For development and tests only: nothing of it is shipped.
"""

"""A Kubernetes API in memory, with the semantics that Backstay relies on.

It is a ``Handler`` (see ``seam/serve.py``): behind ``sim.network`` it answers in memory under
virtual time, behind the real ``Serve`` it answers kubectl over HTTPS. What it is held to is the
conformance suite, which runs unchanged against a real kube-apiserver; what it does not do is
listed in docs/embedded-api.md.

Reading order: ``kinds`` (what there is), ``store`` (what is kept, and its history), ``patches``
and ``managed`` (how writes combine), ``rules`` (what each kind does of its own), ``server`` (how
requests become all that). Then the parts that stand on these: ``custom`` (kinds that users
define), ``admission`` (what is added by what else there is), ``subresources`` and ``eviction``,
``rbac``, ``reviews`` and ``access`` (who may do what), ``tables`` (what kubectl shows), and the
controllers that no cluster is without: ``garbage`` and ``disruption``.
"""

"""An embedded cluster: the API, Kubernetes' controllers, and nodes that can be made to fail.

Under virtual time, each program a process of its own::

    async def scenario(world: World) -> None:
        cluster = EmbeddedCluster(WorldGround(world), timers=Timers())
        for name in ("n1", "n2", "n3"):
            cluster.add_node(name)
        await cluster.settled()
        await cluster.client().create(STATEFUL_SETS, database, namespace="default")
        await cluster.until(lambda: cluster.truth.copies("default", "db-0") == ["n1"])
        cluster.nodes["n1"].kill()

In real time, on the loop that runs already, with kubectl::

    async with open_seams() as seams, on_this_loop(seams) as ground:
        cluster = EmbeddedCluster(ground, timers=Timers().scaled(0.1))
        async with cluster.serve(seams.serve) as served:
            ...  # served.url, served.kubeconfig

========================  ======================================================================
``cluster.nodes["n1"]``   ``kill  freeze  thaw  cut_off  heal  reboot  kill_kubelet
                          start_kubelet  slow_down  step_clock  exit  run``, see
                          ``sim/nodes/node.py``
``cluster.truth``         what really runs, who can write to a volume, all that ever happened,
                          and ``follow`` for whoever wants to be called; see ``nodes/truth.py``
``cluster.api``           the ``ApiServer``; ``cluster.api.store.follow`` hears every commit
``cluster.client(user)``  a client from outside; ``access(user)`` for one of one's own
``cluster.until(holds)``  waits for the store or the truth; ``settled`` for all nodes to be open
``cluster.control_plane`` ``kill(name)`` and ``start(name)``: ``api``, ``kube-scheduler``,
                          ``kube-controller-manager``, ``csi-attacher``
``cluster.roll_back``     to a backup: ``cluster.api.store.snapshot()``
``add_controller``        one more: ``lambda seams: KubeVirt(cluster.api.operations, ...)``
``add_node``              takes ``labels`` and ``agents``, see ``nodes/agents.py``
========================  ======================================================================

The controllers are stand-ins. They go through the steps that the real ones were seen to go through
when a node died and came back, in that order, and at those times where a timer rules; ``timers``
has the timers. What they do not do is at the top of each file.

==================  ============================================================================
``embedded.py``     ``EmbeddedCluster``
``ground.py``       where it runs: in a ``World``, or on an ordinary loop
``timers.py``       ``Timers``
``desk.py``         what controllers read and write with

``scheduler.py``    gives pods nodes, by the rules in ``placement.py``
``lifecycle.py``    notices silent nodes and gives them taints
``eviction.py``     has pods leave tainted nodes
``pod_gc.py``       deletes pods that no kubelet will
``stateful_sets``   pods with names of their own
``replica_sets``    pods that are all alike
``daemon_sets.py``  one on each node
``jobs.py``         pods that run until they have succeeded
``claims.py``       binds claims to volumes, and has volumes made
``attachments.py``  has volumes follow their pods
``taints.py``       who tolerates what
==================  ============================================================================
"""

"""LINSTOR on a stage: sets it up as a scenario says, and lets happen to it what a step says."""

import asyncio

from backstay.kube.client import KubeClient
from backstay.kube.resource import NAMESPACES, Resource
from backstay.lab.linstor_spec import LinstorSpec, What
from backstay.sim.cluster.embedded import EmbeddedCluster, anywhere
from backstay.sim.linstor.database import QUORUM, TWO_PRIMARIES
from backstay.sim.linstor.front import Trouble
from backstay.sim.linstor.install import DEPLOYMENT, add_satellite, class_object
from backstay.sim.linstor.storage import COMPONENT, CONTROLLER, NAMESPACE, URL, Linstor

_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
_DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
_SETTLING = 2.0
"""Seconds in which satellites find a new controller."""
_PATIENCE = 60.0


class LinstorStage:
    """See the module."""

    def __init__(self, linstor: Linstor, embedded: EmbeddedCluster) -> None:
        self._linstor = linstor
        self._embedded = embedded

    async def set_up(self, spec: LinstorSpec, client: KubeClient, nodes: tuple[str, ...]) -> None:
        """Until its controller knows its satellites."""
        linstor, embedded = self._linstor, self._embedded
        for node in nodes:
            shown = node.upper() if spec.upper_case else node
            add_satellite(linstor, embedded, node, shown=shown)
        for name, each in spec.all_classes.items():
            linstor.classes[name] = each.placement(nodes)
            if each.level == "controller":
                linstor.database.props.update(each.props)
            await client.create(_CLASSES, class_object(name))
        await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        embedded.prefers = lambda _: spec.controller
        await client.create(_DEPLOYMENTS, DEPLOYMENT, namespace=NAMESPACE)
        async with asyncio.timeout(_PATIENCE):
            while not linstor.is_served:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(_SETTLING)
        embedded.prefers = anywhere
        await asyncio.sleep(_SETTLING)

    # What happens to it

    def happen(self, what: What, seconds: float) -> str:
        """In a few words, or nothing where it made no sense."""
        linstor = self._linstor
        if what is What.KILL:
            return self._kill()
        if what in _STREAMS:
            return self._to_streams(what)
        if what is What.ALLOW_TWO_PRIMARIES:
            linstor.database.set_property(TWO_PRIMARIES, "yes")
            return "allows two primaries"
        if what in _QUORUMS:
            for name in linstor.database.definitions:
                linstor.database.set_property(QUORUM, _QUORUMS[what], resource=name)
            return f"has its quorum set to {_QUORUMS[what]}"
        return self._trouble(what, seconds)

    def _trouble(self, what: What, seconds: float) -> str:
        linstor, well = self._linstor, what is What.WELL
        link = self._embedded.ground.network.link(URL)
        linstor.faults.trouble = _TROUBLES.get(what)
        if well or what is What.SLOW:
            linstor.faults.seconds = seconds
        if well or what is What.REFUSE:
            link.refuse = not well
        if well or what is What.STALE:
            linstor.hearing.stale = not well
            linstor.drbd.look_around()
        if well:
            linstor.hearing.sticky.clear()
            return "is well again"
        return f"is in trouble: {what}"

    def _kill(self) -> str:
        linstor = self._linstor
        if not linstor.is_served:
            return ""
        node = self._embedded.nodes[linstor.host]
        for run in node.runtime.running.values():
            if (run.pod.metadata.labels or {}).get(COMPONENT) == CONTROLLER:
                node.exit(NAMESPACE, run.pod.name, code=137)
                return "is killed"
        return ""

    def _to_streams(self, what: What) -> str:
        if self._linstor.served is None:
            return ""
        promotions = self._linstor.served.controller.promotions
        match what:
            case What.CUT_STREAMS:
                promotions.cut()
                return "loses its streams"
            case What.END_STREAMS:
                promotions.end()
                return "ends its streams"
        promotions.go_silent()
        return "says nothing more on its streams"

    def cut(self, node: str, peer: str) -> str:
        self._linstor.drbd.cut(node, peer)
        return f"and {peer} have no connection for DRBD"

    def mute(self, node: str, peer: str) -> str:
        self._linstor.drbd.cut(node, peer, one_way=True)
        return f"is not heard by {peer} over DRBD's connection any more"

    def mend(self, node: str, peer: str) -> str:
        self._linstor.drbd.mend(node, peer)
        return f"and {peer} can have a connection for DRBD"

    def free(self, node: str) -> str:
        for name in self._linstor.database.definitions:
            self._linstor.database.set_property(QUORUM, "off", resource=name, node=node)
        return "has replicas that go by no quorum from now on"

    def allow_two_between(self, node: str, peer: str) -> str:
        self._linstor.database.allow_two_primaries_between(node, peer)
        return f"and {peer} may both be primary, by what is set for their connection"

    def stop_satellite(self, node: str) -> str:
        return self._has_satellite(node, runs=False)

    def start_satellite(self, node: str) -> str:
        return self._has_satellite(node, runs=True)

    def _has_satellite(self, node: str, *, runs: bool) -> str:
        stopped = self._linstor.hearing.stopped
        if (node not in stopped) is runs:
            return ""
        stopped ^= {node}
        self._linstor.drbd.look_around()
        return "has a satellite of LINSTOR again" if runs else "loses its satellite of LINSTOR"

    def evict(self, node: str) -> str:
        served, database = self._linstor.served, self._linstor.database
        away = served is not None and not served.controller.is_online(node)
        if not (away and self._linstor.is_served) or node in database.evicted:
            return ""
        database.evict(node)
        return "is given up by LINSTOR, and its replicas by the others"

    def serve_exports(self, node: str) -> str:
        exports = self._linstor.exports
        orphans = [each for each in exports if not exports.is_served(each)]
        taken = [each for each in orphans if exports.serve(each, node)]
        return "serves over NFS what nobody else does" if taken else ""

    def stay_online(self, node: str) -> str:
        self._linstor.hearing.sticky.add(node)
        return "stays online for LINSTOR, whatever happens"


_QUORUMS = {What.QUORUM_OFF: "off", What.QUORUM_ON: "majority"}
_STREAMS = frozenset({What.CUT_STREAMS, What.END_STREAMS, What.SILENCE_STREAMS})
_TROUBLES: dict[str, Trouble] = {str(each): each for each in Trouble}

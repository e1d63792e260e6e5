"""Stage: sets up what a scenario begins with, until everything runs and a controller leads."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, TypeAlias, Unpack

import msgspec

from backstay.apis.apps import STATEFUL_SETS
from backstay.apis.backstay import AVAILABILITY_POLICIES, CONFIG_NAME, CONFIGS
from backstay.apis.calico import ASKED
from backstay.apis.kubevirt import VIRTUAL_MACHINES
from backstay.app import Parts
from backstay.kube.resource import LEASES, NODES, PODS, Resource
from backstay.lab import drain_stage, guest_stage
from backstay.lab.cluster import NAMESPACE, PATIENCE, VAULT, LabCluster
from backstay.lab.linstor_stage import LinstorStage
from backstay.lab.scenario import (
    API_SERVER,
    USUAL_GRACE,
    VIRT_CONTROLLER,
    Claim,
    Deployment,
    Scenario,
    StatefulSet,
    Vm,
    Workloads,
)
from backstay.lab.witness import workload_in
from backstay.model.labels import ARMED, CONTROL_PLANE, EXEMPT
from backstay.model.policy import Mode
from backstay.settings import Settings
from backstay.sim import csiaddons
from backstay.sim.api.store import Key, Stored
from backstay.sim.cluster.claims import LOCAL, storage_class
from backstay.sim.cluster.embedded import anywhere
from backstay.sim.kubevirt import VirtController, virtual_machine

Json = dict[str, Any]

CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)

Workload: TypeAlias = Vm | StatefulSet | Deployment

_HOSTNAME = "kubernetes.io/hostname"

_SETTLING = 15.0
"""Seconds in which our controllers see every node renew its lease."""


class Stage:
    """See the module. ``instead`` is what our controllers are built of, now and on restarts."""

    def __init__(self, cluster: LabCluster, scenario: Scenario, **instead: Unpack[Parts]) -> None:
        self.cluster = cluster
        self.scenario = scenario
        self._instead = instead
        self._client = cluster.client
        linstor = cluster.linstor
        self.linstor = None if linstor is None else LinstorStage(linstor, cluster.embedded)
        self.power = cluster.power

    async def set_up(self) -> None:
        scenario, cluster = self.scenario, self.cluster
        await cluster.boot(*scenario.nodes)
        for number, name in enumerate(scenario.nodes if scenario.storage_network else ()):
            await csiaddons.report_address(cluster.client, name, f"10.9.0.{number + 1}")
        if cluster.calico is not None and scenario.calico is not None:
            spec = {
                "strictAffinity": scenario.calico.strict, "autoAllocateBlocks": True,
                "ipCooldownSeconds": scenario.calico.cooldown,
            }  # fmt: skip
            body = {"metadata": {"name": "default"}, "spec": spec}
            await self._client.create(cluster.calico.group.settings, body)
        await self._host()
        if scenario.maintenance:
            await drain_stage.install(self._client)
        said = (
            (scenario.exempt, {EXEMPT: "true"}),
            (scenario.control_plane, {CONTROL_PLANE[0]: ""}),
        )
        for names, labels in said:
            for name in names:
                await self._client.merge_patch(NODES, name, {"metadata": {"labels": labels}})
        if self.linstor is not None and scenario.linstor is not None:
            await self.linstor.set_up(scenario.linstor, self._client, scenario.nodes)
        if self.power is not None and scenario.bmcs is not None:
            await self.power.set_up(scenario.bmcs, scenario.nodes)
        await self._start_workloads(scenario.workloads)
        await self._set_policy()
        for name in scenario.controller_names:
            self.start_controller(name)
        await cluster.eventually(lambda: cluster.leader is not None)
        await asyncio.sleep(_SETTLING)
        if scenario.policy.disarmed_for:
            await self.configure(disarmed_for=scenario.policy.disarmed_for)

    async def _host(self) -> None:
        """What nodes run besides workloads, but for our controllers."""
        cluster, scenario = self.cluster, self.scenario
        if pair := scenario.hosts_of(VIRT_CONTROLLER):
            cluster.embedded.control_plane.kill(VIRT_CONTROLLER)
            for node in pair:
                agent = VirtController(cluster.embedded.api.operations)
                cluster.nodes[node].run(VIRT_CONTROLLER, agent)
        await cluster.serve_on(scenario.hosts_of(API_SERVER))

    def host_of(self, controller: str) -> str:
        """The node that it is on; empty where it has a machine of its own."""
        return next(iter(self.scenario.hosts_of(controller)), "")

    def start_controller(self, name: str) -> None:
        self.cluster.start_backstay(name, on=self.host_of(name), **self._instead)

    def leader(self) -> str:
        """Who holds the lease."""
        ours = Settings(identity="")
        lease = self.cluster.witness.stored(LEASES.label, ours.lease, ours.namespace)
        return "" if lease is None else str(lease["spec"].get("holderIdentity") or "")

    # What people have said

    async def _set_policy(self) -> None:
        policy = self.scenario.policy
        protect = {
            "virtualMachines": policy.virtual_machines, "statefulSets": policy.stateful_sets,
        }  # fmt: skip
        if policy.mode is Mode.ARMED or not all(protect.values()) or policy.config:
            await self.configure(mode=policy.mode, protect=protect, **policy.config)
        for name, spec in policy.policies.items():
            body = {"metadata": {"name": name}, "spec": spec}
            await self._client.create(AVAILABILITY_POLICIES, body, namespace=NAMESPACE)

    async def configure(self, *, disarmed_for: float = 0.0, **spec: Any) -> None:
        """Changes what is named and nothing else."""
        if disarmed_for:
            until = self.cluster.witness.wall_now() + timedelta(seconds=disarmed_for)
            spec["disarmed"] = {"until": until.isoformat(), "reason": "they are at work"}
        meta: Json = {"name": CONFIG_NAME}
        if spec.get("mode") == Mode.ARMED:
            meta["annotations"] = {ARMED: self.cluster.witness.wall_now().isoformat()}
        if self.cluster.witness.stored(CONFIGS.label, CONFIG_NAME) is None:
            await self._client.create(CONFIGS, {"metadata": meta, "spec": spec})
        else:
            patch = {"metadata": meta, "spec": spec}
            await self._client.merge_patch(CONFIGS, CONFIG_NAME, patch)

    # Workloads

    async def _start_workloads(self, workloads: Workloads) -> None:
        wanted = [(*vm.claims, *vm.hotplug) for vm in workloads.vms] + [
            s.claims for s in workloads.stateful_sets
        ]
        if any(Claim.VAULT in claims for claims in wanted):
            await self._client.create(_CLASSES, storage_class("vault", cluster=VAULT))
        if any(Claim.LOCAL in claims for claims in wanted):
            await self._client.create(_CLASSES, storage_class(LOCAL, driver=LOCAL, waits=True))
        everything: tuple[Workload, ...] = (
            *workloads.vms, *workloads.stateful_sets, *workloads.deployments,
        )  # fmt: skip
        nodes = {
            name: each.node or self._in_turn(each, number)
            for each in everything
            for number, name in enumerate(_names(each))
        }
        # What has a node of its own is put there, and may go anywhere later.
        self.cluster.embedded.prefers = lambda pod: nodes.get(self.workload(pod), "")
        # The order counts for who gets which node, and for who gets an address before another.
        in_order = any(vm.addresses for vm in workloads.vms)
        together = [each for each in everything if each.node and not in_order]
        for name in workloads.daemon_sets:
            await drain_stage.create_daemon_set(self._client, NAMESPACE, name)
        for each in together:
            await self._create(each)
        if together:
            await self._running([name for each in together for name in _names(each)])
        for each in everything:
            if each not in together:
                await self._create(each)
                await self._running(_names(each))
        self.cluster.embedded.prefers = anywhere

    def _in_turn(self, wanted: Workload, number: int) -> str:
        """Replicas that come together would share the nodes as chance has it."""
        nodes = self.scenario.nodes
        return nodes[number % len(nodes)] if isinstance(wanted, StatefulSet) else ""

    async def _create(self, wanted: Workload) -> None:
        match wanted:
            case Vm():
                await self._create_vm(wanted)
            case StatefulSet():
                body = _stateful_set(wanted)
                await self._client.create(STATEFUL_SETS, body, namespace=NAMESPACE)
            case Deployment():
                await self._client.create(DEPLOYMENTS, _deployment(wanted), namespace=NAMESPACE)
        await drain_stage.create_budget(self._client, NAMESPACE, wanted)

    async def create_claim(self, vm: str) -> str:
        """One more that can be used from everywhere, for this VM."""
        claims = self.cluster.store.all(CLAIMS.label)
        number = sum(each.key[1].startswith(f"{vm}-disk-") for each in claims) + 1
        name = f"{vm}-disk-{number}"
        claim = {"metadata": {"name": name}, "spec": _claim_spec(Claim.SHARED)}
        await self._client.create(CLAIMS, claim, namespace=NAMESPACE)
        return name

    async def _create_vm(self, vm: Vm) -> None:
        kinds = (*vm.claims, *vm.hotplug)
        disks = [f"{vm.name}-disk-{number + 1}" for number in range(len(kinds))]
        for name, kind in zip(disks, kinds, strict=True):
            claim = {"metadata": {"name": name}, "spec": _claim_spec(kind, vm.storage_class)}
            await self._client.create(CLAIMS, claim, namespace=NAMESPACE)
        body = virtual_machine(
            vm.name,
            namespace=NAMESPACE,
            run_strategy=vm.run_strategy,
            claims=disks[: len(vm.claims)],
            hotplug=disks[len(vm.claims) :],
            labels=vm.labels,
            annotations={ASKED: msgspec.json.encode(vm.addresses).decode()} if vm.addresses else {},
            node_selector={_HOSTNAME: vm.node} if vm.pinned else None,
            eviction_strategy=vm.eviction_strategy or None,
            start_strategy="Paused" if vm.paused else None,
        )
        resource = VIRTUAL_MACHINES
        if vm.made_by != "vm":
            resource, body = guest_stage.made_by(vm.made_by, body)
        await self._client.create(resource, body, namespace=NAMESPACE)
        if vm.run_strategy == "Manual":
            asked = {"status": {"stateChangeRequests": [{"action": "Start"}]}}
            await self._client.merge_patch(
                VIRTUAL_MACHINES, vm.name, asked, namespace=NAMESPACE, subresource="status"
            )

    async def _running(self, names: Iterable[str]) -> None:
        """Until all of them run at one moment, and the API knows it."""
        wanted, running = Counter(names), dict[Key, str]()
        # Its own, because this waits for a few of hundreds of changes.
        all_run = asyncio.Event()

        def note(pod: Stored, *, gone: bool = False) -> None:
            if not gone and (pod.object.get("status") or {}).get("phase") == "Running":
                if pod.key not in running:
                    running[pod.key] = self.workload(pod.object)
                    if wanted <= Counter(running.values()):
                        all_run.set()
            else:
                running.pop(pod.key, None)

        store = self.cluster.store
        release = store.follow(PODS.label, lambda commit: note(commit.after, gone=commit.deleted))
        try:
            for pod in store.all(PODS.label):
                note(pod)
            async with asyncio.timeout(PATIENCE):
                await all_run.wait()
        finally:
            release()

    def workload(self, pod: Any) -> str:
        """What the scenario calls it."""
        return self.named(workload_in(pod))

    def named(self, workload: str) -> str:
        """A Deployment's pods have names of their own each, and so have the guests of a set."""
        name = workload.partition("/")[2]
        for vm in self.scenario.workloads.vms:
            if guest_stage.member(vm.made_by, name, of=vm.name):
                return vm.name
        return next((each for each in self._sets_of_pods if name.startswith(f"{each}-")), name)

    @property
    def _sets_of_pods(self) -> tuple[str, ...]:
        workloads = self.scenario.workloads
        return (*(each.name for each in workloads.deployments), *workloads.daemon_sets)


def _names(workload: Workload) -> list[str]:
    """What is to run of it, as the scenario calls it."""
    match workload:
        case StatefulSet():
            return [f"{workload.name}-{number}" for number in range(workload.replicas)]
        case Deployment():
            return [workload.name] * workload.replicas
    return [workload.name]


def _claim_spec(kind: Claim, storage_class: str = "") -> Json:
    request = {"resources": {"requests": {"storage": "10Gi"}}}
    match kind:
        case Claim.SHARED:
            return {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", **request}
        case Claim.FILES:
            return {"accessModes": ["ReadWriteMany"], **request}
        case Claim.SINGLE:
            return {"accessModes": ["ReadWriteOnce"], **request}
        case Claim.VAULT:
            return {"accessModes": ["ReadWriteOnce"], "storageClassName": "vault", **request}
        case Claim.LOCAL:
            return {"accessModes": ["ReadWriteOnce"], "storageClassName": LOCAL, **request}
        case Claim.LINSTOR:
            own = {"storageClassName": storage_class}
            return {"accessModes": ["ReadWriteOnce"], **own, **request}
        case Claim.LINSTOR_SHARED:
            own = {"storageClassName": storage_class, "volumeMode": "Block"}
            return {"accessModes": ["ReadWriteMany"], **own, **request}


def _stateful_set(wanted: StatefulSet) -> Json:
    claims = [f"data-{number + 1}" for number in range(len(wanted.claims))]
    files = {"volumeMode": "Filesystem"}
    templates = [
        {"metadata": {"name": name}, "spec": _claim_spec(kind, wanted.storage_class) | files}
        for name, kind in zip(claims, wanted.claims, strict=True)
    ]
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in claims]
    if wanted.host_path:
        mounts.append({"name": "host", "mountPath": "/host"})
    body = _pods_of(wanted.name, wanted.labels, mounts, wanted.replicas)
    if wanted.host_path:
        volume = {"name": "host", "hostPath": {"path": wanted.host_path}}
        body["spec"]["template"]["spec"]["volumes"] = [volume]
    if wanted.grace != USUAL_GRACE:
        body["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = wanted.grace
    body["spec"] |= {
        "serviceName": wanted.name,
        "podManagementPolicy": "Parallel",
        "volumeClaimTemplates": templates,
    }
    return body


def _deployment(wanted: Deployment) -> Json:
    return _pods_of(wanted.name, wanted.labels, [], wanted.replicas)


def _pods_of(name: str, labels: dict[str, str], mounts: list[Json], replicas: int) -> Json:
    container = {"name": "main", "image": f"example/{name}", "volumeMounts": mounts}
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name, **labels}},
                "spec": {"containers": [container]},
            },
        },
    }

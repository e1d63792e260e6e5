"""The VMI controller: makes and deletes launcher pods, and keeps the status of VMIs.

It makes one pod for a VMI that has never had one, and never a second. It asks pods to go as they
want to go, and never forces one: a VMI whose node has died hangs until somebody else takes the
pod away. See ``vmi_status`` for what follows from what.
"""

from backstay.kube.resource import PODS, Resource
from backstay.seam.clock import Rng
from backstay.sim.api.kinds import Object
from backstay.sim.api.operations import Operations
from backstay.sim.api.status import Refusal
from backstay.sim.api.store import Commit, Key, Stored
from backstay.sim.kubevirt import hotplug
from backstay.sim.kubevirt.launcher import ClaimNotFound, launcher_pod
from backstay.sim.kubevirt.names import (
    FINAL,
    HANDED_OVER,
    KEPT_FOR_PODS,
    MIGRATIONS,
    NODE_NAME,
    OBSERVED_VERSIONS,
    UNPROCESSED,
    VMIS,
    VMS,
    Json,
)
from backstay.sim.kubevirt.objects import (
    claim_of,
    claims_of,
    condition_of,
    controller_of,
    finalizers_of,
    is_going,
    phase_of,
    with_metadata,
)
from backstay.sim.kubevirt.reconciler import Connected, Reconciler, tested
from backstay.sim.kubevirt.vmi_status import View, advanced, current_pod, is_down, is_up

_OWNERS = frozenset({VMIS.kind, PODS.kind})

CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")


class VmiController(Reconciler):
    """Works on the keys of VMIs."""

    hears = (VMIS, PODS, CLAIMS, VMS)

    def __init__(
        self,
        operations: Operations,
        *,
        rng: Rng,
        connected: Connected,
        notices_late: bool = False,
    ) -> None:
        super().__init__("virtualmachine-controller", operations, rng=rng, connected=connected)
        self._notices_late = notices_late
        self._pod_keys: dict[str, dict[Key, None]] = {}

    def begin(self) -> None:
        self._pod_keys.clear()
        for pod in self.all(PODS):
            self._index(pod, gone=False)
        for vmi in self.all(VMIS):
            self.add(vmi.key)

    def concerns(self, commit: Commit) -> bool:
        if commit.deleted:
            return True
        if commit.before is None or commit.storage == VMIS.label:
            return commit.storage != VMS.label
        # What it reads of a claim is for good.
        return commit.storage == PODS.label and (
            _what_matters(commit.before.object) != _what_matters(commit.after.object)
        )

    def note(self, commit: Commit) -> None:
        if commit.storage == PODS.label:
            self._index(commit.after, gone=commit.deleted)
        super().note(commit)

    def _index(self, pod: Stored, *, gone: bool) -> None:
        """Pods by the uid of the VMI, or of the launcher, that they belong to."""
        owner = controller_of(pod.object)
        if owner is None or owner["kind"] not in _OWNERS:
            return
        known = self._pod_keys.setdefault(owner["uid"], {})
        if not gone:
            known[pod.key] = None
            return
        known.pop(pod.key, None)
        if not known:
            del self._pod_keys[owner["uid"]]

    def hear(self, commit: Commit) -> None:
        namespace, name = commit.after.key
        if commit.storage == VMIS.label:
            self.add(commit.after.key)
        elif commit.storage == PODS.label:
            owner = self._instance_behind(commit.after.object)
            if owner is not None:
                self.add((namespace, owner["name"]))
        elif commit.storage == CLAIMS.label:
            for vmi in self.all(VMIS):
                if vmi.key[0] == namespace and name in claims_of(vmi.object["spec"]):
                    self.add(vmi.key)
        else:
            # Its VM is gone.
            self.add(commit.after.key)

    def _instance_behind(self, pod: Object) -> Json | None:
        """The owner of a launcher, or of the launcher that volumes are plugged into."""
        owner = controller_of(pod)
        if owner is not None and owner["kind"] == PODS.kind:
            launcher = self.find(PODS, (pod["metadata"]["namespace"], owner["name"]))
            owner = controller_of(launcher) if launcher is not None else None
        return owner if owner is not None and owner["kind"] == VMIS.kind else None

    async def reconcile(self, key: Key) -> float | None:
        vmi = self.find(VMIS, key)
        if vmi is None:
            return None
        if not _is_prepared(vmi):
            vmi = await self.replace(VMIS, key, _prepared(vmi), settles=True)
        problem = await self._sync(key, vmi)
        pods = self._pods(vmi)
        pod = current_pod(vmi, pods)
        view = View(
            pod=pod,
            pods=pods,
            attachment=hotplug.fitting(vmi, self._pods(pod)) if pod is not None else None,
            has_vm=self._has_vm(key[0], vmi),
            find_claim=lambda name: self.find(CLAIMS, (key[0], name)),
            now=self.operations.now(),
            problem=problem,
            notices_late=self._notices_late,
        )
        if view.pod is not None:
            await self._label(key[0], vmi, view.pod)
        await self._write(key, vmi, advanced(vmi, view))
        return None

    async def _sync(self, key: Key, vmi: Object) -> str:
        """Makes or deletes pods; why it could not, if it could not."""
        pods = self._pods(vmi)
        if is_going(vmi):
            for pod in pods:
                if not is_going(pod) or pod["status"].get("phase") in FINAL:
                    await self._delete_pod(key, vmi, pod)
            return ""
        launcher, phase = current_pod(vmi, pods), phase_of(vmi)
        if launcher is not None and phase in HANDED_OVER and is_up(launcher):
            await self._plug(key[0], vmi, launcher)
        if phase not in UNPROCESSED or launcher is not None:
            return ""
        self._check_not_migrating(key)
        try:
            wanted = launcher_pod(vmi, lambda name: self.find(CLAIMS, (key[0], name)))
        except ClaimNotFound as error:
            return f"failed to render launch manifest: {error}"
        pod = await self.create(PODS, key[0], wanted)
        made = f"Created virtual machine pod {pod['metadata']['name']}"
        self.tell(VMIS, vmi, "SuccessfulCreate", made)
        return ""

    async def _plug(self, namespace: str, vmi: Object, launcher: Object) -> None:
        """Sees to the pod that has the plugged volumes, if there are any."""
        there = [pod for pod in self._pods(launcher) if not is_down(pod)]
        volumes = hotplug.plugged(vmi)
        fitting = hotplug.fitting(vmi, there) if volumes else None
        if volumes and fitting is None:
            claims = {name: self.find(CLAIMS, (namespace, name)) for name in map(claim_of, volumes)}
            if None in claims.values():
                return
            block = {
                name: claim is not None and claim["spec"].get("volumeMode") == "Block"
                for name, claim in claims.items()
            }
            await self.create(PODS, namespace, hotplug.attachment_pod(vmi, launcher, block))
        elif fitting is None or hotplug.is_ready(fitting):
            for pod in there:
                if pod is not fitting:
                    await self.delete(PODS, (namespace, pod["metadata"]["name"]))

    def _check_not_migrating(self, key: Key) -> None:
        """No launcher is made while a migration of a VMI of that name is not over."""
        for each in self.all(MIGRATIONS):
            same = (each.key[0], each.object["spec"]["vmiName"]) == key
            if same and phase_of(each.object) not in FINAL | UNPROCESSED:
                raise Refusal(409, "Conflict", "active migration exists")

    async def _delete_pod(self, key: Key, vmi: Object, pod: Object) -> None:
        name = pod["metadata"]["name"]
        await self.delete(PODS, (key[0], name))
        self.tell(VMIS, vmi, "SuccessfulDelete", f"Deleted virtual machine pod {name}")

    async def _label(self, namespace: str, vmi: Object, pod: Object) -> None:
        """A launcher says on which node its VMI is."""
        node = (vmi["metadata"].get("labels") or {}).get(NODE_NAME)
        labels = pod["metadata"].get("labels") or {}
        if node and labels.get(NODE_NAME) != node:
            changed = tested("/metadata/labels", labels, {**labels, NODE_NAME: node})
            key = (namespace, pod["metadata"]["name"])
            await self.patch(PODS, key, changed, settles=True)

    async def _write(self, key: Key, before: Object, after: Object) -> None:
        if before == after:
            return
        phase = phase_of(before)
        # In another phase there is more to do.
        settles = phase_of(after) == phase
        if phase not in HANDED_OVER:
            await self.replace(VMIS, key, after, settles=settles)
        elif steps := _steps(before, after):
            await self.patch(VMIS, key, steps, settles=settles)

    def _pods(self, owner: Object) -> list[Object]:
        """Those of a VMI, or those that a launcher has its plugged volumes from."""
        keys = self._pod_keys.get(owner["metadata"]["uid"], ())
        return [pod for key in keys if (pod := self.find(PODS, key)) is not None]

    def _has_vm(self, namespace: str, vmi: Object) -> bool:
        owner = controller_of(vmi)
        if owner is None or owner["kind"] != VMS.kind:
            return False
        vm = self.find(VMS, (namespace, owner["name"]))
        return vm is not None and vm["metadata"]["uid"] == owner["uid"]


def _what_matters(pod: Object) -> tuple[object, ...]:
    """All of a pod that can change and that a VMI goes by. How its containers are made ready is
    not, until they run."""
    meta, status = pod["metadata"], pod.get("status") or {}
    waits = status.get("phase") == "Pending"
    return (
        pod["spec"].get("nodeName"),
        meta.get("deletionTimestamp"),
        meta.get("labels"),
        condition_of(pod, "PodScheduled") if waits else status,
    )


def _is_prepared(vmi: Object) -> bool:
    """What the first look at a VMI sees to; finalizers only where something can wait for them."""
    annotations = vmi["metadata"].get("annotations") or {}
    return OBSERVED_VERSIONS.items() <= annotations.items()


def _prepared(vmi: Object) -> Object:
    """With the annotations of the first look, and with the finalizer that virt-api, which is not
    here, would have given it on creation."""
    annotations = {**(vmi["metadata"].get("annotations") or {}), **OBSERVED_VERSIONS}
    prepared = with_metadata(vmi, annotations=annotations)
    finalizers = finalizers_of(vmi)
    if is_going(vmi) or KEPT_FOR_PODS in finalizers:
        return prepared
    return with_metadata(prepared, finalizers=[KEPT_FOR_PODS, *finalizers])


def _steps(before: Object, after: Object) -> list[Json]:
    """A patch of no more than what changed, because the rest is virt-handler's by now."""
    steps: list[Json] = []
    old, new = before["status"], after["status"]
    for field in ("conditions", "activePods", "volumeStatus", "phase"):
        if field in old and new[field] != old[field]:
            steps += tested(f"/status/{field}", old[field], new[field])
    if finalizers_of(after) != finalizers_of(before):
        steps += tested("/metadata/finalizers", finalizers_of(before), finalizers_of(after))
    return steps

"""The migration controller: gives a migration its target pod, and hands it to the two nodes.

What it waits for is in ``migration_status``. What it does:

* No more than five migrations run at once, and no more than two away from one node. Others wait.
* An evacuation that follows one that failed waits, 20 seconds the first time, then twice as long
  each time, counted from the failure.
* When the target pod is ready, the VMI is told of both ends; from then on it is the business of
  the two virt-handlers (see ``transfer``).
* A migration that failed is noted in the VMI. The guest is where it was.
* Of those that are over, five are kept for each VMI. One whose VMI is gone is deleted.
"""

from datetime import timedelta

from backstay.kube.resource import PODS
from backstay.seam.clock import Rng
from backstay.sim.api.kinds import Object
from backstay.sim.api.operations import Operations, parse_stamp
from backstay.sim.api.store import Commit, Key
from backstay.sim.kubevirt import hotplug
from backstay.sim.kubevirt.launcher import ClaimNotFound, target_pod
from backstay.sim.kubevirt.migration_status import HAS_TARGET, Sight, advanced, is_its_own, is_ready
from backstay.sim.kubevirt.names import (
    EVACUATION,
    FAILED,
    FINAL,
    KEPT_FOR_MIGRATION,
    MIGRATION_JOB,
    MIGRATION_OF,
    MIGRATIONS,
    OBSERVED_VERSIONS,
    PENDING,
    SCHEDULED,
    TARGET_NODE,
    VMIS,
    Json,
)
from backstay.sim.kubevirt.objects import (
    claim_of,
    controller_of,
    finalizers_of,
    is_going,
    migration_of,
    phase_of,
    with_metadata,
)
from backstay.sim.kubevirt.reconciler import Connected, Reconciler, tested
from backstay.sim.kubevirt.vmi_controller import CLAIMS
from backstay.sim.kubevirt.vmi_status import current_pod, is_down

_MOST_AT_ONCE = 5
_MOST_FROM_A_NODE = 2
_WAIT_FOR_ROOM = 5.0
_FIRST_BACKOFF = 20
_KEPT = 5


class MigrationController(Reconciler):
    """Works on the keys of migrations."""

    hears = (MIGRATIONS, VMIS, PODS)

    def __init__(self, operations: Operations, *, rng: Rng, connected: Connected) -> None:
        super().__init__("migration-controller", operations, rng=rng, connected=connected)
        # Those that were let in, by uid; their phase says so only a few requests later, and others
        # are looked at meanwhile.
        self._let_in: set[str] = set()

    def begin(self) -> None:
        for migration in self.all(MIGRATIONS):
            self.add(migration.key)

    def concerns(self, commit: Commit) -> bool:
        return commit.storage == MIGRATIONS.label or bool(self.all(MIGRATIONS))

    def hear(self, commit: Commit) -> None:
        namespace, name = commit.after.key
        if commit.storage == MIGRATIONS.label:
            self.add(commit.after.key)
        elif commit.storage == VMIS.label:
            self._add_of(namespace, name)
        elif commit.storage == PODS.label:
            owner = controller_of(commit.after.object) or {}
            if owner.get("kind") == "Pod":
                launcher = self.find(PODS, (namespace, owner["name"]))
                owner = (controller_of(launcher) if launcher else None) or {}
            if owner.get("kind") == VMIS.kind:
                self._add_of(namespace, owner["name"])

    def _add_of(self, namespace: str, vmi: str) -> None:
        for each in self._of(namespace, vmi):
            self.add((namespace, each["metadata"]["name"]))

    def _of(self, namespace: str, vmi: str) -> list[Object]:
        """All migrations of the VMI of that name, the newest first."""
        found = [
            each.object
            for each in self.all(MIGRATIONS)
            if each.key[0] == namespace and each.object["spec"]["vmiName"] == vmi
        ]
        return sorted(
            found,
            key=lambda each: (each["metadata"]["creationTimestamp"], phase_of(each) not in FINAL),
            reverse=True,
        )

    async def reconcile(self, key: Key) -> float | None:
        migration = self.find(MIGRATIONS, key)
        if migration is None:
            return None
        if not _is_prepared(migration):
            await self.replace(MIGRATIONS, key, _prepared(migration))
            return None
        vmi = self.find(VMIS, (key[0], migration["spec"]["vmiName"]))
        if vmi is None:
            if not is_going(migration):
                await self.delete(MIGRATIONS, key)
            return None
        wait = await self._sync(key, migration, vmi)
        target = self._target(migration, vmi)
        sight = Sight(
            vmi=vmi,
            target=target,
            attachment=self._attachment(target),
            is_busy=self._is_busy(migration, vmi),
            now=self.operations.now(),
        )
        await self._write(key, migration, advanced(migration, sight))
        if phase_of(migration) in FINAL:
            await self._tidy(key[0], vmi)
        return wait

    # Doing

    async def _sync(self, key: Key, migration: Object, vmi: Object) -> float | None:
        """In how many seconds to look again, if it has to wait for its turn."""
        phase = phase_of(migration)
        if phase in FINAL:
            await self._end(migration, vmi)
        elif is_going(migration) or is_going(vmi):
            await self._cancel(key[0], migration, vmi)
        elif phase == PENDING:
            return await self._prepare(key[0], migration, vmi)
        elif phase == SCHEDULED:
            await self._hand_over(migration, vmi)
        return None

    async def _cancel(self, namespace: str, migration: Object, vmi: Object) -> None:
        """One that is called off before the nodes were told takes its target pod with it."""
        target = self._target(migration, vmi)
        told = is_its_own(migration, vmi)
        if is_going(migration) and not told and target is not None and not is_going(target):
            await self.delete(PODS, (namespace, target["metadata"]["name"]))

    async def _prepare(self, namespace: str, migration: Object, vmi: Object) -> float | None:
        target = self._target(migration, vmi)
        if target is None:
            wait = self._wait(migration)
            if wait:
                return wait
            try:
                wanted = target_pod(vmi, migration, lambda name: self._claim(namespace, name))
            except ClaimNotFound:
                return _WAIT_FOR_ROOM
            target = await self.create(PODS, namespace, wanted)
            made = f"Created migration target pod {namespace}/{target['metadata']['name']}"
            self.tell(MIGRATIONS, migration, "SuccessfulCreate", made)
        if hotplug.plugged(vmi) and is_ready(target) and self._attachment(target) is None:
            await self.create(PODS, namespace, self._attachment_for(vmi, target))
        return None

    def _wait(self, migration: Object) -> float:
        uid = migration["metadata"]["uid"]
        others = [each.object for each in self.all(MIGRATIONS)]
        running = [each for each in others if self._has_room(each)]
        node = self._source_of(migration)
        if not node:
            # There is no guest yet that could be moved.
            return _WAIT_FOR_ROOM
        from_here = [each for each in running if self._source_of(each) == node]
        full = len(running) >= _MOST_AT_ONCE or len(from_here) >= _MOST_FROM_A_NODE
        if full and uid not in self._let_in:
            return _WAIT_FOR_ROOM
        wait = self._backoff(migration)
        if not wait:
            self._let_in.add(uid)
        return wait

    def _has_room(self, migration: Object) -> bool:
        let_in = migration["metadata"]["uid"] in self._let_in
        return phase_of(migration) in HAS_TARGET or (let_in and phase_of(migration) not in FINAL)

    def _source_of(self, migration: Object) -> str:
        meta = migration["metadata"]
        vmi = self.find(VMIS, (meta["namespace"], migration["spec"]["vmiName"])) or {}
        return str((vmi.get("status") or {}).get("nodeName") or "")

    def _backoff(self, migration: Object) -> float:
        meta = migration["metadata"]
        if EVACUATION not in (meta.get("annotations") or {}):
            return 0.0
        others = self._of(meta["namespace"], migration["spec"]["vmiName"])
        earlier = [each for each in others if each["metadata"]["uid"] != meta["uid"]]
        failures = 0
        while failures < len(earlier) and phase_of(earlier[failures]) == FAILED:
            failures += 1
        if not failures:
            return 0.0
        entered = earlier[0]["status"].get("phaseTransitionTimestamps") or ()
        last = next(each for each in entered if each["phase"] == FAILED)
        due = parse_stamp(last["phaseTransitionTimestamp"]) + timedelta(
            seconds=_FIRST_BACKOFF * 2 ** (failures - 1)
        )
        left = due - parse_stamp(self.operations.now())
        return max(0.0, left.total_seconds())

    async def _hand_over(self, migration: Object, vmi: Object) -> None:
        target, source = self._target(migration, vmi), current_pod(vmi, self._pods(vmi))
        if target is None or source is None or not is_ready(target) or is_its_own(migration, vmi):
            return
        place = self._source_of(migration)
        if not place:
            # It was lost meanwhile, and is being started anew.
            return
        node = target["spec"]["nodeName"]
        state: Json = {
            "migrationUid": migration["metadata"]["uid"],
            "sourceNode": place,
            "sourcePod": source["metadata"]["name"],
            "targetNode": node,
            "targetPod": target["metadata"]["name"],
        }
        attachment = self._attachment(target)
        if attachment is not None:
            state["targetAttachmentPodUID"] = attachment["metadata"]["uid"]
        await self._patch_vmi(vmi, state, target=node)

    async def _end(self, migration: Object, vmi: Object) -> None:
        """The VMI hears how it ended, unless it was the VMI that said so."""
        if not is_its_own(migration, vmi):
            return
        state = migration_of(vmi)
        if phase_of(migration) == FAILED and not state.get("endTimestamp"):
            state |= {
                "completed": True,
                "failed": True,
                "failureReason": "Target pod is down",
                "endTimestamp": self.operations.now(),
            }
        await self._patch_vmi(vmi, state, target="")

    async def _patch_vmi(self, vmi: Object, state: Json, *, target: str) -> None:
        """``target`` is the node that is to hear of it beside the one that the VMI is on."""
        meta, steps = vmi["metadata"], list[Json]()
        before = migration_of(vmi)
        if state != before:
            if before:
                steps.append({"op": "test", "path": "/status/migrationState", "value": before})
            steps.append({"op": "add", "path": "/status/migrationState", "value": state})
        labels = dict(meta.get("labels") or {})
        wanted = {name: value for name, value in labels.items() if name != TARGET_NODE}
        if target:
            wanted[TARGET_NODE] = target
        if wanted != labels:
            steps += tested("/metadata/labels", labels, wanted)
        if steps:
            await self.patch(VMIS, (meta["namespace"], meta["name"]), steps)

    async def _tidy(self, namespace: str, vmi: Object) -> None:
        over = [
            each
            for each in self._of(namespace, vmi["metadata"]["name"])
            if phase_of(each) in FINAL and not is_going(each)
        ]
        for each in over[_KEPT:]:
            await self.delete(MIGRATIONS, (namespace, each["metadata"]["name"]))

    async def _write(self, key: Key, before: Object, after: Object) -> None:
        if after.get("status") != before.get("status"):
            written = await self.replace(MIGRATIONS, key, after, "status")
            before = with_metadata(before, resourceVersion=written["metadata"]["resourceVersion"])
        if finalizers_of(after) != finalizers_of(before):
            await self.replace(MIGRATIONS, key, with_metadata(
                after, resourceVersion=before["metadata"]["resourceVersion"]
            ))  # fmt: skip

    # Looking

    def _pods(self, vmi: Object) -> list[Object]:
        uid = vmi["metadata"]["uid"]
        return [
            each.object
            for each in self.all(PODS)
            if (controller_of(each.object) or {}).get("uid") == uid
        ]

    def _target(self, migration: Object, vmi: Object) -> Object | None:
        job = migration["metadata"]["uid"]
        for pod in self._pods(vmi):
            if (pod["metadata"].get("labels") or {}).get(MIGRATION_JOB) == job:
                return pod
        return None

    def _attachment(self, target: Object | None) -> Object | None:
        if target is None:
            return None
        uid = target["metadata"]["uid"]
        for each in self.all(PODS):
            if (controller_of(each.object) or {}).get("uid") == uid and not is_down(each.object):
                return each.object
        return None

    def _attachment_for(self, vmi: Object, target: Object) -> Json:
        namespace = vmi["metadata"]["namespace"]
        claims = {
            name: self._claim(namespace, name) for name in map(claim_of, hotplug.plugged(vmi))
        }
        block = {
            name: claim is not None and claim["spec"].get("volumeMode") == "Block"
            for name, claim in claims.items()
        }
        return hotplug.attachment_pod(vmi, target, block)

    def _claim(self, namespace: str, name: str) -> Object | None:
        return self.find(CLAIMS, (namespace, name))

    def _is_busy(self, migration: Object, vmi: Object) -> bool:
        uid = migration_of(vmi).get("migrationUid")
        others = self._of(vmi["metadata"]["namespace"], vmi["metadata"]["name"])
        return any(
            each["metadata"]["uid"] == uid != migration["metadata"]["uid"]
            and phase_of(each) not in FINAL
            for each in others
        )


def _is_prepared(migration: Object) -> bool:
    annotations = migration["metadata"].get("annotations") or {}
    return OBSERVED_VERSIONS.items() <= annotations.items()


def _prepared(migration: Object) -> Object:
    """As the first look leaves it, and with the finalizer that virt-api would have given it."""
    meta = migration["metadata"]
    return with_metadata(
        migration,
        annotations={**(meta.get("annotations") or {}), **OBSERVED_VERSIONS},
        labels={**(meta.get("labels") or {}), MIGRATION_OF: migration["spec"]["vmiName"]},
        finalizers=list(dict.fromkeys([*finalizers_of(migration), KEPT_FOR_MIGRATION])),
    )

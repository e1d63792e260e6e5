"""Transfers: what the virt-handlers at the two ends of a live migration do.

The target's says where it listens. The source's then begins to copy, and when all is copied the
guest stops there and goes on at the target, in one moment: it never writes from both. The source
reports that, or the target if the source is no longer there to do so.

=============  ====================================  ==============================================
               an end is lost while it is copied     and after the guest has gone over
=============  ====================================  ==============================================
``PreCopy``    the guest runs on at the source,      it runs at the target
               which reports the failure
``PostCopy``   the guest runs on at the source       the guest is lost: half of its memory is there
=============  ====================================  ==============================================

An end is lost when its node has no power or no network, or its launcher has ended. The connection
between the two shows that at once to whoever is left.
"""

import asyncio

import msgspec

from backstay.sim.api.operations import stamp
from backstay.sim.kubevirt.names import NODE_NAME, VMIS, Json
from backstay.sim.kubevirt.objects import is_final, is_going, migration_of
from backstay.sim.nodes.agents import AgentContext

_POLL = 0.1
_LOST = "the connection to the target was lost"


class Copying(msgspec.Struct, frozen=True):
    """How guests are copied: for how long, and for how long after they have gone over."""

    seconds: float = 1.5
    behind: float = 0.0

    @property
    def mode(self) -> str:
        return "PostCopy" if self.behind else "PreCopy"


class Transfers:
    """Those of one node. It outlives virt-handler, as the launchers do that really do it."""

    def __init__(self, copying: Copying) -> None:
        self._copying = copying
        self._due: dict[str, float] = {}

    async def attend(self, context: AgentContext, vmi: Json) -> float | None:
        """Does what is due for the migration of a VMI; in how many seconds to look again."""
        state = migration_of(vmi)
        uid = state.get("migrationUid", "")
        if not uid or state.get("completed") or is_final(vmi) or is_going(vmi):
            self._due.pop(uid, None)
            return None
        if state["targetNode"] == context.node:
            return await self._as_target(context, vmi, state)
        if state["sourceNode"] == context.node and state.get("targetNodeAddress"):
            return await self._as_source(context, vmi, state)
        return None

    # The target

    async def _as_target(self, context: AgentContext, vmi: Json, state: Json) -> float | None:
        here = _end(context, vmi, "target")
        if here is None:
            return None
        if not state.get("targetNodeAddress"):
            if not _plug(context, here, state.get("targetAttachmentPodUID", "")):
                return _POLL
            await _say(context, vmi, {"targetNodeAddress": f"{context.node}:49152"})
        elif not context.truth.is_held_back(context.node, here):
            await self._hold_the_guest(context, vmi, state, here)
        return _POLL

    async def _hold_the_guest(
        self, context: AgentContext, vmi: Json, state: Json, here: str
    ) -> None:
        source = state["sourceNode"]
        is_whole = context.reaches(source) and _end(context, vmi, "source") is not None
        if is_whole:
            return
        if self._copying.behind:
            _lose(context, here)
        else:
            await _arrive(context, vmi, state)

    # The source

    async def _as_source(self, context: AgentContext, vmi: Json, state: Json) -> float | None:
        here, target = _end(context, vmi, "source"), state["targetNode"]
        if here is None:
            return None
        now = asyncio.get_running_loop().time()
        due = self._due.setdefault(state["migrationUid"], now + self._copying.seconds)
        has_gone = context.truth.is_held_back(context.node, here)
        there = _end(context, vmi, "target") if context.reaches(target) else None
        if there is None:
            await self._lose_target(context, vmi, state, here, has_gone=has_gone)
        elif not state.get("startTimestamp"):
            await _say(context, vmi, {"startTimestamp": _now(context), "mode": "PreCopy"})
        elif not has_gone and now >= due:
            context.truth.hold_back(context.node, here, why="its guest has gone")
            context.truth.let_write(target, there, why="its guest has come")
        elif has_gone and self._copying.behind and state["mode"] != "PostCopy":
            await _say(context, vmi, {"mode": "PostCopy"})
        elif has_gone and now >= due + self._copying.behind:
            await _arrive(context, vmi, state)
        return _POLL

    async def _lose_target(
        self, context: AgentContext, vmi: Json, state: Json, here: str, *, has_gone: bool
    ) -> None:
        if has_gone and self._copying.behind:
            _lose(context, here)
        elif has_gone:
            await _arrive(context, vmi, state)
        else:
            failed = {
                "completed": True,
                "failed": True,
                "failureReason": _LOST,
                "endTimestamp": _now(context),
            }
            await _say(context, vmi, failed)


def launcher_on(context: AgentContext, vmi: Json, node: str) -> str | None:
    """The uid of the VMI's launcher that really runs there."""
    pods = (vmi.get("status") or {}).get("activePods") or {}
    return next((run.uid for run in context.truth.running(node) if run.uid in pods), None)


def _end(context: AgentContext, vmi: Json, which: str) -> str | None:
    """The uid of one of the two launchers, the ``source`` or the ``target``, if it really runs."""
    state, namespace = migration_of(vmi), vmi["metadata"]["namespace"]
    wanted = (namespace, state[f"{which}Pod"])
    there = context.truth.running(state[f"{which}Node"])
    return next((run.uid for run in there if (run.namespace, run.name) == wanted), None)


def _plug(context: AgentContext, launcher: str, attachment: str) -> bool:
    """Whether the launcher has the volumes that another pod has brought, if there is any."""
    if not attachment:
        return True
    run = context.runtime.running.get(attachment)
    if run is not None:
        context.runtime.plug(launcher, run.mounts, why="plugged into the target")
    return run is not None


def _lose(context: AgentContext, launcher: str) -> None:
    why = "half of its guest's memory was lost"
    context.runtime.stop(launcher, code=1, reason="Error", why=why)


async def _say(context: AgentContext, vmi: Json, said: Json) -> None:
    """In what the VMI says of its migration."""
    await _patch(context, vmi, [
        {"op": "add", "path": f"/status/migrationState/{field}", "value": value}
        for field, value in said.items()
    ])  # fmt: skip


async def _arrive(context: AgentContext, vmi: Json, state: Json) -> None:
    """The VMI is where its guest is."""
    target, status = state["targetNode"], vmi["status"]
    steps: list[Json] = [
        {"op": "test", "path": "/status/nodeName", "value": state["sourceNode"]},
        {"op": "replace", "path": "/status/nodeName", "value": target},
        {"op": "add", "path": f"/metadata/labels/{NODE_NAME.replace('/', '~1')}", "value": target},
        {"op": "add", "path": "/status/migrationState/completed", "value": True},
        {"op": "add", "path": "/status/migrationState/endTimestamp", "value": _now(context)},
    ]
    if status.get("evacuationNodeName"):
        steps.append({"op": "remove", "path": "/status/evacuationNodeName"})
    await _patch(context, vmi, steps)


async def _patch(context: AgentContext, vmi: Json, steps: list[Json]) -> None:
    meta, uid = vmi["metadata"], migration_of(vmi)["migrationUid"]
    tests: list[Json] = [
        {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
        {"op": "test", "path": "/status/migrationState/migrationUid", "value": uid},
    ]
    await context.client.json_patch(
        VMIS, meta["name"], [*tests, *steps], namespace=meta["namespace"]
    )


def _now(context: AgentContext) -> str:
    return stamp(context.seams.wall.now())

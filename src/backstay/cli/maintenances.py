"""Nodes in maintenance, as ``backstay status`` and ``backstay explain`` tell of them.

What is told stands in the status of each NodeMaintenance, where whoever serves it has written it: a
controller of ours, or the Node Maintenance Operator, which counts and has no sentences. So it is
there also when no controller lives.
"""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from backstay.apis.maintenance import MaintenanceRow
from backstay.cli.output import columns
from backstay.cli.words import ago, bullet
from backstay.model.maintenance import Phase
from backstay.model.policy import Job, Ownership
from backstay.sources.picture import Picture, moment

_SHOWN = 5
"""Of what is in the way on one node: a list that fills the screen hides the rest."""


class InTheWay(msgspec.Struct, frozen=True, omit_defaults=True):
    """``pod`` is ``namespace/name``, and empty for what concerns the whole node."""

    code: str
    sentence: str
    pod: str = ""
    next: str = ""


class Maintenance(msgspec.Struct, frozen=True, kw_only=True):
    """``seconds`` is since when it is asked for, None if that is not told. ``phase`` is empty while
    nobody has taken it on."""

    node: str
    name: str
    reason: str
    phase: str
    seconds: float | None
    code: str
    sentence: str
    pending: int
    total: int
    in_the_way: tuple[InTheWay, ...]
    next: tuple[str, ...]

    @property
    def done(self) -> bool:
        return self.phase == Phase.SUCCEEDED


def maintenances_of(picture: Picture) -> tuple[Maintenance, ...]:
    """Of the nodes that are there, and of those that are not."""
    return tuple(_told(picture, row) for row in picture.maintenances)


def _told(picture: Picture, row: MaintenanceRow) -> Maintenance:
    status, began = row.status, moment(row.created)
    in_the_way = tuple(
        InTheWay(each.code, each.sentence, each.pod, each.next) for each in status.blockers
    )
    steps = [each.next for each in in_the_way] or [status.next]
    return Maintenance(
        node=row.node,
        name=row.key,
        reason=row.reason,
        phase="Ending" if row.deleting else status.phase,
        seconds=None if began is None else max(0.0, picture.now - began),
        code=status.code,
        sentence=status.sentence or _counted(row),
        pending=len(status.pending_pods),
        total=status.total_pods,
        in_the_way=in_the_way,
        next=tuple(dict.fromkeys(filter(None, steps))),
    )


def _counted(row: MaintenanceRow) -> str:
    """Where there is no sentence."""
    status = row.status
    if status.last_error:
        return f"{status.last_error.rstrip('.')}."
    if not status.phase:
        return f"Nobody has taken it on yet: {row.node} takes new pods."
    if status.phase == Phase.SUCCEEDED:
        return f"{row.node} is drained."
    return f"{len(status.pending_pods)} of {status.total_pods} pods still have to leave {row.node}."


def waits_for_us(picture: Picture, maintenances: Iterable[Maintenance]) -> bool:
    """Whether one of them goes on only if a controller of ours is there."""
    ours = picture.policy.owner_of(Job.MAINTENANCE) is Ownership.OURS
    return ours and any(not each.done for each in maintenances)


def for_pods(told: Maintenance, pods: Collection[str]) -> Maintenance:
    """The same for whoever asks about these alone: what others wait for is nobody's business."""
    ours = tuple(each for each in told.in_the_way if each.pod in pods)
    steps = tuple(dict.fromkeys(each.next for each in ours if each.next))
    return msgspec.structs.replace(told, in_the_way=ours, next=steps)


def section(maintenances: Sequence[Maintenance]) -> str:
    """For people. Empty where there are none."""
    if not maintenances:
        return ""
    rows = [
        (each.node, each.phase or "Waiting", _since(each), _sentence(each)) for each in maintenances
    ]
    parts = [columns(("NODE", "MAINTENANCE", "FOR", "WHY"), rows)]
    return "\n\n".join([*parts, *filter(None, map(_blockers, maintenances))])


def _since(each: Maintenance) -> str:
    return "" if each.seconds is None else ago(each.seconds)


def _sentence(each: Maintenance) -> str:
    return f"{each.sentence} ({each.reason})" if each.reason else each.sentence


def _blockers(told: Maintenance) -> str:
    """The sentence of the whole names the first of them already."""
    if all(each.sentence.rstrip(".") in told.sentence for each in told.in_the_way):
        return ""
    lines = [f"IN THE WAY ON {told.node} ({len(told.in_the_way)})"]
    lines += [bullet(each.sentence) for each in told.in_the_way[:_SHOWN]]
    more = len(told.in_the_way) - _SHOWN
    if more > 0:
        lines.append(f"  - and {more} more: kubectl get nodemaintenance {told.name} -o yaml")
    return "\n".join(lines)

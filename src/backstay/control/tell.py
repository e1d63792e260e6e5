"""Telling: one decision, said everywhere in the same words.

Log, Event, metric, recording and notification get the very reason that the incident gets. What was
said before is not said again: a decision that is made anew every few seconds is one line, not a
thousand.
"""

import logging
from collections.abc import Iterable
from contextlib import AbstractContextManager

from backstay.decide.failover import Action, Decision, Snapshot
from backstay.kube.events import ObjectRef
from backstay.model.node import NodeFacts
from backstay.model.reasons import Reason, Why
from backstay.model.storage import Attachment
from backstay.model.workload import PodRef, Workload
from backstay.record import logs
from backstay.record.blackbox import BlackBox
from backstay.record.events import Herald
from backstay.record.frames import Frames
from backstay.record.metrics import Metrics, Stage
from backstay.record.notify import Notifier, Turn
from backstay.record.piraeus import PiraeusHerald
from backstay.record.recorder import FlightRecorder
from backstay.record.telling import same_why

_log = logging.getLogger("backstay.failover")


class Teller:
    """``recorder`` is None where nothing is to be kept on disk, ``notifier`` where nobody else is
    to be told, ``piraeus`` where nobody expects the Piraeus HA controller's Events."""

    def __init__(
        self,
        *,
        herald: Herald,
        metrics: Metrics,
        recorder: FlightRecorder | None,
        box: BlackBox,
        notifier: Notifier | None = None,
        piraeus: PiraeusHerald | None = None,
        frames: Frames,
    ) -> None:
        self._herald = herald
        self._metrics = metrics
        self._recorder = recorder
        self._box = box
        self._notifier = notifier
        self._piraeus = piraeus
        self._frames = frames
        self._said: dict[str, dict[str, Why]] = {}
        self._incidents: dict[str, str] = {}
        self._untold: dict[str, dict[str, Why]] = {}
        self._told: dict[str, tuple[Workload, ...]] = {}
        """The workloads of each node of which nothing else was said since it was decided."""

    def begin(self) -> None:
        """Of a term: whoever leads tells what it decides, whatever was decided before it."""
        self._frames.forget_all()

    def decided(self, snapshot: Snapshot, decision: Decision, now: float) -> None:
        """What is new about it."""
        frame = self._frames.of(snapshot, decision, now)
        if frame is None and self._told.get(decision.node) is snapshot.workloads:
            return
        self._told[decision.node] = snapshot.workloads
        if frame is not None:
            self._box.note(frame)
            if self._recorder is not None:
                self._recorder.note(frame)
        self._herald.decided(snapshot.facts, decision)
        with self._about(decision.node):
            if self._is_news(decision.node, "", decision.why):
                self._write("", decision.why)
                if decision.why.code == Reason.EvidenceContradicted.name:
                    self._notify(Turn.CONTRADICTED, decision.why, node=decision.node)
            for verdict in decision.verdicts:
                key = verdict.workload.key
                if self._is_news(decision.node, key, verdict.why):
                    self._metrics.decisions.add(verdict.why.code, verdict.action.value)
                    if verdict.action is not Action.LEAVE:
                        self._write(key, verdict.why)
                    # That the node is contradicted was told for all of them.
                    if verdict.action is Action.HOLD and verdict.why != decision.why:
                        self._untold.setdefault(decision.node, {})[key] = verdict.why
        self._notify_of_held(decision.node)

    def opened(self, incident: str, why: Why, *, node: str, anew: bool) -> None:
        """From here on an incident tells of this node; ``anew`` says that nobody did before."""
        self._incidents[node] = incident
        self._box.opened(node, incident)
        if anew:
            self._notify(Turn.OPENED, why, node=node)
        self._notify_of_held(node)

    def closed(self, why: Why, *, node: str) -> None:
        self._notify(Turn.CLOSED, why, node=node)
        self._incidents.pop(node, None)
        self._untold.pop(node, None)
        self._frames.forget(node)
        self._box.closed(node)

    def say(self, why: Why, *, node: NodeFacts, workload: Workload | None = None) -> None:
        """Something was done, or could not be."""
        self._told.pop(node.name, None)
        self._herald.say(why, node=node, workload=workload)
        with self._about(node.name):
            self._write(workload.key if workload is not None else "", why)

    def released(self, why: Why, *, node: NodeFacts, workload: Workload) -> None:
        """It was taken from the node."""
        self.say(why, node=node, workload=workload)
        self._notify(Turn.RELEASED, why, node=node.name, workload=workload.key)

    def deleted(self, pods: Iterable[PodRef]) -> None:
        """By us, because DRBD has shut their node out."""
        if self._piraeus is not None:
            self._piraeus.deleted(pods)

    def detached(self, attachments: Iterable[Attachment]) -> None:
        """The same, of attachments."""
        if self._piraeus is not None:
            self._piraeus.detached(attachments)

    def arrived(self, key: str, why: Why, *, node: NodeFacts, objects: Iterable[ObjectRef]) -> None:
        """A workload runs again, elsewhere, or is ready there."""
        self._told.pop(node.name, None)
        self._metrics.decisions.add(why.code, "Recovered")
        self._herald.say_of(objects, why, node=node.name)
        with self._about(node.name):
            self._write(key, why)
        if why.code == Reason.Recovered.name:
            self._notify(Turn.RECOVERED, why, node=node.name, workload=key)

    def took(self, stage: Stage, seconds: float) -> None:
        self._metrics.stages.observe(seconds, stage.value)

    def forget(self, node: str) -> None:
        self._said.pop(node, None)
        self._told.pop(node, None)
        self._untold.pop(node, None)
        self._herald.forget(node)
        self._frames.forget(node)
        self._box.forget(node)

    def _is_news(self, node: str, key: str, why: Why) -> bool:
        said = self._said.setdefault(node, {})
        last = said.get(key)
        said[key] = why
        return last is None or not same_why(last, why)

    def _write(self, key: str, why: Why) -> None:
        with logs.about(workload=key):
            logs.say(_log, why)

    def _notify_of_held(self, node: str) -> None:
        """What is held before its incident has a name is told once it has one."""
        if node in self._incidents:
            for key, why in self._untold.pop(node, {}).items():
                self._notify(Turn.HELD, why, node=node, workload=key)

    def _notify(self, turn: Turn, why: Why, *, node: str, workload: str = "") -> None:
        if self._notifier is not None:
            incident = self._incidents.get(node, "")
            self._notifier.tell(turn, why, incident=incident, node=node, workload=workload)

    def _about(self, node: str) -> AbstractContextManager[None]:
        return logs.about(node=node, incident=self._incidents.get(node, ""))

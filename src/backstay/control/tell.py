"""Telling: one decision, said everywhere in the same words.

Log, Event, metric and recording get the very reason that the incident gets. What was said before
is not said again: a decision that is made anew every few seconds is one line, not a thousand.
"""

import logging
from collections.abc import Sequence

from backstay.decide.failover import Action, Check, Decision, Snapshot
from backstay.model.node import NodeFacts
from backstay.model.policy import Times
from backstay.model.reasons import Reason, Why
from backstay.model.workload import Workload
from backstay.record import logs
from backstay.record.events import Herald
from backstay.record.metrics import Metrics, Stage
from backstay.record.recorder import FlightRecorder
from backstay.record.telling import same_why

_log = logging.getLogger("backstay.failover")


class Teller:
    """``recorder`` is None where nothing is to be kept on disk."""

    def __init__(
        self,
        *,
        herald: Herald,
        metrics: Metrics,
        recorder: FlightRecorder | None,
        times: Times,
        chain: Sequence[Check],
    ) -> None:
        self._herald = herald
        self._metrics = metrics
        self._recorder = recorder
        self._times = times
        self._chain = chain
        self._said: dict[str, dict[str, Why]] = {}

    def decided(
        self, snapshot: Snapshot, decision: Decision, now: float, *, incident: str = ""
    ) -> None:
        """What is new about it."""
        if self._recorder is not None:
            self._recorder.note(snapshot, decision, now, times=self._times, chain=self._chain)
        self._herald.decided(snapshot.facts, decision)
        with logs.about(node=decision.node, incident=incident):
            self._log_news(decision.node, "", decision.why)
            for verdict in decision.verdicts:
                key = verdict.workload.key
                if self._is_news(decision.node, key, verdict.why):
                    self._metrics.decisions.add(verdict.why.code, verdict.action.value)
                    if verdict.action is not Action.LEAVE:
                        self._write(key, verdict.why)

    def say(self, why: Why, *, node: NodeFacts, workload: Workload | None = None) -> None:
        """Something was done, or could not be."""
        self._herald.say(why, node=node, workload=workload)
        with logs.about(node=node.name):
            self._write(workload.key if workload is not None else "", why)

    def arrived(self, key: str, why: Why, *, node: NodeFacts) -> None:
        """A workload runs again, elsewhere."""
        self._metrics.decisions.add(Reason.Recovered.name, "Recovered")
        with logs.about(node=node.name):
            self._write(key, why)

    def took(self, stage: Stage, seconds: float) -> None:
        self._metrics.stages.observe(seconds, stage.value)

    def forget(self, node: str) -> None:
        self._said.pop(node, None)
        self._herald.forget(node)

    def _log_news(self, node: str, key: str, why: Why) -> None:
        if self._is_news(node, key, why):
            self._write(key, why)

    def _is_news(self, node: str, key: str, why: Why) -> bool:
        said = self._said.setdefault(node, {})
        last = said.get(key)
        said[key] = why
        return last is None or not same_why(last, why)

    def _write(self, key: str, why: Why) -> None:
        with logs.about(workload=key):
            logs.say(_log, why)

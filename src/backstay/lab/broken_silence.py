"""Broken parts that have to do with silence, and with what is presumed of it; see ``broken.py``."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from backstay.control.failover import FailoverLoop
from backstay.control.guard import Guard
from backstay.lab.broken import Reading
from backstay.model.evidence import Answer, Silence
from backstay.model.labels import TMAX_PROTECT
from backstay.model.node import NodeFacts
from backstay.model.policy import Times
from backstay.model.workload import Volume, Workload
from backstay.sources.reach import Heard, ReachSource


class FromOnePlace(ReachSource):
    """Counts itself twice."""

    def _silences(self, node: NodeFacts) -> Iterator[Silence]:
        for silence in super()._silences(node):
            yield silence
            yield msgspec.structs.replace(silence, vantage="somewhere else")


class WithKubernetes(ReachSource):
    """Takes it for a second witness that Kubernetes has missed the same renewals."""

    def _silences(self, node: NodeFacts) -> Iterator[Silence]:
        for silence in super()._silences(node):
            yield silence
            if node.ready != "True":
                yield msgspec.structs.replace(silence, vantage="Kubernetes")


class WithoutProof(ReachSource):
    def _silences(self, node: NodeFacts) -> Iterator[Silence]:
        for silence in super()._silences(node):
            yield msgspec.structs.replace(silence, proven_at=silence.asked_at)


class OnlyKubelets(ReachSource):
    """Does not take a refusal for an answer."""

    async def _ask_port(self, port: str) -> Heard:
        heard = await super()._ask_port(port)
        return heard if heard is Heard.PROGRAM else Heard.NOTHING


class WithoutAnswers(ReachSource):
    def _answers(self, node: NodeFacts) -> Iterable[Answer]:
        return ()


def _hasty(times: Times) -> Times:
    return msgspec.structs.replace(times, presume=times.presume / 3)


class HastyLoop(FailoverLoop):
    def __init__(self, *args: Any, times: Times, **rest: Any) -> None:
        super().__init__(*args, times=_hasty(times), **rest)


class HastyGuard(Guard):
    def __init__(self, *args: Any, times: Times, **rest: Any) -> None:
        super().__init__(*args, times=_hasty(times), **rest)


class WithoutConsent(Reading):
    def _take(self, workload: Workload) -> Workload:
        labels = {**workload.labels, TMAX_PROTECT: "true"}
        return msgspec.structs.replace(workload, labels=labels)


class AsIfShared(Reading):
    def _take(self, workload: Workload) -> Workload:
        return msgspec.structs.replace(workload, volumes=tuple(_shared(workload.volumes)))


def _shared(volumes: Iterable[Volume]) -> Iterator[Volume]:
    for volume in volumes:
        yield msgspec.structs.replace(volume, access_modes=("ReadWriteMany",), block=False)

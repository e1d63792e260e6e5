"""Refutations: which sign of life has contradicted a word stands there, and is written once."""

import math
from typing import Any

import msgspec

from backstay.apis.backstay import (
    CONFIRMATIONS,
    ConfirmationRow,
    ConfirmationSpec,
    ConfirmationWire,
    confirmation_row,
)
from backstay.decide.proof import Heard
from backstay.kube.lease import Term
from backstay.model.evidence import Answer, Confirmation, Testimony
from backstay.model.policy import Policy
from backstay.record.refutations import Refutations
from backstay.sim.clock import LoopClock
from tests.record.rig import URL, RecordScene
from tests.record.samples import CONFIRMED, NODE, lost
from tests.support.virtual import virtual_time

ANSWERED = Testimony(answers=(Answer("kubelet port", CONFIRMED.seen_at + 5),))


class Scene(RecordScene):
    """Somebody has confirmed that n1 is dead."""

    def __init__(self) -> None:
        super().__init__()
        self.refutations = Refutations(self.client, wall=LoopClock())
        self.term = Term(1, math.inf)

    async def confirm(self) -> None:
        spec = ConfirmationSpec(node="n1", node_uid=NODE.uid, boot_id=NODE.boot_id)
        body = {
            "apiVersion": CONFIRMATIONS.api_version,
            "kind": CONFIRMATIONS.kind,
            "metadata": {"name": "n1"},
            "spec": msgspec.to_builtins(spec),
        }
        await self.client.create(CONFIRMATIONS, body)
        self.network.link(URL).sent.clear()

    async def stored(self) -> dict[str, Any]:
        kept: dict[str, Any] = (await self.client.get(CONFIRMATIONS, "n1")).json()
        return kept

    async def word(self) -> Confirmation:
        kept = await self.stored()
        refuted = (kept.get("status") or {}).get("refuted", "")
        return msgspec.structs.replace(CONFIRMED, uid=kept["metadata"]["uid"], refuted=refuted)

    async def hear(self, *words: Confirmation, testimony: Testimony = ANSWERED) -> None:
        heard = Heard(
            facts=NODE, life=lost(), policy=Policy(), confirmations=words, testimony=testimony
        )
        await self.refutations.keep(heard, term=self.term)


async def scene() -> Scene:
    made = Scene()
    await made.begin()
    await made.confirm()
    return made


@virtual_time
async def test_a_word_of_a_backup_is_marked_as_soon_as_it_is_known() -> None:
    s = await scene()
    row = (await s.client.get(CONFIRMATIONS, "n1")).into(ConfirmationWire)
    looks: list[list[ConfirmationRow] | None] = [None, [confirmation_row(row)], []]
    await s.refutations.lapse(lambda: looks.pop(0), s.term)
    kept = confirmation_row((await s.client.get(CONFIRMATIONS, "n1")).into(ConfirmationWire))
    assert (kept.lapsed, kept.refuted) == (True, "")
    assert s.writes() == ["PATCH"]


@virtual_time
async def test_a_word_that_was_given_anew_meanwhile_is_not_marked() -> None:
    s = await scene()
    row = confirmation_row((await s.client.get(CONFIRMATIONS, "n1")).into(ConfirmationWire))
    await s.client.delete(CONFIRMATIONS, "n1")
    await s.confirm()
    looks = [[row], []]
    await s.refutations.lapse(lambda: looks.pop(0), s.term)
    assert "status" not in await s.stored()


@virtual_time
async def test_an_answer_is_kept_at_the_word_that_it_refutes() -> None:
    s = await scene()
    await s.hear(await s.word())
    status = (await s.stored())["status"]
    assert status["refuted"] == "its kubelet port answered"
    assert status["refutedAt"].endswith("Z")


@virtual_time
async def test_it_is_written_once() -> None:
    s = await scene()
    for _ in range(3):
        await s.hear(await s.word())
    assert s.writes() == ["PATCH"]


@virtual_time
async def test_a_word_that_nothing_contradicts_is_left_alone() -> None:
    s = await scene()
    await s.hear(await s.word(), testimony=Testimony())
    assert s.writes() == []


@virtual_time
async def test_another_word_of_the_same_name_is_not_refuted_by_what_came_before_it() -> None:
    s = await scene()
    before = await s.word()
    await s.client.delete(CONFIRMATIONS, "n1")
    await s.confirm()
    await s.hear(before)
    assert s.writes() == ["PATCH"]
    assert "status" not in await s.stored()


@virtual_time
async def test_a_word_that_was_taken_back_meanwhile_is_no_trouble() -> None:
    s = await scene()
    before = await s.word()
    await s.client.delete(CONFIRMATIONS, "n1")
    await s.hear(before)


@virtual_time
async def test_a_write_that_fails_holds_nobody_up_and_is_tried_again() -> None:
    s = await scene()
    word = await s.word()
    s.network.link(URL).refuse = True
    await s.hear(word)
    s.network.link(URL).refuse = False
    assert "status" not in await s.stored()
    await s.hear(word)
    assert (await s.stored())["status"]["refuted"]


@virtual_time
async def test_whoever_no_longer_leads_writes_nothing() -> None:
    s = await scene()
    word = await s.word()
    s.term.end()
    s.network.link(URL).sent.clear()
    await s.hear(word)
    assert s.writes() == []

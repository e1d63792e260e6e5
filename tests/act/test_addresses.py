"""Addresses are taken back from a dead pod as Calico would have done it, and from nobody else."""

import asyncio
import copy
from collections.abc import Callable, Sequence
from ipaddress import ip_network
from typing import Any

import msgspec
import pytest
from hypothesis import given as for_all
from hypothesis import strategies as some

from backstay.act import addresses
from backstay.apis.calico import Block, handle_name
from backstay.kube.errors import TooLate
from backstay.kube.resource import Resource
from backstay.model.addresses import AddressClaim, AddressOutcome, Fate, told
from backstay.sim.api.operations import Write
from backstay.sim.api.requests import Target
from backstay.sim.calico import V1, Group
from backstay.sim.calico.blocks import given, new_block, taken_back
from tests.act.conftest import NOW, Json, Records

Change = Callable[[Json], Any]

FOUR, SIX = "10.244.3.5", "fd00:10:244::a05"
BLOCK = "10-244-3-0-26"

only_v1 = pytest.mark.parametrize("group", [V1], ids=["v1"])
"""For what cannot depend on the group."""


async def release(records: Records, *claims: AddressClaim) -> Sequence[AddressOutcome]:
    records.asked.clear()
    later = asyncio.get_running_loop().time() + 60
    return await addresses.release(records.client, claims, leave=lambda: later, at=NOW)


def fates(outcomes: Sequence[AddressOutcome]) -> dict[str, Fate]:
    return {outcome.address: outcome.fate for outcome in outcomes}


async def test_all_addresses_of_a_pod_are_free_afterwards_and_its_handle_is_gone(
    records: Records,
) -> None:
    claim = await records.give(FOUR, SIX)
    other = await records.give("10.244.3.6", container="beef", pod="other")
    outcomes = await release(records, claim)
    assert fates(outcomes) == {FOUR: Fate.RELEASED, SIX: Fate.RELEASED}
    block = await records.find(BLOCK)
    assert block is not None
    assert block["spec"]["allocations"][5] is None
    assert block["spec"]["unallocated"][-1] == 5
    [left] = block["spec"]["attributes"]
    assert (left["handle_id"], left["secondary"]["pod"]) == ("k8s-pod-network.beef", other.pod)
    assert block["spec"]["allocations"][6] == 0
    assert list(block["spec"]["sequenceNumberForAllocation"]) == ["6"]
    assert await records.find_handle("k8s-pod-network.c0ffee") is None
    assert await records.find_handle("k8s-pod-network.beef") is not None


async def test_an_address_that_no_annotation_names_goes_with_the_others_of_its_handle(
    records: Records,
) -> None:
    claim = await records.give(FOUR, SIX)
    outcomes = await release(records, msgspec.structs.replace(claim, addresses=(FOUR,)))
    assert fates(outcomes) == {FOUR: Fate.RELEASED, SIX: Fate.RELEASED}


@only_v1
@pytest.mark.parametrize(
    "difference",
    [{"container": "d00d"}, {"pod": "other"}, {"namespace": "office"}, {"node": "n2"}],
    ids=lambda difference: next(iter(difference)),
)
async def test_what_is_held_by_anybody_else_is_left_alone(
    records: Records, difference: dict[str, str]
) -> None:
    claim = await records.give(FOUR)
    [outcome] = await release(records, msgspec.structs.replace(claim, **difference))
    assert outcome.fate is Fate.LEFT
    assert outcome.because == "it belongs to the pod shop/launcher on n1"
    assert records.written() == []


@only_v1
async def test_what_calico_keeps_for_a_machine_is_not_released(records: Records) -> None:
    claim = await records.give(FOUR, handle="k8s-pod-network.vmi.shop.till")
    outcomes = await release(records, claim)
    assert fates(outcomes) == {FOUR: Fate.KEPT}
    assert records.written() == []


@only_v1
async def test_what_is_the_machines_is_so_whichever_of_its_pods_has_it(records: Records) -> None:
    claim = await records.give(FOUR, handle="k8s-pod-network.vmi.shop.till", pod="target")
    mine = msgspec.structs.replace(claim, pod="launcher", guest="till")
    assert fates(await release(records, mine)) == {FOUR: Fate.KEPT}
    others = msgspec.structs.replace(mine, guest="desk")
    assert fates(await release(records, others)) == {FOUR: Fate.LEFT}
    assert records.written() == []


async def test_where_addresses_may_not_move_none_is_touched(records: Records) -> None:
    await records.configure(strictAffinity=True)
    claim = await records.give(FOUR)
    outcomes = await release(records, claim)
    assert fates(outcomes) == {FOUR: Fate.BOUND}
    assert records.written() == []
    [why] = told(outcomes)
    assert why.code == "AddressBound"
    assert "no node but n1" in why.sentence


async def test_an_address_rests_where_calico_is_told_to_let_them_rest(records: Records) -> None:
    await records.configure(ipCooldownSeconds=300)
    claim = await records.give(FOUR)
    [outcome] = await release(records, claim)
    assert (outcome.fate, outcome.seconds) == (Fate.COOLING, 300)
    block = await records.find(BLOCK)
    assert block is not None
    assert block["spec"]["attributes"] == [{"releasedAt": "2026-03-01T12:00:00Z"}]
    assert block["spec"]["allocations"][5] == 0
    assert await records.find_handle("k8s-pod-network.c0ffee") is None
    # Whoever comes again finds that it is done.
    assert fates(await release(records, claim)) == {FOUR: Fate.COOLING}
    assert records.written() == []


@only_v1
async def test_what_is_free_already_is_told_and_not_written(records: Records) -> None:
    """Whoever released it may have died before it could tell."""
    claim = await records.give(FOUR)
    await release(records, claim)
    outcomes = await release(records, claim)
    assert fates(outcomes) == {FOUR: Fate.FREE}
    assert [why.code for why in told(outcomes)] == ["AddressReleased"]
    assert records.written() == []


@only_v1
async def test_a_block_that_is_written_meanwhile_is_read_and_compared_again(
    records: Records,
) -> None:
    claim = await records.give(FOUR)
    writes = 0

    def interfere(said: str) -> None:
        nonlocal writes
        if said.startswith("PUT") and BLOCK in said and writes < 3:
            writes += 1
            _rewrite(records, lambda spec: spec.update(sequenceNumber=spec["sequenceNumber"] + 1))

    records.just_before = interfere
    assert fates(await release(records, claim)) == {FOUR: Fate.RELEASED}
    assert sum(each.startswith("PUT") and BLOCK in each for each in records.asked) == 4


@only_v1
async def test_an_address_that_is_given_away_meanwhile_is_left_to_its_new_owner(
    records: Records,
) -> None:
    claim = await records.give(FOUR)

    def give_away(said: str) -> None:
        if said.startswith("PUT") and BLOCK in said:
            records.just_before = lambda _: None
            _rewrite(records, _given_to_another)

    records.just_before = give_away
    [outcome] = await release(records, claim)
    assert outcome.because == "it belongs to the pod office/new on n2"
    block = await records.find(BLOCK)
    assert block is not None
    assert block["spec"]["allocations"][5] is not None


@only_v1
async def test_an_address_that_came_back_to_the_same_names_meanwhile_is_another_one(
    records: Records,
) -> None:
    claim = await records.give(FOUR)

    def give_anew(said: str) -> None:
        if said.startswith("PUT") and BLOCK in said:
            records.just_before = lambda _: None
            _rewrite(records, lambda spec: spec["sequenceNumberForAllocation"].update({"5": 7}))

    records.just_before = give_anew
    [outcome] = await release(records, claim)
    assert outcome.because == "it was given away anew meanwhile"


@only_v1
async def test_others_who_never_stop_writing_are_given_up_on(records: Records) -> None:
    claim = await records.give(FOUR)

    def interfere(said: str) -> None:
        if said.startswith("PUT") and BLOCK in said:
            _rewrite(records, lambda spec: spec.update(sequenceNumber=spec["sequenceNumber"] + 1))

    records.just_before = interfere
    [outcome] = await release(records, claim)
    assert outcome.because == "others kept writing to its records"
    assert sum(each.startswith("PUT") for each in records.asked) == 10


@only_v1
async def test_a_write_whose_answer_was_lost_is_looked_after_and_counted_once(
    records: Records,
) -> None:
    claim = await records.give(FOUR)
    records.lose_answers_to = f"PUT {V1.blocks.path(name=BLOCK)}"
    assert fates(await release(records, claim)) == {FOUR: Fate.RELEASED}
    assert sum(each.startswith("PUT") and BLOCK in each for each in records.asked) == 1
    assert await records.find_handle("k8s-pod-network.c0ffee") is None


@only_v1
async def test_an_empty_block_of_no_node_is_deleted(records: Records) -> None:
    claim = await records.give(FOUR, affinity="")
    assert fates(await release(records, claim)) == {FOUR: Fate.RELEASED}
    assert await records.find(BLOCK) is None


@only_v1
async def test_a_block_of_no_node_stays_while_anybody_has_an_address_of_it(
    records: Records,
) -> None:
    claim = await records.give(FOUR, affinity="")
    await records.give("10.244.3.6", affinity="", container="beef", pod="other")
    assert fates(await release(records, claim)) == {FOUR: Fate.RELEASED}
    block = await records.find(BLOCK)
    assert block is not None
    assert [each["handle_id"] for each in block["spec"]["attributes"]] == ["k8s-pod-network.beef"]


@only_v1
async def test_a_handle_that_is_written_meanwhile_is_read_again(records: Records) -> None:
    claim = await records.give(FOUR)
    handle = V1.handles.path(name="k8s-pod-network.c0ffee")

    def interfere(said: str) -> None:
        if said == f"PUT {handle}":
            records.just_before = lambda _: None
            info = records.server.kinds.find(V1.name, V1.version, "ipamhandles")
            assert info is not None
            target = Target(info, "", "k8s-pod-network.c0ffee")
            records.server.operations.patch(
                target, lambda live: {**live, "new": True}, Write("somebody")
            )

    records.just_before = interfere
    await release(records, claim)
    assert [each for each in records.asked if handle in each] == [
        f"GET {handle}", f"PUT {handle}", f"GET {handle}", f"PUT {handle}", f"DELETE {handle}",
    ]  # fmt: skip


@only_v1
async def test_whatever_is_deleted_is_marked_as_deleted_before(records: Records) -> None:
    claim = await records.give(FOUR, affinity="")
    marked: list[str] = []

    def look(said: str) -> None:
        method, _, path = said.partition(" ")
        if method == "DELETE":
            kind, name = path.rsplit("/", 2)[1:]
            stored = records.server.store.get(f"{kind}.{V1.name}", ("", name))
            assert stored is not None
            assert stored.object["spec"]["deleted"] is True
            marked.append(kind)

    records.just_before = look
    await release(records, claim)
    assert marked == ["ipamblocks", "ipamhandles"]


@only_v1
async def test_an_empty_block_of_a_node_stays(records: Records) -> None:
    claim = await records.give(FOUR)
    await release(records, claim)
    assert await records.find(BLOCK) is not None


@only_v1
async def test_a_block_that_is_about_to_be_deleted_counts_as_gone(records: Records) -> None:
    claim = await records.give(FOUR)
    _rewrite(records, lambda spec: spec.update(deleted=True))
    assert fates(await release(records, claim)) == {FOUR: Fate.FREE}
    assert records.written() == []


@only_v1
async def test_a_handle_that_is_about_to_be_deleted_is_left_to_whoever_deletes_it(
    records: Records,
) -> None:
    claim = await records.give(FOUR)
    handle = handle_name("k8s-pod-network.c0ffee")
    _rewrite(records, lambda spec: spec.update(deleted=True), kind=V1.handles, name=handle)
    assert fates(await release(records, claim)) == {FOUR: Fate.RELEASED}
    assert [each for each in records.written() if handle in each] == []


@only_v1
async def test_what_we_know_nothing_of_survives_us(records: Records) -> None:
    claim = await records.give(FOUR)
    await records.give("10.244.3.6", container="beef", pod="other")
    _rewrite(records, lambda spec: spec.update(fromTheFuture={"a": [1, None]}))
    _rewrite(records, lambda spec: spec["attributes"][1].update(alsoNew="yes"))
    await release(records, claim)
    block = await records.find(BLOCK)
    assert block is not None
    assert block["spec"]["fromTheFuture"] == {"a": [1, None]}
    assert block["spec"]["attributes"][0]["alsoNew"] == "yes"


@only_v1
@pytest.mark.parametrize(
    "wrong",
    [
        lambda spec: spec.update(allocations=[None, 1]),
        lambda spec: spec.update(allocations="none"),
        lambda spec: spec.update(attributes=[]),
        lambda spec: spec.update(cidr="everything"),
        lambda spec: spec.update(attributes=[{"handle_id": 7}]),
    ],
    ids=["short", "text", "dangling", "range", "handle"],
)
async def test_a_block_of_another_shape_holds_up_nothing_but_itself(
    records: Records, wrong: Change
) -> None:
    bad = await records.give(FOUR)
    good = await records.give("10.244.9.5", container="beef", pod="other")
    _rewrite(records, wrong)
    outcomes = {outcome.address: outcome for outcome in await release(records, bad, good)}
    assert outcomes[FOUR].fate is Fate.LEFT
    assert f"IPAMBlock {BLOCK} is not as Calico writes it" in outcomes[FOUR].because
    assert outcomes["10.244.9.5"].fate is Fate.RELEASED


@only_v1
async def test_a_block_of_a_range_that_its_name_does_not_tell_is_not_taken_for_another(
    records: Records,
) -> None:
    claim = await records.give(FOUR)
    other = new_block(ip_network("10.99.0.0/30"), node="n1", sequence=1)
    await records.put(V1.blocks, {**other, "metadata": {"name": "10-244-3-5-32"}})
    assert fates(await release(records, claim)) == {FOUR: Fate.RELEASED}


@only_v1
@pytest.mark.parametrize("size", [20, 29, 32])
async def test_a_block_is_found_whatever_size_calico_was_told_to_make_them(
    records: Records, size: int
) -> None:
    claim = await records.give(FOUR, size=size)
    claim = msgspec.structs.replace(claim, container="")
    assert fates(await release(records, claim)) == {FOUR: Fate.LEFT}
    claim = msgspec.structs.replace(claim, container="c0ffee")
    assert fates(await release(records, claim)) == {FOUR: Fate.RELEASED}


@only_v1
async def test_where_calico_keeps_its_records_elsewhere_that_is_said(records: Records) -> None:
    claim = await records.give(FOUR)
    records.just_before = lambda _: None
    records.group = Group("nowhere.example", "v1", "IPAMConfig")
    for kind in (V1.blocks, V1.handles, V1.settings):
        await records.client.delete(_DEFINITIONS, kind.label)
    [outcome] = await release(records, claim)
    assert outcome.because == "Calico does not keep its records in this API"


@only_v1
async def test_what_is_not_allowed_is_told_and_raises_nothing(records: Records) -> None:
    claim = await records.give(FOUR)
    records.refused = f"PUT {V1.blocks.path(name=BLOCK)}"
    [outcome] = await release(records, claim)
    assert outcome.fate is Fate.LEFT
    assert "PUT" in outcome.because


@only_v1
async def test_nothing_is_sent_after_the_term(records: Records) -> None:
    claim = await records.give(FOUR)
    records.asked.clear()
    past = asyncio.get_running_loop().time() - 1
    [outcome] = await addresses.release(records.client, [claim], leave=lambda: past, at=NOW)
    assert outcome.fate is Fate.LEFT
    assert records.written() == []


@only_v1
async def test_leave_that_is_taken_back_in_the_midst_ends_it_before_the_next_write(
    records: Records,
) -> None:
    claims = [await records.give(FOUR), await records.give(SIX, container="c6", pod="launcher-6")]
    records.asked.clear()
    later = asyncio.get_running_loop().time() + 60

    def leave() -> float:
        if records.written():
            raise TooLate("the configuration has changed since this was decided")
        return later

    outcomes = await addresses.release(records.client, claims, leave=leave, at=NOW)
    assert [outcome.fate for outcome in outcomes] == [Fate.RELEASED, Fate.LEFT]
    assert len(records.written()) == 1


@only_v1
async def test_a_node_full_of_pods_costs_one_write_of_each_block(records: Records) -> None:
    claims = [
        await records.give(f"10.244.3.{n}", container=f"c{n}", pod=f"launcher-{n}")
        for n in range(40)
    ]
    outcomes = await release(records, *claims)
    assert {outcome.fate for outcome in outcomes} == {Fate.RELEASED}
    block = V1.blocks.path(name=BLOCK)
    assert [each for each in records.asked if block in each] == [f"GET {block}", f"PUT {block}"]
    # Each handle: looked at, marked, deleted.
    assert sum(V1.handles.path() in each for each in records.asked) == 3 * 40


_DEFINITIONS = msgspec.structs.replace(
    V1.blocks,
    group="apiextensions.k8s.io",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
)


def _given_to_another(spec: Json) -> None:
    owner = {"pod": "new", "namespace": "office", "node": "n2"}
    spec["attributes"][0] = {"handle_id": "k8s-pod-network.feed", "secondary": owner}


def _rewrite(
    records: Records, change: Change, *, kind: Resource = V1.blocks, name: str = BLOCK
) -> None:
    """Somebody else writes to the record at this very moment."""
    store = records.server.store
    stored = store.get(kind.label, ("", name))
    assert stored is not None
    body = copy.deepcopy(dict(stored.object))
    change(body["spec"])
    info = records.server.kinds.find(kind.group, kind.version, kind.plural)
    assert info is not None
    records.server.operations.patch(Target(info, "", name), lambda _: body, Write("somebody"))


# Beside the stand-in, which was written after libcalico and knows nothing of ours


@for_all(
    holders=some.lists(some.integers(0, 3), min_size=1, max_size=12),
    chosen=some.integers(0, 3),
    cooldown=some.sampled_from([0, 60]),
)
def test_a_block_looks_as_if_calico_had_released_from_it(
    holders: list[int], chosen: int, cooldown: int
) -> None:
    network = ip_network("10.244.3.0/28")
    block = new_block(network, node="n1", sequence=41)
    for ordinal, holder in enumerate(holders):
        owner = {"pod": f"p{holder}", "namespace": "shop", "node": "n1"}
        block = given(block, ordinal, handle=f"net.c{holder}", owner=owner, node="n1", strict=False)
    ours = [ordinal for ordinal, holder in enumerate(holders) if holder == chosen]
    theirs = taken_back(block, ours, cooldown=cooldown, now=NOW)
    resting = "2026-03-01T12:00:00Z" if cooldown else ""
    made = addresses._without(Block(block), ours, resting=resting if ours else "")
    for field in ("allocations", "attributes", "unallocated", "sequenceNumber"):
        assert made["spec"][field] == theirs["spec"][field], field

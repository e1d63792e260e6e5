"""A controller that has seen the API go back in time tells the others, until a person has armed."""

import asyncio

import msgspec
import pytest

from backstay.kube.resource import LEASES
from backstay.model.labels import COMPONENT, ROLLED_BACK, VIEW
from backstay.seam.tasks import Tasks
from backstay.sources.hearsay import Hearsay
from backstay.sources.past import Past
from backstay.sources.views import Views, lease_name
from tests.sources.restored import Api, restored

WHERE = "default"


class Controllers:
    """Each with what it has seen of the API, and a place to say so."""

    def __init__(self, api: Api, tasks: Tasks) -> None:
        self._api = api
        self._tasks = tasks

    def start(self, node: str, *, deaf_after: float | None = None) -> Past:
        """Its watch of what is said stands still after so many seconds."""
        rng = self._api.cluster.ground.rng
        past = self._api.past()
        views = Views(self._api.client, rng=rng, namespace=WHERE, node=node)
        hearsay = Hearsay(past, views, rng=rng)
        for work in (past.run(), hearsay.run()):
            self._tasks.spawn(work, name=f"controller on {node}")
        watch = self._tasks.spawn(views.run(), name=f"watch on {node}")
        if deaf_after is not None:
            asyncio.get_running_loop().call_later(deaf_after, watch.cancel)
        return past

    def said(self, node: str) -> str:
        stored = self._api.cluster.api.store.get(LEASES.label, (WHERE, lease_name(node)))
        annotations = {} if stored is None else stored.object["metadata"].get("annotations") or {}
        return str(annotations.get(ROLLED_BACK, ""))

    async def write(self, node: str, text: str) -> None:
        meta = {
            "name": lease_name(node),
            "labels": {VIEW: "true", COMPONENT: "backstay"},
            "annotations": {ROLLED_BACK: text},
        }
        await self._api.client.create(LEASES, {"metadata": meta}, namespace=WHERE)


@restored
async def test_one_that_was_started_later_hears_of_it_and_is_free_once_somebody_arms(
    api: Api,
) -> None:
    async with Tasks("test") as tasks:
        ours = Controllers(api, tasks)
        old = ours.start("n1")
        backup = await api.grow()
        await asyncio.sleep(12)
        await api.roll_back(backup)
        new = ours.start("n2")
        await asyncio.sleep(30)
        assert old.words
        assert (new.words, ours.said("n2")) == (old.words, ours.said("n1"))
        await api.arm("tuesday")
        await asyncio.sleep(30)
        assert (old.words, new.words, ours.said("n1"), ours.said("n2")) == ("", "", "", "")


@restored
async def test_nothing_is_written_while_all_is_well(api: Api) -> None:
    async with Tasks("test") as tasks:
        ours = Controllers(api, tasks)
        ours.start("n1")
        await asyncio.sleep(60)
        assert api.cluster.api.store.get(LEASES.label, (WHERE, lease_name("n1"))) is None


@restored
async def test_it_outlives_whoever_has_said_it(api: Api) -> None:
    async with Tasks("test") as tasks:
        ours = Controllers(api, tasks)
        await ours.write("n1", '{"highest":"900","found":"10","armed":"sunday"}')
        assert not ours.start("n1").words
        heir = ours.start("n1")
        await asyncio.sleep(30)
        assert heir.words == "its version was 900 before, and then 10"
        assert ours.said("n1")


@restored
async def test_what_was_said_before_somebody_armed_is_taken_away_by_whoever_is_there_now(
    api: Api,
) -> None:
    async with Tasks("test") as tasks:
        ours = Controllers(api, tasks)
        await ours.write("n1", '{"highest":"900","found":"10","armed":"last year"}')
        heir = ours.start("n1")
        await asyncio.sleep(30)
        assert (heir.words, ours.said("n1")) == ("", "")


@restored
async def test_it_is_said_again_though_ones_own_watch_has_missed_that_it_is_gone(api: Api) -> None:
    """A watch can go on across a restore, from a version that the restored API has not reached."""

    async with Tasks("test") as tasks:
        ours = Controllers(api, tasks)
        ours.start("n1", deaf_after=35)
        backup = await api.grow()
        await asyncio.sleep(12)
        await api.roll_back(backup)
        await asyncio.sleep(30)
        assert ours.said("n1")
        await api.client.delete(LEASES, lease_name("n1"), namespace=WHERE)
        await asyncio.sleep(8)
        assert ours.said("n1")


@restored
async def test_whoever_asks_hears_what_no_watch_has_told(api: Api) -> None:
    async with Tasks("test") as tasks:
        ours = Controllers(api, tasks)
        await ours.write("n2", '{"highest":"900","found":"10","armed":"sunday"}')
        past = api.past()
        rng = api.cluster.ground.rng
        views = Views(api.client, rng=rng, namespace=WHERE, node="n1")
        await Hearsay(past, views, rng=rng).ask()
        assert past.is_in_doubt


@restored
async def test_it_is_said_again_where_the_api_is_restored_once_more_to_before_it(api: Api) -> None:
    async with Tasks("test") as tasks:
        ours = Controllers(api, tasks)
        ours.start("n1")
        backup = await api.grow()
        await asyncio.sleep(12)
        await api.roll_back(backup)
        await asyncio.sleep(30)
        assert ours.said("n1")
        await api.roll_back(backup)
        new = ours.start("n2")
        await asyncio.sleep(60)
        assert ours.said("n1")
        assert new.words


@restored
async def test_one_that_has_missed_one_more_way_back_hears_of_that_too(api: Api) -> None:
    async with Tasks("test") as tasks:
        ours = Controllers(api, tasks)
        first, second = ours.start("n1"), ours.start("n2")
        backup = await api.grow()
        await asyncio.sleep(12)
        await api.roll_back(backup)
        await asyncio.sleep(30)
        known, now = first.restored, str(api.cluster.api.store.version)
        assert first.rolled_back is not None
        first.hear(msgspec.structs.replace(first.rolled_back, found=now))
        await asyncio.sleep(30)
        assert second.restored == first.restored == now != known
        assert f'"found":"{now}"' in ours.said("n1")


@restored
async def test_two_on_one_node_do_not_take_each_others_words_away(api: Api) -> None:
    async with Tasks("test") as tasks:
        ours = Controllers(api, tasks)
        both = [ours.start("n1"), ours.start("n1")]
        backup = await api.grow()
        await asyncio.sleep(12)
        await api.roll_back(backup)
        await asyncio.sleep(30)
        assert all(past.words for past in both)
        said = api.cluster.api.store.get(LEASES.label, (WHERE, lease_name("n1")))
        await asyncio.sleep(60)
        assert api.cluster.api.store.get(LEASES.label, (WHERE, lease_name("n1"))) is said


@pytest.mark.parametrize("text", ["yes", "{}", '{"highest": 7}', '{"x":' * 5000])
@restored
async def test_what_is_no_warning_holds_nothing(api: Api, text: str) -> None:
    async with Tasks("test") as tasks:
        ours = Controllers(api, tasks)
        await ours.write("n2", text)
        past = ours.start("n1")
        await asyncio.sleep(30)
        assert past.words == ""


@restored
async def test_one_that_does_not_know_where_it_runs_hears_and_says_nothing(api: Api) -> None:
    async with Tasks("test") as tasks:
        ours = Controllers(api, tasks)
        await ours.write("n2", '{"highest":"900","found":"10","armed":"sunday"}')
        past = ours.start("")
        await asyncio.sleep(30)
        assert past.words
        assert ours.said("") == ""

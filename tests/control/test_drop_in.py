"""A whole controller in the place of the Piraeus HA controller: what it protects, what it says, and
what it answers, in a cluster whose volumes are LINSTOR's."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from backstay.apis.backstay import CONFIG_NAME, CONFIGS, CONFIRMATIONS
from backstay.apis.definitions import definitions
from backstay.app import App, build
from backstay.cli.manifests import drop_in
from backstay.drivers.linstor.access import access_from
from backstay.kube.calls import Reply
from backstay.kube.client import KubeClient
from backstay.kube.resource import EVENTS, LEASES, NAMESPACES, NODES, PODS, Resource
from backstay.model.labels import LEASE_NAMESPACE
from backstay.model.policy import OptIn, Requirement
from backstay.seam import Seams
from backstay.settings import Settings
from backstay.sim.linstor.front import Trouble
from backstay.sim.linstor.storage import URL
from tests.control.rig import DEFINITIONS
from tests.sim.linstor import cluster_rig
from tests.sim.linstor.cluster_rig import ATTACHMENTS, Rig
from tests.support.exposition import parse

Json = dict[str, Any]

LABEL = {"linstor.csi.linbit.com/on-storage-lost": "remove"}


class Beaten(KubeClient):
    """A moment before it takes something away, somebody else does."""

    async def delete(self, resource: Resource, name: str, **how: Any) -> Reply:
        final = (how.get("conditions") or {}).get("grace") == 0
        if resource == ATTACHMENTS or (resource == PODS and final):
            by_hand: Any = {"grace": 0}
            await super().delete(resource, name, namespace=how.get("namespace"), conditions=by_hand)
        return await super().delete(resource, name, **how)


class Scene:
    """A database on n1, which has a controller of ours beside it."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.apps: list[App] = []

    @property
    def app(self) -> App:
        return self.apps[-1]

    async def set_up(
        self, labels: Json, annotations: Json, client: type[KubeClient], **more: Any
    ) -> None:
        rig = self.rig
        for definition in definitions():
            await rig.client.create(DEFINITIONS, definition)
        for document in drop_in():
            if document["kind"] == "BackstayConfig":
                assert document["metadata"]["name"] == CONFIG_NAME
                await rig.client.create(CONFIGS, document)
        await rig.client.create(NAMESPACES, {"metadata": {"name": "ha-controller"}})
        await rig.run_database(labels=labels, annotations=annotations)
        settings = Settings(
            identity="ha-1",
            namespace="ha-controller",
            lease="piraeus-ha-controller",
            **{"linstor": access_from({"LS_CONTROLLERS": URL})} | more,
        )

        async def main(seams: Seams) -> None:
            self.apps.append(build(settings, seams, client(seams.transport, rig.cluster.access())))
            await self.app.run()

        rig.world.start("backstay", main)
        await asyncio.sleep(40)

    async def events(self) -> list[Json]:
        items: list[Json] = (await self.rig.client.list(EVENTS)).json()["items"]
        return [each for each in items if each["source"]["component"] == "piraeus-ha-controller"]


def play(
    story: Callable[[Scene], Awaitable[None]],
    *,
    labels: Json = LABEL,
    annotations: Json | None = None,
    client: type[KubeClient] = KubeClient,
    **settings: Any,
) -> None:
    async def told(rig: Rig) -> None:
        scene = Scene(rig)
        await scene.set_up(labels, annotations or {}, client, **settings)
        await story(scene)

    cluster_rig.play(told)


def said(events: list[Json]) -> list[tuple[str, str]]:
    return sorted((each["reason"], each["involvedObject"]["name"]) for each in events)


def test_what_is_labelled_moves_and_the_events_are_those_of_the_piraeus_ha_controller() -> None:
    async def story(scene: Scene) -> None:
        rig = scene.rig
        attachment = rig.attached()["n1"]["metadata"]["name"]
        died = asyncio.get_running_loop().time()
        rig.nodes["n1"].kill()
        await rig.until(lambda: rig.copies not in ([], ["n1"]))
        assert asyncio.get_running_loop().time() - died > 45, "DRBD is given its grace"
        await asyncio.sleep(10)
        assert said(await scene.events()) == [
            ("ForceDeleted", "db-0"),
            ("ForceDetached", attachment),
        ]
        assert rig.most_writers == 1

    play(story)


def test_what_is_not_labelled_is_left_alone_with_its_attachment() -> None:
    async def story(scene: Scene) -> None:
        rig = scene.rig
        rig.nodes["n1"].kill()
        await asyncio.sleep(200)
        assert list(rig.attached()) == ["n1"]
        assert (
            not (await rig.client.get(PODS, "db-0", namespace="default"))
            .json()["metadata"]
            .get("deletionTimestamp")
        )
        assert await scene.events() == []

    play(story, labels={})


def test_what_is_annotated_to_be_ignored_is_left_alone_with_its_attachment() -> None:
    async def story(scene: Scene) -> None:
        rig = scene.rig
        rig.nodes["n1"].kill()
        await asyncio.sleep(200)
        assert list(rig.attached()) == ["n1"]
        [verdict] = [
            each for each in scene.app.loop.decisions["n1"].verdicts if each.workload.name == "db-0"
        ]
        assert verdict.why.sentence == (
            "StatefulSet pod default/db-0 is not protected: its annotation "
            "drbd.linbit.com/ignore-fail-over says so."
        )

    play(story, annotations={"drbd.linbit.com/ignore-fail-over": ""})


def test_another_selector_protects_what_it_selects() -> None:
    async def story(scene: Scene) -> None:
        rig = scene.rig
        lease = await rig.client.get(LEASES, "piraeus-ha-controller", namespace="ha-controller")
        assert '"app"' in lease.json()["metadata"]["annotations"]["backstay.dev/opt-in"]
        rig.nodes["n1"].kill()
        await rig.until(lambda: rig.copies not in ([], ["n1"]))

    opt_in = OptIn((Requirement("app", "In", ("db",)),), by="--pod-label-selector")
    play(story, labels={"app": "db"}, opt_in=opt_in)


def test_what_rests_on_somebodys_word_is_told_in_our_words_alone() -> None:
    async def story(scene: Scene) -> None:
        rig = scene.rig
        rig.nodes["n1"].kill()
        node = (await rig.client.get(NODES, "n1")).json()
        lease = (await rig.client.get(LEASES, "n1", namespace=LEASE_NAMESPACE)).json()
        spec = {
            "node": "n1", "nodeUID": node["metadata"]["uid"],
            "bootID": node["status"]["nodeInfo"]["bootID"],
            "lastRenewal": lease["spec"]["renewTime"], "by": "ann", "reason": "plug",
        }  # fmt: skip
        await rig.client.create(CONFIRMATIONS, {"metadata": {"name": "n1"}, "spec": spec})
        await asyncio.sleep(40)
        assert "n1" not in rig.attached(), "it was freed before DRBD's grace was over"
        assert await scene.events() == []

    play(story)


def test_what_somebody_else_has_deleted_is_not_told_as_our_deed() -> None:
    async def story(scene: Scene) -> None:
        rig = scene.rig
        rig.nodes["n1"].kill()
        await rig.until(lambda: rig.copies not in ([], ["n1"]))
        await asyncio.sleep(10)
        assert await scene.events() == []

    play(story, client=Beaten)


def test_it_answers_probes_while_linstor_is_away_and_says_that_it_is() -> None:
    async def story(scene: Scene) -> None:
        app = scene.app
        heard = parse(app.metrics())
        assert heard.value("backstay_linstor_stream_connected") == 1
        assert heard.value("backstay_linstor_last_resync_age_seconds") < 70
        assert "LINSTOR's events are heard" in app.standing()[-1]
        scene.rig.linstor.faults.trouble = Trouble.UNAVAILABLE
        scene.rig.nodes["n3"].kill()
        await asyncio.sleep(100)
        deaf = parse(app.metrics())
        assert deaf.value("backstay_linstor_stream_connected") == 0
        assert deaf.value("backstay_linstor_last_resync_age_seconds") > 25
        assert "LINSTOR's events are not heard, and have not been for" in app.standing()[-1]
        assert app.unhealthy() == "", "a restart would not bring LINSTOR back"
        assert any("LINSTOR" in note for note in app.status().notes)
        client = scene.rig.client
        lease = await client.get(LEASES, "piraeus-ha-controller", namespace="ha-controller")
        noted = lease.json()["metadata"]["annotations"]["backstay.dev/notes"]
        assert "LINSTOR" in noted, "so that commands can show it"

    play(story)


def test_a_linstor_that_was_never_there_is_told_by_the_numbers_that_alerts_go_by() -> None:
    async def story(scene: Scene) -> None:
        read = parse(scene.app.metrics())
        assert read.value("backstay_evidence_source_age_seconds", source="linstor") > 30
        assert read.value("backstay_linstor_stream_connected") == 0
        assert read.value("backstay_linstor_last_resync_age_seconds") == float("inf")
        assert scene.app.standing()[-1] == "LINSTOR's events are not heard, and never were."

    play(story, linstor=access_from({"LS_CONTROLLERS": "nowhere.example"}))

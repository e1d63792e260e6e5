"""The known differences are shown by tests and told in the documentation (pytest.mark.real)."""

import asyncio
import re
from pathlib import Path

import pytest

from tests.conformance.differences import DIFFERENCES
from tests.conformance.objects import config, named, pod
from tests.conformance.targets import Api, Json
from tests.conformance.test_custom_resources import DEFINITIONS
from tests.conformance.test_events import news
from tests.conformance.test_storage import volume

ROOT = Path(__file__).parents[2]


HIDDEN = re.compile(r"\bxfail\b|\bskip(if)?\b|importorskip|\.target\b|\.embedded\b|\.plane\b")


def hidden(text: str) -> list[str]:
    """The lines in which a test would treat one target differently from another."""
    return [line.strip() for line in text.splitlines() if HIDDEN.search(line)]


def test_the_documentation_lists_every_difference() -> None:
    text = (ROOT / "docs" / "embedded-api.md").read_text().partition("Deliberate differences")[2]
    listed = dict(re.findall(r"^\| `([a-z-]+)` \| ([^|]*?) \|", text, re.MULTILINE))
    assert listed == DIFFERENCES


def test_every_difference_is_shown_by_a_test() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert set(re.findall(r'mark\.differs\("([a-z-]+)"\)', tests)) == set(DIFFERENCES)


def test_there_are_no_differences_but_those_that_are_listed() -> None:
    """A test that is excused on one target, or looks which one it has, hides a difference."""
    for path in Path(__file__).parent.glob("test_*.py"):
        if path != Path(__file__):
            assert hidden(path.read_text()) == [], path.name


@pytest.mark.parametrize(
    "line",
    [
        "@pytest.mark.xfail",
        'pytest.skip("not here")',
        'if api.target == "real":',
        "api.embedded.store.compact()",
        "if api.plane is None:",
    ],
)
def test_a_hidden_difference_is_found(line: str) -> None:
    assert hidden(f"def test_it(api):\n    {line}\n    pass") == [line]


def test_whatever_may_fail_is_a_listed_difference(request: pytest.FixtureRequest) -> None:
    """The same of all tests that were collected, wherever their marks come from."""
    for item in request.session.items:
        if item.path.parent != Path(__file__).parent:
            continue
        for mark in item.iter_markers():
            assert mark.name not in ("skip", "skipif"), item.nodeid
            if mark.name == "xfail":
                assert mark.kwargs["strict"], item.nodeid
                assert mark.kwargs["reason"].partition(":")[0] in DIFFERENCES, item.nodeid


@pytest.mark.differs("reads-ignore-versions")
async def test_a_read_waits_for_the_version_it_asks_for(api: Api) -> None:
    version = int((await api.read(api.at("secrets")))["metadata"]["resourceVersion"])
    got = await api.get(f"{api.at('secrets', 'a')}?resourceVersion={version + 1_000_000}")
    assert got.status == 504


@pytest.mark.differs("not-acceptable-words")
async def test_a_form_that_is_not_had_is_answered_with_those_that_are(api: Api) -> None:
    got = await api.request("GET", api.at("secrets"), None, {"accept": "text/html"})
    assert got.message.startswith("406: Not Acceptable\n\nAvailable representations: ")


@pytest.mark.differs("no-diff-of-specs")
async def test_a_refused_change_of_a_pod_is_shown(api: Api) -> None:
    await api.make(api.at("pods"), pod("a"))
    got = await api.patch(api.at("pods", "a"), {"spec": {"nodeName": "other"}})
    assert '"NodeName": "nowhere"' in got.message


@pytest.mark.differs("no-storage-hashes")
async def test_discovery_tells_hashes_of_storage_versions(api: Api) -> None:
    resources = (await api.read("/api/v1"))["resources"]
    (pods,) = [entry for entry in resources if entry["name"] == "pods"]
    assert pods["storageVersionHash"]


@pytest.mark.differs("no-admission")
async def test_a_quota_is_kept(api: Api) -> None:
    quota = {**named("none"), "spec": {"hard": {"count/secrets": "0"}}}
    await api.make(api.at("resourcequotas"), quota)
    body = {
        **named("none"),
        "status": {"hard": {"count/secrets": "0"}, "used": {"count/secrets": "0"}},
    }
    await api.patch(api.at("resourcequotas", "none", "status"), body)
    # A server hears of a quota by a watch of its own.
    got = await api.post(api.at("secrets"), named("a"))
    for number in range(20):
        if got.status != 201:
            break
        await asyncio.sleep(0.1)
        got = await api.post(api.at("secrets"), named(f"a{number}"))
    assert got.refusal[:2] == (403, "Forbidden")


@pytest.mark.differs("some-validation")
async def test_the_image_of_a_container_is_demanded(api: Api) -> None:
    got = await api.post(api.at("pods"), pod("a", containers=[{"name": "main"}]))
    assert got.refusal[:2] == (422, "Invalid")


@pytest.mark.differs("patched-object-not-quoted")
async def test_a_patch_that_makes_no_sense_is_quoted_whole(api: Api) -> None:
    await api.make(api.at("configmaps"), config("a", x="1"))
    got = await api.patch(api.at("configmaps", "a"), {"data": {"x": 5}})
    assert got.message.startswith(' "" is invalid: patch: Invalid value: "{\\"apiVersion\\"')


@pytest.mark.differs("duplicates-unnoticed")
async def test_a_field_that_is_sent_twice_is_warned_of(api: Api) -> None:
    body = b'{"metadata":{"name":"a"},"data":{"x":"1","x":"2"}}'
    got = await api.request("POST", api.at("configmaps"), body)
    assert (got.status, got.json["data"]) == (201, {"x": "2"})
    assert "duplicate field" in got.headers["warning"]


@pytest.mark.differs("causes-once")
async def test_a_cause_that_is_found_twice_is_told_twice(api: Api) -> None:
    async with api.for_a_while("/api/v1/nodes", named(api.namespace)) as path:
        got = await api.patch(path, {"spec": {"taints": [{"key": "a"}]}})
    assert len(got.causes) == 2


def ruled(text: str, group: str) -> Json:
    """A definition with one rule."""
    schema = {"type": "object", "x-kubernetes-validations": [{"rule": text}]}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"plural": "ruled", "kind": "Ruled"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    return {**named(f"ruled.{group}"), "spec": spec}


@pytest.mark.differs("part-of-cel")
async def test_a_rule_may_use_all_of_cel(api: Api) -> None:
    body = ruled("[1, 2].all(n, n > 0)", "differences.test")
    assert (await api.post(f"{DEFINITIONS}?dryRun=All", body)).status == 201


@pytest.mark.differs("untyped-cel")
async def test_a_rule_about_an_unknown_field_is_refused(api: Api) -> None:
    body = ruled("self.nope == 1", "differences.test")
    got = await api.post(f"{DEFINITIONS}?dryRun=All", body)
    assert got.refusal[:2] == (422, "Invalid")


@pytest.mark.differs("no-phase-times")
async def test_a_volume_says_when_its_phase_changed(api: Api) -> None:
    got = await api.post("/api/v1/persistentvolumes?dryRun=All", volume(api.namespace))
    assert got.json["status"]["lastPhaseTransitionTime"]


@pytest.mark.differs("owners-of-events")
async def test_the_owner_of_an_event_is_told_in_its_own_words(api: Api) -> None:
    path = api.at("events", group="events.k8s.io/v1")
    made = await api.make(path, news("a", api.namespace))
    (entry,) = made["metadata"]["managedFields"]
    assert (entry["apiVersion"], "f:note" in entry["fieldsV1"]) == ("events.k8s.io/v1", True)


@pytest.mark.differs("unowned-reviews")
async def test_the_fields_of_a_review_are_owned(api: Api) -> None:
    spec = {"resourceAttributes": {"verb": "get", "resource": "pods"}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert (await api.make(path, {"spec": spec}))["metadata"]["managedFields"]


@pytest.mark.differs("nothing-from-the-start")
async def test_a_new_server_has_roles(api: Api) -> None:
    await api.read("/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin")

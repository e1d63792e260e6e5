"""The known differences are shown by tests and told in the documentation (pytest.mark.real)."""

import re
from pathlib import Path

import pytest

from tests.conformance.differences import DIFFERENCES
from tests.conformance.objects import config, named, pod
from tests.conformance.targets import Api

ROOT = Path(__file__).parents[2]


def test_the_documentation_lists_every_difference() -> None:
    text = (ROOT / "docs" / "embedded-api.md").read_text().partition("Deliberate differences")[2]
    listed = dict(re.findall(r"^\| `([a-z-]+)` \| ([^|]*?) \|", text, re.MULTILINE))
    assert listed == DIFFERENCES


def test_every_difference_is_shown_by_a_test() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert set(re.findall(r'mark\.differs\("([a-z-]+)"\)', tests)) == set(DIFFERENCES)


@pytest.mark.differs("reads-ignore-versions")
async def test_a_read_waits_for_the_version_it_asks_for(api: Api) -> None:
    version = int((await api.read(api.at("secrets")))["metadata"]["resourceVersion"])
    got = await api.get(f"{api.at('secrets', 'a')}?resourceVersion={version + 1_000_000}")
    assert got.status == 504


@pytest.mark.differs("not-acceptable-words")
async def test_a_form_that_is_not_had_is_answered_with_those_that_are(api: Api) -> None:
    got = await api.request("GET", api.at("secrets"), None, {"accept": "text/html"})
    assert got.message.startswith("406: Not Acceptable\n\nAvailable representations: ")


@pytest.mark.differs("no-diff-of-pods")
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
    got = await api.post(api.at("secrets"), named("a"))
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

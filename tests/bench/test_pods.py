"""The pods of the benchmarks: always the same, of a realistic size, and readable."""

import hashlib
import json

from backstay.apis.core import POD_PROJECTION
from bench import pods

TOTAL = 3_000


def test_the_pods_are_the_same_every_time() -> None:
    digest = hashlib.sha256(b"".join(pods.pages(500))).hexdigest()
    pods._replicas.cache_clear()
    pods._shape.cache_clear()

    assert hashlib.sha256(b"".join(pods.pages(500))).hexdigest() == digest


def test_a_pod_has_about_nine_kilobytes() -> None:
    sizes = [len(pods.pod(number, 1)) for number in range(0, TOTAL, pods.PER_OWNER)]

    assert 8_500 < sum(sizes) / len(sizes) < 9_500


def test_every_pod_becomes_a_row_of_its_own() -> None:
    pages = [POD_PROJECTION.page(body, call="LIST") for body in pods.pages(TOTAL)]
    rows = [row for page in pages for row in page.rows]

    assert not any(page.unreadable for page in pages)
    assert len({row.key for row in rows}) == len({row.uid for row in rows}) == TOTAL
    assert len({row.owner_uid for row in rows}) == TOTAL / pods.PER_OWNER
    assert all(row.node and row.ready and row.labels for row in rows)


def test_tokens_lead_from_page_to_page_to_the_end() -> None:
    tokens = [POD_PROJECTION.page(body, call="LIST").token for body in pods.pages(1_200)]

    assert tokens == ["500", "1000", None]


def test_an_empty_cluster_still_answers_with_a_list() -> None:
    page = POD_PROJECTION.page(b"".join(pods.page(0, 500, 0)), call="LIST")

    assert (page.rows, page.token) == ([], None)


def test_an_event_is_about_the_pod_at_the_version_that_was_asked_for() -> None:
    event = json.loads(pods.event(7, 1234, known=True))
    listed = json.loads(b"".join(pods.page(7, 1, 8)))["items"][0]

    assert event["type"] == "MODIFIED"
    assert event["object"]["metadata"]["resourceVersion"] == "1234"
    assert event["object"]["metadata"]["uid"] == listed["metadata"]["uid"]

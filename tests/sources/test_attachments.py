"""What a node has mounted, and which of its pods account for it."""

from backstay.sources.attachments import read_accounted_for
from tests.sources.conftest import CountingApi
from tests.support import objects as some


async def test_the_volumes_of_all_pods_count_whoever_they_belong_to(api: CountingApi) -> None:
    for name in ("logs", "cache", "elsewhere"):
        await api.put(some.claim(name))
        await api.put(some.volume(f"pv-{name}"))
    of_a_set = some.owned_by("ReplicaSet", "web", api="apps/v1")
    of_the_node = some.owned_by("DaemonSet", "agent", api="apps/v1")
    await api.put(some.pod("web-1", owners=of_a_set, claims=["logs"]))
    await api.put(some.pod("agent-1", owners=of_the_node, claims=["cache"]))
    await api.put(some.pod("web-2", owners=of_a_set, claims=["elsewhere"], node="n2"))
    found = await read_accounted_for(api.client, "n1")
    assert {device.rpartition("^")[2] for device in found.devices} == {"pv-logs", "pv-cache"}
    assert found.unread == ""


async def test_a_volume_that_cannot_be_read_is_told_and_not_left_out(api: CountingApi) -> None:
    await api.put(some.claim("logs"))
    await api.put(some.volume("pv-logs"))
    await api.put(some.pod("web-1", claims=["logs"]))
    api.refused = ("persistentvolumes/",)
    found = await read_accounted_for(api.client, "n1")
    assert found.devices == frozenset()
    assert found.unread == "persistentvolumes/pv-logs cannot be read"

"""What happens to what an object owns, and to what a namespace holds (pytest.mark.real)."""

from tests.conformance.objects import named
from tests.conformance.targets import Api, Json

OPTIONS: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}


async def a_family(api: Api, *, blocks: bool = False) -> tuple[str, str]:
    """The paths of an owner and of what it owns."""
    owner = await api.make(api.at("configmaps"), named("owner"))
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": blocks,
    }
    await api.make(api.at("configmaps"), named("owned", ownerReferences=[reference]))
    # A real collector may hear of an owner's end before it hears of what it owns, and then takes
    # that along. Once this one is collected, it has heard of all that was made before.
    never = {**reference, "name": "never", "uid": "never"}
    await api.make(api.at("configmaps"), named("canary", ownerReferences=[never]))
    await api.until(api.at("configmaps", "canary"), 404)
    return api.at("configmaps", "owner"), api.at("configmaps", "owned")


async def test_what_an_object_owns_goes_after_it(api: Api) -> None:
    owner, owned = await a_family(api)
    await api.delete(owner, {**OPTIONS, "propagationPolicy": "Background"})
    assert (await api.get(owner)).status == 404
    await api.until(owned, 404)


async def test_an_object_can_wait_for_what_it_owns(api: Api) -> None:
    owner, owned = await a_family(api, blocks=True)
    got = await api.delete(owner, {**OPTIONS, "propagationPolicy": "Foreground"})
    meta = got.json["metadata"]
    assert meta["finalizers"] == ["foregroundDeletion"]
    assert meta["deletionTimestamp"]
    await api.until(owner, 404)
    assert (await api.get(owned)).status == 404


async def test_what_an_object_owns_can_stay(api: Api) -> None:
    owner, owned = await a_family(api)
    got = await api.delete(owner, {**OPTIONS, "propagationPolicy": "Orphan"})
    assert got.json["metadata"]["finalizers"] == ["orphan"]
    await api.until(owner, 404)
    assert "ownerReferences" not in (await api.read(owned))["metadata"]


async def test_a_namespace_takes_its_content_along(api: Api) -> None:
    name = f"{api.namespace}-x"
    await api.make("/api/v1/namespaces", named(name))
    await api.make(f"/api/v1/namespaces/{name}/secrets", named("a"))
    got = await api.delete(f"/api/v1/namespaces/{name}")
    assert got.json["status"]["phase"] == "Terminating"
    await api.until(f"/api/v1/namespaces/{name}", 404)
    assert (await api.get(f"/api/v1/namespaces/{name}/secrets/a")).status == 404


async def test_nothing_new_comes_into_a_namespace_that_goes(api: Api) -> None:
    name = f"{api.namespace}-x"
    await api.make("/api/v1/namespaces", named(name))
    inside = f"/api/v1/namespaces/{name}/configmaps"
    await api.make(inside, named("hold", finalizers=["test.io/hold"]))
    await api.delete(f"/api/v1/namespaces/{name}")
    got = await api.post(f"/api/v1/namespaces/{name}/secrets", named("a"))
    words = (
        'secrets "a" is forbidden: unable to create new content in namespace '
        f"{name} because it is being terminated"
    )
    assert got.refusal == (403, "Forbidden", words)
    (cause,) = got.causes
    assert cause["reason"] == "NamespaceTerminating"
    await api.change(f"{inside}/hold", {"metadata": {"finalizers": None}})


async def test_the_default_namespace_stays(api: Api) -> None:
    got = await api.delete("/api/v1/namespaces/default")
    words = 'namespaces "default" is forbidden: this namespace may not be deleted'
    assert got.refusal == (403, "Forbidden", words)

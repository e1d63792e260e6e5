"""Claims, volumes, attachments and storage classes, on every target (one is pytest.mark.real).

A real cluster has controllers that look after volumes, so what is compared is the answer to a
write, not what becomes of it.
"""

import pytest

from tests.conformance.objects import named
from tests.conformance.targets import Api, Json

STORAGE = "/apis/storage.k8s.io/v1"
VOLUMES = "/api/v1/persistentvolumes"
DEFAULT = {"storageclass.kubernetes.io/is-default-class": "true"}


def claim(name: str, **spec: object) -> Json:
    asked = {"requests": {"storage": "1Gi"}}
    usual = {"accessModes": ["ReadWriteOnce"], "resources": asked, "storageClassName": "none"}
    return {**named(name), "spec": {**usual, **spec}}


def volume(name: str, **spec: object) -> Json:
    usual = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "x.test", "volumeHandle": "h"},
        # So that no controller binds it.
        "storageClassName": f"{name}-only",
    }
    return {**named(name), "spec": {**usual, **spec}}


def attachment(name: str, node: str = "n1") -> Json:
    source = {"persistentVolumeName": "v"}
    return {**named(name), "spec": {"attacher": "x.test", "nodeName": node, "source": source}}


async def test_a_claim_waits_to_be_bound(api: Api) -> None:
    made = await api.make(api.at("persistentvolumeclaims"), claim("a"))
    assert made["status"] == {"phase": "Pending"}
    assert made["spec"]["volumeMode"] == "Filesystem"
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]


async def test_a_claim_that_is_in_use_stays(api: Api) -> None:
    path = api.at("persistentvolumeclaims")
    await api.make(path, {**claim("a"), "metadata": {"name": "a", "finalizers": ["x.test/hold"]}})
    gone = await api.delete(f"{path}/a")
    assert gone.json["kind"] == "PersistentVolumeClaim"
    assert gone.json["metadata"]["deletionTimestamp"]
    await api.change(f"{path}/a", {"metadata": {"finalizers": None}})
    await api.until(f"{path}/a", 404)


async def test_the_status_of_a_claim_says_what_it_got(api: Api) -> None:
    path = api.at("persistentvolumeclaims")
    await api.make(path, claim("a"))
    status = {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    changed = await api.change(f"{path}/a/status", {"status": status})
    assert changed["status"] == status


async def test_a_claim_must_ask_for_something(api: Api) -> None:
    path = api.at("persistentvolumeclaims")
    got = await api.post(path, claim("a", accessModes=[], resources={}))
    assert got.refusal[:2] == (422, "Invalid")
    assert {cause["field"]: cause["message"] for cause in got.causes} == {
        "spec.accessModes": "Required value: at least 1 access mode is required",
        "spec.resources[storage]": "Required value",
    }


async def test_a_claim_does_not_change_its_mind(api: Api) -> None:
    path = api.at("persistentvolumeclaims")
    await api.make(path, claim("a"))
    got = await api.patch(f"{path}/a", {"spec": {"accessModes": ["ReadWriteMany"]}})
    assert got.refusal[:2] == (422, "Invalid")
    assert got.message.startswith(
        'PersistentVolumeClaim "a" is invalid: spec: Forbidden: spec is immutable after creation '
        "except resources.requests and volumeAttributesClassName for bound claims"
    )


async def test_a_claim_is_given_its_volume_once(api: Api) -> None:
    path = api.at("persistentvolumeclaims")
    await api.make(path, claim("a"))
    changed = await api.change(f"{path}/a", {"spec": {"volumeName": "v"}})
    assert changed["spec"]["volumeName"] == "v"
    got = await api.patch(f"{path}/a", {"spec": {"volumeName": "w"}})
    assert got.refusal[:2] == (422, "Invalid")


async def test_a_claim_without_a_class_gets_the_default_one(api: Api) -> None:
    name = f"{api.namespace}-usual"
    usual = {**named(name, annotations=DEFAULT), "provisioner": "x.test"}
    async with api.for_a_while(f"{STORAGE}/storageclasses", usual):
        path = api.at("persistentvolumeclaims")
        made = await api.make(path, claim("a", storageClassName=None))
        none = await api.make(path, claim("b", storageClassName=""))
    assert made["spec"]["storageClassName"] == name
    assert none["spec"]["storageClassName"] == ""


async def test_a_storage_class_never_changes(api: Api) -> None:
    body = {**named(f"{api.namespace}-slow"), "provisioner": "x.test"}
    async with api.for_a_while(f"{STORAGE}/storageclasses", body) as path:
        made = await api.read(path)
        got = await api.patch(path, {"provisioner": "y.test"})
    assert (made["reclaimPolicy"], made["volumeBindingMode"]) == ("Delete", "Immediate")
    why = 'provisioner: Invalid value: "y.test": field is immutable'
    words = f'StorageClass.storage.k8s.io "{api.namespace}-slow" is invalid: {why}'
    assert got.refusal == (422, "Invalid", words)


async def test_a_volume_is_filled_and_protected(api: Api) -> None:
    got = await api.post(f"{VOLUMES}?dryRun=All", volume(api.namespace))
    made = got.json
    assert made["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
    assert made["status"]["phase"] == "Pending"


async def test_the_phase_of_a_volume_is_part_of_its_status(api: Api) -> None:
    async with api.for_a_while(VOLUMES, volume(api.namespace)) as path:
        changed = await api.change(f"{path}/status", {"status": {"phase": "Released"}})
    assert changed["status"]["phase"] == "Released"


async def test_a_volume_is_always_of_the_same_thing(api: Api) -> None:
    async with api.for_a_while(VOLUMES, volume(api.namespace)) as path:
        got = await api.patch(path, {"spec": {"csi": {"volumeHandle": "other"}}})
    assert got.refusal[:2] == (422, "Invalid")
    assert "spec.persistentvolumesource is immutable after creation" in got.message


async def test_a_volume_must_be_of_something(api: Api) -> None:
    got = await api.post(VOLUMES, {**named(api.namespace), "spec": {}})
    assert got.refusal[:2] == (422, "Invalid")
    assert ("spec", "Required value: must specify a volume type") in [
        (cause["field"], cause["message"]) for cause in got.causes
    ]


async def test_an_attachment_is_confirmed_in_its_status(api: Api) -> None:
    async with api.for_a_while(f"{STORAGE}/volumeattachments", attachment(api.namespace)) as path:
        assert (await api.read(path))["status"] == {"attached": False}
        status = {"attached": True, "attachmentMetadata": {"a": "b"}}
        labels = {"labels": {"x": "y"}}
        changed = await api.change(f"{path}/status", {"status": status, "metadata": labels})
    assert changed["status"] == status
    assert "labels" not in changed["metadata"]


async def test_an_attachment_never_moves(api: Api) -> None:
    name = api.namespace
    async with api.for_a_while(f"{STORAGE}/volumeattachments", attachment(name)) as path:
        got = await api.patch(path, {"spec": {"nodeName": "n2"}})
    shown = (
        '{"Attacher":"x.test","Source":{"PersistentVolumeName":"v","InlineVolumeSpec":null},'
        '"NodeName":"n2"}'
    )
    why = f"spec: Invalid value: {shown}: field is immutable"
    words = f'VolumeAttachment.storage.k8s.io "{name}" is invalid: {why}'
    assert got.refusal == (422, "Invalid", words)


async def test_an_attachment_that_is_held_goes_when_it_is_let_go(api: Api) -> None:
    body = attachment(api.namespace)
    body["metadata"]["finalizers"] = ["x.test/attached"]
    async with api.for_a_while(f"{STORAGE}/volumeattachments", body) as path:
        gone = await api.delete(path)
        assert gone.json["metadata"]["deletionTimestamp"]
        await api.change(path, {"metadata": {"finalizers": None}})
        assert (await api.get(path)).status == 404


@pytest.mark.parametrize(
    ("sent", "kept"), [("1024Mi", "1Gi"), ("1.5Gi", "1536Mi"), (1000, "1k"), ("0.5", "500m")]
)
async def test_quantities_are_kept_in_their_usual_form(
    api: Api, sent: str | int, kept: str
) -> None:
    asked = {"requests": {"storage": sent}}
    made = await api.make(api.at("persistentvolumeclaims"), claim("a", resources=asked))
    assert made["spec"]["resources"] == {"requests": {"storage": kept}}


async def test_a_quantity_that_is_none_is_refused(api: Api) -> None:
    asked = {"requests": {"storage": "lots"}}
    got = await api.post(api.at("persistentvolumeclaims"), claim("a", resources=asked))
    words = (
        'PersistentVolumeClaim in version "v1" cannot be handled as a PersistentVolumeClaim: '
        "quantities must match the regular expression "
        "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )
    assert got.refusal == (400, "BadRequest", words)

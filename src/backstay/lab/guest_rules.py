"""What must never happen to guests that live: rules that ask for a policy, and whether one stopped.

A guest may be shut down, moved or started on its own node's account only if its policy says so,
as our controller could read it. That it has stopped is a matter of the truth, not of what anybody
says of it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from backstay.apis.backstay import AVAILABILITY_POLICIES, CONFIG_NAME, CONFIGS
from backstay.apis.kubevirt import INSTANCES, VIRTUAL_MACHINES
from backstay.apis.machines import MIGRATIONS
from backstay.lab.witness import Asked, Happening, Witness
from backstay.model.labels import LAUNCHER_UID

Json = Mapping[str, Any]

_FINAL = ("Succeeded", "Failed")
_MOVING = frozenset({"Migrate", "StopAndMove"})


def asks_kubevirt(happening: Happening) -> bool:
    """To start a guest, to restart it or to move it."""
    if not isinstance(happening, Asked):
        return False
    verbs = happening.storage == VIRTUAL_MACHINES.label and happening.method == "PUT"
    return verbs or (happening.storage == MIGRATIONS.label and happening.method == "POST")


def as_policy_says(happening: Happening, witness: Witness) -> str | None:
    if not asks_kubevirt(happening):
        return None
    assert isinstance(happening, Asked)
    if happening.storage == MIGRATIONS.label:
        return _moved(happening, witness)
    return _restarted(happening, witness) or _started(happening, witness)


def has_stopped(pod: Json, witness: Witness) -> bool:
    """Whether the guest of this launcher no longer runs, and its VMI says so."""
    meta = pod["metadata"]
    owners = [o for o in meta.get("ownerReferences") or () if o["kind"] == INSTANCES.kind]
    if not owners:
        return False
    vmi = witness.stored(INSTANCES.label, owners[0]["name"], meta["namespace"])
    if vmi is None or vmi["metadata"]["uid"] != owners[0]["uid"]:
        return False
    runs = any(each.uid == meta["uid"] for each in witness.truth.running())
    return not runs and (vmi.get("status") or {}).get("phase") in _FINAL


def _moved(asked: Asked, witness: Witness) -> str | None:
    guest, meta = (asked.body.get("spec") or {}).get("vmiName"), asked.body.get("metadata") or {}
    if not _MOVING & set(_said(asked, witness, "onKubeletLoss")):
        return f"{guest} was to be migrated, and its policy does not ask for it"
    launcher = (meta.get("labels") or {}).get(LAUNCHER_UID)
    for stored in witness.store.all(MIGRATIONS.label):
        found = stored.object["metadata"]
        same = (found.get("labels") or {}).get(LAUNCHER_UID) == launcher
        if same and found["name"] != meta.get("name"):
            return f"{guest} was to be migrated a second time"
    return None


def _restarted(asked: Asked, witness: Witness) -> str | None:
    if asked.subresource != "restart":
        return None
    if "StopAndMove" not in _said(asked, witness, "onKubeletLoss"):
        return f"the guest of {asked.key[1]} was to be stopped, and its policy does not ask for it"
    return None


def _started(asked: Asked, witness: Witness) -> str | None:
    if asked.subresource != "start":
        return None
    machine = witness.stored(VIRTUAL_MACHINES.label, asked.key[1], asked.key[0])
    if machine is not None and machine["spec"].get("runStrategy") == "Halted":
        return f"{asked.key[1]} was to be started, and is halted"
    if True not in _said(asked, witness, "start"):
        return f"{asked.key[1]} was to be started, and its policy does not ask for it"
    return None


def _said(asked: Asked, witness: Witness, field: str) -> Iterator[Any]:
    """What the configuration said when it was last read, and what owners of the namespace say."""
    look = witness.look(asked, CONFIGS.label, CONFIG_NAME)
    if look is not None and look.stored is not None:
        yield (look.stored.object["spec"].get("defaults") or {}).get(field)
    for stored in witness.store.all(AVAILABILITY_POLICIES.label):
        if stored.key[0] == asked.key[0]:
            yield stored.object["spec"].get(field)

"""The mutator of VMIs: what virt-api does to those who write a VMI's status.

VMIs have no subresource for their status, so whoever may change a VMI may send another status too.
virt-api's mutating webhook puts back the one that was there, without a word: the answer is 200, and
whatever else was changed is. Only KubeVirt's own programs write it. So nobody outside of KubeVirt
can declare a guest dead, and who tries is not told that it did not work.

A real one knows its own by their service accounts; here they go by the name under which they write.
On the nodes that is the kubelet's, whose connection virt-handler shares.
"""

from backstay.sim.api.kinds import Object
from backstay.sim.api.operations import Write

_OWN = frozenset({"virt-api", "virt-controller", "virt-handler", "kubelet"})


def keep_status(old: Object, sent: Object, write: Write) -> Object:
    """What ``Operations.mutate`` takes."""
    if write.manager in _OWN or sent.get("status") == old.get("status"):
        return sent
    kept = {field: value for field, value in sent.items() if field != "status"}
    return {**kept, "status": old["status"]} if "status" in old else kept

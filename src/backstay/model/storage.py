"""Storage: what a node has attached, and what it still owes to others."""

import msgspec


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """One VolumeAttachment at one version: enough to delete exactly it and nothing else.

    ``going`` means that it is marked as deleted: the rest is the storage driver's to do.
    """

    name: str
    uid: str
    version: str
    node: str
    pv: str
    going: bool = False


class Owed(msgspec.Struct, frozen=True, kw_only=True):
    """A volume of a workload that was released: it is to be had elsewhere.

    ``workload`` is its key (``Kind/namespace/name``). Nobody waits for one that is ``shared``, but
    some storage allows two nodes at most.
    """

    workload: str
    claim: str
    pv: str
    driver: str = ""
    cluster: str = ""
    handle: str = ""
    exported: bool = False
    shared: bool = False

    @property
    def device(self) -> str:
        """What a kubelet calls it while it is mounted, without what all have in common."""
        return f"{self.driver}^{self.handle}"

    @property
    def key(self) -> str:
        """The claim, as ``namespace/name``."""
        return f"{self.workload.split('/')[1]}/{self.claim}"


class Accounts(msgspec.Struct, frozen=True, kw_only=True):
    """What the pods of a node may have mounted, as ``driver^handle``. ``unread`` says why that may
    not be all; empty if it is."""

    devices: frozenset[str]
    unread: str = ""

"""Owners: controllers of objects that have others made for them, and answer for those.

Such a controller looks at an owner whenever the owner changes, or anything that it controls.
"""

from typing import ClassVar

from backstay.sim.api.controller import Controller
from backstay.sim.api.kinds import Object
from backstay.sim.api.operations import Operations
from backstay.sim.api.store import Commit, Key
from backstay.sim.cluster.desk import PODS, Desk, controller_of


class OwnerController(Controller[Key]):
    """Works on the keys of owners. ``storage`` and ``kind`` are theirs, ``owned`` is the storage
    of what they have made, and ``heard_too`` are others that ``hear`` is called for."""

    storage: ClassVar[str]
    kind: ClassVar[str]
    owned: ClassVar[str] = PODS
    heard_too: ClassVar[tuple[str, ...]] = ()

    def __init__(self, operations: Operations) -> None:
        super().__init__(operations.store)
        self.hears = frozenset({self.storage, self.owned, *self.heard_too})
        self._desk = Desk(operations)

    def begin(self) -> None:
        for each in self.store.all(self.storage):
            self.add(each.key)

    def hear(self, commit: Commit) -> None:
        if commit.storage == self.storage:
            self.add(commit.after.key)
        elif commit.storage == self.owned:
            owner = controller_of(commit.after.object)
            if owner is not None and owner["kind"] == self.kind:
                self.add((commit.after.key[0], owner["name"]))

    def owner_of(self, key: Key) -> Object | None:
        return self._desk.get(self.storage, key[1], key[0])

    def made_for(self, owner: Object) -> list[Object]:
        uid = owner["metadata"]["uid"]
        return [
            each
            for each in self._desk.all(self.owned)
            if (controller_of(each) or {}).get("uid") == uid
        ]

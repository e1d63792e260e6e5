"""Custom resources: kinds that appear, change and go with their CustomResourceDefinition.

``CustomKinds`` stands in for the controllers of a real server. It follows the definitions and
does at once what they do within a second: it accepts the names (or says who has them already),
serves the kinds, and when a definition is deleted, deletes its objects, waits for those that
something keeps, and lets the definition go.

All versions of a kind are the same objects. What is written in one version is kept in the form
of the storage version, and no version hides what another one has.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from backstay.sim.api import causes, cel_rules, fieldsets, gotext, schema_check, structural
from backstay.sim.api.definitions import CLEANUP, is_true, with_condition
from backstay.sim.api.kind_rules import RuleBook
from backstay.sim.api.kinds import KindInfo, Object, Schema, Subresource, version_priority
from backstay.sim.api.operations import DeleteOptions, Operations, Write
from backstay.sim.api.requests import Target
from backstay.sim.api.rules import KindRules, with_field
from backstay.sim.api.status import Cause, forbidden
from backstay.sim.api.store import Stored
from backstay.sim.api.structural import Structural

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"

_OURSELVES = Write("kube-apiserver")
_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_PART_VERBS = ("get", "patch", "update")
_MOST_REPLICAS = 2**31 - 1


class Scale(msgspec.Struct, frozen=True, rename="camel"):
    """Where a kind has its numbers of replicas."""

    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str = ""


class Column(msgspec.Struct, frozen=True, rename="camel"):
    """A column of ``kubectl get``."""

    name: str
    type: str
    json_path: str
    format: str = ""
    description: str = ""
    priority: int = 0


# Each of many worlds has the same definitions as the one before it.
@lru_cache(maxsize=256)
def _parsed(encoded: bytes) -> Structural:
    return structural.parse_root(msgspec.json.decode(encoded))


@lru_cache(maxsize=256)
def _merging(encoded: bytes) -> Schema:
    return structural.merging(_parsed(encoded))


@lru_cache(maxsize=256)
def _checker(encoded: bytes) -> schema_check.Checker:
    return schema_check.Checker(msgspec.json.decode(encoded))


@lru_cache(maxsize=256)
def _rules(encoded: bytes) -> cel_rules.Rules | None:
    return cel_rules.parse(msgspec.json.decode(encoded))


class CustomResources(KindRules):
    """The rules of one version of a custom kind."""

    generation = True
    blind_update = False

    def __init__(
        self, info: KindInfo, version: Mapping[str, Any], *, storage: Mapping[str, Any]
    ) -> None:
        super().__init__(info)
        raw: Mapping[str, Any] = version["schema"]["openAPIV3Schema"]
        encoded = msgspec.json.encode(raw)
        self.schema = _parsed(encoded)
        self.merging = _merging(encoded)
        self._checker = _checker(encoded)
        of_status = (raw.get("properties") or {}).get("status")
        self._status_checker = _checker(msgspec.json.encode(of_status)) if of_status else None
        self._rules = _rules(encoded)
        stored = _parsed(msgspec.json.encode(storage["schema"]["openAPIV3Schema"]))
        self._stored = stored if stored != self.schema else None
        self.served: bool = version["served"]
        scale = (version.get("subresources") or {}).get("scale")
        self.scale = msgspec.convert(scale, Scale) if scale is not None else None
        columns = version.get("additionalPrinterColumns") or []
        self.columns = tuple(msgspec.convert(column, Column) for column in columns)
        self.terminating = False

    kept_by_status = fieldsets.of([("metadata",), ("spec",)])

    def defaulted(self, obj: Object) -> Object:
        return _admitted(obj, self.schema)

    def on_create(self, obj: Object) -> Object:
        if self.terminating:
            name = obj["metadata"].get("name") or ""
            why = "create not allowed while custom resource definition is terminating"
            raise forbidden(self.info, name, why)
        return with_field(obj, "status", None) if self.has_status else obj

    def on_status_update(self, new: Object, old: Object) -> Object:
        # What else was sent is not looked at, because nothing comes of it.
        sent = {"status": new["status"]} if "status" in new else {}
        status = _admitted(sent, self.schema).get("status")
        meta = with_field(old["metadata"], "managedFields", new["metadata"].get("managedFields"))
        return with_field({**old, "metadata": meta}, "status", status)

    def as_stored(self, obj: Object) -> Object:
        return obj if self._stored is None else _admitted(obj, self._stored)

    def spec_of(self, obj: Object) -> object:
        """Generation counts every change outside metadata, and of the status where it is part
        of the resource."""
        ignored = ("metadata", "status") if self.has_status else ("metadata",)
        return {k: v for k, v in obj.items() if k not in ignored}

    def unknown_fields(self, obj: Object) -> Sequence[str]:
        said = obj.get("metadata") or {}
        known = structural.known_metadata(said)
        in_metadata = sorted(f"metadata.{field}" for field in said if field not in known)
        return [*in_metadata, *sorted(structural.unknown(obj, self.schema))]

    def validate(self, new: Object, old: Object | None) -> list[Cause]:
        if old is not None and self.has_status and new.get("status") != old.get("status"):
            found = self._status_problems(new, old)
        elif old is not None:
            found = self._checker.check(new, old)
        else:
            found = self._checker.check(new)
        found += self._scale_problems(new)
        found += structural.incomplete(new, self.schema)
        if old is None or not any(structural.duplicates(old, self.schema)):
            found += structural.duplicates(new, self.schema)
        found += list(cel_rules.check(self._rules, new, old, found))
        return found

    def _status_problems(self, new: Object, old: Object) -> list[Cause]:
        checker = self._status_checker
        if checker is None or "status" not in new:
            return []
        if "status" not in old:
            return checker.check(new["status"], root="status")
        return checker.check(new["status"], old["status"], root="status")

    def _scale_problems(self, obj: Object) -> Iterator[Cause]:
        if self.scale is None:
            return
        for path in (self.scale.spec_replicas_path, self.scale.status_replicas_path):
            value = at(obj, path)
            if value is None:
                continue
            if type(value) is not int:
                why = (
                    f"{path} accessor error: {gotext.plain(value)} is of the type "
                    f"{_GO_TYPES.get(type(value), 'map[string]interface {}')}, expected int64"
                )
                yield causes.invalid(path, 0, why)
            elif value < 0:
                yield causes.invalid(path, value, "should be a non-negative integer")
            elif value > _MOST_REPLICAS:
                why = f"should be less than or equal to {_MOST_REPLICAS}"
                yield causes.invalid(path, value, why)


_GO_TYPES = {str: "string", float: "float64", bool: "bool", list: "[]interface {}"}


def at(obj: Object, path: str) -> Any:
    """What a simple path (``.spec.replicas``) leads to; None if that is nothing."""
    node: Any = obj
    for step in path.removeprefix(".").split("."):
        node = node.get(step) if type(node) is dict else None
    return node


def put_at(obj: Object, path: str, value: Any) -> Object:
    """A copy with another value at the end of a simple path."""
    step, _, rest = path.removeprefix(".").partition(".")
    if not rest:
        return {**obj, step: value}
    below = obj.get(step)
    return {**obj, step: put_at(below if type(below) is dict else {}, rest, value)}


def _admitted(obj: Object, schema: Structural) -> Object:
    """An object as it is after decoding: pruned, coerced and with its defaults."""
    kept = structural.without_nulls(structural.prune(obj, schema), schema)
    admitted: Object = structural.with_defaults(structural.coerced(kept, schema), schema)
    return admitted


class CustomKinds:
    """Keeps the kinds that are served in step with the definitions in the store."""

    def __init__(self, operations: Operations, rules: RuleBook) -> None:
        self._operations = operations
        self._store = operations.store
        self._kinds = operations.kinds
        self._rules = rules
        self._served: dict[str, _Served] = {}
        self._ending: dict[str, Callable[[], None]] = {}
        definitions = self._kinds.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        assert definitions is not None
        self._definitions = definitions
        self._store.follow(DEFINITIONS, lambda commit: self._settle(commit.after.key[1]))
        for stored in self._store.all(DEFINITIONS):
            self._settle(stored.key[1])

    def _settle(self, name: str) -> None:
        """Does what is to be done for a definition, by what the store says of it now."""
        stored = self._store.get(DEFINITIONS, ("", name))
        if stored is None:
            self._withdraw(name)
            for other in self._store.all(DEFINITIONS):
                self._accept(other)
            return
        self._accept(stored)
        stored = self._store.get(DEFINITIONS, ("", name))
        if stored is not None and is_true(stored.object, "Established"):
            self._serve(name, stored.object)
            self._finish(name, stored.object["metadata"])

    # Names

    def _accept(self, stored: Stored) -> None:
        """Accepts the names that nobody else in the group has."""
        obj = stored.object
        wanted, accepted = obj["spec"]["names"], obj["status"]["acceptedNames"]
        if wanted == accepted:
            return
        names, problem = self._accepted(stored.key[1], obj)
        now = self._operations.now()
        conditions = obj["status"].get("conditions")
        if problem is None:
            conditions = with_condition(
                conditions, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now
            )
            if not is_true(obj, "Established"):
                conditions = with_condition(
                    conditions, "Established", "True", "InitialNamesAccepted",
                    "the initial names have been accepted", now,
                )  # fmt: skip
        else:
            conditions = with_condition(conditions, "NamesAccepted", "False", *problem, now)
            if not is_true(obj, "Established"):
                conditions = with_condition(
                    conditions, "Established", "False", "NotAccepted",
                    "not all names are accepted", now,
                )  # fmt: skip
        self._write_status(stored, acceptedNames=names, conditions=conditions)

    def _accepted(self, name: str, obj: Object) -> tuple[Object, tuple[str, str] | None]:
        """The names that can be accepted, and the last reason why one cannot."""
        wanted, accepted = obj["spec"]["names"], obj["status"]["acceptedNames"]
        resources, kinds = self._taken(name, obj["spec"]["group"])
        names, problem = dict(accepted), None
        for field, taken, reason in (
            ("plural", resources, "PluralConflict"),
            ("singular", resources, "SingularConflict"),
            ("shortNames", resources, "ShortNamesConflict"),
            ("kind", kinds, "KindConflict"),
            ("listKind", kinds, "ListKindConflict"),
        ):
            value = wanted.get(field)
            new = [v for v in _listed(value) if v not in _listed(accepted.get(field))]
            conflicts = [f'"{each}" is already in use' for each in new if each in taken]
            if conflicts:
                joined = conflicts[0] if len(conflicts) == 1 else f"[{', '.join(conflicts)}]"
                problem = (reason, joined)
            elif value:
                names[field] = value
            else:
                names.pop(field, None)
        if wanted.get("categories"):
            names["categories"] = wanted["categories"]
        return names, problem

    def _taken(self, name: str, group: str) -> tuple[set[str], set[str]]:
        """The names of resources and of kinds that other definitions of the group have."""
        resources: set[str] = set()
        kinds: set[str] = set()
        for stored in self._store.all(DEFINITIONS):
            if stored.object["spec"]["group"] != group or stored.key[1] == name:
                continue
            names = stored.object["status"]["acceptedNames"]
            resources.update(_listed(names.get("plural")), _listed(names.get("singular")),
                             names.get("shortNames") or ())  # fmt: skip
            kinds.update(_listed(names.get("kind")), _listed(names.get("listKind")))
        return resources, kinds

    def _write_status(self, stored: Stored, **changes: Any) -> None:
        target = Target(self._definitions, "", stored.key[1], "status")
        self._operations.patch(
            target, lambda obj: {**obj, "status": {**obj["status"], **changes}}, _OURSELVES
        )

    # Serving

    def _serve(self, name: str, definition: Object) -> None:
        spec, names = definition["spec"], definition["status"]["acceptedNames"]
        terminating = is_true(definition, "Terminating")
        served = self._served.get(name)
        if served is None or (served.spec, served.names) != (spec, names):
            self._withdraw(name)
            served = self._served[name] = _Served(spec, names)
            for rules in served.rules:
                self._rules.put(rules.info, rules)
                if rules.served:
                    self._kinds.add(rules.info, rules.merging)
        for rules in served.rules:
            rules.terminating = terminating

    def _withdraw(self, name: str) -> None:
        served = self._served.pop(name, None)
        if served is None:
            return
        for rules in served.rules:
            self._kinds.remove(rules.info)
            self._rules.remove(rules.info)
        self._ending.pop(name, lambda: None)()
        self._store.end(name)

    # The end

    def _finish(self, name: str, meta: Mapping[str, Any]) -> None:
        """Deletes the objects of a definition that is being deleted, and then lets it go."""
        if not meta.get("deletionTimestamp") or CLEANUP not in (meta.get("finalizers") or ()):
            return
        if name not in self._ending:
            self._announce(name)
            self._ending[name] = self._store.follow(name, lambda _: self._let_go(name))
            info = self._served[name].storage.info
            for each in self._store.all(name):
                self._operations.delete(Target(info, *each.key), DeleteOptions(), _OURSELVES)
        self._let_go(name)

    def _announce(self, name: str) -> None:
        stored = self._store.get(DEFINITIONS, ("", name))
        assert stored is not None
        conditions = with_condition(
            stored.object["status"].get("conditions"), "Terminating", "True",
            "InstanceDeletionInProgress", "CustomResource deletion is in progress",
            self._operations.now(),
        )  # fmt: skip
        self._write_status(stored, conditions=conditions)

    def _let_go(self, name: str) -> None:
        if self._store.all(name) or self._store.get(DEFINITIONS, ("", name)) is None:
            return

        def without_finalizer(obj: Object) -> Object:
            meta = obj["metadata"]
            kept = [each for each in meta["finalizers"] if each != CLEANUP]
            return {**obj, "metadata": {**meta, "finalizers": kept}}

        target = Target(self._definitions, "", name, "status")
        self._operations.patch(target, without_finalizer, _OURSELVES)


class _Served:
    """What a definition said when its kinds were made, and their rules; ``storage`` has those of
    the version that objects are kept in, which need not be served."""

    def __init__(self, spec: Object, names: Object) -> None:
        self.spec = spec
        self.names = names
        versions = sorted(spec["versions"], key=lambda version: version_priority(version["name"]))
        storage = next(version for version in versions if version["storage"])
        self.rules = [
            CustomResources(_info(spec, names, version), version, storage=storage)
            for version in versions
            if version["served"] or version is storage
        ]
        self.storage = next(r for r in self.rules if r.info.version == storage["name"])


def _listed(value: Any) -> list[str]:
    if not value:
        return []
    return value if isinstance(value, list) else [value]


def _info(
    spec: Mapping[str, Any], names: Mapping[str, Any], version: Mapping[str, Any]
) -> KindInfo:
    group, kind = spec["group"], names["kind"]
    subresources = version.get("subresources") or {}
    parts = {}
    if subresources.get("status") is not None:
        parts["status"] = Subresource(kind, _PART_VERBS)
    if subresources.get("scale") is not None:
        parts["scale"] = Subresource("Scale", _PART_VERBS)
    namespaced = spec["scope"] == "Namespaced"
    selectable = [f["jsonPath"].removeprefix(".") for f in version.get("selectableFields") or ()]
    return KindInfo(
        group=group,
        version=version["name"],
        plural=names["plural"],
        singular=names["singular"],
        kind=kind,
        namespaced=namespaced,
        list_kind=names.get("listKind") or "",
        verbs=_VERBS,
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=parts,
        selectable=tuple(selectable),
        type=".".join((*reversed(group.split(".")), version["name"], kind)),
        built_in=False,
    )

"""Random objects and random changes to them, small enough that writers get in each other's way."""

import random
from collections.abc import Callable, Iterator
from typing import Any

Json = dict[str, Any]

FINALIZERS = ("example.com/a", "example.com/b", "example.com/c")
PORTS = ((80, "TCP"), (80, "UDP"), (443, "TCP"), (9, "TCP"))

MERGE_KEYS = {
    "containers": ("name", "abc"),
    "env": ("name", "ABC"),
    "volumes": ("name", "vw"),
    "conditions": ("type", "ABC"),
}
"""Lists that a strategic merge patch merges: by which key, and which values it has here."""


class Dice(random.Random):
    """Chance, in the words of the generators below."""

    def happens(self, chance: float) -> bool:
        return self.random() < chance

    def some(self, items: Any) -> list[Any]:
        """Any number of them, in any order."""
        return self.sample(items, self.randint(0, len(items)))

    def strings(self, keys: str, nulls: float = 0.0) -> Json:
        return {key: None if self.happens(nulls) else self.choice("123") for key in self.some(keys)}

    def fields(self, **makers: Callable[[], Any]) -> Json:
        return {name: make() for name, make in makers.items() if self.happens(0.5)}


# Objects. ``nulls`` is how likely a value is null, which deletes in a patch.


def metadata(dice: Dice, nulls: float) -> Json:
    return dice.fields(
        labels=lambda: dice.strings("xyz", nulls),
        annotations=lambda: dice.strings("pq", nulls),
        finalizers=lambda: dice.some(FINALIZERS),
    )


def config_map(dice: Dice, nulls: float = 0.0) -> Json:
    return {"metadata": metadata(dice, nulls)} | dice.fields(
        data=lambda: dice.strings("abcd", nulls),
        binaryData=lambda: dict.fromkeys(dice.some("mn"), "aGk="),
    )


def pod_template(dice: Dice, nulls: float = 0.0) -> Json:
    spec = dice.fields(
        tolerations=lambda: [{"key": key, "operator": "Exists"} for key in dice.some("tu")],
        volumes=lambda: [{"name": name, "emptyDir": {}} for name in dice.some("vw")],
        hostIPC=lambda: True,
        restartPolicy=lambda: "Always",
    )
    names = dice.sample("abc", dice.randint(1, 3))
    spec["containers"] = [_container(dice, name, nulls) for name in names]
    template = {"spec": spec} | dice.fields(metadata=lambda: {"labels": dice.strings("ab", nulls)})
    return {"metadata": metadata(dice, nulls), "template": template}


def _container(dice: Dice, name: str, nulls: float) -> Json:
    said = dice.fields(
        args=lambda: dice.some("12"),
        env=lambda: [{"name": key, "value": dice.choice("123")} for key in dice.some("ABC")],
        ports=lambda: [{"containerPort": port, "protocol": p} for port, p in dice.some(PORTS)],
        resources=lambda: {"limits": dict.fromkeys(dice.some(("cpu", "memory")), "1")},
        securityContext=lambda: dict.fromkeys(dice.some(("privileged", "runAsNonRoot")), True),
    )
    if dice.happens(nulls):
        said[dice.choice(("args", "env", "resources"))] = None
    return {"name": name, "image": dice.choice("ij"), **said}


def service(dice: Dice, nulls: float = 0.0) -> Json:
    spec = dice.fields(
        sessionAffinity=lambda: "None",
        publishNotReadyAddresses=lambda: True,
        type=lambda: "ClusterIP",
    )
    spec["ports"] = [
        {"name": f"n{port}{protocol.lower()}", "port": port, "protocol": protocol}
        | dice.fields(targetPort=lambda: dice.choice((1, "web")))
        for port, protocol in dice.sample(PORTS, dice.randint(1, 3))
    ]
    return {"metadata": metadata(dice, nulls), "spec": spec}


def node_status(dice: Dice, nulls: float = 0.0) -> Json:
    status = dice.fields(
        conditions=lambda: [
            {"type": kind, "status": dice.choice(("True", "False"))} for kind in dice.some("ABC")
        ],
        addresses=lambda: [
            {"type": kind, "address": dice.choice(("192.0.2.1", "192.0.2.2"))}
            for kind in dice.some(("InternalIP", "Hostname"))
        ],
        capacity=lambda: {kind: dice.choice("12") for kind in dice.some(("cpu", "pods"))},
        images=lambda: [{"names": [name], "sizeBytes": 1} for name in dice.some("ij")],
    )
    return {"metadata": metadata(dice, nulls), "status": status}


# Changes


def with_directives(dice: Dice, patch: Json) -> Json:
    """A strategic merge patch that does not only add."""
    changed: Json = {}
    for key, value in patch.items():
        if key == "finalizers" and dice.happens(0.4):
            changed[f"$deleteFromPrimitiveList/{key}"] = value
        elif key in MERGE_KEYS and value:
            changed |= _merged_list(dice, key, value)
        else:
            changed[key] = with_directives(dice, value) if isinstance(value, dict) else value
    if set(changed) <= {"privileged", "runAsNonRoot", "limits"} and dice.happens(0.3):
        changed[dice.choice(("$retainKeys", "$patch"))] = "replace"
        if "$retainKeys" in changed:
            changed["$retainKeys"] = [key for key in changed if key != "$retainKeys"]
    return changed


def _merged_list(dice: Dice, name: str, items: list[Json]) -> Json:
    key, values = MERGE_KEYS[name]
    changed: Json = {name: []}
    for item in items:
        gone = dice.happens(0.2)
        changed[name].append(
            {key: item[key], "$patch": "delete"} if gone else with_directives(dice, item)
        )
    if dice.happens(0.1):
        changed[name].insert(0, {"$patch": "replace"})
    elif dice.happens(0.4):
        order = [item[key] for item in items]
        for value in dice.some([value for value in values if value not in order]):
            order.insert(dice.randint(0, len(order)), value)
        changed[f"$setElementOrder/{name}"] = [{key: value} for value in order]
    return changed


def operations(dice: Dice, live: Json) -> list[Json]:
    """A JSON patch; some do not apply."""
    places = [place for place in _places(live, "") if place[0].count("/") > 1]
    chosen = [dice.choice(places) for _ in range(dice.randint(1, 3))] if places else []
    return [_operation(dice, path, value) for path, value in chosen]


def _places(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Where a JSON patch may go: not to what the server itself sets, or fills in again."""
    yield path, value
    if path.startswith("/status/") and path.count("/") > 2:
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _places(item, f"{path}/{index}")
    elif isinstance(value, dict):
        for key in _OPEN.get(path, value):
            if key in value:
                yield from _places(value[key], f"{path}/{key.replace('/', '~1')}")


_OPEN = {
    "": ("metadata", "data", "template", "spec", "status"),
    "/metadata": ("labels", "annotations", "finalizers"),
    "/spec": ("ports",),
    "/status": ("conditions", "addresses", "capacity", "images"),
}


def _operation(dice: Dice, path: str, value: Any) -> Json:
    parent = path.rpartition("/")[0]
    match dice.randrange(5):
        case 0:
            return {"op": "remove", "path": path}
        case 1 if isinstance(value, str):
            return {
                "op": dice.choice(("replace", "add")),
                "path": path,
                "value": dice.choice("123"),
            }
        case 2:
            return {"op": "test", "path": path, "value": value if dice.happens(0.8) else "other"}
        case 3:
            target = f"{parent}/{dice.choice('abxyz-0')}"
            return {"op": dice.choice(("copy", "move")), "from": path, "path": target}
    return {"op": "add", "path": "/metadata/labels", "value": dice.strings("xyz")}

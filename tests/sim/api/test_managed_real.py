"""Patches, applies and managed fields beside a real API server, step by step.

A round is a random sequence of writes to one object by several managers. Each step is sent to
the real server, and done by our functions to the very object that the server had before it, so
one difference cannot hide another. Objects, owners of fields, the order in which all of it is
written down, and refusals must be the same. What the server fills in of its own accord
(``DEFAULTED``) may be in its answer only.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import pytest

from backstay.kube.calls import Reply
from backstay.kube.client import KubeClient
from backstay.kube.errors import ApiError
from backstay.kube.resource import NODES, Resource
from backstay.sim.api import fieldsets, structured
from backstay.sim.api.fieldsets import EMPTY, FieldSet
from backstay.sim.api.kinds import Kinds, Object, Schema
from backstay.sim.api.managed import apply, track_update
from backstay.sim.api.patches import json_patch, merge_patch, strategic_patch
from backstay.sim.api.shapes import Shape, shape_of
from backstay.sim.api.status import Refusal
from tests.support import random_writes
from tests.support.random_writes import Dice

pytestmark = pytest.mark.real

ROUNDS = 2
STEPS = 12

KINDS = Kinds()
MANAGERS = ("ann", "bob", "kubectl")

DEFAULTED = frozenset({
    "imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy", "resources",
    "restartPolicy", "dnsPolicy", "terminationGracePeriodSeconds", "securityContext", "metadata",
    "schedulerName", "protocol", "type", "sessionAffinity", "ipFamilies", "ipFamilyPolicy",
    "clusterIP", "clusterIPs", "internalTrafficPolicy", "targetPort", "emptyDir", "template",
    "spec", "status", "allocatable", "lastHeartbeatTime", "lastTransitionTime", "names",
    "daemonEndpoints", "nodeInfo",
})  # fmt: skip
NOT_COMPARED = frozenset({
    "name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation",
    "managedFields",
})  # fmt: skip
INAPPLICABLE = "the server rejected our request due to an error in our request"

Body = Callable[[Dice, float], Object]


class Subject(NamedTuple):
    """What a round writes to. The other part of the object cannot be changed through it."""

    resource: Resource
    body: Body
    subresource: str = ""

    @property
    def schema(self) -> Schema:
        info = KINDS.find(self.resource.group, self.resource.version, self.resource.plural)
        assert info is not None
        return KINDS.schema(info)

    @property
    def shape(self) -> Shape:
        return shape_of(self.schema, KINDS.types)

    @property
    def reset(self) -> FieldSet:
        if self.subresource:
            return fieldsets.of([("spec",)])
        return fieldsets.of([("status",)]) if "status" in (self.schema.fields or {}) else EMPTY


SUBJECTS = {
    "a config map": Subject(
        Resource("", "v1", "configmaps", "ConfigMap"), random_writes.config_map
    ),
    "a pod template": Subject(
        Resource("", "v1", "podtemplates", "PodTemplate"), random_writes.pod_template
    ),
    "a service": Subject(Resource("", "v1", "services", "Service"), random_writes.service),
    "the status of a node": Subject(NODES, random_writes.node_status, "status"),
}


class Attempt(NamedTuple):
    """A write on its way to the server, and what we make of it; ``applied`` if by apply."""

    sent: Awaitable[Reply]
    ours: Callable[[str], Object]
    applied: bool = False


class Round:
    def __init__(self, client: KubeClient, subject: Subject, namespace: str, seed: str) -> None:
        self.client = client
        self.subject = subject
        self.namespace = None if not subject.resource.namespaced else namespace
        self.name = f"{namespace}-{seed}"
        self.dice = Dice(seed)
        self.configured: dict[str, Object] = {}

    async def run(self) -> None:
        await self.begin()
        for _ in range(STEPS):
            await self.step()
        await self.clean_up()

    async def begin(self) -> None:
        if self.subject.subresource:
            body = {"metadata": {"name": self.name, "labels": {"x": "1"}}}
            await self.client.create(self.subject.resource, body, manager="ann")
            return
        answered: Object | ApiError | None = None
        while not isinstance(answered, dict):
            attempt = self.by_apply(None, "ann")
            answered = await answer(attempt.sent)
            self.compare(None, answered, attempt, "ann")

    async def clean_up(self) -> None:
        """Held by finalizers, an object would keep its namespace from going away."""
        nobody = {"metadata": {"finalizers": None}}
        resource, namespace = self.subject.resource, self.namespace
        await self.client.merge_patch(resource, self.name, nobody, namespace=namespace)
        await self.client.delete(resource, self.name, namespace=namespace)

    async def live(self) -> Object:
        reply = await self.client.get(self.subject.resource, self.name, namespace=self.namespace)
        return reply.json()

    async def step(self) -> None:
        live = await self.live()
        manager = self.dice.choice(MANAGERS)
        writes = (self.by_merge, self.by_json, self.by_strategic, self.by_update)
        if self.dice.happens(0.5):
            attempt = self.by_apply(live, manager)
        else:
            attempt = self.dice.choice(writes)(live, manager)
        answered = await answer(attempt.sent)
        if isinstance(answered, ApiError) and await self.live() != live:
            return
        self.compare(live, answered, attempt, manager)

    def compare(
        self, live: Object | None, answered: Object | ApiError, attempt: Attempt, manager: str
    ) -> None:
        """``live`` is the same object for both, or the server would have refused."""
        now = latest(answered) if isinstance(answered, dict) else ""
        ours = made(attempt, now)
        if isinstance(answered, ApiError) or isinstance(ours, Refusal):
            assert_refused(ours, answered)
            return
        assert list(differences(self.part(ours), self.part(answered))) == []
        if not attempt.applied:
            kept = (live or {})["metadata"].get("managedFields")
            after = merge_patch(answered, {"metadata": {"managedFields": kept}})
            ours = track_update(live, after, **self.context(manager, now), operation="Update")
        assert entries(ours) == entries(answered)

    def part(self, obj: Object) -> Object:
        """What can be changed, as it is when decoded into the kind's type."""
        others = {element[2:] for element in self.subject.reset} | {"apiVersion", "kind"}
        known = declared(obj, self.subject.shape)
        return {
            key: {k: v for k, v in value.items() if k not in NOT_COMPARED}
            if key == "metadata"
            else value
            for key, value in structured.decoded(known, self.subject.shape).items()
            if key not in others
        }

    def context(self, manager: str, now: str) -> dict[str, Any]:
        return {
            "manager": manager, "now": now, "subresource": self.subject.subresource,
            "api_version": self.subject.resource.api_version, "shape": self.subject.shape,
            "reset": self.subject.reset,
        }  # fmt: skip

    # Writes. Each names the version that it is for, so that no controller comes in between.

    def where(self, manager: str) -> dict[str, Any]:
        sub = self.subject.subresource or None
        return {"namespace": self.namespace, "subresource": sub, "manager": manager}

    def body(self, live: Object | None, nulls: float) -> Object:
        body = self.subject.body(self.dice, nulls)
        version = live and {"resourceVersion": live["metadata"]["resourceVersion"]}
        return {**body, "metadata": {**body["metadata"], **(version or {})}}

    def by_merge(self, live: Object, manager: str) -> Attempt:
        patch = self.body(live, 0.2)
        sent = self.client.merge_patch(
            self.subject.resource, self.name, patch, **self.where(manager)
        )
        return Attempt(sent, lambda _: merge_patch(live, patch))

    def by_strategic(self, live: Object, manager: str) -> Attempt:
        patch = random_writes.with_directives(self.dice, self.body(live, 0.2))
        sent = self.client.strategic_patch(
            self.subject.resource, self.name, patch, **self.where(manager)
        )
        return Attempt(
            sent, lambda _: strategic_patch(live, patch, self.subject.schema, KINDS.types)
        )

    def by_json(self, live: Object, manager: str) -> Attempt:
        version = live["metadata"]["resourceVersion"]
        patch = [
            *random_writes.operations(self.dice, live),
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        ]
        sent = self.client.json_patch(
            self.subject.resource, self.name, patch, **self.where(manager)
        )
        return Attempt(sent, lambda _: json_patch(live, patch))

    def by_update(self, live: Object, manager: str) -> Attempt:
        whole = merge_patch(live, self.body(live, 0.2))
        if self.dice.happens(0.5):
            whole = merge_patch(whole, {"metadata": {"managedFields": None}})
        sent = self.client.replace(self.subject.resource, self.name, whole, **self.where(manager))
        return Attempt(sent, lambda _: whole)

    def by_apply(self, live: Object | None, manager: str) -> Attempt:
        config = self.configured.get(manager)
        if config is None or self.dice.happens(0.7):
            config = self.body(None, 0.0)
        self.configured[manager] = config
        named = {"name": self.name} | (
            {} if live is None else {"resourceVersion": live["metadata"]["resourceVersion"]}
        )
        resource, force = self.subject.resource, self.dice.happens(0.4)
        typed = {"apiVersion": resource.api_version, "kind": resource.kind}
        body = {**typed, **config, "metadata": {**config["metadata"], **named}}
        sent = self.client.apply(resource, self.name, body, force=force, **self.where(manager))
        return Attempt(
            sent,
            lambda now: apply(
                live, body, force=force, kind=resource.kind, **self.context(manager, now)
            ),
            applied=True,
        )


async def answer(sent: Awaitable[Reply]) -> Object | ApiError:
    try:
        return (await sent).json()
    except ApiError as refusal:
        return refusal


def made(attempt: Attempt, now: str) -> Object | Refusal:
    try:
        return attempt.ours(now)
    except Refusal as refusal:
        return refusal


def assert_refused(ours: Object | Refusal, answered: Object | ApiError) -> None:
    """By both in the same words, unless it is for others to say whether the result is valid."""
    assert isinstance(answered, ApiError), ours
    if isinstance(ours, Refusal):
        assert described(ours) == described(answered)
    else:
        assert answered.status.code == 422
        assert answered.status.message != INAPPLICABLE


def latest(obj: Object) -> str:
    return max((e.get("time", "") for e in obj["metadata"].get("managedFields", ())), default="")


def entries(obj: Object) -> bytes:
    """As they are written down, because their order counts too."""
    return msgspec.json.encode(obj["metadata"].get("managedFields"))


def described(refusal: Refusal | ApiError) -> tuple[Any, ...]:
    if isinstance(refusal, Refusal):
        causes = refusal.details.get("causes", [])
        said = refusal.code, refusal.reason, refusal.message
    else:
        causes = list(refusal.causes)
        said = refusal.status.code, refusal.status.reason, refusal.status.message
    return *said, sorted((cause.field, cause.message) for cause in causes)


def declared(value: Any, shape: Shape) -> Any:
    """Without fields that the type does not have: decoding drops them."""
    if isinstance(value, list):
        return [declared(item, shape.item) for item in value]
    if not isinstance(value, dict):
        return value
    known = ((key, item, shape.children[key]) for key, item in value.items())
    return {key: declared(item, below) for key, item, below in known if below is not None}


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in ours | theirs:
            place = f"{path}.{key}"
            if key in ours and key in theirs:
                yield from differences(ours[key], theirs[key], place)
            elif key in ours and ours[key] not in ({}, []):
                yield f"only ours: {place}"
            elif key in theirs and key not in DEFAULTED:
                yield f"only the server's: {place}"
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (left, right) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(left, right, f"{path}[{index}]")
    elif ours != theirs:
        yield f"{path}: ours is {ours!r}, the server's {theirs!r}"


@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=list(SUBJECTS))
async def test_a_random_sequence_of_writes_does_what_a_real_server_does(
    client: KubeClient, namespace: str, subject: Subject, seed: int
) -> None:
    await Round(client, subject, namespace, str(seed)).run()


async def test_a_created_object_is_owned_by_its_creator(client: KubeClient, namespace: str) -> None:
    subject = SUBJECTS["a config map"]
    body = {"metadata": {"name": "made", "labels": {"x": "1"}}, "data": {"b": "2", "a": "1"}}
    made = (await client.create(subject.resource, body, namespace=namespace, manager="ann")).json()
    sent = merge_patch(made, {"metadata": {"managedFields": None}})
    context = Round(client, subject, namespace, "").context("ann", latest(made))
    assert entries(track_update(None, sent, operation="Update", **context)) == entries(made)

"""What an API server does with leases, as far as leadership depends on it.

The same tests run on ``LeaseStore`` (``test_lease_store.py``) and on a real kube-apiserver
(``test_lease_real.py``), refusals compared in full, so that the double stays honest.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
import pytest

from backstay.kube.client import KubeClient
from backstay.kube.errors import (
    AlreadyExists,
    BadRequest,
    Cause,
    Conflict,
    Details,
    Forbidden,
    Invalid,
    Json,
    NotFound,
    Status,
)
from backstay.kube.lines import Lines
from backstay.kube.resource import LEASES

GROUP = "coordination.k8s.io"
SOMEBODY_ELSE = "11111111-2222-4333-8444-555555555555"


@dataclass(frozen=True)
class Api:
    """An API server, as a client that may do everything and one that may do nothing see it."""

    client: KubeClient
    powerless: KubeClient
    namespace: str

    async def create(self, name: str = "a", **spec: object) -> Json:
        kind = {"apiVersion": LEASES.api_version, "kind": LEASES.kind}
        body = {**kind, "metadata": {"name": name}, "spec": spec}
        return (await self.client.create(LEASES, body, namespace=self.namespace)).json()

    async def patch(self, patch: Json, name: str = "a") -> Json:
        reply = await self.client.merge_patch(LEASES, name, patch, namespace=self.namespace)
        return reply.json()

    async def get(self, name: str = "a") -> Json:
        return (await self.client.get(LEASES, name, namespace=self.namespace)).json()

    async def delete(self, name: str = "a") -> None:
        await self.client.delete(LEASES, name, namespace=self.namespace)

    @asynccontextmanager
    async def watch(self, name: str = "a", since: Json | None = None) -> AsyncIterator["Events"]:
        """What happens to a lease after it was as in ``since``, or from its beginning on."""
        async with self.client.watch(
            LEASES,
            namespace=self.namespace,
            fields=f"metadata.name={name}",
            resource_version=since["metadata"]["resourceVersion"] if since else None,
            initial_events=since is None,
            seconds=5,
        ) as lines:
            yield Events(lines)


class Events:
    """The lines of a watch, one by one."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._read: list[bytes] = []

    async def next(self) -> Json:
        while not self._read:
            self._read = await self._lines.read(5.0) or []
        event: Json = msgspec.json.decode(self._read.pop(0))
        return event


def refusal(code: int, reason: str, message: str, name: str = "a") -> Status:
    return Status(reason, message, code, Details(name=name, group=GROUP, kind="leases"))


def invalid(field: str, why: str, *, times: int = 1) -> Status:
    cause = Cause("FieldValueInvalid", why, field)
    details = Details(name="a", group=GROUP, kind="Lease", causes=(cause,) * times)
    return Status("Invalid", f'Lease.{GROUP} "a" is invalid: {field}: {why}', 422, details)


MODIFIED = refusal(
    409, "Conflict",
    f'Operation cannot be fulfilled on leases.{GROUP} "a": the object has been modified; '
    "please apply your changes to the latest version and try again",
)  # fmt: skip
MISSING = refusal(404, "NotFound", f'leases.{GROUP} "a" not found')


def identity(lease: Json) -> Json:
    """The metadata of a patch that is meant for this lease, as it is here."""
    return {field: lease["metadata"][field] for field in ("resourceVersion", "uid")}


class LeaseContract:
    async def test_a_lease_is_read_back_as_it_was_created(self, api: Api) -> None:
        spec: Json = {
            "holderIdentity": "x",
            "leaseDurationSeconds": 15,
            "acquireTime": "2030-01-02T03:04:05.000000Z",
            "renewTime": "2030-01-02T03:04:05.678900Z",
            "leaseTransitions": 3,
        }
        created = await api.create(**spec)
        assert created["spec"] == spec
        assert created["metadata"]["namespace"] == api.namespace
        assert await api.get() == created

    async def test_a_moment_without_microseconds_is_refused(self, api: Api) -> None:
        await api.create()
        with pytest.raises(Invalid) as refused:
            await api.patch({"spec": {"renewTime": "2030-01-02T03:04:05Z"}})
        assert refused.value.status.message.endswith(
            ': parsing time "2030-01-02T03:04:05Z" as "2006-01-02T15:04:05.000000Z07:00": '
            'cannot parse "Z" as ".000000"'
        )

    async def test_an_empty_name_of_a_holder_is_accepted(self, api: Api) -> None:
        lease = await api.create(holderIdentity="x")
        released = await api.patch({"metadata": identity(lease), "spec": {"holderIdentity": ""}})
        assert released["spec"]["holderIdentity"] == ""
        assert await api.get() == released

    async def test_a_duration_of_nothing_is_refused(self, api: Api) -> None:
        await api.create()
        with pytest.raises(Invalid) as refused:
            await api.patch({"spec": {"leaseDurationSeconds": 0}})
        assert refused.value.status == invalid(
            "spec.leaseDurationSeconds", "Invalid value: 0: must be greater than 0"
        )

    async def test_transitions_below_nothing_are_refused(self, api: Api) -> None:
        await api.create()
        with pytest.raises(Invalid) as refused:
            await api.patch({"spec": {"leaseTransitions": -1}})
        assert refused.value.status == invalid(
            "spec.leaseTransitions", "Invalid value: -1: must be greater than or equal to 0"
        )

    async def test_a_name_can_be_taken_once(self, api: Api) -> None:
        await api.create()
        with pytest.raises(AlreadyExists) as refused:
            await api.create()
        message = f'leases.{GROUP} "a" already exists'
        assert refused.value.status == refusal(409, "AlreadyExists", message)

    async def test_in_a_namespace_that_is_missing_nothing_can_be_created(self, api: Api) -> None:
        lost = Api(api.client, api.powerless, "no-such-namespace")
        with pytest.raises(NotFound) as refused:
            await lost.create()
        details = Details(name="no-such-namespace", kind="namespaces")
        message = 'namespaces "no-such-namespace" not found'
        assert refused.value.status == Status("NotFound", message, 404, details)
        with pytest.raises(NotFound) as refused:
            await lost.get()
        assert refused.value.status == MISSING

    async def test_a_missing_lease_is_not_found(self, api: Api) -> None:
        with pytest.raises(NotFound) as refused:
            await api.get()
        assert refused.value.status == MISSING
        with pytest.raises(NotFound) as refused:
            await api.patch({"spec": {"holderIdentity": "x"}})
        assert refused.value.status == MISSING
        with pytest.raises(NotFound) as refused:
            await api.delete()
        assert refused.value.status == MISSING

    async def test_who_has_no_permission_is_told_so(self, api: Api) -> None:
        lost = Api(api.powerless, api.powerless, api.namespace)

        def forbidden(verb: str, name: str = "") -> Status:
            named = f' "{name}"' if name else ""
            message = (
                f'leases.{GROUP}{named} is forbidden: User "ordinary" cannot {verb} resource '
                f'"leases" in API group "{GROUP}" in the namespace "{api.namespace}"'
            )
            return refusal(403, "Forbidden", message, name)

        with pytest.raises(Forbidden) as refused:
            await lost.get()
        assert refused.value.status == forbidden("get", "a")
        with pytest.raises(Forbidden) as refused:
            await lost.patch({})
        assert refused.value.status == forbidden("patch", "a")
        with pytest.raises(Forbidden) as refused:
            await lost.create()
        assert refused.value.status == forbidden("create")
        with pytest.raises(Forbidden) as refused:
            async with lost.watch():
                pass
        # Who selects one name is taken to ask for that one.
        assert refused.value.status == forbidden("watch", "a")

    async def test_a_patch_for_the_present_version_makes_a_new_one(self, api: Api) -> None:
        lease = await api.create(holderIdentity="x")
        patched = await api.patch({"metadata": identity(lease), "spec": {"holderIdentity": "y"}})
        assert patched["spec"] == {"holderIdentity": "y"}
        assert patched["metadata"]["uid"] == lease["metadata"]["uid"]
        versions = [int(each["metadata"]["resourceVersion"]) for each in (lease, patched)]
        assert versions[0] < versions[1]

    async def test_a_patch_for_an_old_version_is_a_conflict(self, api: Api) -> None:
        lease = await api.create(holderIdentity="x")
        await api.patch({"metadata": {"labels": {"some": "label"}}})
        with pytest.raises(Conflict) as refused:
            await api.patch({"metadata": identity(lease), "spec": {"holderIdentity": "y"}})
        assert refused.value.status == MODIFIED
        assert (await api.get())["spec"] == {"holderIdentity": "x"}

    async def test_a_patch_for_a_lease_that_was_made_anew_is_a_conflict(self, api: Api) -> None:
        lease = await api.create()
        await api.delete()
        await api.create()
        with pytest.raises(Conflict) as refused:
            await api.patch({"metadata": identity(lease), "spec": {"holderIdentity": "y"}})
        assert refused.value.status == MODIFIED

    async def test_a_patch_for_another_object_is_refused(self, api: Api) -> None:
        lease = await api.create()
        meant = {**identity(lease), "uid": SOMEBODY_ELSE}
        with pytest.raises(Invalid) as refused:
            await api.patch({"metadata": meant, "spec": {"holderIdentity": "y"}})
        why = f'Invalid value: "{SOMEBODY_ELSE}": field is immutable'
        assert refused.value.status == invalid("metadata.uid", why, times=2)

    async def test_of_many_patches_for_one_version_one_is_carried_out(self, api: Api) -> None:
        lease = await api.create()
        patches = [
            api.patch({"metadata": identity(lease), "spec": {"holderIdentity": name}})
            for name in ("x", "y", "z")
        ]
        outcomes = await asyncio.gather(*patches, return_exceptions=True)
        assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 2
        (winner,) = [outcome for outcome in outcomes if isinstance(outcome, dict)]
        assert await api.get() == winner

    async def test_a_patch_leaves_alone_what_it_does_not_name(self, api: Api) -> None:
        await api.create(holderIdentity="x", leaseTransitions=7)
        await api.patch({"metadata": {"labels": {"some": "label"}}})
        lease = await api.patch({"spec": {"holderIdentity": "y", "leaseTransitions": None}})
        assert lease["metadata"]["labels"] == {"some": "label"}
        assert lease["spec"] == {"holderIdentity": "y"}

    async def test_a_patch_that_changes_nothing_is_no_change(self, api: Api) -> None:
        lease = await api.create(holderIdentity="x")
        same = await api.patch({"metadata": identity(lease), "spec": {"holderIdentity": "x"}})
        assert same == lease
        async with api.watch(since=lease) as events:
            await api.patch({"spec": {"holderIdentity": "x"}})
            other = await api.patch({"spec": {"holderIdentity": "y"}})
            assert await events.next() == {"type": "MODIFIED", "object": other}

    async def test_a_watch_brings_the_changes_of_one_lease_in_order(self, api: Api) -> None:
        lease = await api.create(holderIdentity="x")
        async with api.watch(since=lease) as events:
            first = await api.patch({"spec": {"holderIdentity": "y"}})
            await api.create("b")
            second = await api.patch({"spec": {"holderIdentity": "z"}})
            await api.delete()
            third = await api.create()
            assert await events.next() == {"type": "MODIFIED", "object": first}
            assert await events.next() == {"type": "MODIFIED", "object": second}
            gone = await events.next()
            assert (gone["type"], gone["object"]["spec"]) == ("DELETED", second["spec"])
            assert await events.next() == {"type": "ADDED", "object": third}

    async def test_a_watch_that_begins_late_brings_what_was_missed(self, api: Api) -> None:
        lease = await api.create()
        missed = await api.patch({"spec": {"holderIdentity": "y"}})
        async with api.watch(since=lease) as events:
            assert await events.next() == {"type": "MODIFIED", "object": missed}

    async def test_a_streaming_list_says_where_it_is_complete(self, api: Api) -> None:
        lease = await api.create()
        async with api.watch() as events:
            assert await events.next() == {"type": "ADDED", "object": lease}
            mark = await events.next()
            assert mark["type"] == "BOOKMARK"
            assert mark["object"]["metadata"]["annotations"] == {
                "k8s.io/initial-events-end": "true"
            }
            changed = await api.patch({"spec": {"holderIdentity": "y"}})
            assert await events.next() == {"type": "MODIFIED", "object": changed}

    async def test_a_streaming_list_of_nothing_is_complete_at_once(self, api: Api) -> None:
        async with api.watch() as events:
            assert (await events.next())["type"] == "BOOKMARK"

    async def test_a_list_names_the_version_to_watch_from(self, api: Api) -> None:
        reply = await api.client.list(LEASES, namespace=api.namespace, fields="metadata.name=a")
        empty = reply.json()
        assert (empty["kind"], empty["items"]) == ("LeaseList", [])
        lease = await api.create()
        async with api.watch(since=empty) as events:
            assert await events.next() == {"type": "ADDED", "object": lease}
        reply = await api.client.list(LEASES, namespace=api.namespace, fields="metadata.name=a")
        assert [item["metadata"] for item in reply.json()["items"]] == [lease["metadata"]]

    async def test_leases_cannot_be_selected_by_their_holder(self, api: Api) -> None:
        with pytest.raises(BadRequest) as refused:
            await api.client.list(LEASES, namespace=api.namespace, fields="spec.holderIdentity=x")
        assert refused.value.status == Status(
            "BadRequest",
            '"spec.holderIdentity" is not a known field selector: '
            'only "metadata.name", "metadata.namespace"',
            400,
        )

"""What a real API server refuses of our kinds, and in which words."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from backstay.apis.backstay import CONFIGS, CONFIRMATIONS, INCIDENTS
from backstay.kube import errors
from backstay.kube.client import KubeClient
from backstay.kube.resource import Resource
from tests.support.installed import USERS, Installed

pytestmark = pytest.mark.real


def thing(resource: Resource, name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def word(name: str, **spec: Any) -> dict[str, Any]:
    return thing(
        CONFIRMATIONS,
        name,
        **{"node": name, "nodeUID": "u", "bootID": "b", "lastRenewal": ""} | spec,
    )


@asynccontextmanager
async def created(
    client: KubeClient, resource: Resource, body: dict[str, Any]
) -> AsyncIterator[None]:
    await client.create(resource, body)
    try:
        yield
    finally:
        await client.delete(resource, body["metadata"]["name"])


async def test_nobody_confirms_in_anothers_name(installed: Installed) -> None:
    async with installed.client("confirmer") as client:
        with pytest.raises(errors.Forbidden, match=r"spec\.by must be 'carla'"):
            await client.create(CONFIRMATIONS, word("n1", by="vera"))


async def test_a_confirmation_without_a_name_is_nobodys(installed: Installed) -> None:
    async with installed.client("confirmer") as client:
        with pytest.raises(errors.Forbidden, match=r"spec\.by must be 'carla'"):
            await client.create(CONFIRMATIONS, word("n1"))


async def test_not_even_an_administrator_speaks_for_somebody_else(
    installed: Installed, client: KubeClient
) -> None:
    with pytest.raises(errors.Forbidden, match="in one's own name"):
        await client.create(CONFIRMATIONS, word("n1", by=USERS["confirmer"]))


async def test_a_confirmation_in_ones_own_name_is_taken_and_never_changed(
    installed: Installed, client: KubeClient
) -> None:
    changed = {"spec": {"bootID": "another", "by": "admin"}}
    async with (
        installed.client("confirmer") as carla,
        created(carla, CONFIRMATIONS, word("n1", by="carla")),
    ):
        with pytest.raises(errors.ApiError, match="it cannot be changed: delete it instead"):
            await client.merge_patch(CONFIRMATIONS, "n1", changed)


@pytest.mark.parametrize("role", ["controller", "viewer", "operator", "stranger"])
async def test_only_a_confirmer_confirms(installed: Installed, role: str) -> None:
    async with installed.client(role) as client:
        with pytest.raises(errors.Forbidden, match='cannot create resource "deathconfirmations"'):
            await client.create(CONFIRMATIONS, word("n1", by=USERS[role]))


@pytest.mark.parametrize("role", ["controller", "viewer", "confirmer", "stranger"])
async def test_only_an_operator_arms(installed: Installed, role: str) -> None:
    async with installed.client(role) as client:
        with pytest.raises(errors.Forbidden, match='cannot create resource "backstayconfigs"'):
            await client.create(CONFIGS, thing(CONFIGS, "cluster", mode="Armed"))


async def test_a_mode_that_does_not_exist_is_refused_with_those_that_do(
    installed: Installed,
) -> None:
    async with installed.client("operator") as client:
        with pytest.raises(errors.Invalid, match=r'"Foo": supported values: "Observe", "Armed"'):
            await client.create(CONFIGS, thing(CONFIGS, "cluster", mode="Foo"))


async def test_there_is_one_configuration(installed: Installed) -> None:
    async with installed.client("operator") as client:
        with pytest.raises(errors.Invalid, match="there is one configuration, and its name is"):
            await client.create(CONFIGS, thing(CONFIGS, "another", mode="Observe"))


@pytest.mark.parametrize(
    ("disarmed", "expected"),
    [
        ({"until": "tomorrow", "reason": "x"}, "date-time"),
        ({"until": "2030-01-01T00:00:00Z"}, "reason: Required value"),
        ({"reason": "x"}, "until: Required value"),
    ],
)
async def test_a_disarming_has_an_end_and_a_reason(
    installed: Installed, disarmed: dict[str, str], expected: str
) -> None:
    async with installed.client("operator") as client:
        with pytest.raises(errors.Invalid, match=expected):
            await client.create(CONFIGS, thing(CONFIGS, "cluster", disarmed=disarmed))


async def test_an_incident_stays_with_its_boot_and_is_not_removed_while_it_is_open(
    installed: Installed, client: KubeClient
) -> None:
    body = thing(INCIDENTS, "n1-a", node="n1", nodeUID="u", bootID="b")
    async with installed.client("controller") as controller:
        await controller.create(INCIDENTS, body)
        with pytest.raises(errors.Invalid, match="it cannot be changed"):
            await client.merge_patch(INCIDENTS, "n1-a", {"spec": {"bootID": "c"}})
        with pytest.raises(errors.Forbidden, match="cannot patch"):
            await controller.merge_patch(INCIDENTS, "n1-a", {"spec": {"bootID": "c"}})
        for status in ({"epoch": 1}, {"closedAt": ""}):
            patch = {"status": status}
            await controller.merge_patch(INCIDENTS, "n1-a", patch, subresource="status")
            with pytest.raises(errors.Forbidden, match="that is open is not removed"):
                await controller.delete(INCIDENTS, "n1-a")
        over = {"status": {"closedAt": "2030-01-01T00:00:00Z"}}
        await controller.merge_patch(INCIDENTS, "n1-a", over, subresource="status")
        await controller.delete(INCIDENTS, "n1-a")

"""From annotations to addresses: who holds which, who asks for which, and what is wrong there."""

from typing import Any

import pytest

from backstay.model.addresses import AddressClaim
from backstay.sim.calico import V1, V3, Group, install
from backstay.sources.addresses import Addresses, Asker, Holder, addresses_of, network_forecast
from backstay.sources.picture import workloads_everywhere, workloads_on
from backstay.sources.workloads import assemble
from tests.sources.conftest import CountingApi
from tests.sources.test_workloads import details, only, pods
from tests.support import objects as some

Json = dict[str, Any]

FOUR, SIX = "10.244.3.5", "fd00::5"
ASKED = "cni.projectcalico.org/ipAddrs"


def held(addresses: str = f"{FOUR}/32,{SIX}/128", **said: str) -> dict[str, str]:
    names = {"containerID": "c0ffee", "podIPs": addresses, **said}
    return {f"cni.projectcalico.org/{name}": value for name, value in names.items()}


def of(annotations: dict[str, str], *askers: Asker) -> Addresses:
    holder = Holder(namespace="shop", pod="launcher", node="n1", annotations=annotations)
    return addresses_of("VM shop/till", holder, askers)


def asking(value: str, *, effective: bool = True) -> Asker:
    return Asker(thing="The VM shop/till", object="vm till", value=value, effective=effective)


def test_a_pod_that_asks_by_name_claims_all_that_it_holds() -> None:
    assert of(held(ipAddrs=f'["{FOUR}"]')) == Addresses((
        AddressClaim(
            workload="VM shop/till", namespace="shop", pod="launcher", node="n1",
            container="c0ffee", addresses=(FOUR, SIX), pinned=(FOUR,),
        ),
    ))  # fmt: skip


def test_a_pod_that_asks_for_nothing_claims_nothing() -> None:
    assert of(held()) == Addresses()


def test_an_older_calico_writes_one_address_only() -> None:
    said = held("", podIP=f"{FOUR}/32", ipAddrs=f'["{FOUR}"]')
    [claim] = of(said).claims
    assert claim.addresses == (FOUR,)


def test_the_same_address_is_the_same_however_it_is_written() -> None:
    [claim] = of(held("FD00:0:0::5/128", ipAddrs='["fd00:0000::0005"]')).claims
    assert claim.will_be_asked_for


def test_what_the_next_pod_will_not_ask_for_is_told_apart() -> None:
    [claim] = of(held(), asking('["10.0.0.1"]')).claims
    assert not claim.will_be_asked_for


def test_an_address_on_the_machine_itself_is_heeded_and_said_to_have_no_effect() -> None:
    found = of(held(), asking(f'["{FOUR}"]', effective=False))
    assert found.claims[0].will_be_asked_for
    assert [note.code for note in found.notes] == ["AddressHasNoEffect"]


def test_where_it_stands_in_the_template_too_nothing_is_wrong() -> None:
    value = f'["{FOUR}"]'
    assert of(held(), asking(value), asking(value, effective=False)).notes == ()


@pytest.mark.parametrize(
    "value",
    [FOUR, "[", '{"a": 1}', "[7]", '["here"]', '"x"', "[" * 5000, "\ud800", '["1.2.3.4/8"]'],
)
def test_what_is_no_list_of_addresses_is_said_in_one_sentence(value: str) -> None:
    found = of(held(), asking(value))
    assert found.claims == ()
    [note] = found.notes
    assert note.code == "AddressUnreadable"
    assert len(note.sentence) < 250
    assert note.next == "kubectl edit vm till"


def test_one_that_cannot_be_read_does_not_hide_one_that_can() -> None:
    found = of(held(ipAddrs=f'["{FOUR}"]'), asking(FOUR))
    assert found.claims[0].will_be_asked_for
    assert [note.code for note in found.notes] == ["AddressUnreadable"]


@pytest.mark.parametrize(
    "said", [{"containerID": "a/b"}, {"podIPs": "here"}, {"podIPs": "10.0.0.1/99"}], ids=str
)
def test_what_a_pod_says_it_holds_is_not_believed_whatever_it_says(said: dict[str, str]) -> None:
    found = of(held(ipAddrs=f'["{FOUR}"]') | held(**{"addresses": f"{FOUR}/32"} | said))
    assert found.claims == ()


def test_without_a_container_no_handle_fits() -> None:
    [claim] = of(held(containerID="", ipAddrs=f'["{FOUR}"]')).claims
    assert not claim.has_handle("k8s-pod-network.")


def test_a_handle_fits_whatever_the_network_is_called() -> None:
    [claim] = of(held(ipAddrs=f'["{FOUR}"]')).claims
    assert claim.has_handle("k8s-pod-network.c0ffee")
    assert claim.has_handle("my.own.net.c0ffee")
    assert not claim.has_handle("k8s-pod-network.vmi.shop.till")


# As they come from the API


def _launcher() -> Json:
    pod = some.launcher("web")
    pod["metadata"].setdefault("annotations", {}).update(held())
    return pod


def test_a_guest_asks_through_its_instance_and_through_its_machines_template() -> None:
    for where in ("instance", "template", "machine"):
        instance, machine = some.instance("web"), some.machine("web")
        meta = {
            "instance": instance["metadata"],
            "template": machine["spec"].setdefault("template", {}).setdefault("metadata", {}),
            "machine": machine["metadata"],
        }[where]
        meta.setdefault("annotations", {})[ASKED] = f'["{FOUR}"]'
        workload = only(_launcher(), known=details(instance, machine))
        assert [claim.addresses for claim in workload.addresses] == [(FOUR, SIX)], where
        codes = [note.code for note in workload.notes]
        assert codes == (["AddressHasNoEffect"] if where == "machine" else []), where


def test_helpers_and_strangers_claim_nothing() -> None:
    workloads = assemble("n1", pods(_launcher()), details(some.instance("web")))
    assert [workload.addresses for workload in workloads] == [()]


# Before anything dies


@pytest.mark.parametrize("group", [V1, V3], ids=["v1", "v3"])
@pytest.mark.parametrize(
    ("spec", "codes"),
    [
        ({}, []),
        ({"strictAffinity": True}, ["AddressBound"]),
        ({"ipCooldownSeconds": 60}, ["AddressRests"]),
    ],
    ids=["default", "strict", "cooldown"],
)
async def test_what_calico_would_make_of_an_address_is_said_in_advance(
    api: CountingApi, group: Group, spec: Json, codes: list[str]
) -> None:
    install(api.server, group)
    settings = {"metadata": {"name": "default"}, "spec": spec}
    await api.client.create(group.settings, settings)
    handle = {
        "metadata": {"name": "k8s-pod-network.c0ffee"},
        "spec": {"handleID": "k8s-pod-network.c0ffee"},
    }
    await api.client.create(group.handles, handle)
    workload = _pinned()
    forecast = await network_forecast(api.client, [workload])
    notes = forecast.get(workload.key, workload).notes
    assert [note.code for note in notes] == codes


async def test_an_address_that_calico_keeps_for_a_machine_is_bound_to_no_node(
    api: CountingApi,
) -> None:
    install(api.server)
    settings = {"metadata": {"name": "default"}, "spec": {"strictAffinity": True}}
    await api.client.create(V1.settings, settings)
    assert await network_forecast(api.client, [_pinned()]) == {}


async def test_where_nobody_asks_by_name_nothing_is_looked_up(api: CountingApi) -> None:
    with api.counting() as asked:
        assert await network_forecast(api.client, [only(_launcher())]) == {}
    assert asked == []


async def test_without_calico_there_is_nothing_to_say(api: CountingApi) -> None:
    assert await network_forecast(api.client, [_pinned()]) == {}


async def test_a_look_at_nodes_says_it_of_their_workloads(kubevirt: CountingApi) -> None:
    await _furnish(kubevirt)
    for found in (
        await workloads_on(kubevirt.client, ["n1"]),
        await workloads_everywhere(kubevirt.client),
    ):
        [workload] = found.on("n1")
        assert [note.code for note in workload.notes] == ["AddressBound"]
        assert found.problems == ()


async def test_what_calico_does_not_tell_keeps_nobody_from_the_rest(kubevirt: CountingApi) -> None:
    await _furnish(kubevirt)
    kubevirt.refused = ("ipamconfigs",)
    found = await workloads_on(kubevirt.client, ["n1"])
    [workload] = found.on("n1")
    assert workload.notes == ()
    assert len(found.problems) == 1
    assert "ipamconfigs" in found.problems[0]


async def _furnish(api: CountingApi) -> None:
    """A machine with an address that Calico lets no other node use."""
    install(api.server)
    settings = {"metadata": {"name": "default"}, "spec": {"strictAffinity": True}}
    await api.client.create(V1.settings, settings)
    handle = {"metadata": {"name": "k8s-pod-network.c0ffee"}, "spec": {"handleID": "x"}}
    await api.client.create(V1.handles, handle)
    machine = await api.put(some.machine("web"))
    instance = some.instance("web")
    instance["metadata"].setdefault("annotations", {})[ASKED] = f'["{FOUR}"]'
    instance["metadata"]["ownerReferences"][0]["uid"] = machine["metadata"]["uid"]
    made = await api.put(instance)
    launcher = _launcher()
    launcher["metadata"]["ownerReferences"][0]["uid"] = made["metadata"]["uid"]
    await api.put(launcher)


def _pinned() -> Any:
    instance = some.instance("web")
    instance["metadata"].setdefault("annotations", {})[ASKED] = f'["{FOUR}"]'
    return only(_launcher(), known=details(instance, some.machine("web")))

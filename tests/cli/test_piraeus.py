"""``backstay run`` with the flags and the variables of the Piraeus HA controller."""

import logging
import signal
from pathlib import Path
from typing import Any

import click
import pytest

from backstay.cli.durations import GoDuration
from backstay.cli.piraeus import LEASE, PiraeusFlags, flags_of, linstor_of, piraeus_options
from backstay.cli.piraeus import served_at as served
from backstay.cli.run import command
from backstay.model.policy import PIRAEUS, Requirement
from backstay.seam.transport import Request
from tests.cli.controllers import free_port, running, transport
from tests.support import piraeus
from tests.support.small_cluster import small_cluster

Json = dict[str, Any]

SEED = piraeus.arguments(name="ha-1")

LOOPBACK = ("127.0.0.1", 8080)


def typed(*arguments: str) -> PiraeusFlags:
    """What is made of these arguments."""
    found: list[PiraeusFlags] = []

    @click.command()
    @piraeus_options
    def taking(**given: Any) -> None:
        found.append(flags_of(given))

    taking.main([*arguments], standalone_mode=False)
    return found[0]


# What each flag means


def test_without_any_of_them_nothing_is_different() -> None:
    flags = typed()
    assert not flags.asked
    assert (flags.lease, flags.identity, flags.namespace) == (None, None, None)
    assert served(LOOPBACK, flags, typed=None) == LOOPBACK
    assert linstor_of({"LS_COLORS": "ow=34", "PATH": "/bin"}, asked=flags.asked) is None


def test_the_defaults_are_those_of_the_piraeus_ha_controller() -> None:
    flags = typed("--leader-election")
    assert flags.lease == "piraeus-ha-controller" == LEASE
    assert (flags.terms.new_grace, flags.terms.known_grace) == (45.0, 45.0)
    assert flags.terms.driver == "linstor.csi.linbit.com"
    assert flags.opt_in == PIRAEUS
    assert flags.log_level == logging.INFO
    assert served(LOOPBACK, flags, typed=None) == ("0.0.0.0", 8080)
    linstor = linstor_of({}, asked=flags.asked)
    assert linstor is not None
    assert linstor.controllers == ("http://localhost:3370",)


def test_each_flag_says_what_it_said() -> None:
    flags = typed(
        "--attacher-name=other.csi.example", "--known-resource-grace-period", "1m30s",
        "--new-resource-grace-period=500ms", "--pod-label-selector", "ha in (yes)",
        "--leader-election-resource-name=mine", "--leader-election-lease-name=pod-1",
        "--leader-election-namespace=storage", "--leader-election-healtz-port=8081", "--v", "3",
    )  # fmt: skip
    assert flags.asked
    assert flags.terms.driver == "other.csi.example"
    assert (flags.terms.known_grace, flags.terms.new_grace) == (90.0, 0.5)
    assert flags.opt_in.requirements == (Requirement("ha", "In", ("yes",)),)
    assert flags.opt_in.by == "the controller's --pod-label-selector"
    assert (flags.lease, flags.identity, flags.namespace) == ("mine", "pod-1", "storage")
    assert served(LOOPBACK, flags, typed=None) == ("0.0.0.0", 8081)
    assert flags.log_level == logging.WARNING


def test_an_empty_attacher_is_any() -> None:
    assert typed("--attacher-name=").terms.driver == ""


def test_to_log_more_is_not_to_ask_for_linstor() -> None:
    flags = typed("--v=6")
    assert flags.log_level == logging.DEBUG
    assert not flags.asked


@pytest.mark.parametrize(
    ("given", "serves"),
    [
        (["--leader-election"], True),
        (["--leader-election", "--v=5"], True),
        (["--leader-election=true"], True),
        (["--leader-election=false"], False),
        (["--attacher-name=x"], False),
    ],
)
def test_probes_are_answered_from_everywhere_where_they_were_before(
    given: list[str], serves: bool
) -> None:
    host, _ = served(LOOPBACK, typed(*given), typed=None)
    assert (host == "0.0.0.0") is serves


@pytest.mark.parametrize("spelling", ["healtz", "healthz"])
def test_the_port_is_found_in_either_spelling(spelling: str) -> None:
    flags = typed(f"--leader-election-{spelling}-port=9090")
    assert served(LOOPBACK, flags, typed=None) == ("0.0.0.0", 9090)


def test_an_address_of_our_own_goes_before_a_port_that_agrees_with_it() -> None:
    flags = typed("--leader-election-healtz-port=8080")
    assert served(LOOPBACK, flags, typed="127.0.0.1:8080") == LOOPBACK


@pytest.mark.parametrize("flag", ["--leader-election", "--reconcile-interval=10s"])
def test_what_changes_nothing_is_said_to(flag: str) -> None:
    [remark] = typed(flag).remarks
    assert remark.startswith(f"{flag.partition('=')[0]} changes nothing: ")


# Durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("45s", 45.0),
        ("1m30s", 90.0),
        ("0", 0.0),
        ("0s", 0.0),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("2h45m", 9900.0),
        ("300ms", 0.3),
        ("+10s", 10.0),
        ("1h0m0.5s", 3600.5),
    ],
)
def test_durations_are_read_as_go_reads_them(text: str, seconds: float) -> None:
    assert GoDuration().convert(text, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["45", "", "s", "-5s", "1d", "1m 30s", "45sec", "1e3s", "800h"])
def test_what_is_no_duration_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        typed("--new-resource-grace-period", text)
    said = refused.value.format_message()
    assert "--new-resource-grace-period" in said
    assert repr(text) in said
    assert said.endswith(".")


# What contradicts itself, or cannot be


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--namespace=a", "--leader-election-namespace=b"], "--namespace says 'a' and"),
        (["--identity=a", "--leader-election-lease-name=b"], "--identity says 'a' and"),
        (
            ["--metrics-address=127.0.0.1:1", "--leader-election-healtz-port=2"],
            "--metrics-address says 127.0.0.1:1 and --leader-election-healthz-port says 2",
        ),
        (["--metrics-address=off", "--leader-election-healtz-port=2"], "says off and"),
        (
            ["--leader-election-healtz-port=1", "--leader-election-healthz-port=2"],
            "healtz-port says 1 and --leader-election-healthz-port says 2: keep the one",
        ),
        (["--leader-election-healtz-port=0"], "is not in the range"),
        (["--v=7"], "is not in the range"),
        (["--pod-label-selector=a=b=c"], "'a=b=c' is not a label selector"),
        (["--leader-election=perhaps"], "is not a valid boolean"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_sentence(args: list[str], words: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        command.main(args, standalone_mode=False)
    assert words in refused.value.format_message()


def test_flags_that_say_the_same_are_no_contradiction() -> None:
    given = command.make_context(
        "run", ["--namespace=a", "--leader-election-namespace=a", "--identity=x"]
    )
    assert given.params["leader_election_namespace"] == given.params["namespace"]


@pytest.mark.parametrize(
    "variable",
    ["LS_CONTROLLERS", "LS_USERNAME", "LS_PASSWORD", "LS_BEARER_TOKEN_FILE", "LS_ROOT_CA",
     "LS_ROOT_CA_FILE"],
)  # fmt: skip
def test_any_of_linstors_variables_asks_for_linstor(variable: str) -> None:
    assert linstor_of({variable: ""}) is not None


def test_variables_that_cannot_be_meant_are_wrong_usage() -> None:
    with pytest.raises(click.UsageError, match=r"LS_USER_KEY is set without LS_USER_CERTIFICATE"):
        linstor_of({"LS_USER_KEY_FILE": "/key"})


# The help


def test_the_help_has_a_section_of_their_own_with_all_of_them() -> None:
    ours, _, theirs = command.get_help(click.Context(command)).partition("Piraeus HA controller:")
    for flag in (
        "attacher-name", "known-resource-grace-period", "leader-election",
        "leader-election-healthz-port", "leader-election-healtz-port",
        "leader-election-lease-name", "leader-election-namespace",
        "leader-election-resource-name", "new-resource-grace-period", "pod-label-selector",
        "reconcile-interval", "v",
    ):  # fmt: skip
        assert f"--{flag} " in theirs
        assert f"--{flag} " not in ours
    assert "--kubeconfig " in ours


# A whole process


async def test_it_starts_with_the_arguments_that_it_had_and_says_how_things_stand() -> None:
    port = free_port()
    where = ("--metrics-address", f"127.0.0.1:{port}")
    arguments = ("--embedded", "--time-scale=0.05", *SEED, *where)
    nowhere = f"http://127.0.0.1:{free_port()}"
    async with (
        running(*arguments, LS_CONTROLLERS=nowhere) as controller,
        transport() as opened,
    ):
        await controller.says("--leader-election changes nothing")
        assert "2.25 s" in await controller.says(f"asking LINSTOR at {nowhere}")
        line = await controller.says("leading under epoch 1")
        assert " as ha-1_" in line
        request = Request(method="GET", url=f"http://127.0.0.1:{port}/healthz", timeout=5.0)
        answer = await opened.request(request)
        assert answer.status == 200, "a restart would not bring LINSTOR back"
        assert b"This controller leads.\n" in answer.body
        assert b"LINSTOR's events are not heard, and never were.\n" in answer.body
        controller.send(signal.SIGTERM)
        assert await controller.ends() == 0
        assert controller.said("released the lease ha-controller/piraeus-ha-controller")


async def test_with_the_rights_of_the_piraeus_ha_controller_it_says_what_is_missing_and_ends(
    tmp_path: Path,
) -> None:
    where = ("--leader-election-namespace=storage", "--v=5")
    async with small_cluster(tmp_path, with_kinds=False) as cluster:
        for document in [*piraeus.manifest("")[:1], *piraeus.rights()]:
            await cluster.put(document)
        kubeconfig = str(cluster.kubeconfig("drop-in"))
        async with running("--kubeconfig", kubeconfig, *where) as controller:
            assert await controller.ends() == 1
    kinds, rights = controller.lines[-2:]
    assert kinds.startswith("Error: Backstay's kinds are not installed on this cluster.")
    assert "may not get nodes" in rights
    assert "patch events" in rights
    assert "delete pods" not in rights
    assert rights.endswith(
        "NEXT: kubectl apply -f deploy/linstor-rights.yaml, with storage in the place of the "
        "namespace ha-controller"
    )
    assert "Traceback" not in controller.text

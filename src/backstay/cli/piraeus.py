"""The flags of the Piraeus HA controller (its first generation, v0.x), as ``backstay run`` takes
them: whoever had a Deployment of it keeps the arguments.

=============================================  ===================================================
``--new-`` and ``--known-resource-grace-``     for how long DRBD must have shut a node out
``period``
``--attacher-name``                            the CSI driver whose volumes are LINSTOR's
``--pod-label-selector``                       which pods are protected by their labels
``--leader-election-resource-name``            the name of the lease
``--leader-election-lease-name``               what it calls itself (it never was a lease's name)
``--leader-election-namespace``                where the lease is
``--leader-election-healtz-port``              where /healthz is; also in the right spelling
``--v``                                        how much it logs
``--leader-election``, ``--reconcile-``        accepted, and said to change nothing
``interval``
=============================================  ===================================================

Any of them but ``--v`` asks for LINSTOR, as does any of the ``LS_`` variables; without a variable
it is at ``http://localhost:3370``, as for every LINSTOR client. What contradicts one of our own
flags is refused: of two that say different things, nobody knows which is meant.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from backstay.cli.durations import GoDuration
from backstay.cli.selectors import Selector
from backstay.drivers.linstor import access
from backstay.drivers.linstor.errors import Misconfigured
from backstay.model.policy import PIRAEUS, OptIn, Requirement
from backstay.sources.linstor import LinstorTerms
from backstay.sources.picture import DROP_IN

T = TypeVar("T")

NAMESPACE, LEASE = DROP_IN
PORT = 8080

# As logrus counts them, by which that controller logs: from panic to trace.
_LEVELS = (
    logging.CRITICAL, logging.CRITICAL, logging.ERROR, logging.WARNING, logging.INFO,
    logging.DEBUG, logging.DEBUG,
)  # fmt: skip

_ALWAYS_ELECTS = "--leader-election changes nothing: of several controllers one leads, always"
_NO_TICKS = (
    "--reconcile-interval changes nothing: what happens is acted on as it happens, and nodes are "
    "looked at every 2.5 s"
)


class PiraeusOption(click.Option):
    """One of theirs, for a section of its own in the help."""


class RunCommand(click.Command):
    """Shows the flags of the Piraeus HA controller after our own."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        ours: list[tuple[str, str]] = []
        theirs: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                (theirs if isinstance(parameter, PiraeusOption) else ours).append(record)
        for title, records in (("Options", ours), ("As the Piraeus HA controller", theirs)):
            with formatter.section(title):
                formatter.write_dl(records)


def piraeus_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _flag(*names: str, **more: Any) -> Callable[..., Any]:
    return click.option(*names, cls=PiraeusOption, default=None, **more)


_OPTIONS = (
    _flag(
        "--attacher-name", metavar="NAME",
        help="The CSI driver whose volumes are LINSTOR's; '' for any.  "
        "[default: linstor.csi.linbit.com]",
    ),
    _flag(
        "--known-resource-grace-period", type=GoDuration(), metavar="DURATION",
        help="For how long DRBD must have shut a node out of a resource of which that was seen "
        "before.  [default: 45s]",
    ),
    _flag(
        "--new-resource-grace-period", type=GoDuration(), metavar="DURATION",
        help="The same, of which it is seen for the first time.  [default: 45s]",
    ),
    _flag(
        "--pod-label-selector", type=Selector(), metavar="SELECTOR",
        help="Which pods are protected by their labels.  "
        "[default: linstor.csi.linbit.com/on-storage-lost=remove]",
    ),
    _flag(
        "--leader-election", type=bool, is_flag=False, flag_value="true", metavar="[BOOL]",
        help="Changes nothing: one leads, always.",
    ),
    _flag(
        "--leader-election-resource-name", metavar="NAME",
        help=f"The name of its lease.  [default: {LEASE}]",
    ),
    _flag(
        "--leader-election-lease-name", metavar="NAME",
        help="What it calls itself; like --identity.",
    ),
    _flag(
        "--leader-election-namespace", metavar="NAMESPACE",
        help="Where its lease is; like --namespace.",
    ),
    _flag(
        "--leader-election-healtz-port", "misspelt_port", type=click.IntRange(1, 65535),
        metavar="PORT", help=f"Where it answers /healthz, to everybody.  [default: {PORT}]",
    ),
    _flag(
        "--leader-election-healthz-port", "healthz_port", type=click.IntRange(1, 65535),
        metavar="PORT", help="The same, spelt right.",
    ),
    _flag(
        "--reconcile-interval", type=GoDuration(), metavar="DURATION",
        help="Changes nothing: what happens is acted on as it happens.",
    ),
    _flag(
        "--v", "verbosity", type=click.IntRange(0, 6), metavar="LEVEL",
        help="How much it logs: 2 errors, 3 warnings, 4 what it does, 5 more.  [default: 4]",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class PiraeusFlags:
    """What was typed of them, checked; None is "not said". ``asked`` says whether anything was that
    only the Piraeus HA controller has, and ``remarks`` what is to be said of it."""

    asked: bool
    log_level: int
    terms: LinstorTerms
    opt_in: OptIn
    lease: str | None
    identity: str | None
    namespace: str | None
    port: int | None
    serves: bool
    remarks: tuple[str, ...]


def flags_of(given: Mapping[str, Any]) -> PiraeusFlags:
    """From what click has found for ``piraeus_options``."""
    asked = any(value is not None for name, value in given.items() if name != "verbosity")
    usual, verbosity = LinstorTerms(), given["verbosity"]
    port = one_of(
        ("--leader-election-healtz-port", given["misspelt_port"]),
        ("--leader-election-healthz-port", given["healthz_port"]),
    )
    remarks = {"leader_election": _ALWAYS_ELECTS, "reconcile_interval": _NO_TICKS}
    return PiraeusFlags(
        asked=asked,
        log_level=logging.INFO if verbosity is None else _LEVELS[verbosity],
        terms=LinstorTerms(
            driver=_or(given["attacher_name"], usual.driver),
            new_grace=_or(given["new_resource_grace_period"], usual.new_grace),
            known_grace=_or(given["known_resource_grace_period"], usual.known_grace),
        ),
        opt_in=_opt_in(given["pod_label_selector"]),
        lease=given["leader_election_resource_name"] or (LEASE if asked else None),
        identity=given["leader_election_lease_name"] or None,
        namespace=given["leader_election_namespace"] or None,
        port=port,
        serves=bool(given["leader_election"]) or port is not None,
        remarks=tuple(words for name, words in remarks.items() if given[name] is not None),
    )


def _or(value: T | None, otherwise: T) -> T:
    return otherwise if value is None else value


def _opt_in(requirements: tuple[Requirement, ...] | None) -> OptIn:
    if requirements is None or requirements == PIRAEUS.requirements:
        return PIRAEUS
    return OptIn(requirements, by="the controller's --pod-label-selector")


def one_of(*said: tuple[str, Any]) -> Any:
    """The value of flags that mean the same thing; None where none of them was given."""
    given = [(name, value) for name, value in said if value is not None]
    for name, value in given[1:]:
        if value != given[0][1]:
            raise click.UsageError(
                f"{given[0][0]} says {given[0][1]!r} and {name} says {value!r}: keep the one that "
                "is meant."
            )
    return given[0][1] if given else None


def served_at(
    address: tuple[str, int], flags: PiraeusFlags, *, typed: str | None
) -> tuple[str, int]:
    """Where it answers, if ``address`` is what holds without these flags and ``typed`` what was
    typed of it. The Piraeus HA controller answers probes wherever they come from, and so do we."""
    if typed is None:
        return ("0.0.0.0", flags.port or PORT) if flags.serves else address  # noqa: S104
    if flags.port not in (None, address[1]):
        raise click.UsageError(
            f"--metrics-address says {typed} and --leader-election-healthz-port says {flags.port}: "
            "keep the one that is meant."
        )
    return address


def linstor_of(environ: Mapping[str, str], *, asked: bool = False) -> access.Access | None:
    """Where LINSTOR is, if anything says that it should be asked."""
    if not asked and not any(name in environ for name in access.VARIABLES):
        return None
    try:
        return access.access_from(environ)
    except Misconfigured as error:
        raise click.UsageError(str(error)) from None

"""``backstay run``: the controller, until it is told to stop.

It says first what it found: which cluster, as whom, in which mode. SIGTERM and Ctrl-C end it in
order: work is joined, the lease is given up so that a standby takes over at once, and what is still
to be told is told.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import click
from click.core import ParameterSource

from backstay import __version__
from backstay.app import run as run_controller
from backstay.cli import preflight
from backstay.cli.configuration import read_config
from backstay.cli.piraeus import (
    PiraeusFlags,
    RunCommand,
    flags_of,
    linstor_of,
    one_of,
    piraeus_options,
    served_at,
)
from backstay.cli.session import Session, Target, open_session, target_options
from backstay.cli.webhook import checked, webhook_of, webhook_options
from backstay.drivers.linstor.access import Access
from backstay.kube.discovery import server_version
from backstay.kube.lease import LeaseTimes
from backstay.model.moments import Now
from backstay.model.policy import Mode, Policy, Times
from backstay.record import logs
from backstay.record.notify import Webhook
from backstay.seam import Seams
from backstay.seam.real import open_seams, run
from backstay.settings import Settings, signed
from backstay.sources.linstor import LinstorTerms
from backstay.sources.operator import policy_of

_log = logging.getLogger("backstay.run")

_MODES = {
    Mode.OBSERVE: "it observes and changes nothing. NEXT: backstay readiness, then backstay arm",
    Mode.ARMED: "it acts on nodes that are proven dead",
    Mode.DISARMED: "somebody has disarmed it. NEXT: backstay arm",
}


@dataclass(frozen=True)
class Options:
    """What was typed, checked."""

    target: Target
    namespace: str
    identity: str | None
    node_name: str
    host: str
    port: int
    recorder: str
    openstack: str
    redfish: str
    webhook: Webhook | None
    lease_times: LeaseTimes
    log_format: str
    piraeus: PiraeusFlags
    linstor: Access | None
    embedded: bool
    scale: float


@click.command(name="run", cls=RunCommand)
@target_options
@click.option("--embedded", is_flag=True, help="Try it on a cluster of its own, in memory.")
@click.option(
    "--namespace", default="backstay-system", show_default=True, help="Where its lease is."
)
@click.option("--identity", metavar="NAME", help="What it calls itself, instead of this host.")
@click.option(
    "--node-name",
    metavar="NODE",
    default="",
    help="The node that it runs on. Silence counts only if it is seen from two nodes.",
)
@click.option(
    "--metrics-address",
    metavar="HOST:PORT",
    default="127.0.0.1:8080",
    show_default=True,
    help="Where it answers /healthz, /readyz, /metrics and /status; 'off' for nowhere. "
    "Beyond loopback the last two need a token.",
)
@click.option("--recorder", metavar="DIR", default="", help="Where decisions are recorded.")
@click.option(
    "--openstack-credential",
    metavar="DIR",
    default="",
    help="Where the application credential is by which Nova is asked whether a machine is off.",
)
@click.option(
    "--redfish",
    metavar="DIR",
    default="",
    help="Where the credentials of BMCs are, by which nodes are seen to be off, and switched off.",
)
@webhook_options
@click.option(
    "--lease-duration",
    metavar="SECONDS",
    type=click.FloatRange(min=1.0),
    default=15.0,
    show_default=True,
    help="After how much silence another controller takes over.",
)
@click.option(
    "--log-format",
    type=click.Choice(["json", "text"]),
    help="How lines look; text at a terminal, else json.",
)
@click.option(
    "--time-scale",
    metavar="FACTOR",
    type=click.FloatRange(min=0.01, max=10.0),
    help="How long a second lasts; with --embedded only.",
)
@piraeus_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    kubeconfig: str | None,
    context: str | None,
    embedded: bool,
    namespace: str,
    identity: str | None,
    node_name: str,
    metrics_address: str,
    recorder: str,
    openstack_credential: str,
    redfish: str,
    notify_url_file: str,
    notify_key_file: str,
    notify_ca_file: str,
    cluster_name: str,
    lease_duration: float,
    log_format: str | None,
    time_scale: float | None,
    **piraeus: Any,
) -> None:
    """Run the controller. It starts out observing: nothing is changed until 'backstay arm'."""
    if embedded and (kubeconfig or context):
        raise click.UsageError("--embedded is a cluster of its own: leave --kubeconfig out.")
    if embedded and notify_url_file:
        raise click.UsageError(
            "--embedded is a world of its own: nobody outside of it can be notified."
        )
    if time_scale is not None and not embedded:
        raise click.UsageError("--time-scale goes with --embedded: real time has one pace.")
    given = _given(ctx)
    flags = flags_of(piraeus)
    host, port = served_at(_address(metrics_address), flags, typed=given.get("metrics_address"))
    options = Options(
        target=Target(kubeconfig, context),
        namespace=one_of(
            ("--namespace", given.get("namespace")),
            ("--leader-election-namespace", flags.namespace),
        ) or namespace,
        identity=one_of(
            ("--identity", identity), ("--leader-election-lease-name", flags.identity)
        ),
        node_name=node_name,
        host=host,
        port=port,
        recorder=recorder,
        openstack=openstack_credential,
        redfish=redfish,
        webhook=webhook_of(
            url_file=notify_url_file,
            key_file=notify_key_file,
            ca_file=notify_ca_file,
            cluster=cluster_name,
        ),
        lease_times=_lease_times(lease_duration),
        log_format=log_format or ("text" if sys.stderr.isatty() else "json"),
        piraeus=flags,
        linstor=linstor_of(os.environ, asked=flags.asked),  # noqa: TID251 - commands are composed here
        embedded=embedded,
        scale=time_scale or 1.0,
    )  # fmt: skip
    run(_run(options))


def _given(ctx: click.Context) -> Mapping[str, Any]:
    """What was typed, as opposed to what holds without a word."""
    return {
        name: value
        for name, value in ctx.params.items()
        if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT
    }


def _address(text: str) -> tuple[str, int]:
    if text == "off":
        return "", 0
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdecimal() and int(port) < 65536):
        raise click.BadParameter(
            f"{text!r} is not HOST:PORT, such as 127.0.0.1:8080 or [::]:8080.",
            param_hint="--metrics-address",
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def _lease_times(duration: float) -> LeaseTimes:
    """In the proportions of the defaults, which leave room for a silent renewal."""
    usual = LeaseTimes()
    factor = duration / usual.duration
    return LeaseTimes(duration, usual.hold * factor, usual.renew * factor)


async def _run(options: Options) -> None:
    with _ended_by_sigterm():
        async with _cluster(options) as session:
            await _control(options, session)


async def _control(options: Options, session: Session) -> None:
    client, seams = session.client, session.seams
    for remark in options.piraeus.remarks:
        _log.info("%s", remark)
    settings = _settings(options, seams, await checked(options.webhook, session))
    version = await preflight.reached(lambda: server_version(client), rng=seams.rng)
    _log.info(
        "Backstay %s as %s on Kubernetes %s, found through %s at %s",
        __version__, settings.identity, version.git_version, client.access.origin,
        client.access.server,
    )  # fmt: skip
    drop_in = options.piraeus.asked
    await preflight.reached(
        lambda: preflight.check(client, settings, drop_in=drop_in), rng=seams.rng
    )
    policy = await preflight.reached(lambda: _policy(session), rng=seams.rng)
    _log.info("the mode is %s: %s", policy.mode, _MODES[policy.mode])
    _tell_of_linstor(settings)
    if settings.redfish:
        _log.info("BMCs are asked as the files in %s say, one for each node", settings.redfish)
    if settings.host:
        _log.info(
            "answering at http://%s:%d/status%s", settings.host, settings.port,
            ", to callers whom the cluster allows it" if settings.is_reachable else "",
        )  # fmt: skip
    try:
        await run_controller(settings, seams, client)
    except OSError as error:
        raise click.ClickException(
            f"It cannot answer at {settings.host}:{settings.port}: {error.strerror or error}. "
            "NEXT: choose another --metrics-address"
        ) from None


def _tell_of_linstor(settings: Settings) -> None:
    if settings.linstor is None:
        return
    terms = settings.linstor_terms
    _log.info(
        "asking LINSTOR at %s whom DRBD has shut out; for how long it must last: %g s, or %g s if "
        "that was seen before",
        ", ".join(settings.linstor.controllers), terms.new_grace, terms.known_grace,
    )  # fmt: skip
    for controller in settings.linstor.exposed:
        _log.warning("the login for LINSTOR goes to %s without TLS", controller)


async def _policy(session: Session) -> Policy:
    config = await read_config(session.client)
    return policy_of(config, Now.by(session.seams.wall.now(), session.client.api_now()))


def _settings(options: Options, seams: Seams, webhook: Webhook | None) -> Settings:
    name = options.identity or os.uname().nodename
    usual, terms, scale = Settings(identity=""), options.piraeus.terms, options.scale
    settings = Settings(
        # Two processes of one name would each take the other's lease for its own.
        identity=f"{name}_{seams.rng.token(6)}",
        namespace=options.namespace,
        lease=options.piraeus.lease or usual.lease,
        lease_times=options.lease_times,
        times=Times().scaled(scale),
        node_name=options.node_name,
        poll_leases=usual.poll_leases * scale,
        knock=usual.knock * scale,
        host=options.host,
        port=options.port,
        recorder=options.recorder,
        webhook=webhook,
        openstack=options.openstack,
        redfish=options.redfish,
        opt_in=options.piraeus.opt_in,
        linstor=options.linstor,
        linstor_terms=LinstorTerms(
            driver=terms.driver,
            new_grace=terms.new_grace * scale,
            known_grace=terms.known_grace * scale,
        ),
    )
    return signed(settings)


@asynccontextmanager
async def _cluster(options: Options) -> AsyncIterator[Session]:
    """The way to the cluster that was asked for, with logging as it was asked for."""
    if not options.embedded:
        async with open_session(options.target) as session:
            with _logging(options, session.seams):
                yield session
        return
    from backstay.cli.embedded import POWER, open_embedded  # a simulator, which few ask for

    async with open_seams() as seams:
        with _logging(options, seams):
            _log.info("an embedded cluster boots")
            scale, namespace = options.scale, options.namespace
            async with open_embedded(seams, namespace=namespace, scale=scale) as embedded:
                _log.info("look at it with: export KUBECONFIG=%s", embedded.kubeconfig)
                _log.info("cut a node's power with: kubectl annotate node n1 %s=off", POWER)
                yield embedded.session


@contextmanager
def _logging(options: Options, seams: Seams) -> Iterator[None]:
    lines = logs.JsonLines if options.log_format == "json" else logs.PlainLines
    with logs.install(sys.stderr, lines(seams.wall), level=options.piraeus.log_level):
        yield


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Turns the signal into a cancellation of what runs inside, which then ends well."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    asked = asyncio.Event()

    def end() -> None:
        if not asked.is_set():
            asked.set()
            task.cancel()

    loop.add_signal_handler(signal.SIGTERM, end)
    try:
        yield
    except asyncio.CancelledError:
        if not asked.is_set():
            raise
        task.uncancel()
    finally:
        loop.remove_signal_handler(signal.SIGTERM)

"""``backstay doctor``: is the way to the API sound, and if not, what to do.

The checks go from the outside in and stop at the first that makes the rest meaningless. Each
ends in one line: what was found and, where something is wrong, the next step.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from enum import StrEnum

import click
import msgspec

from backstay.apis.core import NODE_PROJECTION
from backstay.cli.main import EXIT_BLIND, EXIT_ERROR
from backstay.cli.output import columns, output_option, show
from backstay.cli.session import Session, Target, in_session, target_options
from backstay.kube import errors
from backstay.kube.client import KubeClient
from backstay.kube.discovery import server_version
from backstay.kube.resource import LEASES, NODES, PODS, Resource
from backstay.model.power import DeviceReport
from backstay.record.devices import read_devices
from backstay.settings import Settings
from backstay.sources.foreign import survey

_TIMEOUT = 5.0
_NAMESPACE = Settings(identity="backstay doctor").namespace

_SELF_REVIEW = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
)
_ACCESS_REVIEW = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview",
    namespaced=False,
)  # fmt: skip

# What observing a cluster takes. Acting on it takes more, which only the controller has.
_NEEDS = (
    ("list", NODES, None),
    ("watch", NODES, None),
    ("list", PODS, None),
    ("list", LEASES, "kube-node-lease"),
)

_VERIFY_THE_SERVER = "give the cluster a certificate-authority and an https address"
_FRESH_CERTIFICATES = "ask whoever gave you the kubeconfig for one with the cluster's present CA"
_LOOK_AT_THE_ADDRESS = "check that this is the API server's address, that it runs, and firewalls"
_LOG_IN_AGAIN = "log in again, or ask for new credentials"
_ASK_FOR_A_ROLE = "ask an administrator to bind a role that allows it to this user"


class Result(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "FAILED"
    BLIND = "BLIND"


class Check(msgspec.Struct, frozen=True):
    """One line of the report."""

    check: str
    result: Result
    detail: str
    next: str | None = None


@click.command(name="doctor")
@target_options
@output_option
def command(kubeconfig: str | None, context: str | None, output: str) -> int:
    """Check the way to the API: configuration, TLS, identity, permissions, nodes.

    Exit code 0 when all is well (warnings allowed), 1 when a check failed, 3 when the API cannot
    be reached at all.
    """
    checks = in_session(Target(kubeconfig, context), _examine)
    show(checks, output=output, table=lambda: _table(checks))
    results = {check.result for check in checks}
    if Result.BLIND in results:
        return EXIT_BLIND
    return EXIT_ERROR if Result.FAILED in results else 0


async def _examine(session: Session) -> list[Check]:
    return [check async for check in _checks(session.client)]


async def _checks(client: KubeClient) -> AsyncIterator[Check]:
    yield await _configuration(client)
    connection = await _connection(client)
    yield connection
    if connection.result is Result.BLIND:
        return
    identity = await _identity(client)
    yield identity
    if identity.result is Result.FAILED:
        return
    yield await _permissions(client)
    yield await _nodes(client)
    yield await _others(client)
    devices = await read_devices(client, namespace=_NAMESPACE)
    if devices:
        yield _power(devices)


async def _configuration(client: KubeClient) -> Check:
    access = client.access
    grant = await access.grant()
    detail = f"{access.origin}, at {access.server}"
    if access.server.startswith("https:") and (grant.tls is None or grant.tls.verify):
        return Check("configuration", Result.OK, detail)
    return Check(
        "configuration",
        Result.WARNING,
        f"{detail}: the server's identity is not verified",
        _VERIFY_THE_SERVER,
    )


async def _connection(client: KubeClient) -> Check:
    loop = asyncio.get_running_loop()
    started = loop.time()
    try:
        version = await server_version(client, timeout=_TIMEOUT)
    except errors.Untrusted as error:
        return Check("connection", Result.BLIND, str(error), _FRESH_CERTIFICATES)
    except (errors.Retryable, errors.Undecodable) as error:
        return Check("connection", Result.BLIND, str(error), _LOOK_AT_THE_ADDRESS)
    except errors.Unauthorized:
        return Check("connection", Result.OK, "the API server answers")
    milliseconds = (loop.time() - started) * 1000
    return Check(
        "connection", Result.OK, f"Kubernetes {version.git_version} in {milliseconds:.0f} ms"
    )


class _UserInfo(msgspec.Struct):
    username: str = ""
    groups: list[str] | None = None


class _ReviewStatus(msgspec.Struct, rename="camel"):
    user_info: _UserInfo = msgspec.field(default_factory=_UserInfo)
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


async def _identity(client: KubeClient) -> Check:
    try:
        reply = await client.create(_SELF_REVIEW, _body(_SELF_REVIEW), timeout=_TIMEOUT)
    except errors.Unauthorized:
        detail = f"the API server does not know who we are ({client.access.origin})"
        return Check("identity", Result.FAILED, detail, _LOG_IN_AGAIN)
    except errors.KubeError as error:
        return Check("identity", Result.WARNING, f"cannot be told: {error}")
    user = reply.into(_Review).status.user_info
    groups = [group for group in user.groups or () if group != "system:authenticated"]
    return Check(
        "identity", Result.OK, user.username + (f" ({', '.join(groups)})" if groups else "")
    )


async def _permissions(client: KubeClient) -> Check:
    missing: list[str] = []
    for verb, resource, namespace in _NEEDS:
        attributes = {"verb": verb, "group": resource.group, "resource": resource.plural}
        if namespace:
            attributes["namespace"] = namespace
        body = _body(_ACCESS_REVIEW) | {"spec": {"resourceAttributes": attributes}}
        try:
            reply = await client.create(_ACCESS_REVIEW, body, timeout=_TIMEOUT)
        except errors.KubeError as error:
            return Check("permissions", Result.WARNING, f"cannot be told: {error}")
        if not reply.into(_Review).status.allowed:
            missing.append(f"{verb} {resource.label}" + (f" in {namespace}" if namespace else ""))
    if not missing:
        return Check("permissions", Result.OK, "may list and watch what observing takes")
    return Check("permissions", Result.FAILED, f"may not {', '.join(missing)}", _ASK_FOR_A_ROLE)


async def _nodes(client: KubeClient) -> Check:
    try:
        reply = await client.list(NODES, timeout=_TIMEOUT)
        page = NODE_PROJECTION.page(reply.body, call=reply.call)
    except errors.KubeError as error:
        return Check("nodes", Result.FAILED, str(error))
    lost = [row.key for row in page.rows if row.ready != "True"]
    counted = f"{len(page.rows)} nodes, {len(page.rows) - len(lost)} Ready"
    if page.unreadable:
        counted += f", {len(page.unreadable)} that cannot be read"
    if not lost:
        return Check("nodes", Result.OK, counted)
    named = ", ".join(lost[:5]) + (f" and {len(lost) - 5} more" if len(lost) > 5 else "")
    detail = f"{counted}; not Ready: {named}"
    return Check("nodes", Result.WARNING, detail, f"kubectl describe node {lost[0]}")


async def _others(client: KubeClient) -> Check:
    """Whoever else acts on nodes: two who do the same get into each other's way."""
    found = await survey(client)
    if found.problems:
        return Check("others", Result.WARNING, f"cannot be told: {found.problems[0].rstrip('.')}")
    if not found.actors:
        return Check("others", Result.OK, "nobody else is known to act on dead nodes")
    detail = "; ".join(map(str, found.actors))
    if not found.claimed():
        return Check("others", Result.OK, detail)
    return Check("others", Result.WARNING, detail, "backstay config show (who does which job)")


def _power(devices: Mapping[str, DeviceReport]) -> Check:
    """What the leader has found when it last tried the devices by which nodes are switched off."""
    wrong = [report for _, report in sorted(devices.items()) if not report.works]
    if not wrong:
        return Check("power", Result.OK, f"{len(devices)} BMCs answer, each for its own node")
    others = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    detail = f"{len(wrong)} of {len(devices)} BMCs cannot be used: {wrong[0].sentence.rstrip('.')}"
    return Check("power", Result.WARNING, f"{detail}{others}", wrong[0].next or None)


def _body(resource: Resource) -> dict[str, object]:
    return {"apiVersion": resource.api_version, "kind": resource.kind}


def _table(checks: list[Check]) -> str:
    rows = [(check.check, check.result.value, _line(check)) for check in checks]
    return columns(("CHECK", "RESULT", "DETAIL"), rows)


def _line(check: Check) -> str:
    return f"{check.detail}. NEXT: {check.next}" if check.next else check.detail

"""``backstay uninstall``: takes everything of ours off the cluster, and nothing of anybody else's.

Ours is what carries our label, what is of one of our kinds, our taint on nodes, and what a
maintenance has put there. The order leaves nothing behind:

* the controller's rights first: from then on nothing of what it still does gets through, also
  where its pod hangs on a dead node, and no taint comes back;
* then the controller, the taints, and our finalizer on maintenances, which nobody else would take
  off; the maintenances themselves are people's;
* then the objects of our kinds, the kinds themselves, and what is left.

It can be run again at any time and goes on where it stopped. What may not be removed is named.
"""

import asyncio
from collections.abc import Sequence

import click
import msgspec

from backstay.apis.backstay import CONFIGS, CONFIRMATIONS, INCIDENT_PROJECTION, INCIDENTS
from backstay.apis.core import NODE_PROJECTION
from backstay.apis.maintenance import MAINTENANCE_PROJECTION, NODE_MAINTENANCES
from backstay.cli.consent import agreed, say
from backstay.cli.main import EXIT_ERROR
from backstay.cli.output import columns, output_option, show
from backstay.cli.session import Session, Target, in_session, target_options
from backstay.control.handback import give_back, let_go
from backstay.kube import errors
from backstay.kube.client import KubeClient
from backstay.kube.errors import Json
from backstay.kube.projection import Meta, Projection
from backstay.kube.resource import CONFIG_MAPS, LEASES, NAMESPACES, NODES, Resource
from backstay.model.labels import (
    COMPONENT,
    MANAGER,
    OUT_OF_SERVICE,
    OUT_OF_SERVICE_OURS,
    TAINT,
    VIEW,
)
from backstay.model.maintenance import marks_of
from backstay.record.devices import LEASE as DEVICES_LEASE
from backstay.settings import Settings

_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_OURS = f"{COMPONENT}=backstay"
_PATIENCE = 60.0
_INTERVAL = 1.0

_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
_CLUSTER_BINDINGS = Resource(
    _RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
_BINDINGS = Resource(_RBAC, "v1", "rolebindings", "RoleBinding")
_RUNNING = (
    _CLUSTER_BINDINGS,
    _BINDINGS,
    Resource("apps", "v1", "deployments", "Deployment"),
    Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
)
_KEPT = (INCIDENTS, CONFIRMATIONS, CONFIGS)
_REST = (
    CONFIG_MAPS,
    Resource(
        "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
        namespaced=False,
    ),
    Resource(
        _ADMISSION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding",
        namespaced=False,
    ),
    Resource(
        _ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy",
        namespaced=False,
    ),
    Resource(_RBAC, "v1", "roles", "Role"),
    Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
)  # fmt: skip


class Piece(msgspec.Struct, frozen=True):
    """One object of ours; of a node, only the taint is, or what a maintenance has put there, which
    ``said`` tells."""

    resource: Resource
    name: str
    namespace: str
    uid: str
    said: str = ""

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        if self.said:
            return f"what a maintenance has put on Node {where}"
        if self.resource == NODES:
            return f"taint {TAINT} on Node {where}"
        if self.resource == NODE_MAINTENANCES:
            return f"our finalizer on NodeMaintenance {where}"
        if self.resource == NAMESPACES:
            return f"Namespace {where}, with everything in it"
        return f"{self.resource.kind} {where}"


class Found(msgspec.Struct, frozen=True):
    """What is there, in the order in which it goes. ``obstacles`` are what we could not look for;
    ``foreign`` is not ours to remove, but has no use without us."""

    pieces: tuple[Piece, ...]
    obstacles: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    open_incidents: tuple[str, ...] = ()


class Removal(msgspec.Struct, frozen=True):
    """What happened to one piece; ``left`` says why it is still there."""

    what: str
    left: str = ""


@click.command(name="uninstall")
@click.option("--yes", is_flag=True, help="Do not ask; for scripts.")
@target_options
@output_option
def command(yes: bool, kubeconfig: str | None, context: str | None, output: str) -> int:
    """Remove every trace of Backstay from the cluster.

    Exit code 1 when something is left; the list says what, and why.
    """
    target = Target(kubeconfig, context)
    found = in_session(target, _look)
    if found.pieces:
        say(_described(found))
        say()
        agreed("Remove all of this?", yes=yes, command="backstay uninstall --yes")
    removals = in_session(target, lambda session: _remove(session, found))
    left = [removal for removal in removals if removal.left]
    show(removals, output=output, table=lambda: _table(removals))
    for foreign in found.foreign:
        say(f"Not ours, so it stays: {foreign}")
    return EXIT_ERROR if left else 0


async def _look(session: Session) -> Found:
    return await _Search(session.client).everything()


async def _remove(session: Session, shown: Found) -> list[Removal]:
    """Removes what the person was shown, and waits for what takes its time to go."""
    client, loop = session.client, asyncio.get_running_loop()
    give_up = loop.time() + _PATIENCE
    done: dict[Piece, str] = {}
    pieces, obstacles = shown.pieces, shown.obstacles
    while pieces and loop.time() < give_up:
        for piece in pieces:
            done[piece] = await _take_away(client, piece)
        await asyncio.sleep(_INTERVAL)
        now = await _look(session)
        obstacles = now.obstacles
        pieces = tuple(p for p in now.pieces if not done.get(p) and _was_meant(p, shown))
    removals = [Removal(str(piece), left) for piece, left in done.items() if piece not in pieces]
    removals += [Removal(str(piece), "it is on its way out, but slowly") for piece in pieces]
    return removals + [Removal("what you may not see", obstacle) for obstacle in obstacles]


def _was_meant(piece: Piece, shown: Found) -> bool:
    """A taint that the controller put on while its rights were taken away is meant as well."""
    return piece in shown.pieces or piece.resource == NODES


async def _take_away(client: KubeClient, piece: Piece) -> str:
    """Why it is left; empty if it goes."""
    try:
        if piece.said:
            await give_back(client, piece.name, piece.said)
        elif piece.resource == NODES:
            await _untaint(client, piece.name)
        elif piece.resource == NODE_MAINTENANCES:
            await let_go(client, piece.name, uid=piece.uid)
        else:
            await client.delete(
                piece.resource,
                piece.name,
                namespace=piece.namespace or None,
                conditions={"uid": piece.uid},
            )
    except (errors.NotFound, errors.Conflict):
        # It is gone, or has changed: the next look tells.
        return ""
    except errors.Forbidden as error:
        return error.status.message
    return ""


async def _untaint(client: KubeClient, name: str) -> None:
    """From the live object: our view of a taint leaves fields out."""
    node: Json = (await client.get(NODES, name)).json()
    taints: list[Json] = node.get("spec", {}).get("taints") or []
    noted = OUT_OF_SERVICE_OURS in (node["metadata"].get("annotations") or {})
    ours = {TAINT, OUT_OF_SERVICE} if noted else {TAINT}
    kept = [taint for taint in taints if taint.get("key") not in ours]
    if len(kept) != len(taints) or noted:
        meta: Json = {"resourceVersion": node["metadata"]["resourceVersion"]}
        if noted:
            meta["annotations"] = {OUT_OF_SERVICE_OURS: None}
        await client.merge_patch(NODES, name, {"metadata": meta, "spec": {"taints": kept}})


# Looking


class _AnyMeta(Meta, frozen=True, rename="camel"):
    labels: dict[str, str] | None = None


class _RoleRef(msgspec.Struct, frozen=True):
    name: str = ""


class _Any(msgspec.Struct, frozen=True, rename="camel"):
    metadata: _AnyMeta
    role_ref: _RoleRef | None = None


class _AnyRow(msgspec.Struct, frozen=True):
    key: str
    uid: str
    version: str
    name: str
    namespace: str
    ours: bool
    role: str


def _any_row(thing: _Any) -> _AnyRow:
    meta = thing.metadata
    return _AnyRow(
        key=meta.key,
        uid=meta.uid,
        version=meta.resource_version,
        name=meta.name,
        namespace=meta.namespace or "",
        ours=(meta.labels or {}).get(COMPONENT) == "backstay",
        role=thing.role_ref.name if thing.role_ref else "",
    )


_ANY: Projection[_Any, _AnyRow] = Projection(_Any, _any_row)


class _Search:
    """Looks for what is ours, and keeps account of where it could not look."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._obstacles: list[str] = []

    async def everything(self) -> Found:
        pieces: list[Piece] = []
        for resource in _RUNNING:
            pieces += await self._labelled(resource)
        tainted = await self._tainted()
        pieces += [*tainted, *await self._begun(tainted)]
        for resource in _KEPT:
            pieces += [_piece(resource, row) for row in await self._rows(resource)]
        for resource in _REST:
            pieces += await self._labelled(resource)
        accounts = await self._labelled(_ACCOUNTS)
        pieces += await self._leases({account.namespace for account in accounts})
        pieces += [*accounts, *await self._labelled(NAMESPACES)]
        foreign = await self._foreign()
        obstacles = tuple(dict.fromkeys(self._obstacles))
        return Found(tuple(pieces), obstacles, foreign, await self._open_incidents())

    async def _labelled(self, resource: Resource) -> list[Piece]:
        return [_piece(resource, row) for row in await self._rows(resource, labels=_OURS)]

    async def _rows(self, resource: Resource, *, labels: str | None = None) -> list[_AnyRow]:
        try:
            reply = await self._client.list(resource, labels=labels)
        except errors.NotFound:
            return []
        except errors.Forbidden as error:
            self._obstacles.append(error.status.message)
            return []
        return _ANY.page(reply.body, call=reply.call).rows

    async def _tainted(self) -> list[Piece]:
        try:
            reply = await self._client.list(NODES)
        except errors.Forbidden as error:
            self._obstacles.append(error.status.message)
            return []
        rows = NODE_PROJECTION.page(reply.body, call=reply.call).rows
        tainted = [
            Piece(NODES, row.key, "", row.uid)
            for row in rows
            if row.out_of_service == MANAGER
            or any(taint.startswith(f"{TAINT}:") for taint in row.taints)
        ]
        marked = {row.key: row for row in rows if marks_of(row.maintenance) is not None}
        return tainted + [
            Piece(NODES, name, "", row.uid, row.maintenance) for name, row in marked.items()
        ]

    async def _begun(self, nodes: Sequence[Piece]) -> list[Piece]:
        """Maintenances that nobody would finish without us: those whose marks are on a node, and
        those that say so in our words."""
        marks = (marks_of(piece.said) for piece in nodes)
        ours = {each.maintenance for each in marks if each is not None}
        try:
            reply = await self._client.list(NODE_MAINTENANCES)
        except errors.NotFound:
            return []
        except errors.Forbidden as error:
            self._obstacles.append(error.status.message)
            return []
        rows = MAINTENANCE_PROJECTION.page(reply.body, call=reply.call).rows
        return [
            Piece(NODE_MAINTENANCES, row.key, "", row.uid)
            for row in rows
            if row.begun and (row.uid in ours or row.status.code)
        ]

    async def _leases(self, namespaces: set[str]) -> list[Piece]:
        """The one by which the controllers agree who leads, that in which they tell of devices,
        and those in which they tell each other what they see; they made them themselves."""
        name = Settings(identity="uninstall").lease
        found = []
        for namespace in sorted(namespaces):
            for fields, labels in (
                (f"metadata.name={name}", ""),
                (f"metadata.name={DEVICES_LEASE}", ""),
                ("", f"{VIEW}=true"),
            ):
                reply = await self._client.list(
                    LEASES, namespace=namespace, fields=fields, labels=labels
                )
                rows = _ANY.page(reply.body, call=reply.call).rows
                found += [_piece(LEASES, row) for row in rows]
        return found

    async def _foreign(self) -> tuple[str, ...]:
        """Bindings that somebody else made for our roles."""
        found: list[str] = []
        for resource in (_CLUSTER_BINDINGS, _BINDINGS):
            found += [
                f"{resource.kind} {row.key}, which binds {row.role}"
                for row in await self._rows(resource)
                if row.role.startswith("backstay-") and not row.ours
            ]
        return tuple(found)

    async def _open_incidents(self) -> tuple[str, ...]:
        try:
            reply = await self._client.list(INCIDENTS)
        except (errors.NotFound, errors.Forbidden):
            return ()
        page = INCIDENT_PROJECTION.page(reply.body, call=reply.call)
        return tuple(row.key for row in page.rows if row.open)


def _piece(resource: Resource, row: _AnyRow) -> Piece:
    return Piece(resource, row.name, row.namespace, row.uid)


# Saying it


def _described(found: Found) -> str:
    lines = ["This will be removed, in this order:", *(f"  {piece}" for piece in found.pieces)]
    if found.open_incidents:
        named = ", ".join(found.open_incidents)
        lines += ["", f"Nobody will go on with what is under way: {named}"]
    if found.obstacles:
        lines += ["", "There may be more that you may not see:"]
        lines += [f"  {obstacle}" for obstacle in found.obstacles]
    return "\n".join(lines)


def _table(removals: Sequence[Removal]) -> str:
    if not removals:
        return "There is nothing of Backstay on this cluster."
    left = [removal for removal in removals if removal.left]
    if not left:
        return f"Removed, all of it ({len(removals)})."
    rows = [(removal.what, removal.left) for removal in left]
    return columns(("LEFT", "BECAUSE"), rows)

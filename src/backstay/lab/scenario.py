"""Scenario: a disaster as a value, and as YAML that people can read.

A scenario asks a question (*what if the node comes back while its VMs are being moved?*), says
what there is, what happens to it and when, and what is expected at the end::

    name: node-dies
    question: What if a node dies and somebody confirms it?
    nodes: [n1, n2, n3]
    workloads:
      vms: [{name: till, node: n2}]
    steps:
      - {at: 5, do: kill, node: n2}
      - {at: 60, do: confirm, node: n2}
    until: 120
    expect:
      recovered: [till]

* All times are seconds of virtual time. Zero is when everything runs and a controller leads.
* A step with ``after`` or ``afterWrites`` waits, from its time on, until our controllers have
  written so often: ``after: mark`` is when a pod has been marked as deleted, ``afterWrites: 3``
  when three writes of any kind were carried out (leases and Events are not counted).
* A step that makes no sense when its time comes, such as to kill what is dead, does nothing.
* What a node hosts (``hosts``) shares its fate: controllers of ours, API servers, virt-controllers.
* What ``expect`` does not name is not looked at, except for ``breaches`` and ``risk``: there are
  none unless it says so.

``load`` answers bad input with one sentence that names the file and the field.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Literal

import msgspec
import yaml

from backstay.lab.linstor_spec import USUAL_CLASS, LinstorSpec, What
from backstay.lab.power_spec import TIMED, BmcsSpec, How
from backstay.lab.verbs import MOVING_VERBS, NEEDS, OF_FIELDS, OF_PARTS, VM_VERBS
from backstay.lab.verbs import After as After
from backstay.lab.verbs import Do as Do
from backstay.model.policy import Mode

_MOST_SECONDS = 86_400.0
_MOST_TIMES = 1000
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?")
_PLACE = re.compile(r" - at `(key in )?\$\.?(.*?)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`$")
_MISSING = re.compile(r"Object missing required field `(.*)`$")


class BadScenario(Exception):
    """One sentence: the file, the field, and what is wrong with it."""


class _Part(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"
):
    """How all parts are written."""


class Claim(StrEnum):
    """Where a disk can be used."""

    SHARED = "shared"
    """From every node, by several at once (ReadWriteMany); a VM's is a block device."""
    FILES = "files"
    """The same, as a filesystem that several can have mounted."""
    SINGLE = "single"
    """From every node, by one at a time (ReadWriteOnce)."""
    VAULT = "vault"
    """The same, in another cluster of the storage, which knows of no fences."""
    LOCAL = "local"
    """From the node on which it was made."""
    LINSTOR = "linstor"
    """From every node, by one at a time; replicated by DRBD."""
    LINSTOR_SHARED = "linstor-shared"
    """The same, by several at once, as a VM needs it to be migrated live."""

    @property
    def is_linstor(self) -> bool:
        return self in (Claim.LINSTOR, Claim.LINSTOR_SHARED)


class Budget(_Part, frozen=True, kw_only=True):
    """How many pods of a workload must stay, or may be missing; one of the two is said."""

    min_available: int | None = None
    max_unavailable: int | None = None


USUAL_GRACE = 30


class Vm(_Part, frozen=True, kw_only=True):
    """``node`` is where it runs at first; ``pinned`` means that it may run nowhere else.
    ``hotplug`` are disks that are plugged in while it runs; ``addresses`` are asked for by name.
    ``storage_class`` is that of the disks that are LINSTOR's.
    ``paused`` means that it starts so. ``made_by`` says whether its guest belongs to a VM, to a
    replica set or a pool (of one, which then has its name), or to nobody."""

    name: str
    node: str = ""
    run_strategy: Literal["Always", "RerunOnFailure", "Manual", "Once"] = "Always"
    eviction_strategy: Literal["", "None", "LiveMigrate", "LiveMigrateIfPossible", "External"] = ""
    claims: tuple[Claim, ...] = (Claim.SHARED,)
    hotplug: tuple[Claim, ...] = ()
    labels: dict[str, str] = {}
    pinned: bool = False
    paused: bool = False
    made_by: Literal["vm", "set", "pool", "nobody"] = "vm"
    addresses: tuple[str, ...] = ()
    storage_class: str = USUAL_CLASS
    budget: Budget | None = None


class StatefulSet(_Part, frozen=True, kw_only=True):
    """Its replicas ``db-0``, ``db-1`` and so on are workloads of their own. ``host_path`` is where
    on its node each of them writes as well, ``grace`` how many seconds it is given to end."""

    name: str
    replicas: int = 1
    node: str = ""
    claims: tuple[Claim, ...] = (Claim.SHARED,)
    host_path: str = ""
    grace: int = USUAL_GRACE
    labels: dict[str, str] = {}
    storage_class: str = USUAL_CLASS
    budget: Budget | None = None


class Deployment(_Part, frozen=True, kw_only=True):
    """Without a disk. Its replicas are one workload, which runs as soon as one of them does."""

    name: str
    replicas: int = 1
    node: str = ""
    labels: dict[str, str] = {}
    budget: Budget | None = None


class Workloads(_Part, frozen=True, kw_only=True):
    vms: tuple[Vm, ...] = ()
    stateful_sets: tuple[StatefulSet, ...] = ()
    deployments: tuple[Deployment, ...] = ()
    daemon_sets: tuple[str, ...] = ()
    """Each has a pod on every node, and is not asked about at the end."""

    def names(self) -> tuple[str, ...]:
        """Of all that can be said to run, as ``expect`` calls them."""
        replicas = [f"{s.name}-{n}" for s in self.stateful_sets for n in range(s.replicas)]
        return (*(vm.name for vm in self.vms), *replicas, *(d.name for d in self.deployments))

    def on_linstor(self) -> dict[str, str]:
        """What has disks there, and of which class."""
        everything: tuple[Vm | StatefulSet, ...] = (*self.vms, *self.stateful_sets)
        return {
            each.name: each.storage_class
            for each in everything
            if any(claim.is_linstor for claim in _claims_of(each))
        }


def _claims_of(workload: Vm | StatefulSet) -> tuple[Claim, ...]:
    hotplug = workload.hotplug if isinstance(workload, Vm) else ()
    return (*workload.claims, *hotplug)


class CalicoSpec(_Part, frozen=True, kw_only=True):
    """That pods get their addresses from Calico. ``families``: IPv4 alone, or IPv6 as well;
    ``persistence``: it keeps the addresses of a VM for it; ``strict``: a node uses addresses of its
    own blocks only; ``cooldown``: seconds for which a released address rests; ``group``: that of
    its kinds, the older or the newer one."""

    families: Literal["v4", "both"] = "v4"
    persistence: bool = False
    strict: bool = False
    cooldown: int = 0
    group: Literal["v1", "v3"] = "v1"


class PolicySpec(_Part, frozen=True, kw_only=True):
    """``disarmed_for`` is how many seconds from zero on somebody has disarmed us. ``config`` is
    what else stands in the BackstayConfig, ``policies`` are AvailabilityPolicies by name; both as
    a person would write their ``spec``."""

    mode: Mode = Mode.ARMED
    disarmed_for: float = 0.0
    virtual_machines: bool = True
    stateful_sets: bool = True
    config: dict[str, Any] = {}
    policies: dict[str, dict[str, Any]] = {}


_SAID_ELSEWHERE = {
    "mode": "policy.mode",
    "disarmed": "policy.disarmedFor",
    "protect": "policy.virtualMachines or policy.statefulSets",
}
"""What a BackstayConfig has as well, and ``config`` of a ``PolicySpec`` is not to have."""

VIRT_CONTROLLER = "virt-controller"
API_SERVER = "api"
"""What a node can host besides controllers of ours."""

LEADER = "leader"
"""Whichever of our controllers leads at zero; a step can name it instead of ``backstay-1``."""

PROGRAMS = (
    "csi-addons",
    "kube-controller-manager",
    "kube-scheduler",
    "csi-attacher",
    "virt-controller",
)


class Step(_Part, frozen=True, kw_only=True):
    """``at``: not before. See the module for ``after`` and ``after_writes``. ``config`` is as a
    person would write it into the ``spec`` of the BackstayConfig."""

    at: float
    do: Do
    node: str = ""
    controller: str = ""
    program: str = ""
    workload: str = ""
    peer: str = ""
    what: What | None = None
    how: How | None = None
    config: dict[str, Any] = {}
    seconds: float = 0.0
    times: int = 1
    after: After | None = None
    after_writes: int = 0

    @property
    def about(self) -> str:
        """The name of what it happens to; empty for the whole cluster."""
        field = NEEDS.get(self.do, "")
        return str(getattr(self, field)) if field else ""

    @property
    def waits(self) -> bool:
        return self.after is not None or self.after_writes > 0


class Expect(_Part, frozen=True, kw_only=True):
    """What is to be true at the end. None is for what nobody asks about.

    ``recovered``: what was taken from its node by us and runs elsewhere. ``held``: by which code
    what is down is held. ``untouched``: none of its pods was touched by us. ``down``: runs nowhere.
    ``taints``: nodes with our taint. ``open``: nodes with an open incident. ``says``: codes that
    some incident or maintenance told of, in any order. ``addresses``: what each of these really
    has. ``maintained``: by node, how far each NodeMaintenance has come. ``blocked``: by node, the
    codes of what stands in the way of a drain. ``cordoned``: nodes that are. ``migrated``: VMs
    whose guests are elsewhere and were never stopped. ``breaches``: invariants that break.
    ``risk``: whether two copies run because a person was wrong.
    ``without_power``: nodes that have none. ``powered_on``: nodes that we have switched on.
    """

    recovered: tuple[str, ...] | None = None
    held: dict[str, str] | None = None
    untouched: tuple[str, ...] | None = None
    down: tuple[str, ...] | None = None
    taints: tuple[str, ...] | None = None
    open: tuple[str, ...] | None = None
    says: tuple[str, ...] | None = None
    addresses: dict[str, tuple[str, ...]] | None = None
    maintained: dict[str, str] | None = None
    blocked: dict[str, tuple[str, ...]] | None = None
    cordoned: tuple[str, ...] | None = None
    migrated: tuple[str, ...] | None = None
    breaches: tuple[str, ...] = ()
    risk: bool = False
    without_power: tuple[str, ...] | None = None
    powered_on: tuple[str, ...] | None = None


class Scenario(_Part, frozen=True, kw_only=True):
    """See the module. ``answer`` is for people; ``bug`` names one of ``lab/bugs.py``; nodes that
    are ``exempt`` carry the label of that name.

    ``hosts`` names by node what it runs besides workloads: ``backstay-1``, ``api`` (then each of
    our controllers begins with that of the first node that has one, and learns of the others) and
    ``virt-controller`` (then there is none elsewhere, and they agree on who works). ``kubevirt`` is
    its version. With ``csi_addons`` the storage can be told to refuse nodes, which with
    ``storage_network`` it knows by addresses of another network than theirs; and with
    ``provider`` somebody can be asked whether a machine is on; with ``bmcs`` each machine can be,
    and be switched off and on. With ``maintenance`` the cluster knows of NodeMaintenances. Nodes of
    the ``control_plane`` carry its label."""

    name: str
    question: str
    answer: str = ""
    topic: str = ""
    seed: int = 1
    nodes: tuple[str, ...]
    exempt: tuple[str, ...] = ()
    control_plane: tuple[str, ...] = ()
    hosts: dict[str, tuple[str, ...]] = {}
    workloads: Workloads = Workloads()
    calico: CalicoSpec | None = None
    csi_addons: bool = False
    storage_network: bool = False
    linstor: LinstorSpec | None = None
    provider: bool = False
    maintenance: bool = False
    bmcs: BmcsSpec | None = None
    kubevirt: str = "v1.9.0"
    policy: PolicySpec = PolicySpec()
    controllers: int = 1
    bug: str = ""
    steps: tuple[Step, ...] = ()
    until: float
    expect: Expect = Expect()

    @property
    def controller_names(self) -> tuple[str, ...]:
        return tuple(f"backstay-{number + 1}" for number in range(self.controllers))

    @property
    def beginning(self) -> "Scenario":
        """All that is there before the first step. Scenarios that have it in common are siblings:
        they go different ways from one and the same world."""
        return msgspec.structs.replace(
            self, name="", question="", answer="", topic="", seed=0, steps=(), until=0.0,
            expect=Expect(),
        )  # fmt: skip

    def hosts_of(self, program: str) -> tuple[str, ...]:
        """The nodes that host it."""
        return tuple(node for node in self.nodes if program in self.hosts.get(node, ()))


# As YAML


def load(text: str | bytes, *, file: str = "the scenario") -> Scenario:
    """Raises ``BadScenario``."""
    try:
        plain = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadScenario(f"{file}: it is not YAML{_where(error)}.") from None
    except RecursionError:
        raise BadScenario(f"{file}: it is nested too deeply.") from None
    if not isinstance(plain, dict):
        raise BadScenario(f"{file}: a scenario is a mapping with name, question, nodes and until.")
    try:
        scenario = msgspec.convert(plain, Scenario)
    except msgspec.ValidationError as error:
        raise BadScenario(f"{file}: {_sentence(str(error))}") from None
    for field, wrong in _wrongs(scenario):
        raise BadScenario(f"{file}: {field}: {wrong}.")
    return scenario


def dump(scenario: Scenario) -> str:
    """As YAML, from which ``load`` makes the same scenario."""
    plain = msgspec.to_builtins(scenario)
    return yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=98)


class _Dumper(yaml.SafeDumper):
    """A step or a workload takes one line."""


def _represent(dumper: yaml.SafeDumper, value: dict[str, object]) -> yaml.MappingNode:
    small = all(not isinstance(each, dict | list | tuple) for each in value.values())
    is_line = small and bool({"do", "node"} & value.keys())
    return dumper.represent_mapping("tag:yaml.org,2002:map", value.items(), flow_style=is_line)


_Dumper.add_representer(dict, _represent)


def _where(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or ""
    place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    return place + (f" ({problem})" if problem else "")


def _sentence(message: str) -> str:
    """msgspec's words, with the field in front."""
    found = _PLACE.search(message)
    place = found[2] if found else ""
    what = message[: found.start()] if found else message
    if match := _UNKNOWN.match(what):
        return f"{_joined(place, match[1])}: there is no such field."
    if match := _MISSING.match(what):
        return f"{_joined(place, match[1])}: it is missing."
    what = what[:1].lower() + what[1:].replace("`", "").rstrip(".")
    return f"{place}: {what}." if place else f"{what}."


def _joined(place: str, field: str) -> str:
    return f"{place}.{field}" if place else field


# What types cannot say


def _wrongs(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Field and fault; the first is told."""
    if not _NAME.fullmatch(scenario.name):
        yield "name", "it is to consist of small letters, digits and dashes, 42 at most"
    if not scenario.nodes:
        yield "nodes", "at least one node is needed"
    if not 1 <= scenario.controllers <= 9:
        yield "controllers", "between 1 and 9 of them are needed"
    if not 0 < scenario.until <= _MOST_SECONDS:
        yield "until", f"it is to be more than 0 and at most {_MOST_SECONDS:.0f} seconds"
    if scenario.storage_network and not scenario.csi_addons:
        yield "storageNetwork", "only with csiAddons does anybody go by it"
    yield from _wrong_policy(scenario.policy)
    yield from _names(scenario)
    yield from _wrong_linstor(scenario)
    for field, wrong in scenario.bmcs.wrongs(scenario.nodes) if scenario.bmcs else ():
        yield f"bmcs.{field}", wrong
    yield from _wrong_hosts(scenario)
    for number, step in enumerate(scenario.steps):
        for field, wrong in _wrong_step(step, scenario):
            yield f"steps[{number}].{field}", wrong
    yield from _expectations(scenario)


def _wrong_policy(policy: PolicySpec) -> Iterator[tuple[str, str]]:
    if policy.mode is Mode.DISARMED:
        yield "policy.mode", "say for how long, with disarmedFor"
    for field in _SAID_ELSEWHERE:
        if field in policy.config:
            yield f"policy.config.{field}", f"say {_SAID_ELSEWHERE[field]} instead"


def _names(scenario: Scenario) -> Iterator[tuple[str, str]]:
    yield from _each_once("nodes", scenario.nodes)
    for field, names in {"exempt": scenario.exempt, "controlPlane": scenario.control_plane}.items():
        for name in names:
            if name not in scenario.nodes:
                yield field, _no_such("node", name)
    yield from _wrong_workloads(scenario)
    names = (*scenario.workloads.names(), *scenario.workloads.daemon_sets)
    yield from _each_once("workloads", names)


def _wrong_workloads(scenario: Scenario) -> Iterator[tuple[str, str]]:
    kinds: dict[str, tuple[Vm | StatefulSet | Deployment, ...]] = {
        "vms": scenario.workloads.vms,
        "statefulSets": scenario.workloads.stateful_sets,
        "deployments": scenario.workloads.deployments,
    }
    for kind, members in kinds.items():
        for number, each in enumerate(members):
            field = f"workloads.{kind}[{number}]"
            if each.node and each.node not in scenario.nodes:
                yield f"{field}.node", _no_such("node", each.node)
            if isinstance(each, Vm) and each.pinned and not each.node:
                yield f"{field}.pinned", "it needs a node to be pinned to"
            if isinstance(each, Vm) and each.addresses and scenario.calico is None:
                yield f"{field}.addresses", "without calico nobody gives addresses by name"
            if not isinstance(each, Vm) and not 1 <= each.replicas <= 50:
                yield f"{field}.replicas", "between 1 and 50 of them are needed"
            said = each.budget
            if said and (said.min_available is None) is (said.max_unavailable is None):
                yield f"{field}.budget", "it is minAvailable or maxUnavailable, and one of them"


def _wrong_linstor(scenario: Scenario) -> Iterator[tuple[str, str]]:
    wanted = scenario.workloads.on_linstor()
    if scenario.linstor is not None:
        for field, wrong in scenario.linstor.wrongs(scenario.nodes, wanted):
            yield f"linstor.{field}", wrong
    elif wanted:
        yield "linstor", f"{next(iter(wanted))} has a disk there: say linstor, be it with {{}}"


def _wrong_hosts(scenario: Scenario) -> Iterator[tuple[str, str]]:
    known = (*scenario.controller_names, API_SERVER, VIRT_CONTROLLER)
    for node, programs in scenario.hosts.items():
        if node not in scenario.nodes:
            yield "hosts", _no_such("node", node)
        for program in programs:
            if program not in known:
                yield f"hosts.{node}", f"{program} is none of {', '.join(known)}"
    for name in scenario.controller_names:
        if len(scenario.hosts_of(name)) > 1:
            yield "hosts", f"{name} cannot be on two nodes"


def _each_once(field: str, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for number, name in enumerate(names):
        if not _NAME.fullmatch(name):
            yield field, f"{name!r} is to consist of small letters, digits and dashes, 42 at most"
        if name in names[:number]:
            yield field, f"there are two of the name {name}"


def _wrong_step(step: Step, scenario: Scenario) -> Iterator[tuple[str, str]]:
    needed = NEEDS.get(step.do, "")
    known = {
        "node": scenario.nodes,
        "controller": (LEADER, *scenario.controller_names),
        "program": PROGRAMS,
        "workload": scenario.workloads.names(),
    }
    for field, names in known.items():
        name = getattr(step, field)
        if field == needed and not name:
            yield field, f"{step.do} needs one"
        elif name and field not in (needed, "controller"):
            yield field, f"{step.do} has none"
        elif name and name not in names:
            yield field, _no_such(field, name)
    yield from _wrong_verb(step, scenario)
    if not 0 <= step.at <= scenario.until:
        yield "at", f"it is to be between 0 and the end, which is at {scenario.until:g}"
    yield from _wrong_numbers(step)
    if step.do in MOVING_VERBS and step.workload not in {v.name for v in scenario.workloads.vms}:
        yield "workload", f"{step.workload} is no VM"
    if step.program == VIRT_CONTROLLER and scenario.hosts_of(VIRT_CONTROLLER):
        yield "program", "virt-controller is on nodes here: do it to one of them"


def _wrong_numbers(step: Step) -> Iterator[tuple[str, str]]:
    if step.after_writes < 0:
        yield "afterWrites", "it is a number of writes, and cannot be negative"
    timed = step.do in (Do.DISARM, Do.FLAP, Do.RELEASE_STORM) or step.how in TIMED
    if timed and step.seconds <= 0:
        yield "seconds", f"{step.do} needs to know for how long"
    if not 1 <= step.times <= _MOST_TIMES:
        yield "times", f"it is to be between 1 and {_MOST_TIMES}"
    if abs(step.seconds) > _MOST_SECONDS:
        yield "seconds", f"at most {_MOST_SECONDS:.0f}"


def _wrong_verb(step: Step, scenario: Scenario) -> Iterator[tuple[str, str]]:
    if step.do in VM_VERBS and step.workload not in {vm.name for vm in scenario.workloads.vms}:
        yield "workload", f"{step.workload} is no VM"
    for part, verbs in OF_PARTS.items():
        if step.do in verbs and getattr(scenario, part) in (None, False):
            yield "do", f"{step.do} needs {part}"
    for field, verbs in OF_FIELDS.items():
        given = bool(getattr(step, field))
        if given is not (step.do in verbs):
            yield field, f"{step.do} {'has none' if given else 'needs one'}"
    if step.peer and (step.peer not in scenario.nodes or step.peer == step.node):
        yield "peer", f"{step.peer} is no other node"


def _expectations(scenario: Scenario) -> Iterator[tuple[str, str]]:
    expect, workloads = scenario.expect, scenario.workloads.names()
    known: tuple[tuple[str, str, tuple[str, ...], tuple[str, ...]], ...] = (
        ("recovered", "workload", expect.recovered or (), workloads),
        ("held", "workload", tuple(expect.held or ()), workloads),
        ("untouched", "workload", expect.untouched or (), workloads),
        ("down", "workload", expect.down or (), workloads),
        ("taints", "node", expect.taints or (), scenario.nodes),
        ("open", "node", expect.open or (), scenario.nodes),
        ("maintained", "node", tuple(expect.maintained or ()), scenario.nodes),
        ("blocked", "node", tuple(expect.blocked or ()), scenario.nodes),
        ("cordoned", "node", expect.cordoned or (), scenario.nodes),
        ("migrated", "workload", expect.migrated or (), workloads),
        ("withoutPower", "node", expect.without_power or (), scenario.nodes),
        ("poweredOn", "node", expect.powered_on or (), scenario.nodes),
    )
    for field, kind, given, names in known:
        for name in given:
            if name not in names:
                yield f"expect.{field}", _no_such(kind, name)


def _no_such(kind: str, name: str) -> str:
    return f"there is no {kind} {name}"

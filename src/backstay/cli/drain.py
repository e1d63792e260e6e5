"""``backstay drain``: asks everything to leave a node, flag for flag as ``kubectl drain`` does.

It acts in the caller's own name, with the engine that serves NodeMaintenances. It says what is in
the way, waits for budgets instead of asking in a loop, and knows when KubeVirt moves a guest.
``--dry-run=server`` is the preflight: the API's own answers, without any effect.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from backstay.apis.core import NODE_PROJECTION
from backstay.cli.consent import near, say
from backstay.cli.durations import GoDuration
from backstay.cli.ending import ended_by_signals
from backstay.cli.main import EXIT_ERROR
from backstay.cli.output import columns, output_option, printable, show
from backstay.cli.session import Session, Target, in_session, target_options
from backstay.control.drain import Drain
from backstay.control.foresight import cordon, foresee, preflight
from backstay.kube.errors import KubeError
from backstay.kube.resource import NODES
from backstay.model.drain import DrainOptions, DrainState, Fate, Plan
from backstay.model.reasons import Why


class BlockerShown(msgspec.Struct, frozen=True):
    pod: str
    code: str
    sentence: str
    next: str = ""


class PodShown(msgspec.Struct, frozen=True):
    pod: str
    fate: str
    code: str
    sentence: str
    next: str = ""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one node. ``cordoned`` says that it was this command that cordoned it."""

    node: str
    result: str
    cordoned: bool = False
    pending: tuple[str, ...] = ()
    blockers: tuple[BlockerShown, ...] = ()
    pods: tuple[PodShown, ...] = ()
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        return self.result not in ("drained", "would be drained")


_OPTIONS = (
    click.option("-l", "--selector", metavar="SELECTOR", help="The nodes with these labels."),
    click.option("--force", is_flag=True, help="Also pods that nobody would make anew."),
    click.option("--ignore-daemonsets", is_flag=True, help="Leave pods of DaemonSets."),
    click.option("--delete-emptydir-data", is_flag=True, help="Also pods with an emptyDir."),
    click.option(
        "--grace-period", type=int, default=-1, show_default=True,
        help="Seconds for each pod to end; below zero, its own.",
    ),
    click.option(
        "--timeout", type=GoDuration(), default="0s", show_default=True,
        help="How long to go on with a node; zero is for ever.",
    ),
    click.option("--pod-selector", metavar="SELECTOR", default="", help="Only these pods."),
    click.option("--disable-eviction", is_flag=True, help="Delete pods without asking budgets."),
    click.option(
        "--skip-wait-for-delete-timeout", type=click.IntRange(0), default=0, metavar="SECONDS",
        help="Do not wait for pods that have been Terminating for longer.",
    ),
    click.option(
        "--chunk-size", type=click.IntRange(0), default=500, show_default=True,
        help="How many pods are listed at a time.",
    ),
    click.option(
        "--dry-run", type=click.Choice(["none", "client", "server"]), default="none",
        is_flag=False, flag_value="client", show_default=True,
        help="Only say what would be done; server asks the API for its own answers.",
    ),
)  # fmt: skip


def _options(command: Any) -> Any:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command(name="drain")
@click.argument("nodes", nargs=-1, metavar="NODE...")
@_options
@target_options
@output_option
def command(
    nodes: tuple[str, ...],
    selector: str | None,
    force: bool,
    ignore_daemonsets: bool,
    delete_emptydir_data: bool,
    grace_period: int,
    timeout: float,
    pod_selector: str,
    disable_eviction: bool,
    skip_wait_for_delete_timeout: int,
    chunk_size: int,
    dry_run: str,
    kubeconfig: str | None,
    context: str | None,
    output: str,
) -> None:
    """Ask everything to leave a node, as kubectl drain does, and say what is in the way.

    The node is cordoned, and stays so. Exit code 0 when everything has left, 1 when something has
    not, 3 when the cluster cannot be reached.
    """
    if bool(nodes) == (selector is not None):
        raise click.UsageError("Name nodes, or select them with --selector; one of the two.")
    options = DrainOptions(
        force=force,
        ignore_daemonsets=ignore_daemonsets,
        delete_emptydir=delete_emptydir_data,
        grace=grace_period,
        timeout=timeout,
        pod_selector=pod_selector,
        disable_eviction=disable_eviction,
        skip_wait_after=float(skip_wait_for_delete_timeout),
    )
    work = _Work(tuple(dict.fromkeys(nodes)), selector, options, dry_run, chunk_size or 500)
    try:
        outcomes = in_session(Target(kubeconfig, context), work.run)
    except KeyboardInterrupt:
        work.say_how_it_stands()
        raise
    show(outcomes, output=output, table=lambda: _table(outcomes, dry_run))
    if any(outcome.failed for outcome in outcomes):
        raise click.exceptions.Exit(EXIT_ERROR)


class _Work:
    """One run of the command, so that it can be told how it stands when it is interrupted."""

    def __init__(
        self,
        names: tuple[str, ...],
        selector: str | None,
        options: DrainOptions,
        dry_run: str,
        page_size: int,
    ) -> None:
        self._names = names
        self._selector = selector
        self._options = options
        self._dry_run = dry_run
        self._page_size = page_size
        self._cordoned: dict[str, bool] = {}
        self._progress: dict[str, _Progress] = {}

    async def run(self, session: Session) -> list[Outcome]:
        with ended_by_signals():
            names = await self._resolve(session)
            if self._dry_run != "none":
                return [await self._foresee(session, name) for name in names]
            for name in names:
                # All of them first, so that nothing moves from one to the other.
                self._cordoned[name] = await cordon(session.client, name)
                word = "cordoned" if self._cordoned[name] else "already cordoned"
                say(f"node/{name} {word}")
            return [await self._drain(session, name) for name in names]

    async def _resolve(self, session: Session) -> tuple[str, ...]:
        """Before anything is done: who is missing ends it."""
        reply = await session.client.list(NODES, labels=self._selector)
        known = [row.key for row in NODE_PROJECTION.page(reply.body, call=reply.call).rows]
        if self._selector is not None:
            if not known:
                raise click.ClickException(f"No node is selected by {self._selector!r}.")
            return tuple(known)
        for name in self._names:
            if name not in known:
                raise click.ClickException(
                    f"There is no node {name!r} in this cluster.{near(name, known)}"
                )
        return self._names

    async def _foresee(self, session: Session, name: str) -> Outcome:
        look = preflight if self._dry_run == "server" else foresee
        if self._dry_run == "server":
            await cordon(session.client, name, dry_run=True)
        plan = await look(session.client, name, self._options, wall=session.seams.wall)
        blocked = tuple(_blocker(each.pod.key, each.why) for each in plan.blocked)
        result = "would be refused" if plan.refused else "would be blocked" if blocked else ""
        return Outcome(
            node=name,
            result=result or "would be drained",
            pending=tuple(each.pod.key for each in plan.leaving),
            blockers=blocked,
            pods=_pods(plan),
            seconds=plan.seconds,
        )

    async def _drain(self, session: Session, name: str) -> Outcome:
        progress = self._progress[name] = _Progress(name)
        drain = Drain(
            session.client,
            name,
            self._options,
            rng=session.seams.rng,
            wall=session.seams.wall,
            told=progress.tell,
            page_size=self._page_size,
        )
        result = ""
        try:
            async with asyncio.timeout(self._options.timeout or None):
                await drain.run()
        except TimeoutError:
            result = f"not drained within {self._options.timeout:g} s"
        except KubeError as error:
            result = f"not drained: {error}"
        state = drain.state
        if not result:
            result = "refused" if state.refused else "drained"
        say(f"node/{name} {result}")
        return Outcome(
            node=name,
            result=result,
            cordoned=self._cordoned.get(name, False),
            pending=tuple(pod.key for pod in state.pending),
            blockers=tuple(_blocker(each.pod, each.why) for each in state.blockers),
        )

    def say_how_it_stands(self) -> None:
        for name, ours in self._cordoned.items():
            progress = self._progress.get(name)
            if progress is not None:
                progress.stopped()
            stays = "stays cordoned, as it was" if not ours else "stays cordoned"
            say(f"{name} {stays}. NEXT: kubectl uncordon {name}")


class _Progress:
    """What has changed since it was last told, line by line."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._state = DrainState(node=node)
        self._blocked: dict[str, str] = {}

    def tell(self, state: DrainState) -> None:
        before, self._state = self._state, state
        pending = {pod.uid for pod in state.pending}
        for pod in before.pending:
            if pod.uid not in pending:
                self._say(f"pod/{pod.key} has left")
        for key in state.moving:
            if key not in before.moving:
                self._say(f"pod/{key} is leaving")
        blocked = {each.pod: each.why for each in state.blockers}
        for key, why in blocked.items():
            if self._blocked.get(key) != why.code:
                self._say(_in_full(why))
        self._blocked = {key: why.code for key, why in blocked.items()}

    def stopped(self) -> None:
        state = self._state
        gone = state.most - len(state.pending)
        self._say(f"{gone} of {state.most} pods have left {self._node}.")
        if state.moving:
            going = ", ".join(state.moving)
            self._say(f"Those that were asked to leave go on leaving: {going}.")

    def _say(self, text: str) -> None:
        say(printable(text))


def _in_full(why: Why) -> str:
    return f"{why.sentence} NEXT: {why.next}" if why.next else why.sentence


def _blocker(pod: str, why: Why) -> BlockerShown:
    return BlockerShown(pod, why.code, why.sentence, why.next)


def _pods(plan: Plan) -> tuple[PodShown, ...]:
    return tuple(
        PodShown(each.pod.key, each.fate.value, each.why.code, each.why.sentence, each.why.next)
        for each in plan.planned
    )


_ORDER = [Fate.BLOCKED, Fate.MIGRATE, Fate.SHUTDOWN, Fate.EVICT, Fate.GONE, Fate.SKIP]


def _table(outcomes: Sequence[Outcome], dry_run: str) -> str:
    if dry_run != "none":
        return "\n\n".join(map(_foreseen, outcomes))
    rows = [(each.node, _told(each)) for each in outcomes]
    return columns(("NODE", "RESULT"), rows)


def _told(outcome: Outcome) -> str:
    parts = [outcome.result]
    if outcome.pending:
        parts.append(f"still there: {', '.join(outcome.pending)}")
    parts += [each.sentence for each in outcome.blockers]
    return "; ".join(part.rstrip(".") for part in parts)


def _foreseen(outcome: Outcome) -> str:
    order = {fate.value: rank for rank, fate in enumerate(_ORDER)}
    pods = sorted(outcome.pods, key=lambda each: (order[each.fate], each.pod))
    rows = [(each.fate, _shown(each)) for each in pods]
    leaving, blocked = len(outcome.pending), len(outcome.blockers)
    took = f", in about {outcome.seconds:.0f} s" if outcome.seconds and not blocked else ""
    head = f"{outcome.node} {outcome.result}: {leaving} to leave{took}; {blocked} in the way."
    return f"{head}\n\n{columns(('FATE', 'POD'), rows)}" if rows else head


def _shown(pod: PodShown) -> str:
    """Some sentences begin with its name already."""
    named = pod.sentence.startswith(f"{pod.pod} ")
    said = pod.sentence if named else f"{pod.pod}: {pod.sentence}"
    return f"{said} NEXT: {pod.next}" if pod.next else said

"""``backstay disarm``: for a time, Backstay watches and changes nothing.

It always has an end, a reason and a name: nobody finds out a year later that failover was off.
It makes nothing unsafe, so it asks nothing.
"""

from datetime import timedelta

import click

from backstay.cli.configuration import ForATime, set_for_a_time
from backstay.cli.consent import say
from backstay.cli.durations import Duration
from backstay.cli.output import output_option, show
from backstay.cli.session import Session, Target, in_session, target_options
from backstay.model.policy import Mode

_LONGEST = timedelta(days=30)


class Disarmed(ForATime, frozen=True):
    mode: str
    """What holds again afterwards."""


@click.command(name="disarm")
@click.option(
    "--for", "length", metavar="TIME", type=Duration(_LONGEST), required=True,
    help="For how long: 30m, 2h, 1d; 30d at most.",
)  # fmt: skip
@click.option("--reason", metavar="TEXT", required=True, help="Why; it is shown to everybody.")
@target_options
@output_option
def command(
    length: timedelta, reason: str, kubeconfig: str | None, context: str | None, output: str
) -> None:
    """Let Backstay only watch, for a time."""
    if not reason.strip():
        raise click.UsageError("--reason must say something.")
    target = Target(kubeconfig, context)
    done = in_session(target, lambda session: _disarm(session, length, reason.strip()))
    show(done, output=output, table=lambda: _sentence(done))
    say("NEXT: backstay arm (to end it early)")


async def _disarm(session: Session, length: timedelta, reason: str) -> Disarmed:
    done, known = await set_for_a_time(session, "disarmed", length, reason)
    mode = known.mode if known else Mode.OBSERVE.value
    return Disarmed(done.until, done.reason, done.by, mode)


def _sentence(done: Disarmed) -> str:
    sentence = f"Backstay is disarmed until {done.until}: {done.reason}."
    if done.mode != Mode.ARMED:
        sentence += " It was not armed, and only observes afterwards too."
    return sentence

"""``backstay storm release``: a person has looked, and it is no illusion.

It lifts the brake for a time, and only that: what rests on silence still takes the owner's
consent, two vantage points and its 150 seconds.
"""

from datetime import timedelta

import click

from backstay.cli.configuration import ForATime, set_for_a_time
from backstay.cli.consent import agreed, say
from backstay.cli.durations import Duration
from backstay.cli.output import output_option, show
from backstay.cli.session import Session, Target, in_session, target_options

_LONGEST = timedelta(hours=12)


@click.command(name="release")
@click.option("--reason", metavar="TEXT", required=True, help="Why; it is shown to everybody.")
@click.option(
    "--for", "length", metavar="TIME", type=Duration(_LONGEST), default="30m", show_default=True,
    help="For how long: 30m, 2h; 12h at most.",
)  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask; for scripts.")
@target_options
@output_option
def command(
    reason: str,
    length: timedelta,
    yes: bool,
    kubeconfig: str | None,
    context: str | None,
    output: str,
) -> None:
    """Let Backstay act on silence although many nodes are silent, for a time."""
    if not reason.strip():
        raise click.UsageError("--reason must say something.")
    say(
        "Many nodes that fall silent at once are more often one broken network than many deaths. "
        "Look at some of them before you go on."
    )
    agreed("Are they really dead?", yes=yes, command="backstay storm release --reason TEXT --yes")
    target = Target(kubeconfig, context)
    done = in_session(target, lambda session: _release(session, length, reason.strip()))
    sentence = f"The brake on storms is lifted until {done.until}: {done.reason}."
    show(done, output=output, table=lambda: sentence)
    say("NEXT: backstay status")


async def _release(session: Session, length: timedelta, reason: str) -> ForATime:
    done, _ = await set_for_a_time(session, "stormRelease", length, reason)
    return done

"""The command line's front door: names, laziness, and what happens when something goes wrong.

No traceback reaches a person: what we foresaw is one sentence, and what we did not is one
sentence as well, with the way to see more (``BACKSTAY_DEBUG=1``).
"""

import os
import sys
from typing import NoReturn

import click

from backstay.cli.lazy import LazyGroup

EXIT_ERROR = 1
EXIT_HELD = 2
EXIT_BLIND = 3
EXIT_INTERRUPTED = 130

_COMMANDS = {
    "arm": "Let Backstay act; shows what that changes, and asks.",
    "config": "Show what is configured, and what applies to a workload and why.",
    "confirm-dead": "Vouch that a node is off, so that its workloads can start elsewhere.",
    "crds": "Print the CustomResourceDefinitions, for kubectl apply -f -.",
    "demo": "See in a minute what Backstay does, on a cluster in memory.",
    "disarm": "Let Backstay only watch, for a time.",
    "doctor": "Check the way to the API: configuration, TLS, identity, permissions, nodes.",
    "drain": "Ask everything to leave a node, as kubectl drain does, and say what is in the way.",
    "explain": "Tell the whole story of a node, a VM or a pod.",
    "incidents": "Show the deaths of nodes: what was done, when and why.",
    "manifests": "Print everything that an installation consists of, for kubectl apply -f -.",
    "readiness": "Show what would happen if a node died now.",
    "replay": "Decide again what the flight recorder kept, and show what differs.",
    "sim": "Play disasters on a cluster in memory, under virtual time.",
    "storm": "What to do when many nodes are silent at once.",
    "status": "Show what is down, why it is held, and what to do next.",
    "run": "Run the controller.",
    "uninstall": "Remove every trace of Backstay from the cluster.",
    "version": "Show the version of Backstay and of the cluster.",
}


# The arguments of the Piraeus HA controller, which has no commands, will do as they are.
_PIRAEUS = (
    "--leader-election", "--attacher-name", "--known-resource", "--new-resource",
    "--pod-label-selector", "--reconcile-interval",
)  # fmt: skip


@click.group(
    cls=LazyGroup,
    lazy=_COMMANDS,
    otherwise=("run", _PIRAEUS),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Run 'backstay COMMAND --help' for the options of a command.",
)
def backstay() -> None:
    """Keeps virtual machines and stateful workloads on Kubernetes running when nodes fail, drain
    or reboot, and proves that it is safe before it acts."""


def main() -> NoReturn:
    """The console scripts' entry; ``kubectl backstay`` comes here too."""
    name = "kubectl backstay" if "kubectl-backstay" in os.path.basename(sys.argv[0]) else "backstay"
    try:
        code = backstay.main(prog_name=name, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        # Not click's own code for wrong usage, which is 2: that says that workloads are held.
        sys.exit(EXIT_ERROR if isinstance(error, click.UsageError) else error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has gone (`| head`); there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_ERROR)
    except Exception as error:  # noqa: BLE001 - the last line of defence before a traceback
        sys.exit(_explain(error))
    sys.exit(code if isinstance(code, int) else 0)


def _explain(error: Exception) -> int:
    """One sentence on the terminal; the exit code for it."""
    from backstay.kube import errors  # loaded already if an error of its kind can have come

    foreseen = isinstance(error, errors.KubeError)
    sentence = str(error) if foreseen else f"this is a bug in Backstay: {error!r}"
    click.echo(f"Error: {sentence}", err=True)
    if os.environ.get("BACKSTAY_DEBUG"):  # noqa: TID251 - this is the outermost shell
        import traceback

        traceback.print_exception(error)
    elif not foreseen:
        click.echo("Set BACKSTAY_DEBUG=1 to see where it happened, and report it.", err=True)
    blind = (errors.Unreachable, errors.OutcomeUnknown, errors.Untrusted)
    return EXIT_BLIND if isinstance(error, blind) else EXIT_ERROR

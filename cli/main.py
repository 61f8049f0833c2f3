"""Entry point of the `slurmstack` command: its options, its exit statuses, and errors without tracebacks."""

from __future__ import annotations

import logging
import sys
from typing import NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from cli import (
    cluster_commands,
    doctor_commands,
    health_commands,
    images_commands,
    kube_token,
    local_commands,
    stack_commands,
    usage_commands,
)
from cli.entry import INTERRUPTED
from cli.errors import FAILED, USAGE, Failure
from config import ConfigError
from local.errors import LocalError

app = typer.Typer(
    name="slurmstack",
    help="Slurm on Kubernetes as one typed Pulumi program.\n\n"
    "Every command works on a stack file: Pulumi.dev.yaml, or the one named with --config.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
stack_commands.register(app)
cluster_commands.register(app)
usage_commands.register(app)
app.add_typer(health_commands.app, name="health")
app.add_typer(local_commands.app, name="local")
app.add_typer(doctor_commands.app, name="doctor")
kube_token.register(app)
app.add_typer(images_commands.app, name="images")


def main() -> NoReturn:
    """Run the command and end the process: 0 done, 130 interrupted, else as in `cli.errors`."""
    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    try:
        code = app(standalone_mode=False)  # what typer.Exit carried, else what the command returned
    except ConfigError as error:
        count = len(error.problems)
        _complain(f"the stack file has {count} error{'s' if count > 1 else ''}:", "")
        for problem in error.problems:
            Console(stderr=True, highlight=False, emoji=False).print(
                f"  [bold]{escape(problem.where)}[/]: {escape(problem.message)}", soft_wrap=True
            )
        sys.exit(USAGE)
    except Failure as failure:
        _complain(failure.message, failure.hint)
        sys.exit(failure.code)
    except LocalError as error:
        _complain(error.message, error.hint)
        sys.exit(FAILED)
    except (KeyboardInterrupt, typer.Abort):
        _complain_interrupted()
        sys.exit(INTERRUPTED)
    except Exception as error:  # the last resort: Click's usage errors and nothing else have these two methods
        if not (hasattr(error, "format_message") and hasattr(error, "exit_code")):
            raise
        _complain(str(error.format_message()), "--help shows what the command takes")
        sys.exit(USAGE)
    if code == INTERRUPTED:  # Typer's own answer to Ctrl-C
        _complain_interrupted()
    sys.exit(code if isinstance(code, int) else 0)


def _complain_interrupted() -> None:
    _complain("interrupted", "what was done so far stays as it is; run the same command again to continue")


def _complain(message: str, hint: str) -> None:
    console = Console(stderr=True, highlight=False, emoji=False)
    console.print(f"[red bold]error:[/] {escape(message)}", soft_wrap=True)
    if hint:
        console.print(f"[dim]{escape(hint)}[/]", soft_wrap=True)

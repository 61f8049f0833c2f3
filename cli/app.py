"""The `slurmstack` command: its list of commands, its exit statuses, and errors without tracebacks."""

from __future__ import annotations

import importlib
import logging
import sys
from contextlib import suppress
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup
from typer.main import get_group

from cli.errors import FAILED, INTERRUPTED, USAGE, Failure
from cli.text import printable
from config.errors import ConfigError
from local.errors import LocalError

COMMANDS = {
    "validate": (
        "cli.commands.stack:validate",
        "Check a stack file, without a cluster. Lists everything that is wrong; exit status 2 if anything is.",
    ),
    "render": (
        "cli.commands.stack:render",
        "Write the Kubernetes objects of a stack, one YAML file each, for `kubectl apply -f DIR`, Argo CD or Flux.",
    ),
    "preview": (
        "cli.commands.cluster:preview",
        "Show what `up` would change. Objects that were changed by hand are shown too. Changes nothing.",
    ),
    "up": ("cli.commands.cluster:up", "Bring the cluster in line with the stack file, and wait until it is."),
    "destroy": (
        "cli.commands.destroy:destroy",
        "Delete the cluster, but its data and keys: running jobs are waited for first.",
    ),
    "status": (
        "cli.commands.status:status",
        "Show on one screen what runs: pods, pools, the queue, the jail, accounting, versions and addresses.",
    ),
    "login": (
        "cli.commands.access:login",
        "Open an SSH session on a login node, in the jail. The host key is checked against the cluster's own.",
    ),
    "usage": ("cli.commands.usage:usage", "Show who used how many CPU and GPU hours."),
    "efficiency": (
        "cli.commands.usage:efficiency",
        "Show what jobs used of what they asked for, and what was wasted.",
    ),
    "kube-token": (
        "cli.commands.kube_token:kube_token",
        "Print a token for the Kubernetes cluster: an exec plugin of a kubeconfig runs it. Needs no stack file.",
    ),
    "health": ("cli.commands.health:app", "Show which nodes are well."),
    "logs": (
        "cli.commands.logs:logs",
        "Print what the programs of the cluster wrote, all or about a component or a job, in the order of time.",
    ),
    "support-bundle": (
        "cli.commands.bundle:support_bundle",
        "Write an archive for whoever helps: what the cluster says of itself, without its secrets.",
    ),
    "local": (
        "cli.commands.local:app",
        "The local cluster: a real two-node Kubernetes on this machine, for development and trying out.",
    ),
    "doctor": ("cli.commands.doctor:app", "Say what is wrong with the running cluster, and what mends it."),
    "jail": (
        "cli.commands.jail:app",
        "Roots in the jail's volume: list them, see what users have changed in one, remove one.",
    ),
    "backup": (
        "cli.commands.backup:app",
        "Make backups, list them, see whether they can be read, and whether a cluster starts from them.",
    ),
    "restore": (
        "cli.commands.backup:restore",
        "Put a backup back, into the same cluster or an empty one of the same stack file.",
    ),
    "upgrade": (
        "cli.commands.backup:upgrade_app",
        "Try another release of Slurm on the last backup, before the cluster gets it.",
    ),
    "rotate": ("cli.commands.rotate:rotate", "Give the running cluster another key. Running and waiting jobs stay."),
    "images": (
        "cli.commands.images:app",
        "The container images: build them, push them to a registry.",
    ),
}
"""Where each command is, and what the list of commands says of it: the first paragraph of its own help."""


def load(name: str) -> Any:
    """The command of this name, with its options, from the module that has it."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    found = getattr(importlib.import_module(module), attribute)
    holder = typer.Typer(rich_markup_mode="rich", add_completion=False)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name)(found)
    return get_group(holder).commands[name]


class _LoadedWhenCalled(TyperGroup):
    """Lists commands without loading them: Pulumi, Kubernetes' classes and the models take a second together."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(name) if name in COMMANDS else command, rest


app = typer.Typer(
    cls=_LoadedWhenCalled,
    name="slurmstack",
    help="Slurm on Kubernetes as one typed Pulumi program.\n\n"
    "Every command works on a stack file: Pulumi.dev.yaml, or the one named with --config.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415  only this needs it

        typer.echo(version("slurmstack"))
        raise typer.Exit


_VERSION = typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")


@app.callback()
def _options(*, version: Annotated[bool, _VERSION] = False) -> None:
    del version  # it was printed before anything else


for _name, (_, _help) in COMMANDS.items():
    app.command(_name, help=_help)(lambda: None)


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
                f"  [bold]{_shown(problem.where)}[/]: {_shown(problem.message)}", soft_wrap=True
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
        if message := str(error.format_message()):  # none where the list of commands is the answer
            _complain(message, "--help shows what the command takes")
        sys.exit(USAGE)
    if code == INTERRUPTED:  # Typer's own answer to Ctrl-C
        _complain_interrupted()
    sys.exit(code if isinstance(code, int) else 0)


def _complain_interrupted() -> None:
    _complain("interrupted", "what was done so far stays as it is; run the same command again to continue")


def _complain(message: str, hint: str) -> None:
    console = Console(stderr=True, highlight=False, emoji=False)
    with suppress(OSError, SystemExit):  # nobody reads it any more (Rich exits then): the exit status still says what
        console.print(f"[red bold]error:[/] {_shown(message)}", soft_wrap=True)
        if hint:
            console.print(f"[dim]{_shown(hint)}[/]", soft_wrap=True)


def _shown(text: str) -> str:
    """The text as Rich prints it as it is, line by line. What others wrote in it must not move the cursor."""
    return escape("\n".join(map(printable, text.split("\n"))))

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
    "validate": "cli.commands.stack:validate",
    "import": "cli.commands.importing:import_cluster",
    "render": "cli.commands.stack:render",
    "preview": "cli.commands.cluster:preview",
    "up": "cli.commands.cluster:up",
    "destroy": "cli.commands.destroy:destroy",
    "status": "cli.commands.status:status",
    "login": "cli.commands.access:login",
    "usage": "cli.commands.usage:usage",
    "efficiency": "cli.commands.usage:efficiency",
    "kube-token": "cli.commands.kube_token:kube_token",
    "health": "cli.commands.health:app",
    "logs": "cli.commands.logs:logs",
    "support-bundle": "cli.commands.bundle:support_bundle",
    "local": "cli.commands.local:app",
    "doctor": "cli.commands.doctor:app",
    "jail": "cli.commands.jail:app",
    "backup": "cli.commands.backup:app",
    "restore": "cli.commands.backup:restore",
    "rotate": "cli.commands.rotate:rotate",
    "images": "cli.commands.images:app",
}
"""Where each command is."""


def load(name: str) -> Any:
    """The command of this name, with its options, from the module that has it."""
    module, _, attribute = COMMANDS[name].partition(":")
    found = getattr(importlib.import_module(module), attribute)
    holder = typer.Typer(rich_markup_mode="rich", add_completion=False)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name)(found)
    return get_group(holder).commands[name]


class _LoadedWhenCalled(TyperGroup):
    """Loads only the command that is called: Pulumi, Kubernetes' classes and the models take a second together."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = dict.fromkeys(COMMANDS, self)  # their names: of these the nearest one is proposed

    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        return [*COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        del ctx
        return load(cmd_name) if cmd_name in COMMANDS else None


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

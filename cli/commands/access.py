"""Commands that lead into a cluster: login, kubeconfig."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.access.login import open_session
from cli.access.reach import kubeconfig_of, reach, write_private
from cli.commands.options import ConfigOption, argument, option
from cli.stack import open_stack


def login(
    user: Annotated[str | None, argument(help="Default: the first user of the stack file.")] = None,
    command: Annotated[list[str] | None, argument(help="Command to run instead of a shell.")] = None,
    config: ConfigOption = None,
    *,
    key: Annotated[str | None, option("--key", "-i", help="Private SSH key file.")] = None,
) -> None:
    """Open an SSH session on a login node, in the jail. The host key is checked against the cluster's own."""
    stack = open_stack(config)
    raise typer.Exit(open_session(reach(stack), stack.config, user=user, key=key, command=command or []))


def kubeconfig(
    config: ConfigOption = None,
    output: Annotated[
        Path | None, option("--output", "-o", metavar="FILE", help="Write it there, for you only.")
    ] = None,
) -> None:
    """Print a kubeconfig for the stack's cluster, for kubectl and other tools."""
    text = kubeconfig_of(open_stack(config))
    if output is None:
        typer.echo(text, nl=not text.endswith("\n"))
    else:
        write_private(output, text)

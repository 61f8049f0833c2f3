"""The command `login`."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.access.login import open_session
from cli.access.reach import reach
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

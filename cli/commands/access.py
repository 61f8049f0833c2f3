"""Commands that lead into a cluster: login, dashboard, kubeconfig."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from cli.access.dashboard import open_dashboard, write_dashboards
from cli.access.login import open_session
from cli.access.reach import kubeconfig_of, reach, write_private
from cli.commands.options import ConfigOption
from cli.stack import open_stack


def login(
    user: Annotated[
        str | None, typer.Argument(help="Default: the first user of the stack file.", show_default=False)
    ] = None,
    command: Annotated[
        list[str] | None, typer.Argument(help="Command to run instead of a shell.", show_default=False)
    ] = None,
    config: ConfigOption = None,
    *,
    key: Annotated[str | None, typer.Option("--key", "-i", help="Private SSH key file.", show_default=False)] = None,
) -> None:
    """Open an SSH session on a login node, in the jail. The host key is checked against the cluster's own."""
    stack = open_stack(config)
    raise typer.Exit(open_session(reach(stack), stack.config, user=user, key=key, command=command or []))


def dashboard(
    config: ConfigOption = None,
    *,
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65535, help="Port of this machine; 0: any that is free.")
    ] = 8443,
    grafana: Annotated[
        Path | None,
        typer.Option(
            "--grafana", metavar="DIR", show_default=False,
            help="Write the dashboards for a Grafana there instead, as files to import; needs no cluster.",
        ),
    ] = None,
) -> None:  # fmt: skip
    """Lead a port of this machine to the page with nodes, queue and jobs, until Ctrl-C; says how to log in."""
    stack = open_stack(config)
    if grafana is not None:
        write_dashboards(stack.config, grafana)
        return
    with suppress(KeyboardInterrupt):  # it is how one ends it
        open_dashboard(reach(stack), stack.config, port=port, until=threading.Event())


def kubeconfig(
    config: ConfigOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write it there, for you only.", show_default=False),
    ] = None,
) -> None:
    """Print a kubeconfig for the stack's cluster, for kubectl and other tools."""
    text = kubeconfig_of(open_stack(config))
    if output is None:
        typer.echo(text, nl=not text.endswith("\n"))
    else:
        write_private(output, text)

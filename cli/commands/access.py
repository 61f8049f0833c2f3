"""Commands that look at a cluster or lead into it: status, login, dashboard, kubeconfig."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from cli.access.dashboard import open_dashboard, write_dashboards
from cli.access.login import open_session
from cli.access.reach import kubeconfig_of, reach, write_private
from cli.commands.options import ConfigOption, JsonOption
from cli.errors import FAILED
from cli.stack import open_stack
from cli.status.present import Screen, print_status
from cli.status.read import read_status
from cli.status.watch import EVERY, watch


class _EveryByDefault(TyperCommand):
    """A command whose --watch may stand without a number."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the number in where there is none."""
        whole = []
        for number, word in enumerate(args):
            whole.append(word)
            following = args[number + 1] if number + 1 < len(args) else ""
            if word == "--watch" and not following.replace(".", "", 1).isdecimal():
                whole.append(f"{EVERY:g}")
        return super().parse_args(ctx, whole)


def status(
    config: ConfigOption = None,
    *,
    every: Annotated[
        float | None,
        typer.Option(
            "--watch", min=0.5, metavar="[SECONDS]", show_default=False,
            help=f"Show it again and again, every {EVERY:g} s if no number follows; Ctrl-C ends.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Show on one screen what runs: pods, pools, the queue, the jail, accounting, versions and addresses.

    What cannot be read, because it does not answer or these credentials have no right to it, is said, and the rest is
    shown all the same. ALLOCATED are nodes with jobs; DRAINED take no new ones, and are listed with the reason.

    --json has the keys namespace, healthy, pods, workers, pools, nodes, queue (running, pending, other, reasons,
    longest_wait in s), slurmctld (why it does not answer; empty if it does), slurmdbd_answers, configuration, jail
    (seen_by, mounted, size and free in bytes, version), versions (slurm, images, slurmstack), last_apply (time,
    engine), login_address, rest_address and unread (part: why). Keys are only ever added. What is not known is null.
    With --watch each round is a line.

    Exit status: 0 if all is whole, else 1; with --watch 0.

    Examples:
      slurmstack status

      slurmstack status --watch 2

      slurmstack status --json | jq .queue.reasons
    """
    stack = open_stack(config)
    kubectl = reach(stack)
    if every is None:
        found = read_status(kubectl, stack.config)
        if as_json:
            typer.echo(json.dumps(asdict(found), indent=1))
        else:
            print_status(found)
        if not found.healthy:
            raise typer.Exit(FAILED)
        return

    def show() -> None:
        found = read_status(kubectl, stack.config)
        if as_json:
            typer.echo(json.dumps(asdict(found)))
        else:
            typer.echo(datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
            print_status(found)
            typer.echo()

    watch(lambda: Screen(read_status(kubectl, stack.config)), show, every=every, redraw=not as_json)


status.command_class = _EveryByDefault  # type: ignore[attr-defined]


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

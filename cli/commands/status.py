"""`slurmstack status`, apart from the commands that lead into a cluster: it loads only what it needs."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from cli.access.reach import reach
from cli.commands.options import ConfigOption, JsonOption, option
from cli.errors import FAILED
from cli.kubectl.client import connect
from cli.stack import Stack, open_stack
from cli.status.present import EVERY, print_status, screen, watch
from cli.status.read import KINDS, Status, read_status
from config.sections.cloud import NebiusCloud


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
        option(
            "--watch",
            min=0.5,
            metavar="[SECONDS]",
            help=f"Show it again and again, every {EVERY:g} s if no number follows; Ctrl-C ends.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show on one screen what runs: pods, pools, the queue, the jail, accounting, versions and addresses.

    What cannot be read, because it does not answer or these credentials have no right to it, is said, and the rest is
    shown all the same. ALLOCATED are nodes with jobs; DRAINED take no new ones, and are listed with the reason.

    --json has the keys namespace, healthy, pods, workers, pools, nodes, queue (running, pending, other, reasons,
    longest_wait in s), slurmctld (why it does not answer; empty if it does), slurmdbd_answers, configuration, jail
    (seen_by, mounted, size and free in bytes, version), versions (slurm, images, slurmstack), last_apply (time,
    engine), kept (what `destroy` has left), login_address, rest_address and unread (part: why). Keys are only ever
    added. What is not known is null. With --watch each round is a line.

    Exit status: 0 if all is whole, else 1; with --watch 0.

    Examples:
      slurmstack status

      slurmstack status --watch 2

      slurmstack status --json | jq .queue.reasons
    """
    stack = open_stack(config)
    if every is None:
        found = _read_once(stack)
        if as_json:
            typer.echo(json.dumps(asdict(found), indent=1))
        else:
            print_status(found)
        if not found.healthy:
            raise typer.Exit(FAILED)
        return
    kubectl = reach(stack)

    def show() -> None:
        found = read_status(kubectl, stack.config)
        if as_json:
            typer.echo(json.dumps(asdict(found)))
        else:
            typer.echo(datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
            print_status(found)
            typer.echo()

    watch(lambda: screen(read_status(kubectl, stack.config)), show, every=every, redraw=not as_json)


def _read_once(stack: Stack) -> Status:
    """A tenth of a second earlier: whether there is a cluster is asked only where it has told nothing."""
    cloud = stack.config.cloud
    first = reach(stack) if isinstance(cloud, NebiusCloud) else connect(cloud, ask=False)
    found = read_status(first, stack.config)
    if not found.pods and found.unread.keys() >= set(KINDS):
        reach(stack)
    return found


status.command_class = _EveryByDefault  # type: ignore[attr-defined]

"""`slurmstack status`, apart from the commands that lead into a cluster: it loads only what it needs."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from cli.access.reach import reach
from cli.commands.options import ConfigOption, JsonOption
from cli.errors import FAILED
from cli.kubectl.client import connect
from cli.stack import open_stack
from cli.status.present import print_status
from cli.status.questions import STATUS
from cli.status.read import read_status
from config.sections.cloud import NebiusCloud


def status(config: ConfigOption = None, *, as_json: JsonOption = False) -> None:
    """Show on one screen what runs: pods, pools, the queue, the jail, accounting, versions and addresses.

    What cannot be read, because it does not answer or these credentials have no right to it, is said, and the rest is
    shown all the same. ALLOCATED are nodes with jobs; DRAINED take no new ones, and are listed with the reason.

    --json has the keys namespace, healthy, pods, workers, pools, rolls, nodes, queue (running, pending, other,
    reasons), slurmctld (why it does not answer; empty if it does), slurmdbd_answers, configuration, jail (seen_by,
    mounted, size and free in bytes, version), versions (slurm, images, slurmstack), kept (what `destroy` has left),
    login_address, rest_address and unread (part: why). What is not known is null.

    Exit status: 0 if all is whole, else 1.

    Examples:
      slurmstack status

      watch -n 5 slurmstack status

      slurmstack status --json | jq .queue.reasons
    """
    stack = open_stack(config)
    cloud, standby = stack.config.cloud, stack.config.controller.standby
    # A tenth of a second earlier: whether there is a cluster is asked only where it has told nothing.
    kubectl = reach(stack) if isinstance(cloud, NebiusCloud) else connect(cloud, ask=False, standby=standby)
    found = read_status(kubectl, stack.config)
    if not found.pods and found.unread.keys() >= STATUS.parts:
        reach(stack)
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=1))
    else:
        print_status(found)
    if not found.healthy:
        raise typer.Exit(FAILED)

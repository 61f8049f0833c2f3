"""The commands `health`, `health run` and `health test`: what checks and tests say about the nodes."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cli.access.reach import reach
from cli.commands.options import ConfigOption, JsonOption, failing_with
from cli.errors import FAILED, USAGE, Failure
from cli.health.present import as_data, print_table
from cli.health.query import NOT_CHECKED, measure, read_nodes, run_check
from cli.stack import open_stack
from cli.text import printable

_OFF = (
    "health checks are off in this stack (health.enabled: false): reports get old, and nodes that were drained for a "
    "check stay so until somebody resumes them"
)

app = typer.Typer(invoke_without_command=True)


@app.callback()
def health(
    context: typer.Context,
    config: ConfigOption = None,
    *,
    failing: Annotated[
        bool, typer.Option("--failing", help="Leave out nodes that are well, or asleep; they are still counted.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show which nodes are well, and run their checks by hand.

    At intervals, 30 s by default, a node looks at itself: disks, file systems, name service, munge, GPUs, InfiniBand. A
    node whose checks fail is drained, and resumed when the same check passes again. A drain that an administrator has
    set is left alone.

    CHECKED tells the age of a node's report, which is written when it changes and every half an hour, or every 5
    minutes while something is not well. One that is older than 67 minutes, or 11, is old: nobody knows then. DRAINED
    FOR is the check that keeps jobs away, or the reason that somebody gave. RESULT has what is not well, in the order
    fail, not checked, warn, with whose fault it is: a user's job, the node's software, or the hardware.

    A node is well if all its checks passed or warned. It fails if a check fails or keeps it drained. It is unknown if
    there is no report or an old one, if a check could not tell, or if slurmd does not answer. A node that Slurm has
    powered down is asleep.

    Exit status: 0 if no node fails or is unknown, or if the stack file has turned the checks off, else 1.

    Examples:
      slurmstack health

      slurmstack health --failing

      slurmstack health --json | jq -r '.nodes[] | select(.health == "failing") | .name'

      slurmstack health run disks --node gpu-0

      slurmstack health test gpu-0
    """
    if context.invoked_subcommand is not None:
        if config is not None or as_json or failing:
            raise Failure("options of `health` come after the name of its command", code=USAGE)
        return
    stack = open_stack(config)
    namespace = stack.config.cluster.namespace
    found = read_nodes(reach(stack), namespace)
    if as_json:
        typer.echo(json.dumps(as_data(found, namespace=namespace, failing=failing), indent=1))
    else:
        print_table(found, failing=failing)
    if not stack.config.health.enabled:
        typer.echo(_OFF, err=as_json)
    elif found.bad:
        raise typer.Exit(FAILED)


@app.command()
def run(
    check: Annotated[str, typer.Argument(metavar="CHECK", help="Its name: disks, dns, munge, gpu-xid, ...")],
    config: ConfigOption = None,
    *,
    node: Annotated[str, typer.Option("--node", metavar="NODE", help="Where to run it.")],
    as_json: JsonOption = False,
) -> None:
    """Run one check on a node now, and print what it finds, with its figures.

    It changes nothing, drains nothing and lifts no drain: the watcher alone does that, by what the nodes report of
    the checks that they run themselves.

    Exit status: 0 well or a warning, 1 the check fails, 2 wrong usage, an unknown check or node, 3 not checked; that
    is also the answer if the node cannot be asked.

    Examples:
      slurmstack health run disks --node gpu-0

      slurmstack health run gpu-xid --node gpu-0 --json
    """
    with failing_with(NOT_CHECKED):  # a script may drain a node for a check that fails
        stack = open_stack(config)
        printed, code = run_check(reach(stack), stack.config.cluster.namespace, node, check, as_json=as_json)
    for line in printed.splitlines():
        typer.echo(printable(line))
    raise typer.Exit(code)


@app.command("test")
def measure_node(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Which.")], config: ConfigOption = None
) -> None:
    """Run the tests of nodes on one node now.

    The node takes no new jobs from now on. When those that run there have ended the tests begin, each of which runs
    twice if it finds the node slow. Then the node is drained for that, or takes jobs again. Who stops this command
    changes nothing of it. It also brings a node back that was drained for a test; one that is drained for anything else
    is left alone.

    Exit status: 0 it takes jobs, 1 it is drained, 2 it cannot be measured.

    Examples:
      slurmstack health test gpu-0
    """
    stack = open_stack(config)
    if not (stack.config.health.enabled and stack.config.health.tests.enabled):
        raise Failure(
            "tests of nodes are off in this stack", hint="health.tests.enabled: true turns them on", code=USAGE
        )
    raise typer.Exit(measure(reach(stack), stack.config.cluster.namespace, node))

"""The commands `health` and `health test`: what checks and tests say about the nodes."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from cli.access.reach import reach
from cli.commands.options import ConfigOption, JsonOption
from cli.errors import FAILED, USAGE, Failure
from cli.health.nodes import Node, read_nodes
from cli.kubectl.client import refuse_no_namespace
from cli.stack import open_stack
from cli.text import ago, open_console, plain
from images.common.health.report import stamp
from slurm.health import TESTER, WATCH

_OFF = (
    "health checks are off in this stack (health.enabled: false): reports get old, and nodes that were drained for a "
    "check stay so until somebody resumes them"
)

SHORT = 24
"""Characters of an administrator's reason in the table."""

_STYLES = {"ok": "green", "warn": "yellow", "fail": "red", "not checked": "magenta"}
_BASES = ("IDLE", "MIXED", "ALLOCATED", "DOWN", "ERROR", "FUTURE", "UNKNOWN")
_SILENT = {"DYNAMIC_NORM", "NOT_RESPONDING"}
"""Flags that are not shown by name: the nodes of a pool are all dynamic, and the other is the asterisk."""

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
    """Show which nodes are well.

    At intervals, 30 s by default, a node looks at itself: disks, file systems, name service, munge, GPUs, InfiniBand. A
    node whose checks fail is drained, and resumed when the same check passes again, two minutes later at the earliest.
    A drain that an administrator has set is left alone.

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

      slurmstack health test gpu-0
    """
    if context.invoked_subcommand is not None:
        if config is not None or as_json or failing:
            raise Failure("options of `health` come after the name of its command", code=USAGE)
        return
    stack = open_stack(config)
    namespace = stack.config.cluster.namespace
    now, nodes = read_nodes(reach(stack), namespace)
    kinds = Counter(node.verdict for node in nodes)
    counts = {kind: kinds[kind] for kind in ("well", "failing", "unknown", "asleep")}
    bad = [node for node in nodes if node.verdict in {"failing", "unknown"}]
    shown = bad if failing else nodes
    if as_json:
        data = {"namespace": namespace, "at": stamp(now), "nodes": [node.data for node in shown], "counts": counts}
        typer.echo(json.dumps(data, indent=1))
    else:
        print_table(shown, counts)
    if not stack.config.health.enabled:
        typer.echo(_OFF, err=as_json)
    elif bad:
        raise typer.Exit(FAILED)


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
    kubectl, namespace = reach(stack), stack.config.cluster.namespace
    refuse_no_namespace(kubectl, namespace)
    where = ("exec", "-n", namespace, f"deployment/{WATCH}", "-c", TESTER, "--")
    command = [*kubectl.command(), *where, f"/usr/libexec/slurmstack/{TESTER}", "--node", node]
    # What is found is printed as it comes.
    done = subprocess.run(command, check=False)
    raise typer.Exit(done.returncode)


def print_table(shown: Sequence[Node], counts: Mapping[str, int]) -> None:
    """A table for people, and how many nodes there are of each kind."""
    console = open_console()
    if shown:
        table = Table(box=None, pad_edge=False)
        for name in ("NODE", "STATE", "CHECKED", "DRAINED FOR"):
            table.add_column(name, no_wrap=True)
        table.add_column("RESULT", overflow="fold")
        for node in shown:
            first, *more = _lines(node)
            table.add_row(node.name, _state(node), _checked(node), _drained_for(node), first)
            for line in more:
                table.add_row("", "", "", "", line)
        console.print(table)
    total = sum(counts.values())
    asleep = f", {counts['asleep']} asleep" if counts["asleep"] else ""
    kinds = f"{counts['well']} well, {counts['failing']} failing, {counts['unknown']} unknown{asleep}"
    console.print(f"{total} node{'' if total == 1 else 's'}: {kinds}", soft_wrap=True)


def _state(node: Node) -> Text:
    """As Slurm's commands write it: `MIXED+DRAIN`, and `DOWN*` for a node that does not answer."""
    base = next((state for state in _BASES if state in node.record.states), "")
    flags = sorted(node.record.states - {base} - _SILENT)
    words = [base + ("" if node.answers else "*"), *flags]
    return Text(
        "+".join(word for word in words if word), style="red" if node.record.is_closed or not node.answers else ""
    )


def _checked(node: Node) -> Text:
    if node.fresh and node.age is not None:
        return Text(f"{ago(node.age)} ago")
    if node.age is not None and node.age < 0:
        return Text(f"its clock: {ago(-node.age)} ahead", style="magenta")
    return Text("never" if node.age is None else f"{ago(node.age)} ago: old", style="magenta")


def _drained_for(node: Node) -> Text:
    """The check, else the beginning of whatever reason somebody gave."""
    if node.drained_for is not None:
        return Text(plain(node.drained_for), style="red")
    reason = plain(node.record.reason) if node.record.is_closed else ""
    return Text(reason if len(reason) <= SHORT else f"{reason[: SHORT - 3].rstrip()}...")


def _lines(node: Node) -> Iterator[Text]:
    """What the checks found, worst first: at least one line."""
    fails = {found.check for found in node.found if found.status == "fail"}
    if node.drained_for is not None and node.drained_for not in fails:
        # What the watcher itself has found is in no report, and a drain may wait to be lifted.
        yield Text(f"drained for {plain(node.record.reason).removeprefix('health/')}", style="red")
    if not node.answers:
        yield Text("not checked: slurmd does not answer", style=_STYLES["not checked"])
    if node.age is None:
        if node.verdict == "unknown" and node.answers:
            yield Text("not checked: no report", style=_STYLES["not checked"])
        elif node.verdict == "asleep":
            yield Text("asleep")
        return
    was = "" if node.fresh else "was "
    if not node.findings:
        count = len(node.found)
        checks = f"{count} check{'' if count == 1 else 's'}" if count else "no checks"
        style = _STYLES["ok"] if node.fresh else "dim"
        yield Text(f"{was}ok ({checks})" if count else f"{was}not checked: {checks}", style=style)
    for found in node.findings:
        yield Text(was + plain(found.line), style=_STYLES[found.status] if node.fresh else "dim")

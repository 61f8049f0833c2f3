"""The commands `jail list`, `jail diff` and `jail remove`."""

from __future__ import annotations

import json
import re
import sys
from typing import Annotated, Any

import typer

from cli.access.reach import reach, whereabouts
from cli.backup.restore import refuse_restoring
from cli.change.lock import held
from cli.change.owner import require_own
from cli.commands.options import ConfigOption, JsonOption, argument, refuse_unless_agreed
from cli.errors import USAGE, Failure, Refused
from cli.jail import roots
from cli.jail.roots import FIRST
from cli.kubectl.client import Kubectl
from cli.kubectl.jobs import answer_in
from cli.stack import Stack, open_stack
from config.sections.storage import ROOT_NAME
from local.report import PlainReport

app = typer.Typer()

RootArgument = Annotated[str | None, typer.Argument(metavar="[ROOT]", show_default="that of the stack file")]


@app.callback()
def jail() -> None:
    """Roots in the jail's volume: list them, see what users have changed in one, remove one.

    A new one is made, and gone back from, with jail.root in the stack file: docs/jail.md.

    Examples:
      slurmstack jail list

      slurmstack jail diff

      slurmstack jail remove slurm-24.11
    """


def _opened(config: Any) -> tuple[Stack, Kubectl, str, PlainReport]:
    stack = open_stack(config)
    return stack, reach(stack), stack.config.cluster.namespace, PlainReport(sys.stderr)


def _named(name: str) -> str:
    """An empty name for the first root. Raises Failure."""
    if name == FIRST:
        return ""
    if not re.fullmatch(ROOT_NAME, name):
        raise Failure(f"{name!r} is no name of a root; `slurmstack jail list` shows them", code=USAGE)
    return name


@app.command("list")
def list_(config: ConfigOption = None, *, as_json: JsonOption = False) -> None:
    """List all roots: version of the image, time of filling, size without homes, and how many pods lead into it.

    `first` is the volume itself, the root of stacks without jail.root. One that is not whole is being filled, or its
    filling was interrupted.
    """
    stack, kubectl, namespace, report = _opened(config)
    written = roots.ask(kubectl, namespace, roots.filling_job(kubectl, namespace), report, "list", SIZES="yes")
    found, used = answer_in(written), roots.users_of_roots(kubectl, namespace)
    for item in found:
        item["pods"] = dict(used.get(item["name"], {}))
        item["of_the_stack_file"] = item["name"] == (stack.config.jail.root or "")
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    for item in found:
        pods = ", ".join(f"{count} {component}" for component, count in sorted(item["pods"].items())) or "no pods"
        mark = "*" if item["of_the_stack_file"] else " "
        size = "size unknown" if item["more"] else f"{item['bytes'] / 2**30:.1f} GiB"
        state = f"{item['version']}  {item['filled']}" if item["whole"] else "NOT WHOLE"
        lost = f"  {item['left_out']} files were not carried" if item["left_out"] else ""
        if item.get("ended_early"):  # which older images do not say
            lost += f"  carrying ended early, at {item['ended_early']}"
        typer.echo(f"{mark} {item['name'] or FIRST:<20} {state}  {size}  {pods}{lost}")


@app.command()
def diff(root: RootArgument = None, config: ConfigOption = None, *, as_json: JsonOption = False) -> None:
    """Show what has changed in a root since it was filled: + added, ~ changed, - removed.

    Accounts, caches, logs, homes and what pods have of their own are not compared. A file counts as changed where its
    size, time, owner, mode or link is another one; contents are not read.
    """
    stack, kubectl, namespace, report = _opened(config)
    name = _named(root) if root is not None else stack.config.jail.root or ""
    written = roots.ask(kubectl, namespace, roots.filling_job(kubectl, namespace), report, "diff", ROOT=name)
    found = answer_in(written)
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    for path, count in sorted(found["added"].items()):
        typer.echo(f"+ {path}{f'/ ({count} in all)' if count > 1 else ''}")
    for mark, kind in (("~", "changed"), ("-", "removed")):
        for path in sorted(found[kind]):
            typer.echo(f"{mark} {path}")
    counts = found["counts"]
    typer.echo(f"{counts['added']} added, {counts['changed']} changed, {counts['removed']} removed", err=True)
    if found["incomplete"]:
        typer.echo(f"not all was looked at: {found['incomplete']}", err=True)


@app.command()
def remove(
    root: Annotated[str, argument(metavar="ROOT")],
    config: ConfigOption = None,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove it without asking.")] = False,
) -> None:
    """Remove a root for good, with all software in it. Homes stay, and numbers of users are not given again.

    Refused while the stack file names it or a pod leads into it. If it is interrupted, the same command goes on.
    """
    if root == FIRST:
        raise Refused("the first root is the volume itself, with all homes; it cannot be removed")
    stack, kubectl, namespace, report = _opened(config)
    name = _named(root)
    require_own(stack, kubectl)
    refuse_restoring(kubectl, namespace)
    roots.refuse_used(kubectl, stack.config, namespace, name)
    question = f"the root {name!r} of {whereabouts(stack, kubectl)} will be removed with all that was installed in it"
    if not yes:
        refuse_unless_agreed(question)
    with held(kubectl, namespace, "jail remove", report):
        refuse_restoring(kubectl, namespace)  # which may have been waited for
        roots.refuse_used(kubectl, stack.config, namespace, name)  # others may have been waited for
        roots.ask(kubectl, namespace, roots.filling_job(kubectl, namespace), report, "remove", ROOT=name)
    typer.echo(f"the root {name!r} is removed")

"""The command `rotate`: another key, without losing a job."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cli.access.reach import reach, whereabouts
from cli.backup.restore import refuse_restoring
from cli.change.lock import held
from cli.change.owner import refuse_other_stack, refuse_takeover
from cli.commands.options import ConfigOption
from cli.errors import USAGE, Failure, Refused
from cli.kubectl.client import OWNERS
from cli.rotate.keys import KEYS
from cli.rotate.rotation import Rotation
from cli.stack import open_stack
from config.cluster import ClusterConfig
from local.report import Report, open_report


def rotate(
    key: Annotated[str, typer.Argument(metavar="KEY", help=f"One of {', '.join(KEYS)}.")],
    config: ConfigOption = None,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Give the running cluster another key. Running and waiting jobs stay.

    munge: all daemons trust each other by it. For some seconds (5 on two machines) pods do not understand each other:
    commands of Slurm wait or fail meanwhile, in jobs too. jwt: it signs tokens; all that were given out end at once.
    host-keys, worker-host-key: login nodes, or workers, show another one, which is printed; sessions stay.
    database-password: of slurmdbd in the cluster's own database; accounting pauses for some seconds and loses nothing.

    Cut short anywhere, the same command goes on; `up` refuses until then. The key is made here and is in no argument,
    log or annotation. Afterwards the backup of the Secret slurmstack-generated is outdated (docs/rotate-keys.md).

    Where Pulumi's engine applies it is refused: the key is in Pulumi's state.

    Examples:
      slurmstack rotate munge
    """
    if key not in KEYS:
        raise Failure(f"{key!r} is none of {', '.join(KEYS)}", code=USAGE)
    stack = open_stack(config)
    kubectl, namespace = reach(stack), stack.config.cluster.namespace
    present = next(iter(kubectl.items("namespace", namespace, OWNERS)), None)
    refuse_takeover(present, hint='docs/rotate-keys.md, "With Pulumi, or render", says how')
    refuse_other_stack(kubectl, present, stack.name)
    rotation = Rotation(kubectl, namespace, KEYS[key])
    refuse(stack.config, rotation)
    refuse_restoring(kubectl, namespace)
    if not yes:
        question = f"{key} of {whereabouts(stack, kubectl)}: {KEYS[key].means}"
        if not sys.stdin.isatty():
            raise Refused(question, hint="--yes does it")
        typer.echo(question)
        if not typer.confirm("Go on?"):
            return
    report = open_report()
    with held(kubectl, namespace, "rotate", report):
        refuse_restoring(kubectl, namespace)  # which may have been waited for
        result = carry_out(stack.config, rotation, report)
    typer.echo(f"{key} is rotated; {result}")


def refuse(config: ClusterConfig, rotation: Rotation) -> bool:
    """Raise Failure where there is nothing to rotate. Returns whether an earlier rotation was not finished."""
    if rotation.key.name == "database-password" and config.accounting.own_database is None:
        raise Failure(
            "the cluster has no database of its own",
            hint="an external one is yours: give its user another password, write it into the Secret that "
            "accounting.database.external.password names, and `kubectl delete pod slurmdbd-0`",
            code=USAGE,
        )
    return rotation.read()[1]


def carry_out(config: ClusterConfig, rotation: Rotation, report: Report) -> str:
    """Rotate, or go on with a rotation that was cut short. Returns what was done, for people.

    Raises Failure, with nothing touched, where a pod that needs the key does not answer.
    """
    goes_on = refuse(config, rotation)
    rotation.refuse_missing((goes_on and rotation.key.goes_on_with) or rotation.key.containers)
    if rotation.begin():
        report.info("an earlier rotation was not finished: going on with its key")
    with report.step("Waiting until all pods have the new file") as step:
        rotation.spread(step)
    result = rotation.key.carry_out(rotation, report)
    rotation.finish()
    return result
